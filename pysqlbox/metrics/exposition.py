"""The text that Prometheus reads: families of samples, each with its labels (format 0.0.4)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["CONTENT_TYPE", "Families", "Family", "Labels"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: Names and values in their order; those whose value is None are left out.
Labels = Sequence[tuple[str, str | None]]
Kind = Literal["counter", "gauge", "histogram"]


@dataclass(slots=True)
class Family:
    """One metric with all its samples, which the format wants together."""

    name: str
    kind: Kind
    help: str
    lines: list[str] = field(default_factory=list)

    def add(self, value: float, labels: Labels = ()) -> None:
        """One sample."""
        self.lines.append(f"{self.name}{_labels(labels)} {_number(value)}")

    def add_histogram(
        self, bounds: Sequence[float], counts: Sequence[int], total: float, labels: Labels = ()
    ) -> None:
        """A histogram: how many there were up to each bound, and the last count those above all of them."""
        below = 0
        for bound, count in zip((*bounds, math.inf), counts, strict=True):
            below += count
            self.lines.append(f"{self.name}_bucket{_labels((*labels, ('le', _number(bound))))} {below}")
        self.lines.append(f"{self.name}_sum{_labels(labels)} {_number(total)}")
        self.lines.append(f"{self.name}_count{_labels(labels)} {below}")


class Families:
    """Families by name, in the order in which they were first asked for."""

    def __init__(self) -> None:
        self._all: dict[str, Family] = {}

    def get(self, name: str, kind: Kind, text: str) -> Family:
        """The family of that name, made when it is new."""
        found = self._all.get(name)
        if found is None:
            found = self._all[name] = Family(name, kind, text)
        return found

    def __str__(self) -> str:
        parts: list[str] = []
        for family in self._all.values():
            if family.lines:
                parts.append(f"# HELP {family.name} {_escaped(family.help)}")
                parts.append(f"# TYPE {family.name} {family.kind}")
                parts += family.lines
        return "".join(f"{part}\n" for part in parts)


def _labels(labels: Iterable[tuple[str, str | None]]) -> str:
    given = [f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels if value is not None]
    return f"{{{','.join(given)}}}" if given else ""


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if value == math.inf:
        return "+Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
