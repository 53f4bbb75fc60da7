"""One run of a worker, from its start to its end: its threads, its connections, and what is left behind."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pysqlbox.errors import DatabaseUnavailable, InvalidArgument, PysqlboxError
from pysqlbox.logs import about
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.caretaker import LOCK_SECONDS, Caretaker, Chore
from pysqlbox.worker.coroutines import Coroutines
from pysqlbox.worker.database import Database
from pysqlbox.worker.exchange import Exchange
from pysqlbox.worker.figures import Figures
from pysqlbox.worker.handlers import Handler, Handlers
from pysqlbox.worker.handling import Handling
from pysqlbox.worker.health import BoxHealth, DatabaseState, ListenerState, WorkerHealth, moment
from pysqlbox.worker.hooks import Hooks
from pysqlbox.worker.joins import join_wait_handler
from pysqlbox.worker.lease_keeper import LeaseKeeper
from pysqlbox.worker.logs import log_of
from pysqlbox.worker.scheduler import Scheduler
from pysqlbox.worker.served_box import JOIN_WAIT, ServedBox
from pysqlbox.worker.settings import Settings
from pysqlbox.worker.stalls import StallWatch, is_stuck
from pysqlbox.worker.tally import Tally
from pysqlbox.worker.timetable import Timetable
from pysqlbox.worker.transactions import Transactions
from pysqlbox.worker.unknown_topics import UnknownTopics
from pysqlbox.worker.worker_thread import WorkerThread

if TYPE_CHECKING:
    from pysqlbox.deployment import Deployment
    from pysqlbox.worker.listener import Listener

__all__ = ["WorkerRun"]

#: After the time for handlers is over, the last results get so long to reach the database ...
SETTLE_AT_MOST = 3.0
#: ... and the threads so long to end.
END_AT_MOST = 1.5
#: While the database is down at the start, it is asked again after a pause, which doubles up to the last.
START_PAUSE, LONGEST_START_PAUSE = 0.2, 5.0


class WorkerRun:
    """What begins with the start of a worker and is over with its end."""

    def __init__(
        self,
        db: Deployment,
        settings: Settings,
        handlers: Handlers,
        hooks: Hooks,
        unknown_topics: UnknownTopics,
        owner: uuid.UUID,
        *,
        threads: int,
        drain: bool,
        measured: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
        ended: Callable[[WorkerRun], None],
    ) -> None:
        """``measured``: figures are kept by topic. ``ended`` is told when it is over."""
        self._db = db
        self._settings = settings
        self._handlers = handlers
        self._hooks = hooks
        self._unknown_topics = unknown_topics
        self._hooks_called = False
        self._transactions = Transactions(db, owner, threads)
        self._coroutines = Coroutines(settings.async_slots, loop)
        self._owner = owner
        self._thread_count = threads
        self._drain = drain
        self._ended = ended
        self._log = log_of(db)
        self._database = Database(db)
        self._scheduler: Scheduler | None = None
        self._handling: Handling | None = None
        self._exchange: Exchange | None = None
        self._keeper: LeaseKeeper | None = None
        self._lock = threading.Lock()
        self._ending = threading.RLock()
        self._stopping = threading.Event()
        self._over = threading.Event()
        self._clean = True
        self._threads: list[WorkerThread] = []
        self._workers: list[threading.Thread] = []
        self._helpers: list[threading.Thread] = []
        self._bells: list[Callable[[], None]] = []
        self._listener: Listener | None = None
        self._tally = Tally()
        self._measured = measured
        #: What ended the run before it had begun.
        self.failure: Exception | None = None

    # Beginning

    def start(self) -> None:
        """Start the threads; if the database is down, as soon as it is there."""
        try:
            for topic in self._handlers.check(self._settings.topics, JOIN_WAIT):
                self._log.warning("the handler of %r gets nothing: its topic is none of topics=", topic)
            boxes = self._load_boxes()
        except DatabaseUnavailable as error:
            self._log.error("the database cannot be reached, waiting for it: %s", error)
            self._helpers.append(self._spawn("starter", self._wait_for_database))
        except BaseException:
            self._close_early()
            raise
        else:
            try:
                self._call_on_start()
            except BaseException:
                self._close_early()
                raise
            self._launch(boxes)

    def _close_early(self) -> None:
        self._over.set()
        self._coroutines.close()
        self._ended(self)

    def _call_on_start(self) -> None:
        self._hooks_called = True
        for function in self._hooks.on_start:
            self._call_hook(function)

    def _call_hook(self, function: Callable[[], Any]) -> None:
        answer = function()
        if asyncio.iscoroutine(answer):
            self._coroutines.run(answer)

    def _wait_for_database(self) -> None:
        pause = START_PAUSE
        while not self._stopping.wait(pause):
            pause = min(2 * pause, LONGEST_START_PAUSE)
            try:
                boxes = self._load_boxes()
            except DatabaseUnavailable:
                continue
            except PysqlboxError as error:
                self.failure = error
                self._stopping.set()
            else:
                self._log.info("the database can be reached")
                try:
                    self._call_on_start()
                except Exception as error:  # noqa: BLE001  # the hook is the caller's code, who gets to hear of it
                    self.failure = error
                    self._stopping.set()
                    return
                self._launch(boxes)
                return

    def _load_boxes(self) -> list[ServedBox]:
        settings = self._settings
        boxes = []
        connection = self._database.open()
        try:
            for name in settings.boxes:
                box = self._db.box(name)
                attempts = settings.max_attempts
                if attempts is None:
                    setting = connection.setting(box, "max_attempts")
                    attempts = None if setting is None else int(setting)
                topics = settings.topics
                if box.kind == "outbox":
                    if JOIN_WAIT not in self._handlers:
                        self._handlers.add(Handler(JOIN_WAIT, join_wait_handler(self._db)), internal=True)
                    if topics is not None and JOIN_WAIT not in topics:
                        topics = (*topics, JOIN_WAIT)
                boxes.append(
                    ServedBox(
                        box, self._handlers, settings, topics=topics,
                        threads=self._thread_count, max_attempts=attempts,
                    )
                )  # fmt: skip
        finally:
            connection.close()
        return boxes

    def _launch(self, boxes: list[ServedBox]) -> None:
        with self._lock:
            if self._stopping.is_set():
                return
            settings, handlers = self._settings, self._handlers
            coroutines = self._coroutines
            scheduler = Scheduler(boxes, threads=self._thread_count, coroutines=coroutines)
            handling = Handling(scheduler, handlers, settings, self._unknown_topics, self._transactions)
            coroutines.serve(scheduler, handling)
            exchange = Exchange(
                scheduler, self._owner, settings.lease_seconds, self._database.open, self._worked_on
            )
            keeper = LeaseKeeper(
                scheduler, self._threads, handlers, handling, exchange, coroutines, self._database,
                self._owner, settings, self._replace, StallWatch(scheduler, settings, self._held),
            )  # fmt: skip
            self._scheduler, self._handling, self._exchange = scheduler, handling, exchange
            self._keeper = keeper
            if self._measured:
                self.measure()
            for _ in range(self._thread_count):
                self._add_thread(scheduler, handling, exchange)
            self._helpers.append(self._spawn("keeper", lambda: keeper.run(self._over.is_set)))
            if self._drain:
                scheduler.drain()
            else:
                self._start_helpers(scheduler, exchange)

    def _add_thread(self, scheduler: Scheduler, handling: Handling, exchange: Exchange) -> None:
        thread = WorkerThread(scheduler, handling, exchange, self._coroutines, len(self._threads))
        if self._measured:
            thread.tally.figures = Figures()
        self._threads.append(thread)
        scheduler.joined()
        self._workers.append(self._spawn(str(len(self._workers) + 1), thread.run))

    def _replace(self) -> None:
        """Start another thread for one that hangs."""
        with self._lock:
            scheduler, handling, exchange = self._scheduler, self._handling, self._exchange
            if scheduler is not None and handling is not None and exchange is not None:
                self._add_thread(scheduler, handling, exchange)

    def _start_helpers(self, scheduler: Scheduler, exchange: Exchange) -> None:
        if self._settings.listen and self._db.target.dialect == "postgres":
            from pysqlbox.worker.listener import Listener

            listener = Listener(self._database, scheduler, exchange.connection, self._settings.poll_seconds)
            self._listener = listener
            self._bells.append(listener.stop)
            self._helpers.append(self._spawn("listener", listener.run))
        chores, timetables = list(self._chores()), list(self._timetables(scheduler))
        if chores or timetables:
            connection = self._database.open(lock_seconds=LOCK_SECONDS)
            caretaker = Caretaker(scheduler, connection, self._owner, chores, timetables)
            self._helpers.append(self._spawn("caretaker", caretaker.run))

    def _chores(self) -> Iterator[Chore]:
        settings = self._settings
        for name in settings.boxes:
            if settings.reap_seconds is not None:
                yield Chore("reap", name, settings.reap_seconds, f"{name}_reap", {})
            if settings.cleanup_seconds is not None:
                arguments: dict[str, object] = {"retention_seconds": settings.retention}
                yield Chore("cleanup", name, settings.cleanup_seconds, f"{name}_cleanup", arguments)

    def _timetables(self, scheduler: Scheduler) -> Iterator[Timetable]:
        seconds = self._settings.schedule_seconds
        if seconds is not None:
            for box in scheduler.boxes:
                if box.queue.kind == "outbox":
                    yield Timetable(box.name, seconds, box.log)

    def _spawn(self, name: str, target: Callable[[], object]) -> threading.Thread:
        """A daemon thread: one that hangs in a handler must not keep the process from ending."""
        thread = threading.Thread(target=target, name=f"pysqlbox-{name}", daemon=True)
        thread.start()
        return thread

    # Meanwhile

    @property
    def stopping(self) -> bool:
        """Whether nothing more is begun."""
        scheduler = self._scheduler
        return self._stopping.is_set() or (scheduler is not None and scheduler.stopping)

    @property
    def busy(self) -> int:
        """How many threads are at work."""
        return 0 if self._scheduler is None else self._scheduler.busy

    @property
    def first_error(self) -> BaseException | None:
        """What the first handler raised that failed."""
        return None if self._handling is None else self._handling.first_error

    def tallies(self) -> list[Tally]:
        """What everybody has done so far."""
        keeper = [] if self._keeper is None else [self._keeper.tally]
        return [
            self._tally,
            self._coroutines.tally,
            *keeper,
            *(thread.tally for thread in list(self._threads)),
        ]

    def wake(self, name: str | None) -> None:
        """Ask a box, or all of them, at once."""
        if name is not None and name not in self._settings.boxes:
            raise InvalidArgument(f"box: must be one that this worker serves, not {name!r}")
        if self._scheduler is not None:
            self._scheduler.wake(name)

    def health(self) -> WorkerHealth:
        """How it is doing."""
        scheduler = self._scheduler
        running = not self._stopping.is_set() and self.failure is None
        listener: ListenerState = "off" if self._listener is None else self._listener.state
        if scheduler is None:
            database: DatabaseState = "away" if self._helpers else "unknown"
            boxes = [
                BoxHealth(
                    store=self._db.store, box=name, running=running, last_claim_at=None, last_settle_at=None,
                    in_flight=0, stuck_handlers=0, database=database, listener=listener, asleep=False,
                    stalled_since=None,
                )
                for name in self._settings.boxes
            ]  # fmt: skip
        else:
            boxes = [self._health_of(box, running, listener) for box in scheduler.boxes]
        return WorkerHealth(running=running, boxes=tuple(boxes))

    def _health_of(self, box: ServedBox, running: bool, listener: ListenerState) -> BoxHealth:
        held = self._held(box)
        database: DatabaseState = "unknown" if box.claimed_at is None else "ok"
        if box.failures:
            database = "away"
        elif self._database.is_silent:
            database = "silent"
        return BoxHealth(
            store=self._db.store,
            box=box.name,
            running=running,
            last_claim_at=moment(box.claimed_at),
            last_settle_at=moment(box.settled_at),
            in_flight=sum(len(each.held()) for each in held),
            stuck_handlers=sum(is_stuck(each, self._settings) for each in held),
            database=database,
            listener=listener,
            asleep=box.asleep,
            stalled_since=moment(box.stalled_since),
        )

    def _held(self, box: ServedBox) -> list[Assignment]:
        """What this worker holds of a box, begun or not."""
        waiting = [] if self._scheduler is None else list(self._scheduler.ready)
        found = [*self._worked_on(), *waiting, *self._handlers.parked()]
        return [assignment for assignment in found if assignment.box is box]

    def measure(self) -> None:
        """Keep figures by topic from now on."""
        self._measured = True
        for tally in self.tallies():
            if tally.figures is None:
                tally.figures = Figures()

    def wait(self, seconds: float) -> bool:
        """Wait until nothing more is begun, at most so long; whether that has come."""
        scheduler = self._scheduler
        if scheduler is None:
            self._stopping.wait(min(seconds, 0.05))
        else:
            scheduler.pause(seconds)
        return self.stopping

    def drain(self) -> None:
        """End as soon as nothing is left that could be claimed now."""
        with self._lock:
            self._drain = True
            if self._scheduler is not None:
                self._scheduler.drain()

    # Ending

    def stop(self, timeout: float | None, hurry: Callable[[], bool] = bool, *, patient: bool = True) -> bool:
        """Begin nothing more, give running handlers so long, release the rest; whether all of them ended.

        ``hurry``: asked while waiting; true ends the wait. ``patient``: wait also for handlers that have
        overrun their time, whose messages are not at stake any more. From within a handler it only begins all
        that, because the handler itself is one of those that are waited for.
        """
        self._stop_beginning()
        if threading.current_thread() in self._workers or self._coroutines.is_on_loop():
            self._spawn("stopper", functools.partial(self._end, timeout, hurry, patient))
            return False
        return self._end(timeout, hurry, patient)

    def _stop_beginning(self) -> None:
        with self._lock:  # the starter may be about to launch the threads
            self._stopping.set()
            scheduler = self._scheduler
        if scheduler is not None:
            scheduler.stop()
            self._release_not_begun()

    def _release_not_begun(self) -> None:
        scheduler, handling = self._scheduler, self._handling
        if scheduler is not None and handling is not None:
            for assignment in [*scheduler.take_ready(), *self._handlers.unpark(), *self._worked_on()]:
                handling.release(assignment, self._tally)

    def _worked_on(self) -> list[Assignment]:
        found = [thread.assignment for thread in list(self._threads)]
        return [*(assignment for assignment in found if assignment is not None), *self._coroutines.held()]

    def _end(self, timeout: float | None, hurry: Callable[[], bool], patient: bool) -> bool:
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        with self._ending:  # run() and a stop() from elsewhere both come here
            if self._over.is_set():
                return self._clean
            while self._at_work(patient) and time.monotonic() < deadline and not hurry():
                time.sleep(0.005)
                self._release_not_begun()  # a claim may have been under way
            self._release_not_begun()
            self._database.must_end_at = time.monotonic() + SETTLE_AT_MOST
            self._clean = not self._abandon_running()
            self._settle_the_last()
            self._call_on_stop()
            for ring in self._bells:
                ring()
            self._over.set()
            self._coroutines.close()
            last = time.monotonic() + END_AT_MOST
            waited_for = [
                thread for thread, state in zip(self._workers, list(self._threads), strict=False)
                if not state.at_work and not state.hanging
            ]  # fmt: skip
            for thread in [*waited_for, *self._helpers]:
                thread.join(max(0.0, last - time.monotonic()))
            self._transactions.close()
            if self._exchange is not None:
                self._exchange.close()
            self._report_unsettled()
            self._ended(self)
            return self._clean

    def _at_work(self, patient: bool) -> bool:
        scheduler = self._scheduler
        return scheduler is not None and scheduler.busy + (scheduler.hanging if patient else 0) > 0

    def _abandon_running(self) -> int:
        """Release what handlers have not finished; how many handlers still run."""
        running = 0 if self._scheduler is None else self._scheduler.hanging
        for assignment in self._worked_on():
            messages = assignment.take_handled()
            running += bool(messages)
            for message in messages:
                box = assignment.box
                self._tally.count("released", box.name, message.topic)
                box.log.warning(
                    "%s: %s message %d is still being handled; released",
                    box.name, message.topic, message.id, extra=about(message),
                )  # fmt: skip
                box.outcomes.add(message.id, "release")
        return running

    def _call_on_stop(self) -> None:
        for function in self._hooks.on_stop if self._hooks_called else ():
            try:
                self._call_hook(function)
            except Exception as error:  # noqa: BLE001  # the hook is the caller's code
                self._log.error("on_stop %r: %s", function, error, exc_info=error)

    def _settle_the_last(self) -> None:
        """Let the lease keeper settle what there is, while there is time."""
        while self._unsettled() and time.monotonic() < self._database.must_end_at:
            time.sleep(0.005)

    def _unsettled(self) -> int:
        return 0 if self._scheduler is None else sum(len(box.outcomes) for box in self._scheduler.boxes)

    def _report_unsettled(self) -> None:
        count = self._unsettled()
        if count:
            self._log.error("%d results stay unsettled: the database does not answer", count)
