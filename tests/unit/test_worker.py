"""A worker and its runs: beginning one, waiting for its end by every way there is, and what stays of it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

import pysqlbox
from pysqlbox import InvalidArgument, InvalidState
from pysqlbox.worker import forking
from pysqlbox.worker.figures import Figures
from pysqlbox.worker.tally import Tally
from pysqlbox.worker.worker import Worker
from tests.unit.runs import PATIENCE


class Run:
    """In place of a run: what happens while it starts, is waited for and stops says the test."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.failure: BaseException | None = None
        self.first_error: BaseException | None = None
        self.is_asking = self.stopping = self.is_own = False
        self.busy = 2
        self.tally = Tally(acked=5)
        self.done: list[Any] = []
        #: What is called at each wait; true ends the waiting.
        self.waiting: Callable[[], bool] = lambda: True
        self.starting: Callable[[], object] = lambda: None
        self.stops: Callable[[], object] = lambda: None
        #: How it was stopped.
        self.stopped: list[tuple[float | None, bool]] = []
        self.hurried: list[bool] = []

    def start(self) -> None:
        self.starting()

    def wait(self, seconds: float) -> bool:
        self.done.append(("wait", seconds))
        return self.waiting()

    def drain(self) -> None:
        self.done.append("drain")

    def is_its_own(self) -> bool:
        return self.is_own

    def stop(self, timeout: float | None, hurry: Callable[[], bool] = bool, *, patient: bool = True) -> bool:
        self.stopped.append((timeout, patient))
        self.stops()
        self.hurried.append(hurry())
        self.options["ended"](self)
        return False

    def tallies(self) -> list[Tally]:
        return [self.tally]

    def measure(self) -> None:
        self.tally.figures = Figures()

    def health(self) -> str:
        return "its health"

    def wake(self, name: str | None) -> None:
        self.done.append(("wake", name))

    def is_parents(self) -> None:
        self.done.append("is_parents")


class It(Worker):
    """A worker whose next run is the test's."""

    next: Run

    def _make_run(self, *_arguments: Any, **options: Any) -> Any:
        self.next.options = options
        return self.next


@pytest.fixture
def it() -> Iterator[It]:
    """One of a deployment that is nowhere."""
    with pysqlbox.connect("postgresql://127.0.0.1:1/none") as nowhere:
        made = It(nowhere)
        made.next = Run()
        yield made


def running(worker: Worker) -> bool:
    """Whether it runs; as a function, whose answer type checkers do not remember."""
    return worker.is_running


# Handlers and options


@pytest.mark.parametrize("topic", ["", "x" * 256])
def test_a_topic_has_1_to_255_characters(it: It, topic: str) -> None:
    with pytest.raises(InvalidArgument, match="topic: must have 1 to 255 characters"):
        it.add_handler(topic, lambda _message: None)
    it.add_handler("x" * 255, lambda _message: None)


@pytest.mark.parametrize("threads", [0, 1001, True, 2.0])
def test_threads_have_bounds(threads: Any) -> None:
    with (
        pysqlbox.connect("postgresql://127.0.0.1:1/none") as nowhere,
        pytest.raises(InvalidArgument, match="threads"),
    ):
        nowhere.worker(threads=threads)


# One run at a time


def test_one_that_runs_is_not_started_again(it: It) -> None:
    it.start()
    assert running(it)
    for start in (it.start, it.run, it.__enter__, lambda: asyncio.run(it.run_async())):
        with pytest.raises(InvalidState, match="runs already"):
            start()
    assert it.stop() is False
    assert not running(it)
    it.start()


def test_only_the_run_that_ends_is_forgotten(it: It) -> None:
    """The end of one that nobody waited for may come while the next is there."""
    it.start()
    late = it.next
    it.stop()
    assert it.stats().acked == 5
    it.next = Run()
    it.start()
    late.options["ended"](late)
    assert running(it)
    assert it.stats().acked == 10, "the late one is not counted twice"


def test_what_was_counted_stays(it: It) -> None:
    assert (it.stats().acked, it.stats().busy_threads) == (0, 0)
    it.start()
    assert (it.stats().acked, it.stats().busy_threads) == (5, 2)
    it.stop()
    assert (it.stats().acked, it.stats().busy_threads) == (5, 0)


@pytest.mark.parametrize("when", ["before", "after"])
def test_figures_are_kept_of_this_run_and_of_the_next(it: It, when: str) -> None:
    if when == "before":
        it.measure()
    it.start()
    assert it.next.options["measured"] is (when == "before")
    if when == "after":
        it.measure()
        assert it.next.tally.figures is not None
        it.next.tally.figures[(None, "outbox"), "t"].acked = 3
        assert it.figures()[(None, "outbox"), "t"].acked == 3
    it.stop()
    assert sum(each.acked for each in it.figures().values()) == (3 if when == "after" else 0)
    it.start()
    assert it.next.options["measured"]


def test_without_a_run_there_is_nothing_to_stop_wake_or_ask(it: It) -> None:
    assert it.stop()
    it.wake("outbox")
    assert not it.health().running
    assert [box.running for box in it.health().boxes] == [False]
    it.start()
    it.wake("outbox")
    assert it.next.done == [("wake", "outbox")]
    assert str(it.health()) == "its health"


# drain


def test_a_drain_counts_what_it_did(it: It) -> None:
    it._past.acked = 100
    assert it.drain() == 5
    assert it.next.options["drain"] is True
    assert it.next.stopped == [(None, False)], "nobody waits for handlers that hang"


def test_lengths_of_time_may_be_timedeltas(it: It) -> None:
    it.start()
    it.stop(timedelta(seconds=3))
    it.start()
    it.stop(None)
    assert it.next.stopped == [(3.0, True), (None, True)]


def test_a_drain_of_one_that_runs_ends_that(it: It) -> None:
    it.start()
    it.drain()
    assert it.next.done == ["drain", ("wait", 0.2)]
    assert not running(it)


def test_a_drain_from_within_is_refused(it: It) -> None:
    """It would wait for its own caller."""
    it.start()
    it.next.is_own = True
    with pytest.raises(InvalidState, match="drain: must not be called"):
        it.drain()
    assert it.next.done == it.next.stopped == []


def test_a_drain_that_is_interrupted_stops_the_worker(it: It) -> None:
    def interrupt() -> bool:
        raise KeyboardInterrupt

    it.next.waiting = interrupt
    with pytest.raises(KeyboardInterrupt):
        it.drain()
    assert it.next.stopped == [(None, False)]
    assert not running(it)


def test_a_drain_has_so_long_and_then_waits_for_nothing(it: It) -> None:
    it.next.waiting = lambda: False
    with pytest.raises(TimeoutError, match="not everything was handled within 0 seconds"):
        it.drain(timeout=0)
    assert it.next.stopped == [(0.0, False)]


def test_a_drain_in_time_is_none_too_late(it: It) -> None:
    assert it.drain(timeout=0) == 5


def test_a_drain_raises_what_ended_the_start(it: It) -> None:
    it.next.failure = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        it.drain()
    assert not running(it)


def test_a_drain_raises_what_a_handler_did_if_it_is_asked_to(it: It) -> None:
    """At once, though there be more."""
    looks: list[int] = []

    def look() -> bool:
        looks.append(1)
        it.next.first_error = ZeroDivisionError()
        return len(looks) > 9

    it.next.waiting = look
    with pytest.raises(ZeroDivisionError):
        it.drain(raise_errors=True)
    assert len(looks) == 1
    assert it.next.done == [("wait", 0.02)]
    assert it.drain() == 5
    assert len(looks) == 10


# run


def kill(number: int = signal.SIGTERM) -> bool:
    """A signal to this process, which its main thread sees at once; false, as a wait that goes on."""
    os.kill(os.getpid(), number)
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run(it: It, number: int) -> None:
    it.next.waiting = lambda: kill(number)
    it.run(stop_timeout=7)
    assert it.next.stopped == [(7, False)], "nobody waits for handlers that hang"
    assert it.next.hurried == [False]


def test_a_second_signal_hurries(it: It) -> None:
    it.next.waiting = kill
    it.next.stops = kill
    it.run()
    assert it.next.hurried == [True]


def test_a_run_ends_when_it_is_stopped_elsewhere(it: It) -> None:
    it.next.waiting = lambda: True
    it.run()
    assert it.next.stopped == [(30.0, False)]


def test_a_signal_ends_a_start_that_waits_for_somebody(it: It) -> None:
    def start() -> None:
        it.next.is_asking = True
        try:
            kill()
            raise AssertionError("the start goes on")
        finally:
            it.next.options["ended"](it.next)

    it.next.starting = start
    it.run()
    assert it.next.done == it.next.stopped == []


def test_a_signal_ends_no_start_in_its_midst(it: It) -> None:
    """Threads may have begun: the run is stopped like any other."""
    it.next.starting = kill
    it.run()
    assert it.next.stopped == [(30.0, False)]


def test_a_signal_before_there_is_a_run_is_heard(it: It, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = it._begin

    def signalled(**options: Any) -> Any:
        kill()
        return begin(**options)

    monkeypatch.setattr(it, "_begin", signalled)
    it.run()
    assert it.next.stopped == [(30.0, False)]


def test_a_handler_may_have_stopped_it_already(it: It) -> None:
    it.next.starting = lambda: it.next.options["ended"](it.next)
    it.run()
    assert it.next.done == it.next.stopped == []


def test_a_run_raises_what_ended_its_start(it: It) -> None:
    it.next.failure = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        it.run()
    assert it.next.stopped


# run_async


def test_a_run_on_a_loop_ends_with_the_worker(it: It) -> None:
    async def main() -> None:
        it.next.stopping = True
        await it.run_async(stop_timeout=3)
        assert it.next.options["loop"] is asyncio.get_running_loop()

    asyncio.run(main())
    assert it.next.stopped == [(3, False)]


def test_a_run_on_a_loop_raises_what_ended_its_start(it: It) -> None:
    it.next.stopping = True
    it.next.failure = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        asyncio.run(it.run_async())
    assert it.next.stopped


async def come(event: threading.Event) -> None:
    """Waits until somebody has set it, without a thread."""
    deadline = time.monotonic() + PATIENCE
    while not event.is_set():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.002)


@pytest.mark.parametrize("way", ["run_async", "async with", "start"])
def test_a_task_that_is_cancelled_twice_still_stops_the_worker(it: It, way: str) -> None:
    """Though there be no thread free for that when the second comes."""
    started, free, stopped = threading.Event(), threading.Event(), threading.Event()

    def start() -> None:
        started.set()
        if way == "start":
            free.wait(PATIENCE)

    it.next.starting, it.next.stops = start, stopped.set

    async def within() -> None:
        async with it:
            await asyncio.sleep(PATIENCE)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        task = asyncio.create_task(within() if way == "async with" else it.run_async())
        await come(started)
        if way != "start":
            await asyncio.to_thread(bool)
            blocking = loop.run_in_executor(None, free.wait, PATIENCE)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        assert not stopped.is_set()
        free.set()
        await come(stopped)
        if way != "start":
            assert await blocking

    asyncio.run(main())
    assert len(it.next.stopped) == 1
    assert not running(it)


def test_a_start_that_is_cancelled_is_stopped(it: It) -> None:
    """The thread that starts goes on, and would start what nobody stops."""
    starting, go_on = threading.Event(), threading.Event()

    def start() -> None:
        starting.set()
        go_on.wait(PATIENCE)

    it.next.starting = start

    async def main() -> None:
        task = asyncio.create_task(it.run_async(stop_timeout=3))
        await come(starting)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    asyncio.run(main())
    assert it.next.stopped == [(3, False)]
    assert not running(it)


# Forks


def test_in_a_child_a_worker_begins_anew(it: It, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[object] = []
    monkeypatch.setattr(forking, "_inherited", kept)
    it.start()
    owner = it.owner_token
    handler = it._handlers
    anew: list[int] = []
    monkeypatch.setattr(handler, "begin_anew", lambda: anew.append(1))
    it._past.acked = 7
    with it._lock:  # somebody else's, who is not here any more
        it.begin_anew()
        assert not it._lock.locked()
        assert not running(it)
    assert it.owner_token != owner
    assert it.stats().acked == 0
    assert anew == [1]
    assert it.next.done == ["is_parents"]
    assert kept == [it.next], "nobody collects it, which would end the parent's connections"


def test_a_worker_that_does_not_run_begins_anew_as_well(it: It, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[object] = []
    monkeypatch.setattr(forking, "_inherited", kept)
    it.begin_anew()
    assert kept == []


def test_every_worker_is_told_of_forks(it: It) -> None:
    assert it in forking._watched


# Under the lock


@pytest.mark.parametrize("what", ["stats", "figures", "measure", "start", "forget"])
def test_nobody_looks_while_a_run_ends_or_begins(it: It, what: str) -> None:
    """What it counted is in the run or in the past, never in both or in neither."""
    it.next.tally.figures = Figures()
    other: Any = SimpleNamespace(tallies=list)
    ways: dict[str, Callable[[], Any]] = {
        "stats": it.stats, "figures": it.figures, "measure": it.measure,
        "start": it.start, "forget": lambda: it._forget(other),
    }  # fmt: skip
    ended = threading.Event()

    def look() -> None:
        ways[what]()
        ended.set()

    thread = threading.Thread(target=look)
    with it._lock:
        thread.start()
        assert not ended.wait(0.05)
    assert ended.wait(PATIENCE)
    thread.join()
