"""Messages out of rows, many at a time.

A frozen dataclass sets each of its fields through ``object.__setattr__``, which takes longer than everything
else that Python does with a claimed row. So messages are made as instances of an unfrozen twin with the same
slots, and then are told that they are the frozen class; what a handler gets is that class in every respect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, make_dataclass
from typing import Any

__all__ = ["fast_messages"]

_TWINS: dict[type[Any], type[Any]] = {}


def fast_messages(kind: type[Any], rows: Iterable[Sequence[Any]]) -> list[Any]:
    """Instances of a frozen dataclass with slots, one for each row of its fields' values."""
    twin = _TWINS.get(kind) or _make_twin(kind)
    messages = [twin(*row) for row in rows]
    for message in messages:
        message.__class__ = kind
    return messages


def _make_twin(kind: type[Any]) -> type[Any]:
    names = [field.name for field in fields(kind)]
    twin = _TWINS[kind] = make_dataclass(f"_{kind.__name__}", names, slots=True)
    return twin
