"""Ways to write a handler: with a context, async, typed; and handlers that take too long."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import pysqlbox
from pysqlbox.worker import Context, fixed
from tests.worker.conftest import MakeWorker
from tests.worker.support import OWNER, Calls, comes, nothing, put, put_many, status, threads, until

Box = pysqlbox.Outbox | pysqlbox.Inbox


def test_a_second_argument_is_the_context(box: Box, make: MakeWorker) -> None:
    found: list[tuple[Any, Context]] = []
    worker = make()

    @worker.handler("t")
    def handle(message: Any, context: Context) -> None:
        assert context.message is message
        assert not context.cancelled
        assert not context.wait(0.01)
        found.append((message, context))

    put(box)
    assert worker.drain() == 1
    ((message, context),) = found
    assert context.messages == [message]
    assert message.payload not in repr(context)


def test_a_default_argument_is_no_context(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    found: list[object] = []
    worker = make()
    worker.add_handler("t", lambda message, extra="own": found.append((message.id, extra)))
    message = put(deployment.outbox)
    worker.drain()
    assert found == [(message, "own")]


def test_a_context_says_when_the_worker_stops(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    begun = threading.Event()
    worker = make()

    @worker.handler("t")
    def handle(_message: Any, context: Context) -> pysqlbox.Release:
        begun.set()
        assert context.wait(20)
        assert context.cancelled
        return pysqlbox.Release()

    message = put(deployment.outbox)
    worker.start()
    assert begun.wait(5)
    began = time.monotonic()
    assert worker.stop(10)
    assert time.monotonic() - began < 3
    assert (status(deployment.outbox, message), deployment.outbox.get(message).attempt) == ("Ready", 0)


def test_handlers_may_be_any_callable(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    found: list[str] = []

    class Handler:
        def __call__(self, message: Any) -> None:
            found.append(message.topic)

        def method(self, message: Any) -> None:
            found.append(message.topic)

        async def coroutine(self, message: Any) -> None:
            await asyncio.sleep(0)
            found.append(message.topic)

    def with_prefix(_prefix: str, message: Any) -> None:
        found.append(message.topic)

    def wrapped(message: Any) -> Any:
        return Handler().coroutine(message)

    handlers: dict[str, Callable[..., Any]] = {
        "object": Handler(),
        "method": Handler().method,
        "partial": functools.partial(with_prefix, "x"),
        "async method": Handler().coroutine,
        "async partial": functools.partial(Handler.coroutine, Handler()),
        "answers a coroutine": wrapped,
    }
    worker = make()
    for topic, handler in handlers.items():
        worker.add_handler(topic, handler)
        put(deployment.outbox, topic)
    assert worker.drain() == len(handlers)
    assert sorted(found) == sorted(handlers)
    assert worker.stats().acked == len(handlers)


def test_async_handlers_with_every_result(box: Box, make: MakeWorker) -> None:
    worker = make(threads=2, backoff=fixed(5))
    loops: dict[str, set[int]] = {}

    @worker.handler("t")
    async def handle(message: Any, context: Context) -> Any:
        loops.setdefault(threading.current_thread().name, set()).add(id(asyncio.get_running_loop()))
        await asyncio.sleep(0.001)
        assert not context.cancelled
        match message.payload:
            case "retry":
                return pysqlbox.Retry(delay=5)
            case "raise":
                raise ValueError("no")
            case "exit":
                raise SystemExit(1)
            case "dead":
                return pysqlbox.DeadLetter("dead")
        return None

    made = {payload: put(box, payload=payload) for payload in ("ok", "retry", "raise", "exit", "dead", "2")}
    assert worker.drain() == 6
    found = {payload: status(box, message) for payload, message in made.items()}
    assert found == {
        "ok": "Done", "retry": "Ready", "raise": "Ready", "exit": "Ready", "dead": "Failed", "2": "Done"
    }  # fmt: skip
    assert box.get(made["exit"]).last_error == "SystemExit: 1"
    assert box.get(made["raise"]).attempt == 1
    assert list(loops) == ["pysqlbox-loop"]
    assert len(loops["pysqlbox-loop"]) == 1, "there is one loop"


@dataclass
class Order:
    """What the typed handlers take."""

    number: int
    name: str | None = None


def test_typed_handlers(box: Box, make: MakeWorker, caplog: pytest.LogCaptureFixture) -> None:
    found: list[Order] = []
    worker = make()

    @worker.handler("t")
    def handle(order: Order) -> None:
        found.append(order)

    good = put(box, payload={"number": 7, "name": "x"})
    bad = [put(box, payload=text) for text in ('{"number": "SECRET"}', "SECRET", "[]", "")]
    with caplog.at_level(logging.DEBUG):
        worker.drain()
    assert found == [Order(7, "x")]
    assert status(box, good) == "Done"
    for message in bad:
        stored = box.get(message)
        assert (status(box, message), stored.attempt) == ("Failed", 0)
        assert stored.last_error
        assert "SECRET" not in stored.last_error
    assert "SECRET" not in caplog.text


@pytest.mark.every_engine
def test_a_handler_that_overruns_its_time_is_written_off(
    box: Box, make: MakeWorker, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    """Its message is retried, another thread takes its place, and its late answer counts for nothing."""
    go = threading.Event()
    worker = make(threads=2, backoff=fixed(30), handler_timeout=0.3)
    contexts: list[Context] = []

    @worker.handler("hangs")
    def hang(_message: Any, context: Context) -> None:
        contexts.append(context)
        comes(go, 20)

    worker.add_handler("t", calls.handler())
    hanging = put(box, "hangs")
    group = [put(box, "hangs", group_id="g"), put(box, group_id="g")]
    others = put_many(box, 20)
    worker.start()
    until(lambda: len(calls.all) == 20 and status(box, hanging) == "Ready")
    until(lambda: box.get(group[0]).attempt == 1)
    for message in (hanging, group[0]):
        stored = box.get(message)
        assert (stored.attempt, stored.owner_token) == (1, None)
        assert "0.3 seconds" in (stored.last_error or "")
    assert box.get(group[1]).owner_token is None
    assert box.get(group[1]).attempt == 0
    assert all(context.cancelled for context in contexts)
    later = put(box)
    until(lambda: status(box, later) == "Done")
    go.set()
    assert worker.stop(5)
    until(lambda: not threads())
    assert [status(box, m) for m in (hanging, *group)] == ["Ready"] * 3
    assert {status(box, message) for message in others} == {"Done"}
    stats = worker.stats()
    assert (stats.acked, stats.retried, stats.busy_threads) == (21, 2, 0)
    assert any("0.3 seconds" in r.getMessage() for r in caplog.records if r.levelno == logging.ERROR)


def test_the_lease_of_a_handler_that_overran_is_not_extended(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls
) -> None:
    """The message goes to somebody else while the first handler still hangs; its late answer does nothing."""
    go = threading.Event()
    worker = make(boxes=["outbox"], threads=1, backoff=fixed(0.01), lease_seconds=1)
    turn = iter(range(100))

    def handle(message: Any) -> None:
        call = calls.begin(message)
        if next(turn) == 0:
            comes(go, 20)
        calls.end(call)

    worker.add_handler("t", handle, timeout=0.2)
    message = put(deployment.outbox)
    worker.start()
    until(lambda: status(deployment.outbox, message) == "Done")
    go.set()
    worker.stop(5)
    assert [call.attempt for call in calls.of(message)] == [0, 1]
    assert worker.stats().acked == 1


def test_overrunning_counts_towards_max_attempts(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    go = threading.Event()
    worker = make(threads=1, max_attempts=2, backoff=fixed(0.01))
    worker.add_handler("t", lambda _message: go.wait(20) and None, timeout=0.1)
    message = put(deployment.outbox)
    worker.start()
    until(lambda: status(deployment.outbox, message) == "Failed")
    assert (worker.stats().retried, worker.stats().dead) == (1, 1)
    go.set()
    worker.stop(5)


def test_a_timeout_of_its_own_comes_before_the_workers(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    worker = make(handler_timeout=0.1, backoff=fixed(30))
    worker.add_handler("long", lambda _message: time.sleep(0.4), timeout=5)
    worker.add_handler("short", lambda _message: time.sleep(0.4))
    long, short = put(deployment.outbox, "long"), put(deployment.outbox, "short")
    worker.drain()
    assert status(deployment.outbox, long) == "Done"
    assert deployment.outbox.get(short).attempt == 1


def test_a_hanging_handler_keeps_its_place_in_a_limited_topic_until_it_returns(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls
) -> None:
    """It still uses whatever the limit protects. What waits for the place can be had by other workers."""
    go = threading.Event()
    worker = make(threads=2, backoff=fixed(30), poll_seconds=30, listen=False)

    def handle(message: Any) -> None:
        call = calls.begin(message)
        if message.payload == "hang":
            comes(go, 20)
        calls.end(call)

    worker.add_handler("t", handle, concurrency=1, timeout=0.3)
    worker.add_handler("free", nothing)
    put(deployment.outbox, payload="hang")
    made = put_many(deployment.outbox, 10)
    worker.start()
    until(
        lambda: (
            deployment.outbox.get(made[0]).id
            and {deployment.outbox.get(m).owner_token for m in made} == {None}
        )
    )
    until(lambda: worker.stats().retried == 1)
    free = put(deployment.outbox, "free")
    worker._run._scheduler.wake()  # type: ignore[union-attr]  # as a notification would
    until(lambda: status(deployment.outbox, free) == "Done", 5)
    time.sleep(0.2)
    assert {status(deployment.outbox, message) for message in made} == {"Ready"}
    assert {deployment.outbox.get(message).attempt for message in made} == {0}
    go.set()
    until(lambda: [status(deployment.outbox, message) for message in made] == ["Done"] * 10, 8)
    assert calls.most == 1
    worker.stop(5)
    more = put_many(deployment.outbox, 4)
    assert worker.drain() == 4
    assert [status(deployment.outbox, message) for message in more] == ["Done"] * 4


def test_a_batch_that_overruns_is_retried_whole(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    go = threading.Event()
    worker = make(threads=1, backoff=fixed(30))
    worker.add_handler("t", lambda _messages: go.wait(20) and None, batch=True, timeout=0.2)
    made = put_many(deployment.outbox, 4)
    worker.start()
    until(lambda: all(deployment.outbox.get(message).attempt == 1 for message in made))
    go.set()
    worker.stop(5)
    assert worker.stats().retried == 4
    assert deployment.outbox.claim(OWNER) == []
