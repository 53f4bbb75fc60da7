"""What applications want: unknown topics, middleware, hooks, drain with limits, refusals at registration."""

from __future__ import annotations

import functools
import logging
import threading
import time
from typing import Any

import pytest

import pysqlbox
from pysqlbox import DeadLetter, Release
from pysqlbox.worker import Context, fixed, unknown_topics
from tests.support.database import Database
from tests.worker import support
from tests.worker.conftest import MakeWorker
from tests.worker.support import Calls, comes, nothing, put, put_many, status, threads, until

Box = pysqlbox.Outbox | pysqlbox.Inbox


def test_a_message_without_a_handler_is_put_back_longer_each_time(
    box: Box,
    make: MakeWorker,
    db: Database,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a while, then for twice as long; no attempt is counted, and one warning tells of all of a topic."""
    monkeypatch.setattr(unknown_topics, "FIRST_SNOOZE", 5000.0)  # so that the test's own time is nothing
    monkeypatch.setattr(unknown_topics, "LONGEST_SNOOZE", 50_000.0)
    worker = make(boxes=[box.name])
    made = put_many(box, 3, "nobody's")
    worker.drain()
    db.advance(2000)
    worker.drain()
    assert worker.stats().released == 3
    db.advance(4000)
    worker.drain()
    assert worker.stats().released == 6
    db.advance(5000)
    worker.drain()
    assert worker.stats().released == 6
    assert {box.get(message).attempt for message in made} == {0}
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "nobody's" in warnings[0]
    worker.add_handler("nobody's", nothing)
    db.advance(6000)
    assert worker.drain() == 3


def test_a_message_without_a_handler_is_put_back_for_five_minutes_at_most() -> None:
    from types import SimpleNamespace

    from pysqlbox.worker.unknown_topics import UnknownTopics

    unknown = UnknownTopics("snooze")
    queue = SimpleNamespace(deployment=SimpleNamespace(store="x"))
    box: Any = SimpleNamespace(name="outbox", queue=queue, log=logging.getLogger("x"))
    message = SimpleNamespace(id=1, topic="t", message_id="m", attempt=0, headers=None)
    delays = [unknown.result(box, message) for _ in range(9)]
    assert [d.delay for d in delays if isinstance(d, Release)] == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    other = unknown.result(box, SimpleNamespace(id=2, topic="t", message_id="m", attempt=0, headers=None))
    assert other == Release(delay=5)


@pytest.mark.every_engine
def test_unknown_topics_can_be_dead_letters(box: Box, make: MakeWorker) -> None:
    worker = make(unknown_topics="dead")
    message = put(box, "nobody's")
    worker.drain()
    assert status(box, message) == "Failed"
    assert "nobody's" in (box.get(message).last_error or "")


@pytest.mark.every_engine
def test_release_with_a_delay_comes_back_after_it(
    box: Box, make: MakeWorker, calls: Calls, db: Database
) -> None:
    worker = make(boxes=[box.name])
    worker.add_handler("t", calls.handler(Release(delay=2000), None))
    message = put(box)
    worker.drain()
    db.advance(1000)
    assert worker.drain() == 0
    db.advance(1001)
    assert worker.drain() == 1
    assert [call.attempt for call in calls.all] == [0, 0]
    assert status(box, message) == "Done"


@pytest.mark.every_engine
def test_a_context_says_that_its_message_was_cancelled(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    """Long before its lease is over."""
    begun = threading.Event()
    heard: list[bool] = []
    worker = make(boxes=["outbox"], lease_seconds=3600)

    @worker.handler("t")
    def handle(_message: Any, context: Context) -> None:
        begun.set()
        deadline = time.monotonic() + 20 * support.PATIENCE
        while not context.cancelled and time.monotonic() < deadline:
            time.sleep(0.02)
        heard.append(context.cancelled)

    message = put(deployment.outbox)
    worker.start()
    assert comes(begun)
    assert deployment.outbox.cancel([message]) == 1
    until(lambda: heard, 15)
    worker.stop()
    assert heard == [True]
    assert deployment.outbox.get(message).status == "Cancelled"


def test_middleware_is_around_every_handler_in_its_order(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    seen: list[Any] = []
    worker = make(boxes=["outbox"], threads=1)

    @worker.middleware
    def outer(message: Any, context: Context, call_next: Any) -> Any:
        seen.append(("outer", [m.topic for m in message] if isinstance(message, list) else message.topic))
        assert context.messages
        try:
            return call_next()
        except KeyError as error:
            return DeadLetter(f"caught {error}")

    @worker.middleware
    def inner(_message: Any, _context: Context, call_next: Any) -> Any:
        answer = call_next()
        seen.append(("inner", answer))
        return answer

    worker.add_handler("t", lambda message: seen.append(message.payload))
    worker.add_handler("number", lambda _message: Release(delay=60))
    worker.add_handler("raises", Calls().handler(KeyError("k")))
    worker.add_handler("batch", lambda _messages: None, batch=True)
    made = {topic: put(deployment.outbox, topic) for topic in ("t", "number", "raises", "batch")}
    worker.drain()
    assert seen.count(("outer", "t")) == 1
    assert seen.count(("inner", None)) == 2
    assert seen.index(("outer", "t")) < seen.index("p")
    assert ("inner", Release(delay=60)) in seen
    assert ("outer", ["batch"]) in seen
    assert deployment.outbox.get(made["raises"]).last_error == "caught 'k'"


def test_middleware_must_fit_its_handlers(make: MakeWorker) -> None:
    async def handler(_message: Any) -> None:
        pass

    worker = make(boxes=["outbox"])
    worker.middleware(lambda _message, _context, call_next: call_next())
    worker.add_handler("t", handler)
    with pytest.raises(pysqlbox.InvalidArgument, match=r"middleware.*coroutine function"):
        worker.start()
    assert not worker.is_running
    assert threads() == []


@pytest.mark.parametrize("wrong", [17, lambda _message, _call_next: None, lambda *, _message: None])
def test_what_could_never_be_called_is_refused_at_once(make: MakeWorker, wrong: Any) -> None:
    """And not message by message, or at the start of everything."""
    worker = make(boxes=["outbox"])
    with pytest.raises(
        pysqlbox.InvalidArgument, match=r"middleware: must take \(message, context, call_next\)"
    ):
        worker.middleware(wrong)
    manager = pysqlbox.Manager(worker)
    for register in (worker.on_start, worker.on_stop, manager.on_start, manager.on_stop):
        with pytest.raises(pysqlbox.InvalidArgument, match=r"on_st\w+: must take no arguments"):
            register(wrong)


def test_hooks_are_called_at_start_and_end(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    seen: list[str] = []
    worker = make(boxes=["outbox"])

    @worker.on_start
    def first() -> None:
        seen.append("start")

    @worker.on_start
    async def second() -> None:
        seen.append(f"async start on {threading.current_thread().name}")

    @worker.on_stop
    async def last() -> None:
        seen.append("stop")

    worker.add_handler("t", lambda _message: seen.append("message"))
    put(deployment.outbox)
    worker.drain()
    assert seen == ["start", "async start on pysqlbox-loop", "message", "stop"]
    assert threads() == []


def test_a_worker_whose_hook_fails_does_not_start(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    worker = make(boxes=["outbox"])
    worker.add_handler("t", nothing)
    worker.on_start(lambda: 1 / 0)
    message = put(deployment.outbox)
    with pytest.raises(ZeroDivisionError):
        worker.start()
    assert not worker.is_running
    assert threads() == []
    assert status(deployment.outbox, message) == "Ready"


def test_a_hook_that_fails_at_the_end_is_logged(make: MakeWorker, caplog: pytest.LogCaptureFixture) -> None:
    worker = make(boxes=["outbox"])
    worker.on_stop(lambda: 1 / 0)
    worker.drain()
    assert "ZeroDivisionError" in caplog.text
    assert not worker.is_running


def test_drain_ends_at_its_timeout_with_the_worker_stopped(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls
) -> None:
    worker = make(boxes=["outbox"], threads=1)
    worker.add_handler("t", calls.handler(sleep=0.2))
    put_many(deployment.outbox, 50)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"0\.7 seconds"):
        worker.drain(timeout=0.7)
    assert time.monotonic() - began < 4
    assert not worker.is_running
    assert 1 <= len(calls.all) < 50


def test_drain_raises_what_a_handler_raised(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    worker = make(boxes=["outbox"], backoff=fixed(60))
    worker.add_handler("bad", Calls().handler(ValueError("what went wrong")))
    worker.add_handler("t", nothing)
    made = put(deployment.outbox), put(deployment.outbox, "bad")
    with pytest.raises(ValueError, match="what went wrong"):
        worker.drain(raise_errors=True)
    assert not worker.is_running
    assert deployment.outbox.get(made[1]).attempt == 1
    put(deployment.outbox)
    assert worker.drain(timeout=30, raise_errors=True) >= 1


@pytest.mark.parametrize(
    "function",
    [
        lambda: None, lambda _a, _b, _c: None, lambda *, message: message,
        lambda _message, *, store: store, functools.partial(nothing, 1),
    ],
    ids=["none", "three", "keyword", "and a keyword", "used up"],
)  # fmt: skip
def test_a_handler_that_cannot_be_called_is_refused(make: MakeWorker, function: Any) -> None:
    worker = make()
    with pytest.raises(pysqlbox.InvalidArgument, match=r"handler .*message"):
        worker.add_handler("t", function)


@pytest.mark.parametrize(
    "function",
    [lambda *_messages: None, lambda _message, _context=None: None, lambda _message, **_more: None, print],
)
def test_a_handler_that_can_be_called_is_taken(make: MakeWorker, function: Any) -> None:
    make().add_handler("t", function)


def test_a_handler_whose_topic_is_never_claimed_is_warned_of(
    make: MakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make(boxes=["outbox"], topics=["a"])
    worker.add_handler("a", nothing)
    worker.add_handler("b", nothing)
    worker.drain()
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "'b'" in warnings[0]
