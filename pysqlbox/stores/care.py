"""Schedules, reaping and cleaning of many stores: a little of each at a time, in one thread."""

from __future__ import annotations

import heapq
import itertools
import random
import time
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from pysqlbox.stores.scheduler import StoresScheduler
from pysqlbox.stores.served import LeaningStore
from pysqlbox.wording import counted
from pysqlbox.worker.caretaker import BATCH, Caretaker, Chore, first_at
from pysqlbox.worker.database import WorkerConnection
from pysqlbox.worker.timetable import Timetable

if TYPE_CHECKING:
    from pysqlbox.stores.served import StoreBox

__all__ = ["Cares", "StoreCare"]

#: How many batches of one store before the others get their turn, and after how long it goes on.
BATCHES, GO_ON_SECONDS = 5, 0.25
#: What is due is looked at no more often.
CHECK_SECONDS = 1.0
#: A store without work is cared for so many times more seldom.
SELDOM = 30
#: A worker that has not said for ten minutes that it is there is not shown any more: it says so before.
SHOWN_SECONDS = 540.0


class StoreCare(Caretaker):
    """The chores and schedules of one store; the connection is lent for each round."""

    def __init__(
        self,
        scheduler: StoresScheduler,
        store: LeaningStore,
        owner: uuid.UUID,
        chores: list[Chore],
        timetables: list[Timetable],
        stretch: float = 1.0,
    ) -> None:
        """``stretch``: so many times more seldom a store without work is looked after."""
        self._lent: WorkerConnection | None = None
        super().__init__(scheduler, None, owner, chores, timetables, store.log)  # type: ignore[arg-type]  # lent later
        self.store = store
        #: Whether the register of the deployment may have this worker in it.
        self.is_registered = False
        self._stretch = stretch
        self._more: set[int] = set()
        self._worked_at: dict[int, float] = {}
        now = time.monotonic()
        for chore in chores:
            chore.next_at = now + stretch * (first_at(chore, now) - now)

    @property
    def next_at(self) -> float:
        """When there is something to do."""
        times = [chore.next_at for chore in self._chores]
        times += [timetable.next_at for timetable in self._timetables]
        return min(times, default=float("inf"))

    def prepare(self, now: float) -> bool:
        """Whether step() has anything to do; what is due and not worth it is put off."""
        for timetable in self._timetables:
            if timetable.next_at <= now < timetable.due_at and self._is_unchanged(timetable, now):
                timetable.put_off(now)
        for chore in self._chores:
            if chore.next_at <= now and id(chore) not in self._more and not self._is_worth(chore, now):
                chore.next_at = now + chore.every_seconds * self._stretch * random.uniform(0.9, 1.1)
                if chore.by_all:
                    again_at = self._worked_at.get(id(chore), 0.0) + SHOWN_SECONDS
                    chore.next_at = max(min(chore.next_at, again_at), now + CHECK_SECONDS)
        return self.next_at <= now

    def step(self, connection: WorkerConnection) -> None:
        """Do what is due; prepare() has been asked."""
        self._connection = connection
        self._look()
        now = time.monotonic()
        for chore in [each for each in self._chores if each.next_at <= now]:
            if id(chore) in self._more:
                self._do(chore)
            else:
                self.is_registered = self.is_registered or chore.by_all
                if self._try(chore):  # else it is due again as if there was work
                    self._worked_at[id(chore)] = now

    def sign_off(self, connection: WorkerConnection) -> None:
        """Take the worker out of the register."""
        self._connection = connection
        self._leave()

    @staticmethod
    def _is_unchanged(timetable: Timetable, now: float) -> bool:
        """Whether nobody has set a schedule since it was looked at. Now and then it is looked at anyway."""
        box = cast("StoreBox", timetable.served)
        seldom = SELDOM * timetable.look_seconds
        return now - timetable.looked_at < seldom and box.is_unplanned(timetable.looked_at, now)

    def _is_worth(self, chore: Chore, now: float) -> bool:
        """Whether there was work since it was done last, or that is long ago."""
        done_at = self._worked_at.get(id(chore), 0.0)
        boxes = [box for box in self.store.boxes if chore.by_all or box.name == chore.box]
        worked = max((box.last_work for box in boxes), default=0.0)
        longest = SELDOM * self._stretch * chore.every_seconds
        if chore.by_all:
            longest = min(SELDOM * chore.every_seconds, SHOWN_SECONDS)
        return worked > done_at or now - done_at >= longest

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
            self._log.info("%s: %s, %s", chore.box, chore.name, counted(total, "message"))


class Cares:
    """All of them, by when each has something to do."""

    def __init__(self, cares: Iterable[StoreCare]) -> None:
        self._numbers = itertools.count()
        self._waiting = [(care.next_at, next(self._numbers), care) for care in cares]
        heapq.heapify(self._waiting)

    def due(self, now: float) -> list[StoreCare]:
        """Take out those whose time has come; each is to be put back()."""
        found = []
        while self._waiting and self._waiting[0][0] <= now:
            found.append(heapq.heappop(self._waiting)[2])
        return found

    def put_back(self, care: StoreCare, not_before: float) -> None:
        """It was seen to."""
        heapq.heappush(self._waiting, (max(care.next_at, not_before), next(self._numbers), care))
