"""What a worker has done, topic by topic, for those who watch it: counts, and how long things took.

Only kept while somebody asks (``worker.measure()``). Every thread has figures of its own, and writes to no
others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pysqlbox.calls import Histogram

__all__ = ["HANDLING_BOUNDS", "WAITING_BOUNDS", "BoxKey", "Figures", "TopicFigures"]

#: A box by its store's key, None for a plain deployment's, and its name.
BoxKey = tuple[str | None, str]
#: Up to how many seconds a handler took.
HANDLING_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
#: Up to how many seconds a message waited, from its due time on, until it was claimed.
WAITING_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 86400)


class TopicFigures:
    """One topic of one box."""

    __slots__ = ("acked", "claimed", "dead", "handling", "released", "retried", "waiting")

    def __init__(self) -> None:
        self.claimed = self.acked = self.retried = self.released = self.dead = 0
        self.handling = Histogram(HANDLING_BOUNDS)
        self.waiting = Histogram(WAITING_BOUNDS)

    def add_all(self, other: TopicFigures) -> None:
        """What another thread has done."""
        self.claimed += other.claimed
        self.acked += other.acked
        self.retried += other.retried
        self.released += other.released
        self.dead += other.dead
        self.handling.add_all(other.handling)
        self.waiting.add_all(other.waiting)


class Figures(dict[tuple[BoxKey, str], TopicFigures]):
    """The figures of one thread, by box and topic."""

    def __missing__(self, key: tuple[BoxKey, str]) -> TopicFigures:
        made = self[key] = TopicFigures()
        return made

    def claimed(self, box: BoxKey, messages: Iterable[Any], lease_seconds: float, came_at: str) -> None:
        """Note what a claim brought. All times are the database's, whose clock the lease's end tells."""
        for message in messages:
            figures = self[box, message.topic]
            figures.claimed += 1
            if message.last_error is not None and not message.attempt:
                continue  # replayed: it was dead, and did not wait
            since = getattr(message, came_at)
            if message.due_at is not None and message.due_at > since:
                since = message.due_at
            waited = (message.locked_until - since).total_seconds() - lease_seconds
            figures.waiting.add(max(waited, 0.0))

    def add_all(self, other: Figures) -> None:
        """What another thread has done; it may go on doing it meanwhile."""
        for key, figures in list(other.items()):
            self[key].add_all(figures)
