"""From an object that is published to the handler that takes one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID, uuid4

import pytest

import pysqlbox.deployment
from pysqlbox.errors import InvalidArgument
from pysqlbox.typed import message
from tests.support.database import Database

OWNER = UUID("11111111-1111-4111-8111-111111111111")
SECRET = "s3cr3t-pa55word"


@message(
    "order.created",
    source="shop",
    group_id="customer",
    dedup_key=lambda order: f"order-{order.id}",
    message_id="id",
    received_at="at",
)
@dataclass(frozen=True)
class OrderCreated:
    id: UUID
    customer: str
    total: Decimal
    at: datetime


@message("note")
@dataclass(frozen=True)
class Note:
    text: str


@pytest.fixture
def deployment(db: Database) -> Iterator[pysqlbox.Deployment]:
    """The deployment of the test."""
    with pysqlbox.deployment.connect(db.url, schema=db.schema) as found:
        yield found


def _order(customer: str = 'it\'s "quoted" 🐘') -> OrderCreated:
    return OrderCreated(uuid4(), customer, Decimal("0.10"), datetime(2020, 1, 1, tzinfo=UTC))


def test_what_is_published_reaches_the_handler_of_its_class(deployment: pysqlbox.Deployment) -> None:
    orders = [_order(), _order("other")]
    got: list[object] = []
    worker = deployment.worker(threads=1, boxes=("outbox", "orders"))

    @worker.handler(OrderCreated)
    def handle(order: OrderCreated) -> None:
        got.append(order)

    @worker.batch_handler(Note)
    def handle_notes(notes: list[Note]) -> None:
        got.extend(notes)

    assert deployment.outbox.publish(orders[0]).outcome == "created"
    assert deployment.outbox.publish(orders[0]).duplicate
    assert [each.outcome for each in deployment.outbox.publish_many([orders[1], Note("n")])] == [
        "created"
    ] * 2
    inbox = deployment.box("orders")
    assert isinstance(inbox, pysqlbox.Inbox)
    assert inbox.receive(orders[0]).outcome == "created"
    assert [each.outcome for each in inbox.receive_many([orders[0]])] == ["updated"]
    stored = deployment.outbox.find(orders[0].id)
    assert stored is not None
    assert (stored.topic, stored.group_id, stored.created_at) == (
        "order.created",
        orders[0].customer,
        orders[0].at,
    )
    known = inbox.find(str(orders[0].id), "shop")
    assert known is not None
    assert known.first_seen_at == orders[0].at
    worker.drain()
    assert sorted(map(str, got)) == sorted(map(str, [orders[0], orders[0], orders[1], Note("n")]))


def test_publishing_joins_the_callers_transaction(deployment: pysqlbox.Deployment) -> None:
    def publish_and_fail() -> None:
        with deployment.transaction() as connection:
            deployment.outbox.publish(_order(), connection=connection)
            deployment.inbox.receive(_order(), connection=connection)
            raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        publish_and_fail()
    assert deployment.outbox.stats()[-1].ready == deployment.inbox.stats()[-1].ready == 0


@message("due", source="s", message_id="name", due_at="at")
@dataclass(frozen=True)
class Due:
    name: str
    at: datetime


def test_a_calls_delay_goes_before_the_classs_due_time(deployment: pysqlbox.Deployment) -> None:
    past = Due("d", datetime(2020, 1, 1, tzinfo=UTC))
    ours = [
        deployment.outbox.publish(past, message_id=None),
        deployment.outbox.publish(past, message_id=None, delay=3600),
        deployment.outbox.publish(past, message_id=None, delay=timedelta(hours=1)),
    ]
    assert [row.id for row in deployment.outbox.claim(OWNER)] == [ours[0].id]
    assert deployment.inbox.receive(past, delay=3600).outcome == "created"
    assert deployment.inbox.receive(past, delay=timedelta(hours=1)).outcome == "updated"
    assert deployment.inbox.claim(OWNER) == []
    with pytest.raises(InvalidArgument, match="delay_seconds"):
        deployment.outbox.publish(past, message_id=None, delay=1, due_at=past.at)


def test_publishing_for_asyncio(deployment: pysqlbox.Deployment) -> None:
    async def main() -> None:
        order = _order()
        async with pysqlbox.connect_async(deployment.target, schema=deployment.schema) as db:
            assert (await db.outbox.publish(order)).message_id == order.id
            assert len(await db.outbox.publish_many([_order(), _order()])) == 2
            assert (await db.inbox.receive(order)).outcome == "created"
            assert (await db.inbox.receive_many([order], source="other"))[0].outcome == "created"

    asyncio.run(main())
    assert deployment.outbox.stats()[-1].ready == 3


def test_what_does_not_fit_dies_at_once_and_nothing_of_it_is_told(
    deployment: pysqlbox.Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    worker = deployment.worker(threads=1)

    @worker.handler(Note)
    def handle(note: Note) -> None:
        pytest.fail(note.text)

    deployment.outbox.enqueue("note", f'{{"text": ["{SECRET}"]}}')
    deployment.outbox.enqueue("note", SECRET)
    with caplog.at_level(logging.DEBUG, "pysqlbox"):
        worker.drain()
    errors = sorted(str(letter.last_error) for letter in deployment.outbox.dead_letters())
    assert len(errors) == 2
    assert "the payload is no Note: it is not JSON" in errors[0]
    assert "the payload is no Note: text: must be text" in errors[1]
    assert SECRET not in caplog.text + "".join(errors)
