"""Handlers called by testing.handle, without a database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import pysqlbox
from pysqlbox import Ack, DeadLetter, InboxMessage, NonRetryable, OutboxMessage, Release, Retry, testing
from pysqlbox.errors import InvalidArgument, InvalidState, NotFound
from pysqlbox.worker import Context, Worker


@pytest.fixture
def worker() -> Worker:
    """A worker of a database that is nowhere."""
    return pysqlbox.connect("postgresql://nowhere/at/all").worker(boxes=("outbox", "inbox"))


def test_messages_have_everything() -> None:
    """As a claim answers them, with what is given in its place."""
    made = testing.message("mail", {"to": "ann"}, headers={"a": 1}, attempt=3)
    assert isinstance(made, OutboxMessage)
    assert (made.topic, made.payload, made.headers, made.attempt) == ("mail", '{"to":"ann"}', {"a": 1}, 3)
    assert made.created_at.tzinfo is UTC
    assert made.locked_until > datetime.now(UTC)
    other = testing.message("mail", "text", source="shop")
    assert isinstance(other, InboxMessage)
    assert (other.source, other.payload, other.message_id) == ("shop", "text", str(other.id))
    assert other.id > made.id
    with pytest.raises(InvalidArgument, match="sauce: a message of this kind has no such field"):
        testing.message("mail", sauce="shop")


def test_results_are_as_a_worker_would_settle_them(worker: Worker) -> None:
    """What a handler answers or raises, payloads that do not fit, and the last attempt."""
    answers: dict[str, Any] = {
        "none": None, "release": Release(delay=5), "dead": DeadLetter("no"), "wrong": 17,
        "error": ValueError("it is wrong"), "never": NonRetryable("it will not do"),
    }  # fmt: skip

    @worker.handler("t")
    def handle(kind: str) -> Any:
        answer = answers[kind]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @worker.handler("typed")
    def typed(payload: dict[str, int]) -> None:
        payload["n"] += 1

    def result(payload: Any, topic: str = "t", **values: Any) -> Any:
        return testing.handle(worker, testing.message(topic, payload, **values))

    assert result("none") == Ack()
    assert result("none", source="shop") == Ack()
    assert result("release") == Release(delay=5)
    assert result("dead") == DeadLetter("no")
    assert result("error") == Retry(error="ValueError: it is wrong")
    assert result("error", attempt=9) == DeadLetter("ValueError: it is wrong")
    assert result("never") == DeadLetter("NonRetryable: it will not do")
    assert result("wrong").error.startswith("TypeError: a handler must answer")
    assert result({"n": 1}, "typed") == Ack()
    assert result({"n": "x"}, "typed").error.startswith("Undecodable")
    with pytest.raises(ValueError, match="it is wrong"):
        testing.handle(worker, testing.message("t", "error"), raise_errors=True)


def test_attempts_end_with_the_worker_s_own_number() -> None:
    """Or never."""
    for attempts, expected in ((2, DeadLetter), (0, Retry)):
        worker = pysqlbox.connect("postgresql://nowhere").worker(max_attempts=attempts)
        worker.add_handler("t", lambda _: Retry())
        assert isinstance(testing.handle(worker, testing.message("t", attempt=1)), expected)


def test_middleware_and_context(worker: Worker) -> None:
    """Both are as in a worker; nothing is to be stopped, and there is no connection."""
    seen = []

    @worker.middleware
    def around(message: OutboxMessage, context: Context, call_next: Callable[[], Any]) -> Any:
        seen.append((message.topic, context.cancelled))
        return call_next() or Release()

    @worker.handler("t")
    def handle(message: OutboxMessage, context: Context) -> None:
        seen.append((message.topic, context.wait(0)))
        with pytest.raises(InvalidState):
            _ = context.connection

    assert testing.handle(worker, testing.message("t")) == Release()
    assert seen == [("t", False), ("t", False)]


def test_middleware_that_does_not_fit(worker: Worker) -> None:
    """Is told here as at a worker's start."""

    async def around(
        _message: OutboxMessage, _context: Context, call_next: Callable[[], Awaitable[Any]]
    ) -> Any:
        return await call_next()

    worker.middleware(around)
    worker.add_handler("t", lambda _: None)
    with pytest.raises(InvalidArgument, match="must be an ordinary function"):
        testing.handle(worker, testing.message("t"))


def test_coroutine_handlers(worker: Worker) -> None:
    """On a loop of their own, or on the one that runs."""
    loops = []

    @worker.handler("t")
    async def handle(message: OutboxMessage, context: Context) -> Retry:
        loops.append(asyncio.get_running_loop())
        await context.sleep(0)
        return Retry(delay=message.attempt)

    assert testing.handle(worker, testing.message("t", attempt=1)) == Retry(delay=1)

    async def within() -> Any:
        with pytest.raises(InvalidState, match="handle_async"):
            testing.handle(worker, testing.message("t"))
        assert await testing.handle_async(worker, testing.message("t", attempt=2)) == Retry(delay=2)
        return asyncio.get_running_loop()

    assert asyncio.run(within()) is loops[1]


def test_batches(worker: Worker) -> None:
    """A list gets a list of results; one message is a batch of one."""

    @worker.batch_handler("mail")
    def send(mails: list[dict[str, str]]) -> list[Any]:
        return [None if mail["to"] else Retry() for mail in mails]

    mails = [testing.message("mail", {"to": to}) for to in ("ann", "", "bob")]
    assert testing.handle(worker, mails) == [Ack(), Retry(), Ack()]
    assert testing.handle(worker, mails[1]) == Retry()
    worker.add_handler("t", lambda _: None)
    with pytest.raises(InvalidState, match="takes one at a time"):
        testing.handle(worker, [testing.message("t")])
    with pytest.raises(InvalidState, match="of one topic"):
        testing.handle(worker, [*mails, testing.message("t")])


def test_transactional_handlers(worker: Worker) -> None:
    """They get the test's connection, and nothing is committed."""
    calls = []

    class Connection:
        def execute(self, statement: str) -> None:
            calls.append(statement)

    @worker.handler("t", transactional=True)
    def handle(_message: OutboxMessage, context: Context) -> Any:
        context.connection.execute("INSERT …")

    assert testing.handle(worker, testing.message("t"), connection=Connection()) == Ack()
    assert calls == ["INSERT …"]
    without = testing.handle(worker, testing.message("t"))
    assert isinstance(without, Retry)
    assert str(without.error).startswith("InvalidState: connection:")


def test_unknown_topics(worker: Worker) -> None:
    """Are an error that names those that are known, not something to wait for."""
    worker.add_handler("known", lambda _: None)
    with pytest.raises(
        NotFound, match="topic 'unknown': the worker has no handler for it, register one; its topics: known"
    ):
        testing.handle(worker, testing.message("unknown"))
