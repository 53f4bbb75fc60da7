"""What a box's counts were in the last minutes, and the rates that follow from them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

from pysqlbox.messages import TopicStats

__all__ = ["MINUTES", "Samples"]

MINUTES = 10
_BARS = 60


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    done: int
    known: int


class Samples:
    """The counts of one box, kept for ``MINUTES``.

    Rates are of what was added while nothing was cleaned up: stretches in which the counts fell are left out.
    """

    def __init__(self) -> None:
        self._kept: deque[_Sample] = deque()

    def add(self, at: float, total: TopicStats) -> None:
        """Note the counts of a moment; times ascend."""
        known = total.ready + total.scheduled + total.in_flight + total.done + total.dead
        self._kept.append(_Sample(at, total.done, known))
        while self._kept[0].at < at - MINUTES * 60 - 30:
            self._kept.popleft()

    def done_rate(self, seconds: float = 30) -> float | None:
        """Messages done a second, of late; None as long as there is nothing to compare with."""
        return self._rate("done", seconds)

    def arrival_rate(self, seconds: float = 30) -> float | None:
        """Messages that came in a second, of late."""
        return self._rate("known", seconds)

    def done_line(self) -> list[float | None]:
        """Messages done a second, in equal stretches of the last minutes, the newest last."""
        if not self._kept:
            return []
        stretch = MINUTES * 60 / _BARS
        newest = self._kept[-1].at
        added = [0.0] * _BARS
        lasted = [0.0] * _BARS
        kept = list(self._kept)
        for before, after in pairwise(kept):
            seconds, more = after.at - before.at, after.done - before.done
            number = _BARS - 1 - int((newest - after.at) / stretch)
            if seconds > 0 and more >= 0 and number >= 0:
                added[number] += more
                lasted[number] += seconds
        return [more / seconds if seconds else None for more, seconds in zip(added, lasted, strict=True)]

    def _rate(self, what: str, seconds: float) -> float | None:
        kept = list(self._kept)
        added = lasted = 0.0
        for before, after in pairwise(kept):
            more = getattr(after, what) - getattr(before, what)
            if after.at > kept[-1].at - seconds and more >= 0:
                added += more
                lasted += after.at - before.at
        return added / lasted if lasted > 0 else None
