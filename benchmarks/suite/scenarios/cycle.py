"""Messages put in and taken out by the same clients: a queue is kept busy for as long as one likes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.queue.contenders import Contender, Step
from benchmarks.suite.contestants.base import Load, SqlContestant


@dataclass(frozen=True)
class Cycle(Contender):
    """Put a batch in, take until as many are out."""

    producer: Contender
    consumer: Contender

    def connect(self) -> Any:
        """Both on one connection."""
        return self.consumer.connect()

    def backend(self, connection: Any) -> int | None:
        """The consumer knows."""
        return self.consumer.backend(connection)

    def session(self, connection: Any) -> Step:
        """Others' messages are as good as one's own."""
        put, take = self.producer.session(connection), self.consumer.session(connection)

        def step() -> int:
            due = put()
            taken = 0
            while taken < due:
                moved = take()
                if moved == 0:
                    break
                taken += max(moved, 0)
            return taken or -1

        return step


def standing(payload: int, batch: int) -> Load:
    """What is in the queue before, and stays: plans made on empty tables, and kept, read them whole."""
    return Load(max(20, 4_000_000 // payload), payload, batch=batch)


def cycle(contestant: SqlContestant, url: str, payload: int, records: int, batch: int) -> Contender:
    """Its bulk enqueue and its drain."""
    return Cycle(contestant.name, url, contestant.bulk(url, payload, records), contestant.drain(url, batch))
