"""The asynchronous face under strain: cancellations, many tasks, lost connections, other event loops."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

import pysqlbox
from pysqlbox import AsyncDeployment, DatabaseUnavailable, InvalidState
from tests.package.asynchronous import run
from tests.support.database import Database

OWNER = UUID("11111111-1111-4111-8111-111111111111")
RUNNING = (
    "SELECT count(*) AS n FROM pg_stat_activity WHERE query LIKE '%%outbox_enqueue%%' AND state = 'active'"
)


async def _until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.02)


def _calls(db: Database) -> int:
    """How many calls of enqueue the server is at work on; the question itself is one of a psycopg's."""
    rows = db.sql(RUNNING + " AND pid <> pg_backend_pid()")
    return int(str(rows[0]["n"]))


@pytest.mark.dialect("postgres")
def test_a_cancelled_call_is_called_off_and_leaves_a_pool_that_works(db: Database) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        await deployment.outbox.stats()
        with db.session() as session:
            session.sql("LOCK TABLE {schema}.outbox_message IN ACCESS EXCLUSIVE MODE")
            task = asyncio.create_task(deployment.outbox.enqueue("t", "never"))
            await _until(lambda: _calls(db) == 1)
            waiting = asyncio.create_task(deployment.outbox.stats())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await _until(lambda: _calls(db) == 0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await deployment.outbox.enqueue("t", "never")
            await _until(lambda: _calls(db) == 0)
            session.rollback()
        assert (await deployment.outbox.enqueue("t", "p")).outcome == "created"
        assert [each.payload for each in await deployment.outbox.claim(OWNER)] == ["p"]
        assert deployment.pool.open == 1

    run(db, work, pool_size=1)


@pytest.mark.dialect("postgres")
def test_a_cancelled_call_leaves_a_callers_transaction_to_its_owner(db: Database) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        async with deployment.transaction() as connection:
            await deployment.outbox.enqueue("t", "lost", connection=connection)
            with db.session() as session:
                session.sql("LOCK TABLE {schema}.inbox_message IN ACCESS EXCLUSIVE MODE")
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await deployment.inbox.enqueue("t", "s", "1", "p", connection=connection)
                session.rollback()
            assert not connection.closed
            await connection.rollback()
            await deployment.outbox.enqueue("t", "kept", connection=connection)
        assert [each.payload for each in await deployment.outbox.claim(OWNER)] == ["kept"]

    run(db, work)


def test_many_tasks_share_few_connections(db: Database) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        count = 200 if db.dialect == "postgres" else 20
        made = await asyncio.gather(*(deployment.outbox.enqueue("t", str(n)) for n in range(count)))
        assert len({each.id for each in made}) == count
        claims = await asyncio.gather(
            *(deployment.outbox.claim(UUID(int=n + 1), batch_size=50) for n in range(count // 10))
        )
        taken = [each.id for claim in claims for each in claim]
        assert len(taken) == len(set(taken))
        assert 1 <= deployment.pool.open <= 3
        assert deployment.pool.idle == deployment.pool.open

    run(db, work)


def test_cancellations_at_any_moment_lose_no_connection(db: Database) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        for turn in range(60 if db.dialect == "postgres" else 5):
            tasks = [asyncio.create_task(deployment.outbox.enqueue("t", "p")) for _ in range(5)]
            await asyncio.sleep(turn / 10_000)
            for task in tasks[:4]:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert not isinstance(ended[4], BaseException)
            assert all(isinstance(each, pysqlbox.Enqueued | asyncio.CancelledError) for each in ended)
        made = await asyncio.gather(*(deployment.outbox.enqueue("t", "p") for _ in range(6)))
        assert all(each.outcome == "created" for each in made)
        assert deployment.pool.open <= 2

    run(db, work, pool_size=2)


def test_a_full_pool_is_told_and_a_released_connection_goes_on(db: Database) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        async with deployment.connection():
            with pytest.raises(DatabaseUnavailable, match="pool_size"):
                await deployment.outbox.stats()
        assert await deployment.outbox.stats()

    run(db, work, pool_size=1, pool_timeout=0.05)


@pytest.mark.dialect("postgres")
def test_a_lost_connection_is_replaced(db: Database) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        async with deployment.connection() as connection:
            victim = connection.info.backend_pid
        db.sql("SELECT pg_terminate_backend(%s) AS done", victim)
        assert await deployment.outbox.stats()
        async with deployment.connection() as connection:
            assert connection.info.backend_pid != victim
            victim = connection.info.backend_pid
            db.sql("SELECT pg_terminate_backend(%s) AS done", victim)
            with pytest.raises(DatabaseUnavailable):
                await deployment.outbox.stats(connection=connection)
        assert (await deployment.outbox.enqueue("t", "p")).outcome == "created"
        assert deployment.pool.open == 1

    run(db, work, pool_size=1)


def test_one_event_loop_after_the_other_but_not_two_at_once(db: Database) -> None:
    deployment = pysqlbox.connect_async(db.url, schema=db.schema, pool_size=2)

    async def use() -> int:
        return (await deployment.outbox.enqueue("t", "p")).id

    async def use_beside() -> None:
        await use()
        told: list[BaseException] = []

        def elsewhere() -> None:
            try:
                asyncio.run(use())
            except InvalidState as error:
                told.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert ["another event loop" in str(each) for each in told] == [True]

    async def end() -> None:
        await use()
        await deployment.close()
        assert deployment.pool.open == 0
        with pytest.raises(InvalidState, match="closed"):
            await use()

    asyncio.run(use_beside())
    asyncio.run(end())


def test_a_worker_and_a_migration(db: Database) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        handled: list[str] = []
        over = asyncio.Event()
        worker = deployment.worker(threads=1, poll_seconds=0.05, cleanup_seconds=None)
        assert worker.deployment.pool.size == 3, "as this one's"

        @worker.handler("t")
        async def handle(payload: str) -> None:
            handled.append(payload)
            await deployment.outbox.enqueue("unknown", payload)
            over.set()

        await deployment.outbox.enqueue("t", "p")
        async with worker:
            async with asyncio.timeout(60):
                await over.wait()
        assert handled == ["p"]
        assert not worker.is_running

    run(db, work)


class _Slow:
    """A driver that only blocks, and a connection of its."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = threading.Event()
        self.ended = False
        self.autocommit = True
        self.closed = False

    def fetch(self, *_: Any) -> list[tuple[Any, ...]]:
        self.begun.set()
        assert self.go.wait(20)
        self.ended = True
        return [(1,)]

    def connect(self, *_: Any, **__: Any) -> _Slow:
        self.fetch()
        return self

    def close(self) -> None:
        self.closed = True

    def database_error(self) -> type[Exception]:
        return OSError


@pytest.mark.parametrize("step", ["fetch", "connect"])
def test_in_threads_a_cancelled_caller_waits_until_the_driver_is_through(step: str) -> None:
    from pysqlbox.drivers.threaded import Threaded

    slow = _Slow()
    driver: Any = slow

    async def main() -> None:
        threaded = Threaded(driver, 1)
        work: Callable[[], Awaitable[Any]] = (
            (lambda: threaded.fetch(slow, "s", "r", {}))
            if step == "fetch"
            else (lambda: threaded.connect(driver))
        )
        task = asyncio.ensure_future(work())
        await asyncio.to_thread(slow.begun.wait, 20)
        queued = asyncio.ensure_future(threaded.fetch(slow, "s", "r", {}))
        await asyncio.sleep(0)
        for _ in range(2):  # a second time while it waits
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        slow.go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert slow.ended
        threaded.shut_down()

    asyncio.run(main())
    deadline = time.monotonic() + 20
    while step == "connect" and not slow.closed:
        assert time.monotonic() < deadline, "a connection that nobody gets is closed"
        time.sleep(0.01)
    assert slow.closed == (step == "connect")
