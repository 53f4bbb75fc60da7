"""Calls on both faces: their arguments and their answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type
from uuid import UUID, uuid4

import pysqlbox
from pysqlbox import (
    AsyncInbox,
    AsyncOutbox,
    Enqueued,
    Inbox,
    InboxEnqueued,
    InboxMessage,
    Join,
    LedgerClaim,
    Outbox,
    OutboxMessage,
    Retried,
    Schedule,
)
from pysqlbox.boxes import AnyBox
from pysqlbox.idempotent import Idempotent


def blocking(db: pysqlbox.Deployment, connection: Any) -> None:
    owner = uuid4()
    sent = db.outbox.enqueue("t", {"a": 1}, delay=timedelta(seconds=5), connection=connection)
    assert_type(sent, Enqueued)
    assert_type(db.outbox.enqueue_many([{"topic": "t", "payload": "p"}]), list[Enqueued])
    assert_type(db.inbox.enqueue("t", "source", "id", "p", hash=b"x"), InboxEnqueued)
    claimed = db.outbox.claim(owner, batch_size=10, topics=["t"])
    assert_type(claimed, list[OutboxMessage])
    assert_type(db.inbox.claim(owner), list[InboxMessage])
    assert_type(db.outbox.ack(owner, [each.id for each in claimed]), int)
    assert_type(db.outbox.retry(owner, [1], max_attempts=3), Retried)
    assert_type(db.joins.start("tenant", 3), UUID)
    assert_type(db.joins.list("tenant"), list[Join])
    assert_type(db.ledger.try_begin("key", lease_seconds=60), LedgerClaim)
    assert_type(db.schedules.set("s", "t", {}, every=60), Schedule)
    assert_type(db.box("orders", kind="inbox"), Inbox)
    assert_type(db.box("mail", kind="outbox"), Outbox)
    box: AnyBox = db.box("either")
    box.ack(owner, [1])
    if sent.outcome == "created" and claimed[0].headers is not None:
        print(db.schema_version() + 1)


async def awaiting(db: pysqlbox.AsyncDeployment, connection: Any) -> None:
    owner = uuid4()
    sent = await db.outbox.enqueue("t", {"a": 1}, delay=timedelta(seconds=5), connection=connection)
    assert_type(sent, Enqueued)
    assert_type(await db.outbox.enqueue_many([{"topic": "t", "payload": "p"}]), list[Enqueued])
    assert_type(await db.inbox.enqueue("t", "source", "id", "p", hash=b"x"), InboxEnqueued)
    claimed = await db.outbox.claim(owner, batch_size=10, topics=["t"])
    assert_type(claimed, list[OutboxMessage])
    assert_type(await db.inbox.claim(owner), list[InboxMessage])
    assert_type(await db.outbox.ack(owner, [each.id for each in claimed]), int)
    assert_type(await db.joins.list("tenant"), list[Join])
    assert_type(await db.ledger.try_begin("key", lease_seconds=60), LedgerClaim)
    assert_type(await db.schedules.set("s", "t", {}, every=60), Schedule)
    assert_type(await db.box("orders", kind="inbox"), AsyncInbox)
    assert_type(await db.box("mail", kind="outbox"), AsyncOutbox)
    async with db.transaction() as own:
        await db.outbox.enqueue("t", "p", connection=own)
    async with pysqlbox.connect_async("postgresql://host/shop", schema="infra") as other:
        print(await other.schema_version() + 1)


def once(db: pysqlbox.Deployment) -> None:
    consumer = Idempotent(db, bus="b", group="g", lease=None, retention=timedelta(days=1))
    assert_type(consumer.is_processed("key"), bool)
    assert_type(consumer.mark_processed("key"), bool)
    assert_type(consumer.cleanup(batch_size=10), int)
    kept: Idempotent = consumer
    kept.cleanup()


async def once_awaited(db: pysqlbox.AsyncDeployment) -> None:
    consumer = Idempotent(db, bus="b", group="g")
    assert_type(await consumer.is_processed("key"), bool)
    assert_type(await consumer.mark_processed("key"), bool)
    assert_type(await consumer.cleanup(), int)
