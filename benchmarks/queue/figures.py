"""What a run measured: chunks of work, their medians and spread, and ratios against a bar."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Chunk:
    """One contender's turn. CPU seconds are of all its connections: of the backends, and of the clients."""

    messages: int
    seconds: float
    server_cpu: float | None
    client_cpu: float

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    @property
    def server_cpu_micros(self) -> float | None:
        """CPU µs of the backends per message."""
        return None if self.server_cpu is None else self.server_cpu * 1e6 / max(self.messages, 1)

    @property
    def client_cpu_micros(self) -> float:
        """CPU µs of the clients per message."""
        return self.client_cpu * 1e6 / max(self.messages, 1)


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of repeated measurements."""

    median: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """Quartiles, or the extremes where there are fewer than four values."""
        ordered = sorted(values)
        if len(ordered) < 4:
            return Spread(statistics.median(ordered), ordered[0], ordered[-1], len(ordered))
        low, median, high = statistics.quantiles(ordered, n=4, method="inclusive")
        return Spread(median, low, high, len(ordered))


@dataclass(frozen=True)
class Figure:
    """One line of a scenario's table: what was measured, in which unit, and the CPU time beside it."""

    what: str
    unit: str
    value: Spread
    server_cpu_micros: float | None = None
    client_cpu_micros: float | None = None

    @staticmethod
    def rate(what: str, chunks: Sequence[Chunk]) -> Figure:
        """Messages per second over some chunks, with CPU µs per message."""
        return Figure(
            what,
            "messages/s",
            Spread.of([chunk.rate for chunk in chunks]),
            median_or_none([chunk.server_cpu_micros for chunk in chunks]),
            statistics.median([chunk.client_cpu_micros for chunk in chunks]),
        )


@dataclass(frozen=True)
class Verdict:
    """A ratio against its bar; without a bar it only informs. The spread is that of the rounds."""

    what: str
    ratio: Spread
    bar: float | None = None
    sense: Literal[">=", "<="] = ">="
    unit: str = "x"

    @property
    def met(self) -> bool | None:
        """Whether the median keeps to the bar."""
        if self.bar is None:
            return None
        return self.ratio.median >= self.bar if self.sense == ">=" else self.ratio.median <= self.bar


@dataclass
class Outcome:
    """Everything that a scenario has to say."""

    scenario: str
    setting: str
    figures: list[Figure] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


def median_or_none(values: Sequence[float | None]) -> float | None:
    """The median, or None where something could not be measured."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    return statistics.median(known) if known and len(known) == len(values) else None


def ratios(above: Sequence[float | None], below: Sequence[float | None]) -> list[float]:
    """Pairwise ratios of measurements taken in the same rounds."""
    return [a / b for a, b in zip(above, below, strict=True) if a is not None and b]


def compare_rates(
    what: str,
    chunks: Sequence[Chunk],
    against: Sequence[Chunk],
    *,
    bar: float | None = None,
    sense: Literal[">=", "<="] = ">=",
) -> list[Verdict]:
    """Rates round by round; and the backends' CPU time per message, turned so that more is better too."""
    verdicts = [
        Verdict(what, Spread.of(ratios([c.rate for c in chunks], [c.rate for c in against])), bar, sense)
    ]
    cpu = ratios([c.server_cpu_micros for c in against], [c.server_cpu_micros for c in chunks])
    if cpu:
        verdicts.append(Verdict(f"{what}, by backend CPU alone", Spread.of(cpu)))
    return verdicts
