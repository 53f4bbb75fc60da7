"""The asynchronous face: every method works, and a caller's transaction stays the caller's."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any
from uuid import UUID, uuid4

import pytest

import pysqlbox
from pysqlbox import (
    AsyncDeployment,
    AsyncInbox,
    AsyncOutbox,
    AsyncOutboxStore,
    InvalidArgument,
    InvalidState,
    NotFound,
    SchemaMismatch,
)
from tests.package.asynchronous import HOLDERS, dsn, open_asyncpg, psycopg_connection, run
from tests.support.database import Database

OWNER = UUID("11111111-1111-4111-8111-111111111111")
RECORD = {"topic": "t", "payload": {"a": 1}}
RECEIVED = {"topic": "t", "source": "s", "message_id": "2", "payload": "p"}


def _count(db: Database) -> object:
    return db.sql("SELECT count(*) AS n FROM {schema}.outbox_messages")[0]["n"]


def test_an_outbox_from_end_to_end(db: Database) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        outbox, given = deployment.outbox, uuid4()
        done = await outbox.enqueue("t", {"a": 1}, message_id=given, headers={"h": 1}, priority=2)
        assert (done.message_id, done.outcome) == (given, "created")
        assert (await outbox.enqueue("t", "again", message_id=given)).duplicate
        assert [each.ordinal for each in await outbox.enqueue_many([RECORD, RECORD])] == [1, 2]
        assert len(await outbox.enqueue_payloads("t", ["1", "2"])) == 2
        later = await outbox.enqueue("t", "later", delay=3600)
        assert await outbox.next_due() is not None
        claimed = await outbox.claim(OWNER)
        assert [each.headers for each in claimed] == [{"h": 1}, None, None, None, None]
        ids = [each.id for each in claimed]
        assert await outbox.ack(OWNER, ids[:1]) == 1
        assert await outbox.abandon(OWNER, ids[1:2], last_error="e", delay_seconds=0.5) == 1
        assert (await outbox.retry(OWNER, ids[2:3], max_attempts=1)).dead == 1
        assert await outbox.release(OWNER, ids[3:4]) == 1
        assert await outbox.fail(OWNER, ids[4:], "broken") == 1
        (again,) = await outbox.settle(OWNER, [], claim_batch=1)
        assert [each.id for each in await outbox.extend(OWNER, [again.id], 60)] == [again.id]
        assert await outbox.reap() == 0
        assert (await outbox.get(ids[0])).status == "Done"
        assert [each.id for each in await outbox.list("Failed")] == [ids[2], ids[4]]
        assert [each.id for each in await outbox.dead_letters()] == [ids[2], ids[4]]
        assert sum(each.messages or 0 for each in await outbox.dead_causes()) == 2
        assert await outbox.groups() == []
        assert await outbox.replay(ids[2:3]) == 1
        assert await outbox.discard(ids[4:]) == 1
        assert await outbox.reschedule([later.id]) == 1
        assert await outbox.cancel([later.id], reason="no more") == 1
        assert (await outbox.pause("t"), await outbox.resume("t")) == (1, 1)
        assert (await outbox.stats())[-1].done == 1
        assert await outbox.configure("max_attempts", 3) == "3"
        assert (await outbox.cleanup(0), await outbox.cleanup_dead(0)) == (1, 1)
        assert await outbox.find(given) is None
        with pytest.raises(NotFound):
            await outbox.get(ids[0])
        with pytest.raises(InvalidArgument, match="topic"):
            await outbox.enqueue("", "p")

    run(db, work)


def test_an_inbox_from_end_to_end(db: Database) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        inbox = deployment.inbox
        assert (await inbox.enqueue("t", "s", "1", "p", hash=b"x")).outcome == "created"
        many = await inbox.enqueue_many([RECEIVED, RECEIVED])
        assert [each.outcome for each in many] == ["created", "updated"]
        assert not await inbox.already_processed("3", "s", hash=b"y")
        assert await inbox.mark_processing("3", "s") == 1
        assert await inbox.mark_processed("3", "s") == 1
        assert await inbox.already_processed("3", "s")
        assert await inbox.mark_dead("2", "s") == 1
        found = await inbox.find("1", "s")
        assert found is not None
        assert [each.id for each in await inbox.claim(OWNER)] == [found.id]

    run(db, work)


def test_joins_and_the_ledger(db: Database) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        joins, ledger = deployment.joins, deployment.ledger
        steps = [each.message_id for each in await deployment.outbox.enqueue_many([RECORD] * 3)]
        join = await joins.start("tenant", 3, metadata={"a": 1})
        assert await joins.attach(join, steps[0])
        assert await joins.attach_many(join, steps) == 2
        assert await joins.report_completed(join, steps[0])
        assert await joins.report_failed(join, steps[1])
        assert (await joins.resolve(join)).status == "Pending"
        assert (await joins.wait(join, on_complete_topic="after")).id
        assert (await joins.get(join)).completed_steps == 1
        assert [each.join_id for each in await joins.list("tenant")] == [join]
        assert await joins.cancel(join)
        claim = await ledger.try_begin("k", lease_seconds=60)
        assert claim.status == "Acquired"
        assert claim.lease_id is not None
        assert await ledger.mark_processed("k", claim.lease_id) == 1
        assert (await ledger.get("k")).status == "Processed"
        other = await ledger.try_begin("other", lease_seconds=60)
        assert other.lease_id is not None
        assert await ledger.release("other", other.lease_id) == 1
        assert [each.key for each in await ledger.list("k")] == ["k"]
        assert await ledger.cleanup(3600) == 0

    run(db, work)


def test_schedules_and_what_belongs_to_no_box(db: Database) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        made = await deployment.schedules.set("s", "t", {}, cron="0 3 * * *", timezone="Europe/Berlin")
        assert made.next_at is not None
        await deployment.schedules.set("m", "t", {}, every=60, box="mail")
        assert [each.name for each in await deployment.schedules.list()] == ["s"]
        assert [each.name for each in await deployment.schedules.list(box="mail")] == ["m"]
        with pytest.raises(InvalidArgument, match="inbox"):
            await deployment.schedules.set("s", "t", {}, every=60, box="orders")
        assert await deployment.outbox.schedule_due() == []
        await deployment.schedules.remove("s")
        with pytest.raises(NotFound):
            await deployment.schedules.remove("s")
        assert await deployment.schema_version() > 0
        assert await deployment.schema_place() is None
        assert await deployment.drawing_place() == 0
        assert {each.check for each in await deployment.doctor()}
        assert await deployment.call("schema_version", {})

    run(db, work)


def test_named_boxes(db: Database) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        orders = await deployment.box("orders")
        assert isinstance(orders, AsyncInbox)
        assert await deployment.box("orders", kind="inbox") is orders
        mail = await deployment.box("mail", kind="outbox")
        assert isinstance(mail, AsyncOutbox)
        assert (await mail.enqueue("t", "p")).outcome == "created"
        with pytest.raises(InvalidArgument, match="kind"):
            await deployment.box("mail", kind="inbox")
        for missing in ("nobox", "no box"):
            with pytest.raises(NotFound, match=missing):
                await deployment.box(missing)

    run(db, work)


def test_the_documents_store(db: Database) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        ids = [(await deployment.outbox.enqueue("t", "p")).id for _ in range(3)]
        store = AsyncOutboxStore(deployment, OWNER, lease_seconds=60)
        assert [each.id for each in await store.claim_due(3)] == ids
        assert await store.mark_dispatched(ids[0])
        assert not await store.mark_dispatched(ids[0])
        assert await store.reschedule(ids[1], 60, "later")
        async with deployment.transaction() as connection:
            assert await store.fail(ids[2], "never", connection=connection)
        assert [(await deployment.outbox.get(each)).status for each in ids] == ["Done", "Ready", "Failed"]
        mail = await deployment.box("mail", kind="outbox")
        assert await AsyncOutboxStore(mail).claim_due() == []

    run(db, work)


def test_nothing_is_connected_before_the_first_call(db: Database) -> None:
    deployment = pysqlbox.connect_async("postgresql://127.0.0.1:1/nowhere", connect_timeout=1)
    assert "nowhere" in repr(deployment)
    asyncio.run(deployment.close())

    async def work(opened: AsyncDeployment) -> None:
        assert opened._pool.open == 0
        await opened.outbox.stats()
        assert opened._pool.open == 1

    run(db, work)


def test_a_schema_without_pysqlbox_is_told(db: Database) -> None:
    async def main() -> None:
        async with pysqlbox.connect_async(db.url, schema="nowhere") as deployment:
            with pytest.raises(SchemaMismatch, match="nowhere"):
                await deployment.outbox.enqueue("t", "p")

    asyncio.run(main())


def test_transaction_commits_or_rolls_back(db: Database) -> None:
    async def fail(deployment: AsyncDeployment) -> None:
        async with deployment.transaction() as connection:
            await deployment.outbox.enqueue("t", "lost", connection=connection)
            raise ValueError("failed")

    async def work(deployment: AsyncDeployment) -> None:
        async with deployment.transaction() as connection:
            await deployment.outbox.enqueue("t", "kept", connection=connection)
            assert (await deployment.outbox.stats())[-1].ready == 0
        with pytest.raises(ValueError, match="failed"):
            await fail(deployment)
        async with deployment.connection() as connection:
            await deployment.outbox.enqueue("t", "at once", connection=connection)
            assert (await deployment.outbox.stats())[-1].ready == 2

    run(db, work)
    assert [
        each["payload"] for each in db.call("outbox_claim", owner_token=OWNER, lease_seconds=60, batch_size=9)
    ] == [
        "kept",
        "at once",
    ]


async def _swallow(deployment: AsyncDeployment) -> None:
    async with deployment.transaction() as connection:
        await deployment.outbox.enqueue("t", "lost", connection=connection)
        with contextlib.suppress(InvalidArgument):
            await deployment.outbox.enqueue("", "p", connection=connection)


async def _go_on(deployment: AsyncDeployment) -> None:
    async with deployment.transaction() as connection:
        with contextlib.suppress(InvalidArgument):
            await deployment.outbox.enqueue("", "p", connection=connection)
        await deployment.outbox.enqueue("t", "lost", connection=connection)


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize(
    ("ends", "says"),
    [(_swallow, "transaction: an error has ended it"), (_go_on, "aborted.*must be rolled back")],
)
def test_a_transaction_that_an_error_has_ended_is_never_taken_for_committed(
    db: Database, ends: Any, says: str
) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        with pytest.raises(InvalidState, match=says):
            await ends(deployment)
        async with deployment.transaction() as connection:
            with contextlib.suppress(InvalidArgument):
                async with connection.transaction():
                    await deployment.outbox.enqueue("", "p", connection=connection)
            await deployment.outbox.enqueue("t", "kept", connection=connection)
        assert [each.payload for each in await deployment.outbox.claim(OWNER)] == ["kept"]

    run(db, work)


@pytest.mark.dialect("postgres")
def test_what_somebody_told_a_lent_connection_the_next_one_does_not_find(db: Database) -> None:
    import psycopg
    from psycopg.rows import dict_row

    async def work(deployment: AsyncDeployment) -> None:
        async with deployment.connection() as lent:
            lent.row_factory, lent.cursor_factory = dict_row, psycopg.AsyncClientCursor
            await lent.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)
            await lent.set_read_only(True)
            await lent.set_deferrable(True)
        async with deployment.transaction() as again:
            assert again is lent
            assert type(again.cursor()) is psycopg.AsyncCursor
            found = await again.execute("SELECT current_setting('transaction_isolation')")
            assert await found.fetchone() == ("read committed",)
            assert len(await deployment.outbox.claim(OWNER, connection=again)) == 0
        entered = contextlib.AsyncExitStack()
        async with deployment.connection() as lent:
            await entered.enter_async_context(lent.pipeline())
        assert lent.closed, "nobody knows what is still to come"
        with contextlib.suppress(psycopg.Error):
            await entered.aclose()
        assert (await deployment.outbox.enqueue("t", "p")).outcome == "created"

    run(db, work, pool_size=1)


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_callers_transaction_decides(db: Database, holder: str) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        async with HOLDERS[holder](db) as (connection, commit, rollback):
            outbox, inbox = deployment.outbox, deployment.inbox
            await outbox.enqueue("t", "lost", connection=connection)
            await outbox.enqueue_many([RECORD], connection=connection)
            assert _count(db) == 0
            await rollback()
            assert _count(db) == 0
            kept = await outbox.enqueue("t", "kept", headers={"a": 1}, connection=connection)
            await outbox.enqueue_payloads("t", ["1", "2"], connection=connection)
            received = await inbox.enqueue("t", "s", "1", "p", hash=b"x", connection=connection)
            await inbox.enqueue_many([RECEIVED], connection=connection)
            join = await deployment.joins.start("x", 1, metadata={"m": 1}, connection=connection)
            await deployment.joins.attach(join, kept.message_id, connection=connection)
            await deployment.joins.attach_many(join, [kept.message_id], connection=connection)
            assert (await outbox.get(kept.id, connection=connection)).headers == {"a": 1}
            assert (await inbox.get(received.id, connection=connection)).hash == b"x"
            assert _count(db) == 0
            await commit()
            assert _count(db) == 3
            claimed = await outbox.claim(OWNER, topics=["t"], connection=connection)
            assert [each.payload for each in claimed] == ["kept", "1", "2"]
            outcomes = [{"ids": [each.id for each in claimed], "result": "retry", "delay_seconds": 1.5}]
            await outbox.settle(OWNER, outcomes, connection=connection)
            await outbox.reschedule([claimed[0].id], claimed[0].due_at, connection=connection)
            await rollback()
            assert await outbox.ack(OWNER, [claimed[0].id]) == 0, "the claim was rolled back"
            await outbox.enqueue("t", "never committed", connection=connection)
        assert _count(db) == 3

    run(db, work)


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize("holder", ["psycopg", "asyncpg"])
def test_an_error_leaves_the_transaction_to_its_owner(db: Database, holder: str) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        async with HOLDERS[holder](db) as (connection, _, rollback):
            with pytest.raises(InvalidArgument, match="topic"):
                await deployment.outbox.enqueue("", "p", connection=connection)
            await rollback()
            with pytest.raises(NotFound):
                await deployment.outbox.get(10**12, connection=connection)
            await rollback()
            for text in ("half \ud800 a character", "a zero \x00 byte"):
                with pytest.raises(InvalidArgument):
                    await deployment.outbox.enqueue("t", text, connection=connection)
                await rollback()
            with pytest.raises(InvalidArgument, match="mine"):
                await deployment.call("outbox_enqueue", {"mine": object()}, connection=connection)
            async with pysqlbox.connect_async(db.url, schema="nowhere") as lost:
                with pytest.raises(SchemaMismatch):
                    await lost.outbox.enqueue("t", "p", connection=connection)
            await rollback()
            assert (await deployment.outbox.enqueue("t", "p", connection=connection)).outcome == "created"

    run(db, work)


@pytest.mark.dialect("postgres")
def test_asyncpg_with_codecs_and_from_a_pool(db: Database) -> None:
    import json

    import asyncpg

    async def work(deployment: AsyncDeployment) -> None:
        connection = await open_asyncpg(db)
        await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        made = await deployment.outbox.enqueue("t", {"a": 1}, headers={"h": [1]}, connection=connection)
        found = await deployment.outbox.get(made.id, connection=connection)
        assert (found.payload, found.headers, found.message_id) == ('{"a":1}', {"h": [1]}, made.message_id)
        many = [{"topic": "t", "payload": "p", "headers": {"h": 2}}]
        assert len(await deployment.outbox.enqueue_many(many, connection=connection)) == 1
        await connection.close()
        with pytest.raises(pysqlbox.DatabaseUnavailable):
            await deployment.outbox.stats(connection=connection)

        async def opened(*_arguments: Any, **_options: Any) -> Any:
            return await open_asyncpg(db)

        async with asyncpg.create_pool(min_size=1, max_size=1, connect=opened) as pool:
            proxy = await pool.acquire()
            await deployment.outbox.enqueue("t", "p", connection=proxy)
            await pool.release(proxy)
            with pytest.raises(InvalidState, match="use it before it goes back to its pool"):
                await deployment.outbox.enqueue("t", "too late", connection=proxy)
        assert _count(db) == 3

    run(db, work)


def test_wrong_connections(db: Database) -> None:
    async def work(deployment: AsyncDeployment) -> None:
        with pytest.raises(InvalidArgument, match="connection: on"):
            await deployment.outbox.enqueue("t", "p", connection=5)
        if db.dialect == "postgres":
            with db.session() as session, pytest.raises(InvalidArgument, match=r"connect\(\) takes those"):
                await deployment.outbox.enqueue("t", "p", connection=session.connection)

    run(db, work)
    assert _count(db) == 0


@pytest.mark.dialect("postgres")
def test_an_asynchronous_connection_needs_the_asynchronous_face(
    deployment: pysqlbox.Deployment, db: Database
) -> None:
    async def main() -> None:
        async with psycopg_connection(db) as (connection, _, _):
            with pytest.raises(InvalidArgument, match="connect_async"):
                deployment.outbox.enqueue("t", "p", connection=connection)
        connection = await open_asyncpg(db)
        with pytest.raises(InvalidArgument, match="connect_async"):
            deployment.outbox.enqueue("t", "p", connection=connection)
        await connection.close()

    asyncio.run(main())
    assert dsn(db)
    assert _count(db) == 0
