"""Who of many stores is asked next: those that want it, as the strategy says, and the doubtful ones apart.

A box is hot while there is something to do about it, or soon; the others are cold and cost nothing until
their time comes or somebody says that they have something.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import time
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from pysqlbox.stores.served import LeaningStore, StoreBox
from pysqlbox.stores.strategies import Strategy
from pysqlbox.worker.coroutines import Coroutines
from pysqlbox.worker.scheduler import GROUP_SECONDS, Scheduler
from pysqlbox.worker.served_box import NEVER, ServedBox

if TYPE_CHECKING:
    from pysqlbox.worker.assignment import Assignment
    from pysqlbox.worker.worker_thread import WorkerThread

__all__ = ["ROOM_SECONDS", "StoresScheduler"]

_log = logging.getLogger("pysqlbox.worker")

#: How many threads may talk to one store at once.
VISITS = 2
#: One in so many turns is for those that may take long to answer, if they wait.
DOUBTFUL_EVERY = 4
#: Whoever finds no free connection looks again so much later.
ROOM_SECONDS = 0.02
#: A box that is asked again within so many seconds stays hot.
SOON_SECONDS = 0.5


class StoresScheduler(Scheduler):
    """The shared state of one run of a worker of many stores."""

    def __init__(self, strategy: Strategy, *, threads: int, coroutines: Coroutines | None = None) -> None:
        super().__init__([], threads=threads, coroutines=coroutines)
        self.turns = threads
        self.stores: dict[LeaningStore, None] = {}
        #: Those of them from which nothing more is claimed.
        self.leaving: list[LeaningStore] = []
        #: Those that somebody talks to, or that had messages when somebody last did.
        self._visited: set[LeaningStore] = set()
        #: How many threads may be with stores that may take long to answer.
        self.lanes = max(1, threads // 2)
        self._doubtful = 0
        self._choices = 0
        self._strategy = strategy
        self._strategy_failed = False
        self._hot: dict[StoreBox, None] = {}
        self._cold: list[tuple[float, int, StoreBox]] = []
        self._numbers = itertools.count()

    # Stores that come and go

    def add_store(self, store: LeaningStore) -> None:
        """Serve another store."""
        with self._changed:
            self.stores[store] = None
            self._add_boxes(store.boxes)
            self._changed.notify()

    def replace_boxes(self, store: LeaningStore, boxes: Sequence[StoreBox]) -> None:
        """Serve these boxes of a store from now on."""
        with self._changed:
            self._remove_boxes(store)
            store.boxes = list(boxes)
            self._add_boxes(boxes)
            self._changed.notify()

    def leave(self, store: LeaningStore) -> None:
        """Claim no more from a store."""
        with self._changed:
            store.is_leaving = True
            self.leaving = [*self.leaving, store]
            for box in store.boxes:
                self._heat(box)

    def remove_if_drained(self, store: LeaningStore, held: Collection[ServedBox]) -> bool:
        """Forget a store that is leaving, if nothing of it is held here any more."""
        with self._changed:
            if store.visits or any(box.outcomes or box in held for box in store.boxes):
                return False
            if any(assignment.box.store is store for assignment in self.ready):
                return False
            self._remove_boxes(store)
            del self.stores[store]
            self.leaving = [each for each in self.leaving if each is not store]
            self._visited.discard(store)
            return True

    def _add_boxes(self, boxes: Iterable[StoreBox]) -> None:
        for box in boxes:
            self.boxes.append(box)
            self._heat(box)

    def _remove_boxes(self, store: LeaningStore) -> None:
        for box in store.boxes:
            self._hot.pop(box, None)
            box.cold_at = None
        self.boxes = [box for box in self.boxes if box.store is not store]

    # Hot and cold

    def active_boxes(self) -> Sequence[ServedBox]:
        """The hot ones."""
        return list(self._hot)

    def cool(self, held: Collection[ServedBox]) -> None:
        """Put away the boxes about which nothing is to be done for a while; ``held``: have messages here."""
        with self._changed:
            if self.draining or self.stopping:
                return
            soon = time.monotonic() + SOON_SECONDS
            for box in list(self._hot):
                store = box.store
                if (
                    box.outcomes or store.visits or store.is_leaving or box.is_partial
                    or box.next_poll < soon or box in held
                ):  # fmt: skip
                    box.idle_looks = 0
                    continue
                box.idle_looks += 1
                if box.idle_looks > 1:  # what a thread is just picking up is not seen the first time
                    del self._hot[box]
                    self._put_away(box)

    def _put_away(self, box: StoreBox) -> None:
        box.cold_at = box.next_poll
        heapq.heappush(self._cold, (box.next_poll, next(self._numbers), box))

    def _heat(self, box: StoreBox) -> None:
        box.cold_at = None
        box.idle_looks = 0
        self._hot[box] = None

    def _heat_due(self, now: float) -> float:
        cold = self._cold
        while cold and (cold[0][0] <= now or cold[0][2].cold_at != cold[0][0]):
            at, _, box = heapq.heappop(cold)
            if box.cold_at != at:
                continue
            if box.put_off(now):
                self._put_away(box)
            else:
                self._heat(box)
        return cold[0][0] if cold else NEVER

    # Signs of work

    def wake(self, box: ServedBox | None = None) -> None:
        """Somebody says that a box has something; or any that is hot."""
        self.wake_all(self.active_boxes() if box is None else (box,))

    def wake_all(self, boxes: Iterable[ServedBox], *, afterwards: bool = True) -> None:
        """Somebody says that these boxes may have something; ``afterwards``: and more may come unsaid."""
        now = time.monotonic()
        with self._changed:
            for each in cast("Iterable[StoreBox]", boxes):
                each.wakes += 1
                if afterwards:
                    each.empties = 0
                if each.failures or each.store.is_leaving or each.store not in self.stores:
                    continue
                each.next_poll = min(each.next_poll, now)
                if each not in self._hot:
                    self._heat(each)
            self._changed.notify()

    # Choosing

    def _choose(self, now: float) -> tuple[ServedBox | None, float]:
        due = self._heat_due(now)
        waiting: dict[LeaningStore, tuple[float, StoreBox]] = {}
        refused: set[LeaningStore] = set()
        for box in self._hot:
            at = box.due_at(now)
            if at > now:
                due = min(due, at)
                continue
            store = box.store
            if store in refused:
                continue
            best = waiting.get(store)
            if best is None and not self._may_visit(store):
                refused.add(store)
                if not store.place.server.has_room:  # who has its connections may not be one of the threads
                    due = min(due, now + ROOM_SECONDS)
            elif best is None or at < best[0]:
                waiting[store] = at, box
        if not waiting:
            return None, due
        found = self._choose_among(waiting)
        if found is None:
            return None, min(due, now + 0.01)
        return waiting[found][1], now

    def _choose_among(self, waiting: dict[LeaningStore, Any]) -> LeaningStore | None:
        ordered = sorted(waiting, key=lambda store: store.position)
        doubtful = [store for store in ordered if store.suspect]
        if len(doubtful) == len(ordered):
            # Whom nobody has asked yet comes before who has failed.
            return min(doubtful, key=lambda store: (store.failures, waiting[store][0]))
        self._choices += 1
        if doubtful and self._choices % DOUBTFUL_EVERY == 0:
            return min(doubtful, key=lambda store: (store.failures, waiting[store][0]))
        healthy = {store.key: store for store in ordered if not store.suspect}
        going = {store.key for store in self._visited if self._is_going(store)}
        try:
            key = self._strategy.choose(list(healthy), going)
            found = None if key is None else healthy[key]
        except Exception:  # noqa: BLE001  # a strategy may be the caller's code
            if not self._strategy_failed:
                self._strategy_failed = True
                _log.exception("the strategy %r failed; stores are asked in their order", self._strategy)
            return next(iter(healthy.values()))
        return doubtful[0] if found is None and doubtful else found

    @staticmethod
    def _is_going(store: LeaningStore) -> bool:
        return not store.suspect and not store.is_leaving and bool(store.visits or store.has_more)

    def _may_visit(self, store: LeaningStore) -> bool:
        if store.suspect:
            if store.visits or self._doubtful >= self.lanes:
                return False
        elif store.visits >= VISITS:
            return False
        return store.place.server.has_room

    # Turns

    def _begin_turn(self, thread: WorkerThread, box: ServedBox) -> None:
        super()._begin_turn(thread, box)
        store = cast(StoreBox, box).store
        store.visits += 1
        self._visited.add(store)
        thread.is_doubtful = store.suspect
        self._doubtful += thread.is_doubtful

    def visit_ends(self, thread: WorkerThread, box: StoreBox) -> None:
        """A thread talks to a store no more."""
        with self._changed:
            box.store.visits -= 1
            if not box.store.visits and not box.store.has_more:
                self._visited.discard(box.store)
            self._doubtful -= thread.is_doubtful
            thread.is_doubtful = False

    def answered(
        self,
        thread: WorkerThread,
        box: ServedBox,
        assignments: Sequence[Assignment],
        *,
        asked: int,
        got: int,
        progress: int,
        wakes: int,
    ) -> None:
        """Take in what a claim brought, and tell the strategy."""
        store = cast(StoreBox, box).store
        with self._changed:
            store.has_more = got > 0
            try:
                self._strategy.answered(store.key, got)
            except Exception as error:  # noqa: BLE001  # a strategy may be the caller's code
                store.log.error("the strategy %r failed: %s", self._strategy, error)
        super().answered(thread, box, assignments, asked=asked, got=got, progress=progress, wakes=wakes)

    def asked_nothing(self, thread: WorkerThread, box: ServedBox, wakes: int) -> None:
        """The thread has only settled."""
        cast(StoreBox, box).store.has_more = False
        super().asked_nothing(thread, box, wakes)

    def hangs_in_call(self, thread: WorkerThread) -> bool:
        """A store takes too long to answer a thread; whether another thread may take its place meanwhile."""
        with self._changed:
            if not thread.has_turn or thread.hanging:
                return False
            self._leave(thread)
            thread.hanging = True
            self._active -= 1
            self._stuck += 1
            return self._active + self._stuck < 2 * self.threads and not self.stopping

    # Draining

    def drain(self) -> None:
        """Stop as soon as nothing is left that could be claimed now, from stores that answer."""
        with self._changed:
            for box in cast("list[StoreBox]", self.boxes):
                self._heat(box)
        super().drain()

    def _has_work(self) -> bool:
        """As for one deployment; and a thread that a store keeps waiting may yet bring messages."""
        return super()._has_work() or any(store.visits for store in self.stores)

    def _end_if_dry(self) -> None:
        """As for one deployment; a store that has failed is not waited for, unless it is owed results."""
        if self._has_work():
            return
        now = time.monotonic()
        boxes = [box for box in self.boxes if not box.failures]
        if all(box.dry_at == self._progress for box in boxes):
            if not self.groups_seen or self._confirmed == self._progress:
                self._end()
                return
            self._confirm(boxes, now + GROUP_SECONDS)
            return
        for box in boxes:
            if box.dry_at not in (-1, self._progress):
                box.next_poll = min(box.next_poll, now)
        self._changed.notify()
