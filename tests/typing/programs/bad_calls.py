"""Mistakes that a type checker sees: each line that ends in ``# bad``, and no other."""

from __future__ import annotations

from typing import Any, Literal
from uuid import uuid4

import pysqlbox
from pysqlbox import OutboxMessage, Result, Retry
from pysqlbox.idempotent import Idempotent
from pysqlbox.worker import Context


class OrderCreated:
    """A message class."""


class OrderPaid:
    """Another one."""


def blocking(db: pysqlbox.Deployment) -> None:
    db.outbox.enqueue("t")  # bad
    db.outbox.enqueue("t", "p", priority="high")  # bad
    db.outbox.enqueue("t", "p", prioritty=1)  # bad
    db.outbox.claim("owner")  # bad
    db.outbox.ack(uuid4(), 5)  # bad
    db.inbox.enqueue("t", "p")  # bad
    db.outbox.receive(OrderPaid())  # bad
    db.outbox.publish(OrderPaid(), sourrce="s")  # bad
    db.joins.attach(1, 2)  # bad
    db.worker(thread=3)  # bad
    db.worker(threads="3")  # bad
    db.worker(unknown_topics="snoooze")  # bad
    db.box("orders", kind="inbocks")  # bad
    db.box("orders", kind="inbox").find(uuid4())  # bad
    length: str = db.outbox.ack(uuid4(), [1])  # bad
    print(length)


async def awaiting(db: pysqlbox.AsyncDeployment, blocking: pysqlbox.Deployment) -> None:
    await db.outbox.enqueue("t", "p", prioritty=1)  # bad
    await db.outbox.publish(OrderPaid(), sourrce="s")  # bad
    (await db.outbox.claim(uuid4()))[0].payloads  # bad
    db.outbox.claim(uuid4())[0]  # bad
    await blocking.outbox.enqueue("t", "p")  # bad
    db.worker(thread=3)  # bad
    async with blocking:  # bad
        pass


def outcomes(db: pysqlbox.Deployment) -> None:
    sent = db.outbox.enqueue("t", "p")
    wanted: Literal["creatd"] = "creatd"
    if sent.outcome == wanted:  # bad
        print("never")
    if db.ledger.get("k").status == "Proccessed":  # bad
        print("never")


def handlers(db: pysqlbox.Deployment) -> None:
    worker = db.worker()

    @worker.handler("t")  # bad
    def counts(message: OutboxMessage) -> int:
        return 1

    @worker.handler("t", concurency=1)  # bad
    def limited(message: OutboxMessage) -> None: ...

    @worker.handler("t")  # bad
    async def counts_later(message: OutboxMessage) -> int:
        return 1

    @worker.handler(OrderCreated)  # bad
    def other_class(order: OrderPaid) -> None: ...

    @worker.handler(OrderCreated)  # bad
    def other_class_with_context(order: OrderPaid, context: Context) -> Result | None:
        return Retry()

    @worker.batch_handler("t")  # bad
    def no_list(message: OutboxMessage) -> None: ...

    @worker.batch_handler("t")  # bad
    def no_results(messages: list[Any]) -> list[int]:
        return [1 for _ in messages]


async def once(db: pysqlbox.AsyncDeployment, blocking: pysqlbox.Deployment) -> None:
    consumer = Idempotent(db, bus="b", group="g")
    if consumer.cleanup() > 3:  # bad
        print("never")
    waiting = Idempotent(blocking, bus="b", group="g")
    await waiting.cleanup()  # bad
    Idempotent(db, bus="b")  # bad
