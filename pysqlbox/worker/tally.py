"""What was done, counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Tally", "WorkerStats"]


@dataclass(slots=True)
class Tally:
    """What one thread has done so far; nobody else writes to it."""

    acked: int = 0
    retried: int = 0
    released: int = 0
    dead: int = 0

    def add(self, other: Tally) -> None:
        """Count what another has done."""
        self.acked += other.acked
        self.retried += other.retried
        self.released += other.released
        self.dead += other.dead


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """What a worker has done since it was made, and how many threads are at work now."""

    acked: int
    retried: int
    released: int
    dead: int
    busy_threads: int

    @property
    def handled(self) -> int:
        """How many handler results there were, releases aside."""
        return self.acked + self.retried + self.dead

    @classmethod
    def of(cls, tallies: Iterable[Tally], busy_threads: int) -> WorkerStats:
        """The sums of several counts."""
        found = list(tallies)
        return cls(
            acked=sum(tally.acked for tally in found),
            retried=sum(tally.retried for tally in found),
            released=sum(tally.released for tally in found),
            dead=sum(tally.dead for tally in found),
            busy_threads=busy_threads,
        )
