"""The lease keeper: one thread that watches the others.

It extends the leases of whatever takes long, gives the messages of a handler that has overrun its time
another try, settles what nobody else gets to, and says so when the database is silent.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pysqlbox.errors import DatabaseUnavailable, PysqlboxError
from pysqlbox.wording import counted
from pysqlbox.worker.assignment import STUCK_SECONDS, Assignment
from pysqlbox.worker.coroutines import Coroutines
from pysqlbox.worker.exchange import Exchange
from pysqlbox.worker.handlers import Handlers
from pysqlbox.worker.handling import Handling
from pysqlbox.worker.logs import StoreLog
from pysqlbox.worker.scheduler import Scheduler
from pysqlbox.worker.served_box import ServedBox
from pysqlbox.worker.settings import Settings
from pysqlbox.worker.stalls import StallWatch
from pysqlbox.worker.tally import Tally
from pysqlbox.worker.worker_thread import SETTLE_SECONDS

if TYPE_CHECKING:
    from pysqlbox.worker.worker_thread import WorkerThread

__all__ = ["IDLE_TICK_SECONDS", "LeaseKeeper"]

#: How often it looks; more seldom while nothing is at work but what hangs, and hardly while there is nothing.
TICK_SECONDS, IDLE_TICK_SECONDS, NAP_SECONDS = 0.01, 0.05, 0.5
#: How often it looks at coroutines, of which there may be thousands.
COROUTINES_SECONDS = 0.05
#: Its own calls are short, so that it does not fall asleep over a database that does.
LIMIT_SECONDS = 5.0
#: The part of a lease after which it is extended.
EXTEND_AT = 1 / 3
#: A handler that asks whether to stop hears after this long that its message was lost.
ASK_SECONDS = 1.0
#: After the leases could not be extended, try again so many seconds later.
AGAIN_SECONDS = 1.0


class LeaseKeeper:
    """Watches the threads; ``replace`` starts another one in place of one that hangs.

    ``loop_is_lost`` ends a worker whose coroutines have no event loop any more.
    """

    nap_seconds = NAP_SECONDS

    def __init__(
        self,
        scheduler: Scheduler,
        threads: Sequence[WorkerThread],
        handlers: Handlers,
        handling: Handling,
        exchange: Exchange,
        coroutines: Coroutines,
        owner: uuid.UUID,
        settings: Settings,
        replace: Callable[[], None],
        report_silence: Callable[[], None],
        loop_is_lost: Callable[[], None],
        log: StoreLog,
        stalls: StallWatch,
    ) -> None:
        self.tally = Tally()
        self._scheduler = scheduler
        self._threads = threads
        self._handlers = handlers
        self._handling = handling
        self._exchange = exchange
        self._coroutines = coroutines
        self._next_look = 0.0
        self._report_silence = report_silence
        self._loop_is_lost = loop_is_lost
        self._log = log
        self._owner = owner
        self._settings = settings
        self._replace = replace
        self._stalls = stalls
        self._quiet_until = 0.0
        self._exhausted = False
        #: Of boxes with results that wait: when the last ones went, and since when these have been seen.
        self._waiting: dict[ServedBox, tuple[float, float]] = {}

    def run(self, ended: Callable[[], bool]) -> None:
        """Until the worker has ended, which it has not before its last handler has."""
        while not ended():
            self._tick()
            if self._scheduler.stopping:
                time.sleep(TICK_SECONDS)
            elif self._scheduler.busy:
                self._scheduler.pause(TICK_SECONDS)
            elif self._scheduler.hanging or next(self._held(), None) is not None:
                self._scheduler.pause(IDLE_TICK_SECONDS)
            else:
                self._scheduler.nap(self.nap_seconds)

    def _tick(self) -> None:
        try:
            self._report_silence()
            for thread in list(self._threads):
                self._look(thread)
            self._look_at_coroutines()
            self._look_at_all()
            self._settle()
            self._extend_all()
            self._stalls.look()
        except Exception:  # noqa: BLE001  # without this thread every lease would run out
            self._log.exception("the lease keeper: unexpected; going on")
            self._scheduler.pause(1.0)

    # Handlers that take long

    def _look(self, thread: WorkerThread) -> None:
        assignment = thread.assignment
        if assignment is None or not assignment.handled:
            return
        handler, ran = assignment.handler, time.monotonic() - assignment.began_at
        if ran > STUCK_SECONDS:
            if assignment.loose and not self._scheduler.stopping:
                self._scheduler.add(assignment.split())
            self._scheduler.call_help()
        timeout = (handler.timeout if handler is not None else None) or self._settings.handler_timeout
        if timeout is None or ran <= timeout:
            return
        messages = assignment.take_overrun(timeout)
        if messages:
            if handler is not None:
                self._handlers.hangs(handler)
            self._handling.overran(assignment, messages, timeout, self.tally)
            if self._scheduler.hangs(thread, assignment):
                assignment.box.log.warning("a thread hangs in its handler; another one takes its place")
                self._replace()

    def _look_at_coroutines(self) -> None:
        """Cancel coroutines that have overrun their time; each keeps its slot until it ends."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + COROUTINES_SECONDS
        if self._coroutines.has_lost_loop and not self._scheduler.stopping:
            self._log.error("the event loop of the coroutine handlers was closed: the worker ends")
            self._loop_is_lost()
            return
        for assignment in self._coroutines.held():
            handler = assignment.handler
            if handler is None:
                continue
            timeout = handler.timeout or self._settings.handler_timeout
            if timeout is None or now - assignment.began_at <= timeout:
                continue
            messages = assignment.take_overrun(timeout)
            if messages:
                self._handlers.hangs(handler)
                self._handling.overran(assignment, messages, timeout, self.tally)
                self._coroutines.cancel(assignment)

    def _look_at_all(self) -> None:
        """Release what nobody here will get to."""
        exhausted = self._scheduler.exhausted
        log = self._log
        if exhausted and not self._exhausted and not self._scheduler.stopping:
            log.error("every thread hangs in a handler, and so do their replacements: nothing is claimed")
        elif self._exhausted and not exhausted:
            log.info("a thread has come back: messages are claimed again")
        self._exhausted = exhausted
        if exhausted:
            for assignment in self._scheduler.take_ready():
                self._handling.release(assignment, self.tally)
        for assignment in self._handlers.unpark_hopeless():
            self._handling.release(assignment, self.tally)

    # The database

    def _settle(self) -> None:
        """Settle what has waited too long: whoever should have may hang, or be gone."""
        patience = 0.0 if self._scheduler.stopping or self._scheduler.exhausted else 2 * SETTLE_SECONDS
        now = time.monotonic()
        before, self._waiting = self._waiting, {}
        for box in self._scheduler.active_boxes():
            if not box.outcomes:
                continue
            taken_at, since = before.get(box, (None, now))
            if taken_at != box.outcomes.taken_at:
                since = now
            self._waiting[box] = box.outcomes.taken_at, since
            if now - since >= patience and not (box.failures and box.next_poll > now):
                self._settle_box(box)

    def _settle_box(self, box: ServedBox) -> None:
        with box.store.helper_connection(LIMIT_SECONDS, self._report_silence) as connection:
            self._exchange.settle(box, connection)

    def _extend_all(self) -> None:
        if time.monotonic() < self._quiet_until:
            return
        by_box: dict[ServedBox, list[Assignment]] = defaultdict(list)
        for assignment in self._held():
            if self._is_due(assignment):
                by_box[assignment.box].append(assignment)
        for box, due in by_box.items():
            try:
                self._extend_box(box, due)
            except DatabaseUnavailable as error:
                box.log.warning("%s: cannot extend %s now: %s", box.name, counted(len(due), "lease"), error)
                self._quiet_until = time.monotonic() + AGAIN_SECONDS
                return
            except PysqlboxError as error:
                box.log.error("%s: extending leases is refused: %s", box.name, error)
                self._quiet_until = time.monotonic() + AGAIN_SECONDS

    def _extend_box(self, box: ServedBox, due: list[Assignment]) -> None:
        for first in range(0, len(due), 1000):
            self._extend(box, due[first : first + 1000])

    def _is_due(self, assignment: Assignment) -> bool:
        age = time.monotonic() - assignment.leased_at
        handler = assignment.handler
        asks = handler is not None and handler.takes_context and bool(assignment.handled)
        lease = self._settings.lease_seconds
        return age >= min(lease * EXTEND_AT, ASK_SECONDS if asks else lease)

    def _held(self) -> Iterator[Assignment]:
        """Everything that this worker has claimed and not finished."""
        for thread in list(self._threads):
            if thread.assignment is not None:
                yield thread.assignment
        yield from list(self._scheduler.ready)
        yield from self._handlers.parked()
        yield from self._coroutines.held()

    def _extend(self, box: ServedBox, assignments: list[Assignment]) -> None:
        asked_at = time.monotonic()
        asked = [(assignment, [message.id for message in assignment.held()]) for assignment in assignments]
        ids = sorted({identity for _, found in asked for identity in found})
        if not ids:
            return
        arguments = {"owner_token": self._owner, "ids": ids, "lease_seconds": self._settings.lease_seconds}
        with box.store.helper_connection(LIMIT_SECONDS, self._report_silence) as connection:
            rows = connection.call(f"{box.name}_extend", arguments)
        kept = {int(str(row["id"])) for row in rows}
        # What was settled while we asked is not held any more either; only what is still here was lost.
        lost = sum(assignment.lose(set(found) - kept) for assignment, found in asked)
        for assignment, _ in asked:
            assignment.leased_at = asked_at
        self.tally.lost += lost
        if lost:
            box.log.warning("%s: lost the lease of %s", box.name, counted(lost, "message"))
