"""The worker: runs handlers for the messages of one deployment's boxes."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from pysqlbox.errors import InvalidArgument, InvalidState
from pysqlbox.signatures import check_takes
from pysqlbox.typed import topic_of
from pysqlbox.wording import counted
from pysqlbox.worker.context import Context
from pysqlbox.worker.deployment_run import DeploymentRun
from pysqlbox.worker.figures import Figures
from pysqlbox.worker.forking import keep_for_parent, watch
from pysqlbox.worker.handlers import Handler, HandlerOptions, Handlers
from pysqlbox.worker.health import BoxHealth, WorkerHealth
from pysqlbox.worker.hooks import Hooks
from pysqlbox.worker.logs import StoreLog, log_of
from pysqlbox.worker.registering import (
    AroundFunction,
    BatchHandlerOf,
    ClassBatchHandler,
    ClassHandler,
    HandlerOf,
    HookFunction,
)
from pysqlbox.worker.results import Delay
from pysqlbox.worker.settings import DEFAULTS, Settings, WorkerOptions, checked_names, whole
from pysqlbox.worker.signals import signals
from pysqlbox.worker.tally import Tally, WorkerStats
from pysqlbox.worker.unknown_topics import UnknownTopics
from pysqlbox.worker.worker_run import WorkerRun

if TYPE_CHECKING:
    from pysqlbox.deployment import Deployment

__all__ = ["Worker"]

#: Running handlers get so long to end, where nothing else is said.
STOP_SECONDS = 30.0


class _Signalled(BaseException):
    """Ends a start in whose midst a signal came."""


_Object = TypeVar("_Object")


class Worker:
    """Claims, handles and settles with a pool of threads, each on a connection of its own."""

    def __init__(self, db: Deployment, **options: Unpack[WorkerOptions]) -> None:
        """Serve boxes of a deployment as ``WorkerOptions`` says; what is left out is in ``DEFAULTS``."""
        checked_names(options)
        self.deployment = db
        self.owner_token = uuid.uuid4()
        self.threads = whole("threads", options.get("threads", DEFAULTS["threads"]), 1, 1000)
        self._settings = Settings.checked(options)
        self._handlers = Handlers()
        self._hooks = Hooks()
        self._unknown_topics = UnknownTopics(self._settings.unknown_topics)
        self._log = self._make_log()
        self._lock = threading.Lock()
        self._run: WorkerRun | None = None
        self._past = Tally()
        self._measured = False
        watch(self)

    @overload
    def handler(self, topic: str, **options: Unpack[HandlerOptions]) -> HandlerOf: ...

    @overload
    def handler(self, topic: type[_Object], **options: Unpack[HandlerOptions]) -> ClassHandler[_Object]: ...

    def handler(self, topic: str | type[Any], **options: Unpack[HandlerOptions]) -> Any:
        """Register the handler of a topic, or of a message class that carries its topic.

        ``concurrency``: how many may run at once; ``timeout``: how long it may take. ``transactional``: run
        it in one transaction with the end of its message, on ``context.connection``: True, or a callable that
        answers a context manager of a connection.
        """
        return self._register(topic, batch=False, options=options)

    @overload
    def batch_handler(self, topic: str, **options: Unpack[HandlerOptions]) -> BatchHandlerOf: ...

    @overload
    def batch_handler(
        self, topic: type[_Object], **options: Unpack[HandlerOptions]
    ) -> ClassBatchHandler[_Object]: ...

    def batch_handler(self, topic: str | type[Any], **options: Unpack[HandlerOptions]) -> Any:
        """Register a handler that gets a list of messages and answers None, or a result for each."""
        return self._register(topic, batch=True, options=options)

    def add_handler(
        self,
        topic: str | type,
        function: Callable[[Any], object] | Callable[[Any, Context], object],
        *,
        batch: bool = False,
        **options: Unpack[HandlerOptions],
    ) -> None:
        """The same without a decorator."""
        self._register(topic, batch=batch, options=options)(function)

    def middleware(self, function: AroundFunction) -> AroundFunction:
        """Put a function around every handler: ``(message, context, call_next)``.

        ``call_next()`` runs the rest and answers its result; what the function returns is the result. The
        first one registered is outermost. A batch handler's messages come as a list. Around coroutine
        handlers it is a coroutine function, and so is ``call_next``.
        """
        self._handlers.add_middleware(function)
        return function

    def on_start(self, function: HookFunction) -> HookFunction:
        """Call a function without arguments, or a coroutine function, before the first message is claimed."""
        check_takes("on_start", function)
        self._hooks.on_start.append(function)
        return function

    def on_stop(self, function: HookFunction) -> HookFunction:
        """The same after the last result has been settled."""
        check_takes("on_stop", function)
        self._hooks.on_stop.append(function)
        return function

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended; it may still be waiting for the database."""
        return self._run is not None

    def start(self) -> None:
        """Start the threads and return. While the database is down, they start as soon as it is there."""
        self._begin(drain=False).start()

    def stop(self, timeout: Delay | None = STOP_SECONDS) -> bool:
        """Claim no more, let running handlers finish within the timeout, release the rest.

        Returns whether every handler ended. One that did not keeps its thread; its message goes to others.
        Within a handler it returns at once, with False; that handler has the timeout to finish, too.
        """
        run = self._run
        return True if run is None else run.stop(_seconds(timeout))

    def drain(self, timeout: Delay | None = None, raise_errors: bool = False) -> int:
        """Work until nothing is left that could be claimed now; how many results there were.

        After ``timeout`` it raises TimeoutError, with the worker stopped. With ``raise_errors`` it stops at
        the first exception of a handler and raises that. Ctrl-C stops the worker, as ``stop()`` would.
        """
        limit = _seconds(timeout)
        deadline = None if limit is None else time.monotonic() + limit
        before = self.stats().handled
        run = self._run
        if run is None:
            run = self._begin(drain=True)
            run.start()
        elif run.is_its_own():
            raise InvalidState(
                "drain: must not be called where the worker's handlers run, which it would wait for;"
                " on the event loop of its coroutine handlers await asyncio.to_thread(worker.drain)"
            )
        else:
            run.drain()
        failed = timed_out = False
        try:
            while not failed and not timed_out and not run.wait(0.02 if raise_errors else 0.2):
                failed = raise_errors and run.first_error is not None
                timed_out = deadline is not None and time.monotonic() >= deadline
        finally:
            run.stop(0.0 if timed_out else None, patient=False)
        if run.failure is not None:
            raise run.failure
        if raise_errors and run.first_error is not None:
            raise run.first_error
        if timed_out and limit is not None:
            raise TimeoutError(f"not everything was handled within {counted(limit, 'second')}")
        return self.stats().handled - before

    def run(self, *, stop_timeout: Delay = STOP_SECONDS) -> None:
        """Work until SIGTERM or SIGINT, or stop() from another thread; then stop gracefully.

        It waits for a database that is down. A second signal does not wait for the handlers.
        """
        signalled = threading.Event()
        hurry = threading.Event()

        def on_signal(number: int, frame: object) -> None:
            del frame
            (hurry if signalled.is_set() else signalled).set()
            self._log.info("%s: stopping", signal.Signals(number).name)
            if self._run is not None and self._run.is_asking:
                raise _Signalled  # the database, or a hook, may keep this thread longer than anybody likes

        with signals(on_signal):
            try:
                self.start()
            except _Signalled:  # nothing has begun
                return
            run = self._run
            if run is None:  # a handler has stopped it already
                return
            while not signalled.is_set() and not run.wait(0.2):  # in slices, between which signals are seen
                pass
            run.stop(_seconds(stop_timeout), hurry.is_set, patient=False)
            if run.failure is not None:
                raise run.failure

    async def run_async(self, *, stop_timeout: Delay = STOP_SECONDS) -> None:
        """Work until the task is cancelled or somebody calls stop(); coroutine handlers run on this loop.

        It takes no signals: they are the application's.
        """
        run = await self._start_async(_seconds(stop_timeout))
        try:
            while not run.stopping:
                await asyncio.sleep(0.05)
        finally:
            await asyncio.shield(asyncio.to_thread(run.stop, _seconds(stop_timeout), patient=False))
        if run.failure is not None:
            raise run.failure

    async def _start_async(self, stop_seconds: float | None) -> WorkerRun:
        """Start; if that is cancelled, handlers that have begun meanwhile get so long to end."""
        run = self._begin(drain=False, loop=asyncio.get_running_loop())
        try:
            await asyncio.to_thread(run.start)
        except asyncio.CancelledError:  # the thread goes on, and would start what nobody stops
            await asyncio.shield(asyncio.to_thread(run.stop, stop_seconds, patient=False))
            raise
        return run

    async def __aenter__(self) -> Self:
        await self._start_async(STOP_SECONDS)
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.shield(asyncio.to_thread(self.stop))

    def stats(self) -> WorkerStats:
        """What this worker has done so far."""
        with self._lock:
            run, past = self._run, self._past
            return WorkerStats.of(
                [past] if run is None else [past, *run.tallies()], 0 if run is None else run.busy
            )

    def health(self) -> WorkerHealth:
        """How it is doing, box by box. Nothing is asked of the database for it."""
        run = self._run
        if run is not None:
            return run.health()
        db = self.deployment
        boxes = tuple(
            BoxHealth(
                store=db.store, box=name, running=False, last_claim_at=None, last_settle_at=None, in_flight=0,
                stuck_handlers=0, database="unknown", listener="off", asleep=False, stalled_since=None,
            )
            for name in self._settings.boxes
        )  # fmt: skip
        return WorkerHealth(running=False, boxes=boxes)

    def wake(self, box: str | None = None) -> None:
        """Say that a box, or any, has something to do: it is asked at once. From any thread or event loop.

        For whoever has just committed messages in this process, or was told of them by a webhook.
        """
        run = self._run
        if run is not None:
            run.wake(box)

    def measure(self) -> None:
        """Keep figures by topic from now on, for ``figures()``; every message then costs a little more."""
        with self._lock:
            self._measured = True
            if self._run is not None:
                self._run.measure()

    def figures(self) -> Figures:
        """What was done by box and topic, with histograms, since ``measure()``."""
        with self._lock:
            run, past = self._run, self._past
            found = Tally(figures=Figures())
            for tally in [past] if run is None else [past, *run.tallies()]:
                found.add(tally)
        return found.figures or Figures()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        boxes = ", ".join(self._settings.boxes)
        return f"Worker({boxes} of {self.deployment!r}, {counted(self.threads, 'thread')})"

    def _register(self, topic: str | type[Any], *, batch: bool, options: HandlerOptions) -> Any:
        name = topic if isinstance(topic, str) else topic_of(topic)
        if not 1 <= len(name) <= 255:
            raise InvalidArgument("topic: must have 1 to 255 characters")

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self._handlers.add(Handler(name, function, batch=batch, **options))
            return function

        return register

    def _begin(self, *, drain: bool, loop: asyncio.AbstractEventLoop | None = None) -> WorkerRun:
        with self._lock:
            if self._run is not None:
                raise InvalidState("the worker runs already: stop() it first, or make another")
            self._run = self._make_run(
                self._settings, self._handlers, self._hooks, self._unknown_topics, self.owner_token,
                threads=self.threads, drain=drain, measured=self._measured, ended=self._forget, loop=loop,
            )  # fmt: skip
            return self._run

    def _make_run(self, *arguments: Any, **options: Any) -> WorkerRun:
        return DeploymentRun(self.deployment, *arguments, **options)

    def _make_log(self) -> StoreLog:
        return log_of(self.deployment)

    def begin_anew(self) -> None:
        """In a forked child: nothing runs here, whatever ran in the parent, and its owner is another one."""
        run, self._run = self._run, None
        self._lock = threading.Lock()
        self._past = Tally()
        self.owner_token = uuid.uuid4()
        self._handlers.begin_anew()
        if run is not None:
            run.is_parents()
            keep_for_parent(run)

    def _forget(self, run: WorkerRun) -> None:
        """The run is over: only what it counted stays."""
        with self._lock:
            if self._run is run:
                for tally in run.tallies():
                    self._past.add(tally)
                self._run = None


def _seconds(timeout: Delay | None) -> float | None:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
