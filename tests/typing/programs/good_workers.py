"""Workers and handlers of every kind, and objects in place of topics and payloads."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

import pysqlbox
from pysqlbox import Ack, DeadLetter, Enqueued, InboxEnqueued, OutboxMessage, Release, Result, Retry
from pysqlbox.typed import message
from pysqlbox.worker import Context, WorkerOptions, exponential


@message("order.created", group_id="customer", source="shop")
@dataclass
class OrderCreated:
    order_id: int
    customer: str


class Mailer:
    def mail(self, order: OrderCreated) -> None:
        print(order.customer)

    async def mail_later(self, order: OrderCreated, context: Context) -> Result | None:
        return None

    def mail_all(self, orders: list[OrderCreated]) -> list[Result | None]:
        return [None for _ in orders]

    def __call__(self, message: OutboxMessage) -> None:
        print(message.payload)


class LaterMailer:
    async def __call__(self, message: OutboxMessage, context: Context | None = None) -> Retry | None:
        return Retry(delay=timedelta(seconds=3))


def with_session(message: OutboxMessage, context: Context, session: str) -> None:
    print(session)


def noted(function: Callable[[OrderCreated], None]) -> Callable[[OrderCreated], None]:
    @functools.wraps(function)
    def noting(order: OrderCreated) -> None:
        function(order)

    return noting


def workers(db: pysqlbox.Deployment) -> None:
    worker = db.worker(boxes=("outbox", "inbox"), threads=4, lease_seconds=timedelta(minutes=1))
    options: WorkerOptions = {"batch_size": 10, "backoff": exponential(base=0.5), "unknown_topics": "dead"}
    db.worker(**options)

    @worker.handler("order.created")
    def plain(order: OrderCreated) -> None:
        print(order.customer)

    @worker.handler("t", concurrency=2, timeout=timedelta(seconds=5))
    def answering(message: OutboxMessage, context: Context) -> Result | None:
        return None if context.cancelled else Retry(delay=60)

    @worker.handler("t", transactional=True)
    def transactional(payload: dict[str, Any], context: Context) -> Ack | DeadLetter:
        db.outbox.enqueue("next", payload, connection=context.connection)
        return Ack()

    @worker.handler("t")
    async def awaited(message: OutboxMessage) -> Release | None:
        return Release(delay=1) if message.attempt else None

    @worker.handler(OrderCreated)
    def by_class(order: OrderCreated) -> None:
        print(order.order_id)

    @worker.handler(OrderCreated)
    async def awaited_by_class(order: OrderCreated, context: Context) -> Result | None:
        await context.sleep(1)
        return None

    @worker.handler(OrderCreated)
    def whole(message: OutboxMessage) -> None:
        print(message.topic)

    @worker.batch_handler("mail")
    def batch(mails: list[OrderCreated]) -> list[Result]:
        return [Ack() for _ in mails]

    @worker.batch_handler(OrderCreated, concurrency=1)
    async def awaited_batch(messages: list[OutboxMessage], context: Context) -> Mapping[int, Result]:
        return {each.id: Retry() for each in messages}

    @worker.middleware
    def around(
        message: OutboxMessage, context: Context, call_next: Callable[[], Result | None]
    ) -> Result | None:
        return call_next()

    plain(OrderCreated(1, "a"))
    by_class(OrderCreated(1, "a"))
    worker.add_handler("t", plain)
    assert_type(worker.drain(timeout=5, raise_errors=True), int)


def publishing(db: pysqlbox.Deployment, connection: Any) -> None:
    order = OrderCreated(1, "a")
    assert_type(db.outbox.publish(order, priority=3, connection=connection), Enqueued)
    assert_type(db.outbox.publish_many([order]), list[Enqueued])
    assert_type(db.inbox.receive(order, message_id="1", source="s"), InboxEnqueued)


async def publishing_awaited(db: pysqlbox.AsyncDeployment, connection: Any) -> None:
    order = OrderCreated(1, "a")
    assert_type(await db.outbox.publish(order, priority=3, connection=connection), Enqueued)
    assert_type(await db.inbox.receive_many([order], source="s"), list[InboxEnqueued])
    async with db.worker(async_slots=10):
        pass


def everything_that_can_be_called(worker: pysqlbox.Worker) -> None:
    mailer = Mailer()
    worker.handler("a")(mailer.mail)
    worker.handler("b")(mailer.mail_later)
    worker.handler("c")(mailer)
    worker.handler("d")(LaterMailer())
    worker.handler("e")(functools.partial(with_session, session="s"))
    worker.handler(OrderCreated)(mailer.mail)
    worker.handler(OrderCreated)(mailer.mail_later)
    worker.handler(OrderCreated)(functools.partial(Mailer.mail, mailer))
    worker.batch_handler("f")(mailer.mail_all)
    worker.batch_handler(OrderCreated)(mailer.mail_all)
    worker.add_handler("g", mailer.mail_later)
    worker.add_handler("h", lambda message: print(message))
    worker.add_handler("i", mailer.mail_all, batch=True)
    worker.add_handler(OrderCreated, print)

    @worker.handler("j")
    @worker.handler("k")
    @noted
    def of_two_topics(order: OrderCreated) -> None: ...

    @worker.handler("l")
    def optional(value: int | str | None, context: Context | None = None, times: int = 3) -> None: ...

    @worker.batch_handler(OrderCreated)
    def a_sequence(orders: Sequence[OrderCreated], context: Context) -> Result | None:
        return None

    optional(value=1, times=2)
    of_two_topics(OrderCreated(1, "a"))


def around(worker: pysqlbox.Worker) -> None:
    class Timed:
        def __call__(
            self, message: Any, context: Context, call_next: Callable[[], Result | None]
        ) -> Result | None:
            return call_next()

    worker.middleware(Timed())

    @worker.middleware
    async def awaited(
        message: OutboxMessage, context: Context, call_next: Callable[[], Awaitable[Result | None]]
    ) -> Result | None:
        return await call_next()

    @worker.middleware
    def of_batches(
        messages: list[OutboxMessage], context: Context, call_next: Callable[[], list[Result]]
    ) -> list[Result]:
        return call_next()

    @worker.on_start
    def started() -> int:
        return 1

    @worker.on_stop
    async def stopped() -> None: ...

    manager = pysqlbox.Manager(worker)
    manager.on_start(lambda: print("started"))
    manager.on_stop(stopped)
