"""Mistakes that a type checker sees: each line that ends in ``# bad``, and no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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


class Handling:
    """What handles, and not as a worker calls it."""

    def method(self, message: OutboxMessage, context: Context, more: int) -> None: ...

    async def __call__(self, message: OutboxMessage) -> bool:
        return True


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


async def forgotten(db: pysqlbox.AsyncDeployment) -> None:
    db.outbox.enqueue("t", "p")  # bad
    db.outbox.publish(OrderPaid())  # bad
    db.schedules.set("s", "t", {}, every=60)  # bad
    db.migrate()  # bad
    db.close()  # bad
    db.box("orders").ack(uuid4(), [1])  # bad
    sent = db.outbox.enqueue("t", "p")
    print(sent.id)  # bad
    with db.transaction():  # bad
        pass


def schedules(db: pysqlbox.Deployment) -> None:
    db.schedules.set("s", "t", {}, "* * * * *")  # bad
    db.schedules.set("s", "t", {}, every="5m")  # bad
    db.schedules.set("s", "t", {}, next_at="now")  # bad
    db.schedules.set("s", "t", {}, timzone="UTC")  # bad
    db.outbox.schedule_fire("s", "now")  # bad


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

    @worker.handler("t")  # bad
    def no_message() -> None: ...

    @worker.handler("t")  # bad
    def no_context(message: OutboxMessage, context: int) -> None: ...

    @worker.handler("t")  # bad
    async def too_many(message: OutboxMessage, context: Context, more: int) -> None: ...

    @worker.handler("t")  # bad
    def by_keyword(message: OutboxMessage, *, session: int) -> None: ...

    worker.handler("t")(Handling().method)  # bad
    worker.handler("t")(Handling())  # bad
    worker.add_handler("t", Handling().method)  # bad

    @worker.batch_handler("t")  # bad
    def no_list(message: OutboxMessage) -> None: ...

    @worker.batch_handler("t")  # bad
    def no_results(messages: list[Any]) -> list[int]:
        return [1 for _ in messages]

    @worker.batch_handler("t")  # bad
    def no_batch_context(messages: list[Any], context: str) -> None: ...

    @worker.batch_handler(OrderCreated)  # bad
    def batch_of_another_class(orders: list[OrderPaid]) -> None: ...

    @worker.batch_handler(OrderCreated)  # bad
    def no_batch(order: OrderCreated) -> None: ...


def around(worker: pysqlbox.Worker) -> None:
    @worker.middleware  # bad
    def without_context(message: Any, call_next: Callable[[], Any]) -> Any:
        return call_next()

    @worker.middleware  # bad
    def counts(message: Any, context: Context, call_next: Callable[[], Any]) -> int:
        return 1

    @worker.middleware  # bad
    async def hands_over(message: Any, context: Context, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        return await call_next(message)

    @worker.on_start  # bad
    def started(worker: pysqlbox.Worker) -> None: ...

    @worker.on_stop  # bad
    async def stopped(worker: pysqlbox.Worker) -> None: ...

    @pysqlbox.Manager(worker).on_start  # bad
    def all_started(manager: pysqlbox.Manager) -> None: ...


async def once(db: pysqlbox.AsyncDeployment, blocking: pysqlbox.Deployment) -> None:
    consumer = Idempotent(db, bus="b", group="g")
    if consumer.cleanup() > 3:  # bad
        print("never")
    waiting = Idempotent(blocking, bus="b", group="g")
    await waiting.cleanup()  # bad
    Idempotent(db, bus="b")  # bad
