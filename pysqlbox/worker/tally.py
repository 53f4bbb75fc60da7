"""What was done, counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pysqlbox.worker.figures import BoxKey, Figures

__all__ = ["Tally", "What", "WorkerStats"]

#: What became of a message.
What = Literal["acked", "retried", "released", "dead"]


@dataclass(slots=True)
class Tally:
    """What one thread has done so far; nobody else writes to it."""

    acked: int = 0
    retried: int = 0
    released: int = 0
    dead: int = 0
    #: Messages whose lease was lost while they were here.
    lost: int = 0
    #: The same by topic, and more; None while nobody asks.
    figures: Figures | None = None

    def count(self, what: What, box: BoxKey, topic: str, number: int = 1) -> None:
        """Count what became of messages of one topic."""
        setattr(self, what, getattr(self, what) + number)
        if self.figures is not None:
            figures = self.figures[box, topic]
            setattr(figures, what, getattr(figures, what) + number)

    def handled(self, box: BoxKey, topic: str, seconds: float) -> None:
        """Note how long a handler took."""
        if self.figures is not None:
            self.figures[box, topic].handling.add(seconds)

    def add(self, other: Tally) -> None:
        """Count what another has done."""
        self.acked += other.acked
        self.retried += other.retried
        self.released += other.released
        self.dead += other.dead
        self.lost += other.lost
        if other.figures is not None:
            if self.figures is None:
                self.figures = Figures()
            self.figures.add_all(other.figures)


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """What a worker has done since it was made, and how many threads are at work now."""

    acked: int
    retried: int
    released: int
    dead: int
    busy_threads: int
    #: Messages whose lease this worker has lost while it had them.
    lost_leases: int = 0

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
            lost_leases=sum(tally.lost for tally in found),
        )
