"""The asynchronous methods; every other one has its own thread to run in."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from uuid import UUID, uuid4

import pytest

import pysqlbox
from pysqlbox import Deployment, InvalidArgument, SchemaMismatch
from tests.support.database import Database

OWNER = UUID("11111111-1111-4111-8111-111111111111")
RECORD = {"topic": "t", "payload": {"a": 1}}
RECEIVED = {"topic": "t", "source": "s", "message_id": "2", "payload": "p"}


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def _count(db: Database) -> object:
    return db.sql("SELECT count(*) AS n FROM {schema}.outbox_messages")[0]["n"]


def test_without_a_connection(deployment: Deployment) -> None:
    async def work() -> None:
        given = uuid4()
        done = await deployment.outbox.enqueue_async(
            "t", {"a": 1}, message_id=given, headers={"h": 1}, priority=2
        )
        assert (done.message_id, done.outcome) == (given, "created")
        many = await deployment.outbox.enqueue_many_async([RECORD, RECORD])
        assert len(await deployment.outbox.enqueue_payloads_async("t", ["1", "2"])) == 2
        await deployment.outbox.enqueue_async("t", "later", delay=3600)
        await deployment.outbox.enqueue_many_async([{**RECORD, "delay": 3600}])
        assert [each.ordinal for each in many] == [1, 2]
        await asyncio.gather(*(deployment.outbox.enqueue_async("t", str(number)) for number in range(10)))
        first = await deployment.inbox.enqueue_async("t", "s", "1", "p", hash=b"x")
        assert first.outcome == "created"
        assert [each.outcome for each in await deployment.inbox.enqueue_many_async([RECEIVED, RECEIVED])] == [
            "created",
            "updated",
        ]

    _run(work())
    assert len(deployment.outbox.claim(OWNER)) == 15
    assert deployment.inbox.stats()[-1].ready == 2


@pytest.mark.dialect("postgres")
def test_on_a_psycopg_connection(deployment: Deployment) -> None:
    import psycopg

    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(deployment.target.dsn) as connection:
            await deployment.outbox.enqueue_async("t", "p", connection=connection)
            await deployment.outbox.enqueue_many_async([RECORD], connection=connection)
            await deployment.outbox.enqueue_payloads_async("t", ["1"], connection=connection)
            await connection.rollback()
            await deployment.inbox.enqueue_async("t", "s", "1", "p", connection=connection)
            await deployment.inbox.enqueue_many_async([RECEIVED], connection=connection)
            await deployment.outbox.enqueue_async("t", "kept", headers={"a": 1}, connection=connection)
            assert not connection.autocommit

    _run(work())
    (message,) = deployment.outbox.claim(OWNER)
    assert (message.payload, message.headers) == ("kept", {"a": 1})
    assert deployment.inbox.stats()[-1].ready == 2


@pytest.mark.dialect("postgres")
def test_on_sqlalchemy(deployment: Deployment) -> None:
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    pytest.importorskip("greenlet", reason="greenlet is not installed")
    import psycopg
    from sqlalchemy.ext.asyncio import (
        AsyncSession,
        async_scoped_session,
        async_sessionmaker,
        create_async_engine,
    )
    from sqlalchemy.pool import NullPool

    async def work() -> None:
        async def open_connection() -> Any:
            return await psycopg.AsyncConnection.connect(deployment.target.dsn)

        engine = create_async_engine(
            "postgresql+psycopg://", async_creator=open_connection, poolclass=NullPool
        )
        async with engine.connect() as connection:
            await deployment.outbox.enqueue_async("t", "1", connection=connection)
            await connection.rollback()
            await deployment.outbox.enqueue_async("t", "2", connection=connection)
            await connection.commit()
            await deployment.outbox.enqueue_async("t", "3", connection=connection)
        async with AsyncSession(engine) as session:
            await deployment.outbox.enqueue_many_async([{**RECORD, "payload": "4"}], connection=session)
            await session.commit()
            await deployment.outbox.enqueue_async("t", "5", connection=session)
        scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
        await deployment.outbox.enqueue_async("t", "6", connection=scoped)
        await scoped.commit()
        await scoped.remove()
        await engine.dispose()

    _run(work())
    assert [each.payload for each in deployment.outbox.claim(OWNER)] == ["2", "4", "6"]


def test_wrong_connections(deployment: Deployment, db: Database) -> None:
    async def work() -> None:
        with db.session() as session:
            for wrong in (session.connection, 5):
                with pytest.raises(InvalidArgument, match="connection"):
                    await deployment.outbox.enqueue_async("t", "p", connection=wrong)

    _run(work())


@pytest.mark.dialect("postgres")
def test_an_asynchronous_connection_needs_the_asynchronous_method(
    deployment: Deployment, db: Database
) -> None:
    import psycopg

    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(deployment.target.dsn) as connection:
            with pytest.raises(InvalidArgument, match="use the _async method"):
                deployment.outbox.enqueue("t", "p", connection=connection)
            with pysqlbox.connect(deployment.target, schema="nowhere") as lost, pytest.raises(SchemaMismatch):
                await lost.outbox.enqueue_async("t", "p", connection=connection)
            await connection.rollback()
            with pytest.raises(InvalidArgument, match="topic"):
                await deployment.outbox.enqueue_async("", "p", connection=connection)
            await connection.rollback()

    _run(work())
    assert _count(db) == 0
