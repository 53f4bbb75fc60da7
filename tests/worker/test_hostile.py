"""Handlers and servers that do their worst."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import Any

import psycopg
import pytest

import pysqlbox
from pysqlbox.worker import Context, fixed
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.support import Calls, put, put_many, status, until

pytestmark = pytest.mark.dialect("postgres")


class Unshowable(Exception):
    """Whoever shows it is told to go."""

    def __str__(self) -> str:
        raise SystemExit("shown")


WORST = [
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    StopIteration("stop"),
    asyncio.CancelledError(),
    BaseException("anything"),
    Unshowable(),
]


@pytest.mark.parametrize("error", WORST, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", ["plain", "context", "batch", "transactional", "coroutine"])
def test_whatever_a_handler_raises_costs_only_its_own_message_a_try(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls, kind: str, error: BaseException
) -> None:
    worker = make(boxes=["outbox"], threads=1, backoff=fixed(3600))

    def plain(_message: Any) -> None:
        raise error

    def context(_message: Any, _context: Context) -> None:
        raise error

    def batch(_messages: list[Any]) -> None:
        raise error

    async def coroutine(_message: Any) -> None:
        await asyncio.sleep(0)
        raise error

    functions: dict[str, Any] = {"batch": batch, "coroutine": coroutine, "context": context, "plain": plain}
    worker.add_handler(
        "bad",
        functions.get(kind, context),
        batch=kind == "batch",
        transactional=kind == "transactional" or None,
    )
    worker.add_handler("t", calls.handler())
    bad = put(deployment.outbox, "bad")
    worker.start()
    until(lambda: deployment.outbox.get(bad).attempt == 1)
    good = put(deployment.outbox)
    until(lambda: status(deployment.outbox, good) == "Done")
    again = put(deployment.outbox, "bad")
    until(lambda: deployment.outbox.get(again).attempt == 1)
    assert type(error).__name__ in (deployment.outbox.get(bad).last_error or "")
    assert worker.stop(5)


@pytest.mark.parametrize("way", ["close", "commit", "rollback"])
def test_a_handler_cannot_tear_its_effect_from_its_end(
    deployment: pysqlbox.Deployment, make: MakeWorker, db: Database, effects: Any, way: str
) -> None:
    """One that closes, commits or rolls back what is not its own has another try, and no effect."""
    worker = make(boxes=["outbox"], threads=1, backoff=fixed(3600))

    @worker.handler("t", transactional=True)
    def handle(message: Any, context: Context) -> None:
        context.connection.execute(f'INSERT INTO "{db.schema}".effects (message) VALUES ({message.id})')
        if message.payload == way:
            getattr(context.connection, way)()

    bad, good = put(deployment.outbox, payload=way), put(deployment.outbox, payload="well")
    worker.start()
    until(lambda: status(deployment.outbox, good) == "Done")
    until(lambda: deployment.outbox.get(bad).attempt == 1)
    assert status(deployment.outbox, bad) == "Ready"
    assert effects() == [good]
    worker.stop()


def test_a_block_of_the_handlers_own_commits_nothing_before_the_end(
    deployment: pysqlbox.Deployment, make: MakeWorker, db: Database, effects: Any
) -> None:
    """``connection.transaction()`` is a savepoint there, also when it comes first."""
    worker = make(boxes=["outbox"], threads=1, backoff=fixed(3600))
    within: list[list[int]] = []

    @worker.handler("t", transactional=True)
    def handle(message: Any, context: Context) -> None:
        with context.connection.transaction():
            context.connection.execute(f'INSERT INTO "{db.schema}".effects (message) VALUES ({message.id})')
        within.append(effects())
        if message.payload == "bad":
            raise ValueError(message.payload)

    bad, good = put(deployment.outbox, payload="bad"), put(deployment.outbox)
    worker.start()
    until(lambda: status(deployment.outbox, good) == "Done")
    until(lambda: deployment.outbox.get(bad).attempt == 1)
    worker.stop()
    assert within == [[], []]
    assert effects() == [good]


def test_connections_that_are_cut_at_any_moment_lose_nothing(
    deployment: pysqlbox.Deployment, make: MakeWorker, db: Database, effects: Any
) -> None:
    """Of each exchange, each transaction, each extension: in turns, whatever it is at."""
    worker = make(boxes=["outbox"], threads=4, lease_seconds=2, backoff=fixed(0.05), max_attempts=0)
    seen: Counter[int] = Counter()
    lock = threading.Lock()

    @worker.handler("plain")
    def handle(message: Any) -> None:
        with lock:
            seen[message.id] += 1
        time.sleep(0.002)

    @worker.handler("booked", transactional=True)
    def book(message: Any, context: Context) -> None:
        context.connection.execute(f'INSERT INTO "{db.schema}".effects (message) VALUES ({message.id})')

    plain = put_many(deployment.outbox, 300, topic="plain")
    booked = put_many(deployment.outbox, 100, topic="booked")
    watcher = psycopg.connect(db.url, autocommit=True)
    with watcher:
        ours = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        others = f"{ours} AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND pid %% %s = 0"
        before = {row[0] for row in watcher.execute("SELECT pid FROM pg_stat_activity").fetchall()}
        spare = f"{others} AND NOT (pid = ANY (%s))"
        worker.start()
        until_at = time.monotonic() + 3
        turn = 0
        while time.monotonic() < until_at:
            turn += 1
            watcher.execute(spare.encode(), [1 + turn % 3, list(before)])
            time.sleep(0.02)
    until(lambda: {status(deployment.outbox, each) for each in [*plain, *booked]} == {"Done"}, 30)
    worker.stop()
    assert seen.keys() == set(plain), "every one was handled"
    assert effects() == booked, "each exactly once"
