"""One run of a worker, from its start to its end: its threads, its connections, and what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from pysqlbox.errors import InvalidArgument
from pysqlbox.logs import about
from pysqlbox.wording import counted
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.coroutines import Coroutines
from pysqlbox.worker.exchange import Exchange
from pysqlbox.worker.figures import Figures
from pysqlbox.worker.handlers import Handlers
from pysqlbox.worker.handling import Handling
from pysqlbox.worker.health import BoxHealth, DatabaseState, ListenerState, WorkerHealth, moment
from pysqlbox.worker.hooks import Hooks
from pysqlbox.worker.lease_keeper import LeaseKeeper
from pysqlbox.worker.logs import StoreLog
from pysqlbox.worker.scheduler import Scheduler
from pysqlbox.worker.served_box import ServedBox
from pysqlbox.worker.settings import Settings
from pysqlbox.worker.stalls import is_stuck
from pysqlbox.worker.tally import Tally
from pysqlbox.worker.unknown_topics import UnknownTopics
from pysqlbox.worker.worker_thread import WorkerThread

__all__ = ["WorkerRun"]

#: After the time for handlers is over, the last results get so long to reach the database ...
SETTLE_AT_MOST = 3.0
#: ... and the threads so long to end, less if their calls were cut off before.
END_AT_MOST, CUT_AT_MOST = 1.5, 0.75
#: A worker has twice as many threads as it was told, and so many more, at most.
MORE_THREADS = 4


class WorkerRun(ABC):
    """What begins with the start of a worker and is over with its end."""

    def __init__(
        self,
        log: StoreLog,
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
        self._settings = settings
        self._handlers = handlers
        self._hooks = hooks
        self._unknown_topics = unknown_topics
        self._hooks_called = False
        self._coroutines = Coroutines(settings.async_slots, loop)
        self._owner = owner
        self._thread_count = threads
        self._drain = drain
        self._ended = ended
        self._log = log
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
        #: How many helpers end as soon as the worker stops, and what the first of them does then.
        self._ending_helpers = 0
        self._left_to_helper: Callable[[], object] | None = None
        self._hooks_thread: threading.Thread | None = None
        self._bells: list[Callable[[], None]] = []
        self._tally = Tally()
        self._measured = measured
        self._is_ending = False
        #: Whether start() waits for somebody, the database or an on_start hook, and nothing has begun.
        self.is_asking = False
        #: What ended the run before it had begun.
        self.failure: BaseException | None = None

    # Beginning

    @abstractmethod
    def start(self) -> None:
        """Start the threads; if the database is down, as soon as it is there."""

    @abstractmethod
    def _make_exchange(self, scheduler: Scheduler) -> Exchange: ...

    @abstractmethod
    def _make_keeper(self, scheduler: Scheduler, handling: Handling, exchange: Exchange) -> LeaseKeeper: ...

    @abstractmethod
    def _start_helpers(self, scheduler: Scheduler) -> None:
        """Start the other threads; while it drains, those that are needed for that."""

    @abstractmethod
    def _must_end_at(self, until: float) -> None:
        """Nothing waits for the database longer than that."""

    @abstractmethod
    def _keeper_ended(self) -> None: ...

    @abstractmethod
    def _close_stores(self) -> None: ...

    def _close_early(self) -> None:
        self._over.set()
        self._coroutines.close()
        self._ended(self)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """While start() waits for somebody, and a signal may end that."""
        try:
            self.is_asking = True
            yield
        finally:
            self.is_asking = False

    def _call_on_start(self) -> None:
        if self._stopping.is_set():
            return
        self._hooks_called = True
        for function in self._hooks.on_start:
            self._call_hook(function)

    def _call_hook(self, function: Callable[[], Any]) -> None:
        answer = function()
        if asyncio.iscoroutine(answer):
            self._coroutines.run(answer)

    def _launch(self, scheduler: Scheduler) -> None:
        """Begin. Where that fails, for want of threads or by Ctrl-C, nothing is left that runs."""
        try:
            self._begin(scheduler)
        except BaseException:
            self.stop(0.0)
            raise

    def _begin(self, scheduler: Scheduler) -> None:
        with self._lock:
            if self._stopping.is_set():
                return
            coroutines = self._coroutines
            handling = Handling(scheduler, self._handlers, self._settings, self._unknown_topics)
            coroutines.serve(scheduler, handling)
            exchange = self._make_exchange(scheduler)
            keeper = self._make_keeper(scheduler, handling, exchange)
            self._scheduler, self._handling, self._exchange = scheduler, handling, exchange
            self._keeper = keeper
            if self._measured:
                self.measure()
            for _ in range(self._thread_count):
                self._add_thread(scheduler, handling, exchange)
            self._helpers.append(self._spawn("keeper", lambda: self._keep(keeper)))
            if self._drain:
                scheduler.drain()
            self._start_helpers(scheduler)

    def _keep(self, keeper: LeaseKeeper) -> None:
        try:
            keeper.run(self._over.is_set)
        finally:
            self._keeper_ended()

    def _add_thread(self, scheduler: Scheduler, handling: Handling, exchange: Exchange) -> None:
        thread = WorkerThread(scheduler, handling, exchange, self._coroutines, len(self._threads))
        self._threads.append(thread)
        if self._measured:  # now, since whoever says so meanwhile has seen the thread, or is seen here
            thread.tally.figures = Figures()
        try:
            self._workers.append(self._spawn(str(len(self._workers) + 1), thread.run))
        except BaseException:  # there may be no thread more
            self._threads.remove(thread)
            raise
        scheduler.joined()

    def _replace(self) -> None:
        """Start another thread for one that hangs."""
        with self._lock:
            scheduler, handling, exchange = self._scheduler, self._handling, self._exchange
            if scheduler is not None and handling is not None and exchange is not None:
                self._add_thread(scheduler, handling, exchange)

    def _spawn_helper(self, name: str, target: Callable[[], object]) -> None:
        """Start one of the few threads beside those that handle, which ends when the worker stops."""
        self._ending_helpers += 1
        self._helpers.append(self._spawn(name, functools.partial(self._help, target)))

    def _help(self, target: Callable[[], object]) -> None:
        try:
            target()
        finally:
            with self._lock:
                self._ending_helpers -= 1
                left, self._left_to_helper = self._left_to_helper, None
            if left is not None:
                left()

    def _end_elsewhere(self, end: Callable[[], object]) -> None:
        """End in another thread than the caller's, which may be one that the end waits for.

        Where all threads are taken that a worker may have, it is the first helper's that ends.
        """
        with self._lock:
            loop = self._coroutines.thread
            threads = [*self._workers, *self._helpers, *([] if loop is None else [loop])]
            crowded = sum(each.is_alive() for each in threads) >= 2 * self._thread_count + MORE_THREADS
            if not (crowded and self._ending_helpers):
                self._spawn("stopper", end)
                return
            self._left_to_helper = end
        for ring in self._bells:
            ring()

    def _end_without_loop(self) -> None:
        """Somebody has closed the loop of coroutine handlers: what these have not finished is given back."""
        self._stop_beginning()
        self._end_elsewhere(functools.partial(self._end, 0.0, bool, False))

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
            for box in list(self._scheduler.boxes):
                if name in (None, box.name):
                    self._scheduler.wake(box)

    def health(self) -> WorkerHealth:
        """How it is doing."""
        scheduler = self._scheduler
        running = not self._stopping.is_set() and self.failure is None
        if scheduler is None:
            boxes = self._health_before(running)
        else:
            boxes = [self._health_of(box, running) for box in list(scheduler.boxes)]
        return WorkerHealth(running=running, boxes=tuple(boxes))

    @abstractmethod
    def _health_before(self, running: bool) -> list[BoxHealth]:
        """What there is to say before anything has begun."""

    @abstractmethod
    def _hears(self, box: ServedBox) -> ListenerState:
        """Whether notifications about a box come through."""

    def _health_of(self, box: ServedBox, running: bool) -> BoxHealth:
        held = self._held(box)
        database: DatabaseState = "unknown" if box.claimed_at is None else "ok"
        if box.failures:
            database = "away"
        elif box.store.database.is_silent:
            database = "silent"
        return BoxHealth(
            store=box.queue.deployment.store,
            box=box.name,
            running=running,
            last_claim_at=moment(box.claimed_at),
            last_settle_at=moment(box.settled_at),
            in_flight=sum(len(each.held()) for each in held),
            stuck_handlers=sum(is_stuck(each, self._settings) for each in held),
            database=database,
            listener=self._hears(box),
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
        if self.is_its_own():
            if not self._is_ending:
                self._end_elsewhere(functools.partial(self._end, timeout, hurry, patient))
            return False
        return self._end(timeout, hurry, patient)

    def is_its_own(self) -> bool:
        """Whether the caller is a handler or an on_stop hook, or on the loop where handlers run."""
        caller = threading.current_thread()
        return caller in self._workers or caller is self._hooks_thread or self._coroutines.is_on_loop()

    def is_parents(self) -> None:
        """This is a forked child, of whose parent the run is: if a handler has forked, its thread ends."""
        if self._scheduler is not None:
            self._scheduler.forked = self._scheduler.stopping = True

    def _stop_beginning(self) -> None:
        with self._lock:  # the starter may be about to launch the threads
            self._stopping.set()
            scheduler = self._scheduler
        if scheduler is not None:
            scheduler.stop()

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
            if self._is_ending:  # the handler of a signal calls this in its midst
                return False
            self._is_ending = True
            while self._at_work(patient) and time.monotonic() < deadline and not hurry():
                self._release_not_begun()  # again and again: a claim may have been under way
                time.sleep(0.005)
            self._release_not_begun()
            cut_at = time.monotonic() + SETTLE_AT_MOST
            self._must_end_at(cut_at)
            self._clean = not self._abandon_running()
            self._settle_the_last()
            for ring in self._bells:
                ring()
            self._call_on_stop(cut_at if hurry() else max(cut_at, deadline + SETTLE_AT_MOST))
            self._over.set()
            self._coroutines.close()
            last = min(time.monotonic() + END_AT_MOST, cut_at + CUT_AT_MOST)
            waited_for = [
                thread for thread, state in zip(self._workers, list(self._threads), strict=False)
                if not state.at_work and not state.hanging
            ]  # fmt: skip
            for thread in [*waited_for, *self._helpers]:
                if thread is not threading.current_thread():
                    thread.join(max(0.0, last - time.monotonic()))
            self._close_stores()
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
                self._tally.count("released", box.key, message.topic)
                box.log.warning(
                    "%s: %s message %d is still being handled; released",
                    box.name, message.topic, message.id, extra=about(message),
                )  # fmt: skip
                box.outcomes.add(message.id, "release")
        return running

    def _call_on_stop(self, until: float) -> None:
        """Call the hooks, which may take until then, in a thread that can be left behind."""
        if not self._hooks.on_stop or not self._hooks_called:
            return
        begun: list[Callable[[], Any]] = []
        thread = self._spawn("hooks", functools.partial(self._call_each_on_stop, begun))
        thread.join(None if until == float("inf") else max(0.0, until - time.monotonic()))
        if thread.is_alive():
            function = begun[-1] if begun else self._hooks.on_stop[0]
            self._log.error("on_stop %r has not ended in time: it is left behind", function)

    def _call_each_on_stop(self, begun: list[Callable[[], Any]]) -> None:
        self._hooks_thread = threading.current_thread()
        for function in self._hooks.on_stop:
            begun.append(function)
            try:
                self._call_hook(function)
            except Exception as error:  # noqa: BLE001  # the hook is the caller's code
                self._log.error("on_stop %r: %s", function, error, exc_info=error)

    def _settle_the_last(self) -> None:
        """Let the lease keeper settle what there is, while there is time."""
        until = time.monotonic() + SETTLE_AT_MOST
        while (self._unsettled() or self._delivering()) and time.monotonic() < until:
            time.sleep(0.005)

    def _delivering(self) -> bool:
        return self._scheduler is not None and self._scheduler.delivering

    def _unsettled(self) -> int:
        return 0 if self._scheduler is None else sum(len(box.outcomes) for box in self._scheduler.boxes)

    def _report_unsettled(self) -> None:
        count = self._unsettled()
        if count:
            results = counted(count, "result stays", "results stay")
            self._log.error("%s unsettled: the database does not answer", results)
