"""The worker: runs handlers for the messages of one deployment's boxes."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pysqlbox.arguments import whole_seconds
from pysqlbox.errors import InvalidArgument, InvalidState, PysqlboxError
from pysqlbox.typed import topic_of
from pysqlbox.worker.backoff import Backoff
from pysqlbox.worker.caretaker import Caretaker, Chore
from pysqlbox.worker.crew import TURNS, Crew
from pysqlbox.worker.hand import Hand, Tally
from pysqlbox.worker.handlers import Handler, Handlers, seconds
from pysqlbox.worker.joins import join_wait_handler
from pysqlbox.worker.keeper import Keeper
from pysqlbox.worker.lanes import JOIN_WAIT, Lane
from pysqlbox.worker.logs import log_of
from pysqlbox.worker.results import Delay
from pysqlbox.worker.sessions import Outcomes, open_session
from pysqlbox.worker.settings import Settings
from pysqlbox.worker.timetable import Timetable

if TYPE_CHECKING:
    from pysqlbox.box import Box

__all__ = ["Worker", "WorkerStats"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """What a worker has done since it was made, and how many threads are at work now."""

    acked: int
    retried: int
    released: int
    dead: int
    busy_threads: int

    @property
    def handled(self) -> int:
        """How many handler results there were, releases aside."""
        return self.acked + self.retried + self.dead


class Worker:
    """Claims, handles and settles with a pool of threads, each on a connection of its own."""

    def __init__(
        self,
        box: Box,
        *,
        boxes: Sequence[str] = ("outbox",),
        topics: Sequence[str] | None = None,
        threads: int = 8,
        batch_size: int = 50,
        lease_seconds: Delay = 30,
        poll_seconds: Delay = 0.5,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        handler_timeout: Delay | None = None,
        reap_seconds: Delay | None = 10.0,
        cleanup_seconds: Delay | None = 60.0,
        retention: Delay = timedelta(days=7),
        schedule_seconds: Delay | None = 10.0,
        listen: bool = True,
    ) -> None:
        """Serve ``boxes``; ``max_attempts`` and ``backoff`` are the box's own settings where they are None.

        ``handler_timeout``: how long any handler may take. ``reap_seconds``, ``cleanup_seconds``: how often
        one worker reaps, and deletes what was done longer than ``retention`` ago; None leaves it to others.
        ``schedule_seconds``: how soon a schedule that somebody sets is noticed; None leaves firing to others.
        ``listen``: wake up by NOTIFY where the database has it.
        """
        if isinstance(boxes, str) or not boxes:
            raise InvalidArgument("boxes: must be a list of at least one name")
        if isinstance(topics, str):
            raise InvalidArgument("topics: must be a list of topics")
        _whole("threads", threads, 1, 1000)
        _whole("batch_size", batch_size, 1, 10_000)
        lease = _whole("lease_seconds", whole_seconds("lease_seconds", lease_seconds), 1, 86_400)
        if max_attempts is not None:
            _whole("max_attempts", max_attempts, 0, 2**31 - 1)
        poll = seconds("poll_seconds", poll_seconds)
        assert poll is not None
        keep = retention.total_seconds() if isinstance(retention, timedelta) else float(retention)
        if keep < 0:
            raise InvalidArgument("retention: must not be negative")
        self.box = box
        self._log = log_of(box)
        self.owner_token = uuid.uuid4()
        self.threads = threads
        self._handlers = Handlers()
        self._settings = Settings(lease, backoff, seconds("handler_timeout", handler_timeout))
        self._boxes = tuple(dict.fromkeys(boxes))
        self._topics = topics
        self._batch_size = batch_size
        self._poll_seconds = poll
        self._max_attempts = max_attempts
        self._reap_seconds = seconds("reap_seconds", reap_seconds)
        self._cleanup_seconds = seconds("cleanup_seconds", cleanup_seconds)
        self._retention = int(keep)
        self._schedule_seconds = seconds("schedule_seconds", schedule_seconds)
        self._listen = listen
        self._lock = threading.Lock()
        self._ending = threading.RLock()
        self._crew: Crew | None = None
        self._hands: list[Hand] = []
        self._threads: list[threading.Thread] = []
        self._helpers: list[threading.Thread] = []
        self._bells: list[Callable[[], None]] = []
        self._past = Tally()

    def handler(
        self, topic: str | type, *, concurrency: int | None = None, timeout: Delay | None = None
    ) -> Callable[[_Function], _Function]:
        """Register the handler of a topic, or of a message class that carries its topic.

        ``concurrency``: how many threads may be in it at once; ``timeout``: how long it may take.
        """
        return self._register(topic, batch=False, concurrency=concurrency, timeout=timeout)

    def batch_handler(
        self, topic: str | type, *, concurrency: int | None = None, timeout: Delay | None = None
    ) -> Callable[[_Function], _Function]:
        """Register a handler that gets a list of messages and answers None, or a result for each."""
        return self._register(topic, batch=True, concurrency=concurrency, timeout=timeout)

    def add_handler(
        self,
        topic: str | type,
        function: Callable[..., Any],
        *,
        batch: bool = False,
        concurrency: int | None = None,
        timeout: Delay | None = None,
    ) -> None:
        """The same without a decorator."""
        self._register(topic, batch=batch, concurrency=concurrency, timeout=timeout)(function)

    def start(self) -> None:
        """Start the threads and return."""
        self._start(drain=False)

    def stop(self, timeout: Delay | None = 30.0) -> bool:
        """Claim no more, let running handlers finish within the timeout, release the rest.

        Returns whether every handler ended. One that did not keeps its thread; its message goes to others.
        """
        with self._lock:  # a handler may call this while the last threads are still being started
            crew = self._crew
        if crew is None:
            return True
        wait = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        deadline = None if wait is None else time.monotonic() + wait
        crew.stop()
        self._release_left_over(crew)
        for thread in list(self._threads):
            _join(thread, deadline)
        return self._finish(crew)

    def drain(self) -> int:
        """Work until nothing is left that could be claimed now; how many results there were."""
        before = self.stats().handled
        self._start(drain=True)
        crew = self._crew
        if crew is not None:  # unless a handler has stopped the worker already
            crew.drain()
            for thread in list(self._threads):
                _join(thread, None)
            self._finish(crew)
        return self.stats().handled - before

    def run(self, *, stop_timeout: Delay = 30.0) -> None:
        """Work until SIGTERM or SIGINT, or stop() from another thread; then stop gracefully.

        A second signal does not wait for the handlers.
        """
        signalled = threading.Event()
        hurry = threading.Event()

        def on_signal(number: int, frame: object) -> None:
            del frame
            (hurry if signalled.is_set() else signalled).set()
            self._log.info("%s: stopping", signal.Signals(number).name)

        with _signals(on_signal):
            self.start()
            crew = self._crew
            while not signalled.is_set() and crew is not None and not crew.stopping:
                crew.pause(0.2)  # in slices: a signal handler runs between them
            wait = stop_timeout.total_seconds() if isinstance(stop_timeout, timedelta) else stop_timeout
            deadline = time.monotonic() + wait
            if crew is not None:
                crew.stop()
                while crew.busy and time.monotonic() < deadline and not hurry.is_set():
                    time.sleep(0.02)
            self.stop(0.2)

    def stats(self) -> WorkerStats:
        """What this worker has done so far."""
        with self._lock:
            tallies = [self._past, *(hand.tally for hand in self._hands)]
            busy = self._crew.busy if self._crew is not None else 0
        return WorkerStats(
            acked=sum(tally.acked for tally in tallies),
            retried=sum(tally.retried for tally in tallies),
            released=sum(tally.released for tally in tallies),
            dead=sum(tally.dead for tally in tallies),
            busy_threads=busy,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Worker({', '.join(self._boxes)} of {self.box!r}, {self.threads} threads)"

    def _register(
        self, topic: str | type, *, batch: bool, concurrency: int | None, timeout: Delay | None
    ) -> Callable[[_Function], _Function]:
        name = topic if isinstance(topic, str) else topic_of(topic)
        if not 1 <= len(name) <= 255:
            raise InvalidArgument("topic: must have 1 to 255 characters")

        def register(function: _Function) -> _Function:
            self._handlers.add(Handler(name, function, batch=batch, concurrency=concurrency, timeout=timeout))
            return function

        return register

    def _start(self, *, drain: bool) -> None:
        with self._lock:
            if self._crew is not None:
                if drain:
                    return
                raise InvalidState("the worker runs already")
            lanes = self._make_lanes()
            crew = Crew(lanes, threads=self.threads)
            self._crew = crew
            self._hands = []
            self._threads = []
            for _ in range(self.threads):
                self._add_hand(crew)
            self._helpers = [self._spawn("keeper", self._make_keeper(crew).run)]
            if not drain:
                self._start_helpers(crew)

    def _make_lanes(self) -> list[Lane]:
        lanes = []
        session = open_session(self.box)
        try:
            for name in self._boxes:
                queue = self.box.queue(name)
                attempts = self._max_attempts
                if attempts is None:
                    setting = session.setting(queue, "max_attempts")
                    attempts = None if setting is None else int(setting)
                topics = self._topics
                if queue.kind == "outbox":
                    if JOIN_WAIT not in self._handlers:
                        self._handlers.add(Handler(JOIN_WAIT, join_wait_handler(self.box)))
                    if topics is not None and JOIN_WAIT not in topics:
                        topics = [*topics, JOIN_WAIT]
                lanes.append(
                    Lane(
                        queue,
                        self._handlers,
                        topics=topics,
                        batch_size=self._batch_size,
                        share=self._batch_size * (self.threads // min(TURNS, self.threads)),
                        poll_seconds=self._poll_seconds,
                        max_attempts=attempts,
                        own_max_attempts=self._max_attempts,
                    )
                )
        finally:
            session.close()
        return lanes

    def _make_keeper(self, crew: Crew) -> Keeper:
        return Keeper(
            crew,
            self._hands,
            open_session(self.box),
            self.owner_token,
            self._settings,
            self._handlers,
            lambda: self._replace(crew),
        )

    def _start_helpers(self, crew: Crew) -> None:
        if self._listen and self.box.target.dialect == "postgres":
            from pysqlbox.worker.wakeup import Listener

            listener = Listener(self.box, crew)
            self._bells = [listener.stop]
            self._helpers.append(self._spawn("listener", listener.run))
        chores, timetables = list(self._chores()), list(self._timetables(crew))
        if chores or timetables:
            caretaker = Caretaker(crew, open_session(self.box), self.owner_token, chores, timetables)
            self._helpers.append(self._spawn("caretaker", caretaker.run))

    def _chores(self) -> Iterator[Chore]:
        for name in self._boxes:
            if self._reap_seconds is not None:
                yield Chore("reap", name, self._reap_seconds, f"{name}_reap", {})
            if self._cleanup_seconds is not None:
                yield Chore(
                    "cleanup",
                    name,
                    self._cleanup_seconds,
                    f"{name}_cleanup",
                    {"retention_seconds": self._retention},
                )

    def _timetables(self, crew: Crew) -> Iterator[Timetable]:
        if self._schedule_seconds is not None:
            for lane in crew.lanes:
                if lane.queue.kind == "outbox":
                    yield Timetable(lane.name, self._schedule_seconds, lane.log)

    def _add_hand(self, crew: Crew) -> None:
        hand = Hand(crew, open_session(self.box), self.owner_token, self._settings, len(self._hands))
        self._hands.append(hand)
        self._threads.append(self._spawn(str(len(self._threads) + 1), hand.run))

    def _replace(self, crew: Crew) -> None:
        """Start another thread for one that does not come back."""
        with self._lock:
            if not crew.stopping:
                self._log.warning("a thread is stuck in its handler; another one takes its place")
                self._add_hand(crew)

    def _spawn(self, name: str, target: Callable[[], None]) -> threading.Thread:
        """A daemon thread: one that hangs in a handler must not keep the process from ending."""
        thread = threading.Thread(target=target, name=f"pysqlbox-{name}", daemon=True)
        thread.start()
        return thread

    def _release_left_over(self, crew: Crew) -> None:
        """Give back what no thread has begun."""
        by_lane: dict[int, tuple[Lane, Outcomes]] = {}
        found = [(work.lane, work.messages()) for work in [*crew.take_left_over(), *self._handlers.unpark()]]
        for hand in list(self._hands):
            if (lane := hand.lane) is not None:
                found.append((lane, hand.take_waiting()))
        for lane, messages in found:
            outcomes = by_lane.setdefault(id(lane), (lane, Outcomes()))[1]
            for message in messages:
                self._past.released += 1
                outcomes.add(message.id, "release")
        self._settle_all(by_lane.values())

    def _settle_all(self, found: Any) -> None:
        session = open_session(self.box)
        try:
            for lane, outcomes in found:
                session.settle(lane.queue, self.owner_token, outcomes, 0, self._settings.lease_seconds, None)
        except PysqlboxError as error:
            self._log.warning("what was not begun is left to its leases: %s", error)
        finally:
            session.close()

    def _finish(self, crew: Crew) -> bool:
        """End the helpers, release what still runs, and forget the crew."""
        with self._ending:  # run() and a stop() from elsewhere both come here
            return self._crew is not crew or self._end(crew)

    def _end(self, crew: Crew) -> bool:
        self._release_left_over(crew)
        with self._lock:
            pairs = list(zip(self._hands, self._threads, strict=True))
        running = [hand for hand, thread in pairs if thread.is_alive()]
        by_lane: dict[int, tuple[Lane, Outcomes]] = {}
        for hand in running:
            lane, messages = hand.lane, hand.take_away(hand.current)
            if (messages or crew.write_off(hand)) and lane is not None:
                outcomes = by_lane.setdefault(id(lane), (lane, Outcomes()))[1]
                done = hand.outcomes.take()
                outcomes.acked += done.acked
                outcomes.others += done.others
                for message in messages:
                    hand.tally.released += 1
                    self._log.warning(
                        "%s: %s message %d is still being handled; released",
                        lane.name,
                        message.topic,
                        message.id,
                    )
                    outcomes.add(message.id, "release")
        self._settle_all(by_lane.values())
        for ring in self._bells:
            ring()
        for thread in self._helpers:
            thread.join(10.0)
        with self._lock:
            for hand in self._hands:
                self._past.acked += hand.tally.acked
                self._past.retried += hand.tally.retried
                self._past.released += hand.tally.released
                self._past.dead += hand.tally.dead
            self._hands = []
            self._threads = []
            self._helpers = []
            self._bells = []
            self._crew = None
        return not running


def _whole(name: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgument(f"{name}: must be a whole number from {least} to {most}")
    return value


def _join(thread: threading.Thread, deadline: float | None) -> None:
    if thread is threading.current_thread():
        return
    if deadline is None:
        thread.join()
    else:
        thread.join(max(0.0, deadline - time.monotonic()))


@contextlib.contextmanager
def _signals(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Take SIGTERM and SIGINT for a while; in any other thread than the main one signals are not ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
