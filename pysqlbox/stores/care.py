"""Schedules, reaping and cleaning of many stores: a little of each at a time, in one thread."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterable

from pysqlbox.stores.scheduler import StoresScheduler
from pysqlbox.stores.served import LeaningStore
from pysqlbox.worker.caretaker import BATCH, Caretaker, Chore, first_at
from pysqlbox.worker.database import WorkerConnection
from pysqlbox.worker.timetable import Timetable

__all__ = ["StoreCare"]

#: How many batches of one store before the others get their turn, and after how long it goes on.
BATCHES, GO_ON_SECONDS = 5, 0.25
#: A store without work is cared for so many times more seldom.
SELDOM = 30


class StoreCare(Caretaker):
    """The chores and schedules of one store; the connection is lent for each round."""

    def __init__(
        self,
        scheduler: StoresScheduler,
        store: LeaningStore,
        owner: uuid.UUID,
        chores: list[Chore],
        timetables: list[Timetable],
    ) -> None:
        self._lent: WorkerConnection | None = None
        super().__init__(scheduler, None, owner, chores, timetables, store.log)  # type: ignore[arg-type]  # lent later
        self.store = store
        self._more: set[int] = set()
        self._worked_at: dict[int, float] = {}
        now = time.monotonic()
        for chore in chores:
            chore.next_at = first_at(chore, now)

    @property
    def next_at(self) -> float:
        """When there is something to do."""
        times = [chore.next_at for chore in self._chores]
        times += [timetable.next_at for timetable in self._timetables]
        return min(times, default=float("inf"))

    def step(self, connection: WorkerConnection) -> None:
        """Do what is due."""
        self._connection = connection
        self._look()
        now = time.monotonic()
        for chore in [each for each in self._chores if each.next_at <= now]:
            if id(chore) in self._more:
                self._do(chore)
            elif self._is_worth(chore, now):
                self._try(chore)
            else:
                chore.next_at = now + chore.every_seconds * random.uniform(0.9, 1.1)

    def _is_worth(self, chore: Chore, now: float) -> bool:
        """Whether there was work since it was done last, or that is long ago."""
        done_at = self._worked_at.get(id(chore), 0.0)
        boxes = [box for box in self.store.boxes if chore.by_all or box.name == chore.box]
        worked = max((box.last_work for box in boxes), default=0.0)
        if worked <= done_at and now - done_at < SELDOM * chore.every_seconds:
            return False
        self._worked_at[id(chore)] = now
        return True

    def _do(self, chore: Chore) -> None:
        total = 0
        self._more.discard(id(chore))
        for _ in range(BATCHES):
            rows = self._connection.call(chore.routine, {**chore.arguments, "batch_size": BATCH})
            affected = int(str(rows[0]["affected"]))
            total += affected
            if affected < BATCH or self._scheduler.stopping:
                break
        else:
            self._more.add(id(chore))
            chore.next_at = time.monotonic() + GO_ON_SECONDS
        if total:
            self._log.info("%s: %s, %d messages", chore.box, chore.name, total)


def due(cares: Iterable[StoreCare], now: float) -> list[StoreCare]:
    """Those for which something is to be done now."""
    return [care for care in cares if care.next_at <= now]
