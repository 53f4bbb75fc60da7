"""Who does what next: the work that a worker's threads share, under one lock.

Whoever is free talks to the database for all of them: it settles what everybody has finished and claims what
all of them can do, in one call. At most two do so at a time. A thread that knows the handlers to be quick
works the claim off by itself, because waking another one would cost more than the work; otherwise each thread
that gets something to do wakes the next, until nothing is left or nobody sleeps. So a message waits only
while every thread is at work.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.ranked_condition import RankedCondition
from pysqlbox.worker.served_box import NEVER, ServedBox

if TYPE_CHECKING:
    from pysqlbox.worker.coroutines import Coroutines
    from pysqlbox.worker.worker_thread import WorkerThread

__all__ = ["TURNS", "Scheduler"]

#: A group that the database puts off, because its row was locked, it looks at again after 0.2 seconds.
GROUP_SECONDS = 0.25
#: A claim that meets very many expired messages answers early, and empty, though others lie behind them; so a
#: drain believes only so many empty claims in a row.
DRY_CLAIMS = 15
#: How many threads talk to the database at the same time: one waits for it while another one runs Python.
TURNS = 2
#: How often a helper looks whether a turn is free.
LENT_SECONDS = 0.002


class Scheduler:
    """The shared state of one run of a worker."""

    def __init__(
        self, boxes: Sequence[ServedBox], *, threads: int, coroutines: Coroutines | None = None
    ) -> None:
        self.boxes = list(boxes)
        self.threads = threads
        self.turns = min(TURNS, threads)
        self.stopping = False
        #: Whether this is a child that a handler has forked.
        self.forked = False
        self.draining = False
        self.groups_seen = False
        self.coroutines = coroutines
        #: What nobody has begun. Threads at work pop from it without the lock.
        self.ready: deque[Assignment] = deque()
        #: A thread at work asks for more as soon as no more than this is ready.
        self.low_water = 0
        self._changed = RankedCondition()
        self._ended = threading.Event()
        #: There is work, or the end has come: whoever naps gets up.
        self._stirred = threading.Event()
        self._exchanging = 0
        self._delivering = 0
        self._lent = 0
        self._busy = 0
        self._active = 0
        self._stuck = 0
        self._watched_until = NEVER
        self._progress = 0
        self._confirmed = -1
        #: What began before this does not show that all is dry.
        self._confirms_from = 0.0

    # What threads ask

    def next(self, thread: WorkerThread) -> Assignment | ServedBox | None:
        """What a thread is to do: work, a box to talk to the database about, or nothing ever again."""
        with self._changed:
            self._leave(thread)
            if self.draining:
                self._end_if_dry()
            while not self.stopping and not thread.superfluous:
                due = NEVER
                if self._may_exchange():
                    now = time.monotonic()
                    box, due = self._choose(now)
                    if box is not None and due <= now:
                        box.being_asked(now)
                        self._begin_turn(thread, box)
                        return box
                if self.ready:
                    self._begin(thread)
                    assignment = self.ready.popleft()
                    if self.ready or self._watched_until == NEVER:
                        self._changed.notify()
                    return assignment
                self._wait(thread, due)
            return None

    def idle_threads(self) -> int:
        """How many threads could begin something now, whoever asks among them."""
        return self._changed.sleepers + 1

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
        """Take in what a claim brought, of which the thread itself comes for the first; its turn is over."""
        with self._changed:
            now = time.monotonic()
            box.schedule(asked, got, now)
            if box.wakes != wakes:
                box.next_poll = now  # what somebody announced during the claim it may not have seen
            if got:
                self._progress += 1
                box.dry_claims = 0
                self._stirred.set()
                self.ready.extend(self._without_coroutines(assignments))
            elif self.draining and box.dry_claims < DRY_CLAIMS:
                box.dry_claims += 1
                box.next_poll = now
            elif box.doubtful_until > thread.turn_began:
                # What a lost answer would have brought comes again when its lease is over.
                box.dry_at = -1
                if box.next_poll >= box.doubtful_until:
                    box.next_poll, box.dry_claims = box.doubtful_until, 0
            elif self.draining and thread.turn_began < self._confirms_from:
                # Somebody has woken it before that time: what is waited for may not be there yet.
                box.next_poll = max(now, self._confirms_from)
            else:
                box.dry_at = progress
            quick = box.is_quick(got)
            self.low_water = 0 if quick else max(0, (len(self.ready) - self.threads) // 2)
            self._end_turn(thread)
            # Who has found nothing comes back and watches the clock itself, and so does who is quick: as many
            # as there are turns go on by themselves. Should one be held up, the lease keeper calls help.
            if got and (not quick or (box.next_poll <= now and self._busy < self.turns)):
                self._changed.notify()

    def asked_nothing(self, thread: WorkerThread, box: ServedBox, wakes: int) -> None:
        """The thread has only settled: there is enough to do, or no place to do it in."""
        with self._changed:
            self.low_water = 0
            if not self.ready:
                box.ask_later(time.monotonic())
                if box.wakes != wakes:
                    box.next_poll = time.monotonic()
            self._end_turn(thread)

    @contextlib.contextmanager
    def lent_turn(self) -> Iterator[None]:
        """For helpers: talk to the database in place of a thread, so that no more do so at a time.

        The next turn that ends is the helper's; the threads have one less meanwhile, so there must be two.
        """
        with self._changed:
            self._lent += 1
        try:
            while self._exchanging > self.turns - self._lent and not self.stopping:
                self.pause(LENT_SECONDS)
            yield
        finally:
            with self._changed:
                self._lent -= 1
                self._changed.notify()

    def end_turn(self, thread: WorkerThread) -> None:
        """The thread has not been able to talk to the database."""
        with self._changed:
            self.low_water = 0
            self._end_turn(thread)

    @contextlib.contextmanager
    def delivery(self) -> Iterator[None]:
        """Results are on their way, perhaps by a helper: until they are there, nothing is dry."""
        with self._changed:
            self._delivering += 1
        try:
            yield
        finally:
            with self._changed:
                self._delivering -= 1
                if self.draining:
                    self._end_if_dry()

    @property
    def delivering(self) -> bool:
        """Whether somebody is delivering results."""
        return self._delivering > 0

    def settled(self) -> None:
        """Note that messages were settled: what waited behind them may be claimable."""
        with self._changed:
            self._progress += 1

    @property
    def progress(self) -> int:
        """A number that grows with everything that may make more messages claimable."""
        return self._progress

    def call_help(self) -> None:
        """Wake a thread, if something could be done now that would otherwise wait for whoever is at work."""
        if self._changed.sleepers and (self.ready or self._watched_until == NEVER):
            with self._changed:
                if self.ready or self._is_due():
                    self._changed.notify()

    def add(self, assignments: Sequence[Assignment]) -> None:
        """Take in what can be begun now, before everything else."""
        with self._changed:
            self.ready.extendleft(reversed(self._without_coroutines(assignments)))
            if self.ready:
                self._changed.notify()

    def coroutines_ended(self) -> None:
        """Coroutine handlers have ended: there are results to settle, and slots for more."""
        with self._changed:
            if self.draining:
                self._end_if_dry()
            self._changed.notify()

    def free_slots(self) -> int:
        """How many coroutine handlers more could begin now."""
        return 0 if self.coroutines is None else self.coroutines.free_slots

    def wake(self, box: ServedBox | None = None) -> None:
        """Somebody says that a box, or any, has something; a box that is due for longer still comes first."""
        now = time.monotonic()
        with self._changed:
            for each in self.active_boxes() if box is None else (box,):
                each.wakes += 1
                if not each.failures:
                    each.next_poll = min(each.next_poll, now)
            self._changed.notify()

    def active_boxes(self) -> Sequence[ServedBox]:
        """Those that may have results to settle."""
        return self.boxes

    @property
    def asleep(self) -> bool:
        """Whether all boxes sleep until somebody wakes them or their time has come."""
        return all(box.asleep for box in self.boxes)

    # Threads that come, hang and go

    def take_ready(self) -> list[Assignment]:
        """What nobody has begun, which is then the caller's."""
        with self._changed:
            found = list(self.ready)
            self.ready.clear()
            return found

    def joined(self) -> None:
        """A thread more."""
        with self._changed:
            self._active += 1

    def hangs(self, thread: WorkerThread, assignment: Assignment) -> bool:
        """A thread does not come back from its handler; whether another may take its place."""
        with self._changed:
            if thread.assignment is not assignment or thread.hanging:
                return False  # it has come back just now
            self._leave(thread)
            thread.hanging = True
            self._active -= 1
            self._stuck += 1
            return self._active + self._stuck < 2 * self.threads and not self.stopping

    def came_back(self, thread: WorkerThread) -> None:
        """A thread has come back after all; it ends if another one has taken its place."""
        with self._changed:
            if thread.hanging:
                thread.hanging = False
                self._stuck -= 1
                thread.superfluous = self._active >= self.threads
                self._active += not thread.superfluous

    @property
    def hanging(self) -> int:
        """How many threads have not come back from their handlers in time."""
        return self._stuck

    @property
    def exhausted(self) -> bool:
        """Whether every thread hangs in a handler, and no more may come."""
        return self._active <= 0

    # Beginning, stopping, draining

    def stop(self) -> None:
        """Nothing more is claimed or begun."""
        with self._changed:
            self._end()
            for box in self.boxes:  # the last results wait for no long pause
                box.next_poll = min(box.next_poll, time.monotonic())

    def drain(self) -> None:
        """Stop as soon as nothing is left that could be claimed now."""
        with self._changed:
            self.draining = True
            self._end_if_dry()

    def nap(self, seconds: float) -> None:
        """Wait until a claim brings something, at most so long; for one thread only."""
        self._stirred.wait(seconds)
        self._stirred.clear()

    def pause(self, seconds: float) -> bool:
        """Wait, at most until the end of the worker; True if that has come."""
        return self._ended.wait(seconds)

    @property
    def busy(self) -> int:
        """How many handlers run, and threads talk to the database."""
        return self._busy + (0 if self.coroutines is None else self.coroutines.busy)

    def _without_coroutines(self, assignments: Sequence[Assignment]) -> Sequence[Assignment]:
        """What is for threads; what begins with a coroutine handler goes to the event loop."""
        if self.coroutines is None:
            return assignments
        found = [assignment for assignment in assignments if not assignment.begins_with_coroutine]
        if len(found) < len(assignments):
            self.coroutines.submit([each for each in assignments if each.begins_with_coroutine])
        return found

    def _may_exchange(self) -> bool:
        if self.ready:
            return not self._exchanging and len(self.ready) <= self.low_water
        return self._exchanging < max(self.turns - self._lent, 1)

    def _is_due(self) -> bool:
        """Whether somebody could talk to the database now."""
        now = time.monotonic()
        return self._may_exchange() and self._choose(now)[1] <= now

    def _choose(self, now: float) -> tuple[ServedBox | None, float]:
        """Whom to ask next, and when."""
        box = min(self.boxes, key=lambda box: box.due_at(now))
        return box, box.due_at(now)

    def _begin(self, thread: WorkerThread) -> None:
        thread.at_work = True
        self._busy += 1

    def _begin_turn(self, thread: WorkerThread, box: ServedBox) -> None:
        self._exchanging += 1
        thread.has_turn, thread.asked, thread.turn_began = True, box, time.monotonic()
        self._begin(thread)

    def _leave(self, thread: WorkerThread) -> None:
        if thread.at_work:
            thread.at_work = False
            self._busy -= 1
        self._end_turn(thread)

    def _end_turn(self, thread: WorkerThread) -> None:
        if thread.has_turn:
            thread.has_turn = False
            self._exchanging -= 1

    def _wait(self, thread: WorkerThread, due: float) -> None:
        """Wait for a change. One waiting thread watches the clock; the others only wait to be woken."""
        if due >= self._watched_until:
            self._changed.wait(thread.rank)
            return
        self._watched_until = due
        try:
            self._changed.wait(thread.rank, due - time.monotonic())
        finally:
            if self._watched_until == due:
                self._watched_until = NEVER

    def _end(self) -> None:
        self.stopping = True
        self._ended.set()
        self._stirred.set()
        self._changed.notify_all()

    def _has_work(self) -> bool:
        """Whether it is not yet time to ask if all is dry: something is under way, or the end has come."""
        return bool(
            self.busy or self._delivering or self.ready or self.stopping
            or any(box.outcomes for box in self.boxes)
        )  # fmt: skip

    def _end_if_dry(self) -> None:
        if self._has_work():
            return
        now = time.monotonic()
        if all(box.dry_at == self._progress for box in self.boxes):
            if not self.groups_seen or self._confirmed == self._progress:
                self._end()
                return
            # A group in whose midst somebody was is looked at by the database again a little later; so do we.
            self._confirm(self.boxes, now + GROUP_SECONDS)
            return
        for box in self.boxes:
            if box.dry_at not in (-1, self._progress) and not box.failures:
                box.next_poll = min(box.next_poll, now)
        self._changed.notify()

    def _confirm(self, boxes: Iterable[ServedBox], from_at: float) -> None:
        """Ask all of these once more, from that time on."""
        self._confirmed, self._confirms_from = self._progress, from_at
        for box in boxes:
            box.dry_at = -1
            box.next_poll = from_at
        self._changed.notify()
