"""Places in limited topics, what is parked for them, and which answers and registrations are refused."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

import pysqlbox
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.context import Context
from pysqlbox.worker.handlers import Handler, Handlers, result_of
from pysqlbox.worker.results import Ack, DeadLetter, Release, Retry
from pysqlbox.worker.unknown_topics import REMEMBERED, UnknownTopics
from tests.unit.standins import Parts, message


def nothing(_message: Any) -> None:
    """A handler that does nothing."""


def limited(concurrency: int = 1) -> tuple[Parts, Handler]:
    """A handler with so many places."""
    parts = Parts()
    return parts, parts.handler("t", nothing, concurrency=concurrency)


def work(parts: Parts, identity: int = 1) -> Assignment:
    """A message to be handled."""
    return Assignment(parts.box, [message(identity)], time.monotonic())


@pytest.mark.parametrize("what", ["enter", "leave", "hangs", "unpark", "hopeless", "add", "middleware"])
def test_places_and_registrations_are_counted_under_the_lock(what: str) -> None:
    """Two that come together must both be counted."""
    parts, handler = limited()
    handlers, done = parts.handlers, threading.Event()
    handler.active = 1 if what == "leave" else 0
    if what in ("unpark", "hopeless"):
        handler.parked.append(work(parts))
        handler.hanging = 1

    def middleware(_message: Any, _context: Any, call: Any) -> Any:
        return call()

    acts: dict[str, Callable[[], object]] = {
        "enter": lambda: handlers.enter(handler, work(parts)),
        "leave": lambda: handlers.leave(handler, hung=False),
        "hangs": lambda: handlers.hangs(handler),
        "unpark": handlers.unpark,
        "hopeless": handlers.unpark_hopeless,
        "add": lambda: handlers.add(Handler("u", nothing)),
        "middleware": lambda: handlers.add_middleware(middleware),
    }

    def act() -> None:
        acts[what]()
        done.set()

    def state() -> tuple[Any, ...]:
        return (
            handler.active, handler.hanging, len(handler.parked), handlers.topics(), handlers.middleware
        )  # fmt: skip

    with handlers._lock:
        before = state()
        thread = threading.Thread(target=act)
        thread.start()
        assert not done.wait(0.05)
        assert state() == before
    assert done.wait(10)
    thread.join()
    assert state() != before


def test_a_topic_is_saturated_while_its_places_are_taken_or_something_is_parked() -> None:
    parts, handler = limited()
    handlers, second = parts.handlers, work(parts, 2)
    assert handlers.saturated() == set()
    assert handlers.enter(handler, work(parts))
    assert not handlers.enter(handler, second)
    assert handlers.parked() == [second]
    assert handlers.saturated() == {"t"}
    assert handlers.leave(handler, hung=False) == (second, True)
    assert handlers.saturated() == set()
    handler.parked.append(second)
    assert handlers.saturated() == {"t"}, "what is parked comes first"


def test_whoever_leaves_asks_once_for_what_claims_have_passed_over() -> None:
    parts, handler = limited(2)
    for number in (1, 2):
        assert parts.handlers.enter(handler, work(parts, number))
    assert parts.handlers.saturated() == {"t"}
    parked = work(parts, 3), work(parts, 4)
    for each in parked:
        assert not parts.handlers.enter(handler, each)
    assert parts.handlers.leave(handler, hung=False) == (parked[0], False), "more is parked"
    assert parts.handlers.leave(handler, hung=False) == (parked[1], True)
    handler.active = 1
    assert parts.handlers.leave(handler, hung=False) == (None, False)


def test_what_is_parked_is_hopeless_only_if_every_place_hangs() -> None:
    parts, handler = limited(2)
    handler.active = 2
    parked = work(parts, 3)
    assert not parts.handlers.enter(handler, parked)
    parts.handlers.hangs(handler)
    assert parts.handlers.unpark_hopeless() == []
    parts.handlers.hangs(handler)
    assert parts.handlers.unpark_hopeless() == [parked]
    assert parts.handlers.unpark_hopeless() == []
    parts.handlers.leave(handler, hung=True)
    assert (handler.active, handler.hanging) == (1, 1)


def test_what_is_unparked_is_there_once() -> None:
    parts, handler = limited()
    handler.active = 1
    parked = work(parts)
    parts.handlers.enter(handler, parked)
    assert parts.handlers.unpark() == [parked]
    assert parts.handlers.unpark() == []


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0}, {"concurrency": True}, {"timeout": 0}, {"timeout": "1"}, {"timeout": True},
        {"timeout": float("inf")}, {"transactional": 7},
    ],
    ids=str,
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(pysqlbox.InvalidArgument):
        Handler("t", nothing, **options)


def test_a_time_is_seconds_or_a_timedelta() -> None:
    found = [Handler("t", nothing, timeout=each).timeout for each in (timedelta(minutes=2), 3, 0.5, None)]
    assert found == [120.0, 3.0, 0.5, None]


def test_a_topic_has_one_handler_and_coroutines_are_not_transactional() -> None:
    async def coroutine(_message: Any) -> None:
        """Nothing to do."""

    handlers = Handlers()
    handlers.add(Handler("t", nothing))
    with pytest.raises(pysqlbox.InvalidArgument, match="has a handler already"):
        handlers.add(Handler("t", nothing))
    with pytest.raises(pysqlbox.InvalidArgument, match="must be left out for coroutine functions"):
        Handler("c", coroutine, transactional=True)


def test_what_kinds_of_handlers_there_are_is_known_whichever_comes_last() -> None:
    """It decides how much is claimed; the worker's own handler is for no thread that waits."""

    class Called:
        async def __call__(self, _message: Any) -> None:
            """Nothing to do."""

    async def coroutine(_message: Any) -> None:
        """Nothing to do."""

    one_of_each = {
        "batch": Handler("batch", nothing, batch=True), "async": Handler("async", coroutine),
        "callable": Handler("callable", Called()), "sync": Handler("sync", nothing),
    }  # fmt: skip
    found = {}
    for names in (
        ["async"],
        ["callable"],
        ["sync"],
        ["async", "sync"],
        ["batch", "sync"],
        ["sync", "batch", "async"],
        ["own"],
    ):
        handlers = Handlers()
        for name in names:
            made = one_of_each.get(name) or Handler("own", nothing)
            handlers.add(made, internal=name == "own")
        found[" ".join(names)] = (handlers.any_batch, handlers.any_async, handlers.any_sync)
    assert found == {
        "async": (False, True, False), "callable": (False, True, False), "sync": (False, False, True),
        "async sync": (False, True, True), "batch sync": (True, False, True),
        "sync batch async": (True, True, True),
        "own": (False, False, False),
    }  # fmt: skip


def test_a_topic_without_a_bound_is_never_saturated() -> None:
    handlers = Handlers()
    handlers.add(Handler("t", nothing))
    assert handlers.saturated() == set()
    handlers.add(Handler("limited", nothing, concurrency=1))
    handlers.by_topic["limited"].active = 1
    assert handlers.saturated() == {"limited"}


def test_only_what_is_simply_called_is_simple() -> None:
    def with_context(_message: Any, _context: Any) -> None:
        """Nothing to do."""

    found = [
        Handler("t", nothing), Handler("t", nothing, concurrency=1), Handler("t", with_context),
        Handler("t", nothing, transactional=True), Handler("t", nothing, batch=True),
    ]  # fmt: skip
    assert [each.simple for each in found] == [True, False, False, False, False]


def test_answers() -> None:
    handler, single = Handler("t", nothing, batch=True), Handler("t", nothing)
    three = [message(n) for n in range(3)]
    assert handler.results_of(three, [None, Retry(), None]) == [Ack(), Retry(), Ack()]
    assert handler.results_of(three, Retry()) == [Retry()] * 3
    assert single.results_of(three[:1], Retry()) == [Retry()]
    with pytest.raises(TypeError, match="a handler must answer None"):
        single.results_of(three[:1], [Retry()])
    with pytest.raises(TypeError, match="a batch handler must answer None"):
        handler.results_of(three, 3)
    assert handler.results(three, None) == [Ack()] * 3
    assert handler.results(three, {1: Retry()}) == [Ack(), Retry(), Ack()]
    assert handler.results(three, iter([None, Release(), DeadLetter("d")])) == [
        Ack(),
        Release(),
        DeadLetter("d"),
    ]
    for nonsense in ([None, None], [None] * 4, "abc", b"abc", 3, [1, 2, 3]):
        with pytest.raises(TypeError):
            handler.results(three, nonsense)
    with pytest.raises(TypeError, match="not int"):
        result_of(1)


def test_in_a_forked_child_places_are_free_and_so_is_the_lock() -> None:
    """Whoever held them in the parent is not there."""
    parts, handler = limited()
    assert parts.handlers.enter(handler, work(parts))
    parts.handlers.hangs(handler)
    assert not parts.handlers.enter(handler, work(parts, 2))
    assert parts.handlers._lock.acquire(timeout=10)
    parts.handlers.begin_anew()
    assert not parts.handlers._lock.locked()
    assert (handler.active, handler.hanging, list(handler.parked)) == (0, 0, [])
    assert parts.handlers.saturated() == set()


def test_middleware_fits_the_application_s_handlers_and_the_worker_s_own_is_no_business_of_its() -> None:
    async def coroutine(_message: Any) -> None:
        """Nothing to do."""

    async def middleware(_message: Any, _context: Any, call: Any) -> Any:
        return await call()

    handlers = Handlers()
    handlers.add(Handler("t", coroutine))
    handlers.add(Handler("own", nothing), internal=True)
    handlers.add_middleware(middleware)
    assert handlers.check(None, "own") == []
    assert handlers.check(["other"], "own") == ["t"], "which would never be claimed"
    handlers.add(Handler("u", nothing))
    with pytest.raises(pysqlbox.InvalidArgument, match="must be an ordinary function, as the handler of 'u'"):
        handlers.check(None, "own")


class Later:
    """A callable that makes a coroutine."""

    async def __call__(self, _message: Any, _context: Any = None) -> None:
        """Nothing to do."""


@pytest.mark.parametrize(
    "function",
    [Later(), functools.partial(Later()), functools.partial(functools.partial(Later.__call__), Later())],
)
def test_coroutines_are_made_by_more_than_functions(function: Any) -> None:
    assert Handler("t", function).is_async


def test_middleware_of_another_kind_than_the_handlers_is_refused() -> None:
    """And what nobody can call, at once."""

    async def coroutine(_message: Any) -> None:
        """Nothing to do."""

    other = Handlers()
    other.add(Handler("t", coroutine))
    other.add_middleware(lambda _message, _context, call: call())
    with pytest.raises(pysqlbox.InvalidArgument, match="must be a coroutine function, as the handler of 't'"):
        other.check(None, "own")
    not_callable: Any = 7
    with pytest.raises(pysqlbox.InvalidArgument, match="message, context, call_next"):
        other.add_middleware(not_callable)


class Signed:
    """A callable with a signature of its own."""

    def __init__(self, signature: object) -> None:
        self.__signature__ = signature

    def __call__(self, *_arguments: Any) -> None:
        """Nothing to do."""


def test_a_callable_whose_signature_nobody_can_tell_gets_the_message_alone() -> None:
    """As some builtins are."""
    for function in (Signed("none"), min):
        assert not Handler("t", function).takes_context


def test_a_handler_that_nobody_can_call_is_refused_when_it_is_registered() -> None:
    def alone() -> None: ...
    def named(_message: Any, *, wanted: Any) -> None: ...
    def three(_message: Any, _context: Any, _other: Any) -> None: ...

    for function, text in (
        (alone, r"alone: must take \(message\) or \(message, context\)$"),
        (named, "named: must take .* not the argument 'wanted'$"),
        (three, r"three: must take \(message\) or \(message, context\)$"),
    ):
        with pytest.raises(pysqlbox.InvalidArgument, match=text):
            Handler("t", function)

    def options(_message: Any, _other: Any = None, *, _wish: Any = None) -> None: ...
    def anything(*_arguments: Any) -> None: ...

    assert [Handler("t", each).takes_context for each in (options, anything)] == [False, False]


@pytest.mark.parametrize("why", ["stopping", "overrun", "lost"])
def test_a_context_says_why_to_stop_early(why: str) -> None:
    parts = Parts()
    it = work(parts)
    context = Context(parts.scheduler, it, it.held())
    found = [context.cancelled]
    if why == "stopping":
        parts.scheduler.stop()
    elif why == "overrun":
        it.overrun = True
    else:
        it.lose([1])
    assert [*found, context.cancelled] == [False, True]
    if why == "stopping":
        assert context.wait(600), "it waits no longer than the worker runs"
    with pytest.raises(pysqlbox.InvalidState, match="not transactional"):
        assert context.connection


def test_a_context_has_what_the_handler_runs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    it = work(parts)
    context = Context(parts.scheduler, it, it.held())
    context.joined = connection = object()
    assert context.connection is connection
    assert context.deployment is parts.box.queue.deployment
    naps: list[float] = []

    async def nap(seconds: float) -> None:
        naps.append(seconds)
        time.sleep(seconds)

    monkeypatch.setattr(parts.scheduler, "pause", naps.append)
    monkeypatch.setattr("pysqlbox.worker.context.asyncio", SimpleNamespace(sleep=nap))
    assert not context.wait(7.0)
    assert not asyncio.run(context.sleep(0.01))
    assert naps[0] == 7.0
    assert max(naps[1:]) <= 0.01, "no longer than it is told"


def test_a_coroutine_sleeps_no_longer_than_the_worker_runs() -> None:
    parts = Parts()
    it = work(parts)
    context = Context(parts.scheduler, it, it.held())
    assert asyncio.run(context.sleep(0.001)) is False

    async def stop() -> None:
        parts.scheduler.stop()

    async def both() -> bool:
        async with asyncio.timeout(20):
            found, _ = await asyncio.gather(context.sleep(600), stop())
        return found

    assert asyncio.run(both()) is True


def test_messages_without_a_handler_wait_longer_each_time_and_are_remembered_to_a_bound() -> None:
    parts, unknown = Parts(), UnknownTopics("snooze")
    delays = [unknown.result(parts.box, message(1)) for _ in range(8)]
    assert [each.delay for each in delays if isinstance(each, Release)] == [5, 10, 20, 40, 80, 160, 300, 300]
    for number in range(REMEMBERED):
        unknown.result(parts.box, message(number + 2))
    assert unknown.result(parts.box, message(1)) == Release(delay=5.0), "it is forgotten"
    assert len(unknown._snoozes) == REMEMBERED


def test_the_other_policies_and_one_warning_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    assert isinstance(UnknownTopics("dead").result(parts.box, message(1)), DeadLetter)
    assert isinstance(UnknownTopics("abandon").result(parts.box, message(1)), Retry)
    caplog.clear()
    unknown = UnknownTopics("snooze")
    for number in range(5):
        unknown.result(parts.box, message(number))
    assert len(caplog.records) == 1
