"""How values that are not text become payloads."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Protocol
from uuid import UUID

from pysqlbox.errors import InvalidArgument

__all__ = ["JsonSerializer", "Serializer"]


class Serializer(Protocol):
    """Makes payload text of a value that is not text already; raises what it likes if it cannot."""

    def dumps(self, value: Any) -> str:
        """The payload of a value."""


class JsonSerializer:
    """Compact JSON of plain values, dataclasses, pydantic models and msgspec structs, nested as they like.

    Times are written in ISO 8601, UUID and Decimal as text, enumerations as their value, sets as lists.
    """

    def dumps(self, value: Any) -> str:
        """JSON text; a value that JSON cannot express is an InvalidArgument that does not show it."""
        try:
            return _encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            # Not chained: the original may quote the value.
            known = isinstance(error, _Unsupported)
            reason = str(error) if known else "it holds a value that JSON cannot express"
            raise InvalidArgument(f"payload: must be what the serializer takes, but {reason}") from None


class _Unsupported(TypeError):
    """Says which type stood in the way."""


def _plain(value: Any) -> object:
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, AbstractSet):
        return list(value)
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json", by_alias=True)  # it is read by its aliases
    msgspec: Any = sys.modules.get("msgspec")
    if msgspec is not None and isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    raise _Unsupported(f"values of type {type(value).__name__} are not supported")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode
