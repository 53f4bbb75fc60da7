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

import pysqlbox.box
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
def box(db: Database) -> Iterator[pysqlbox.box.Box]:
    """The deployment of the test."""
    with pysqlbox.box.connect(db.url, schema=db.schema) as found:
        yield found


def _order(customer: str = 'it\'s "quoted" 🐘') -> OrderCreated:
    return OrderCreated(uuid4(), customer, Decimal("0.10"), datetime(2020, 1, 1, tzinfo=UTC))


def test_what_is_published_reaches_the_handler_of_its_class(box: pysqlbox.box.Box) -> None:
    orders = [_order(), _order("other")]
    got: list[object] = []
    worker = box.worker(threads=1, boxes=("outbox", "orders"))

    @worker.handler(OrderCreated)
    def handle(order: OrderCreated) -> None:
        got.append(order)

    @worker.batch_handler(Note)
    def handle_notes(notes: list[Note]) -> None:
        got.extend(notes)

    assert box.outbox.publish(orders[0]).outcome == "created"
    assert box.outbox.publish(orders[0]).duplicate
    assert [each.outcome for each in box.outbox.publish_many([orders[1], Note("n")])] == ["created"] * 2
    inbox = box.queue("orders")
    assert isinstance(inbox, pysqlbox.Inbox)
    assert inbox.receive(orders[0]).outcome == "created"
    assert [each.outcome for each in inbox.receive_many([orders[0]])] == ["updated"]
    stored = box.outbox.find(orders[0].id)
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


def test_publishing_joins_the_callers_transaction(box: pysqlbox.box.Box) -> None:
    def publish_and_fail() -> None:
        with box.transaction() as connection:
            box.outbox.publish(_order(), connection=connection)
            box.inbox.receive(_order(), connection=connection)
            raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        publish_and_fail()
    assert box.outbox.stats()[-1].ready == box.inbox.stats()[-1].ready == 0


@message("due", source="s", message_id="name", due_at="at")
@dataclass(frozen=True)
class Due:
    name: str
    at: datetime


def test_a_calls_delay_goes_before_the_classs_due_time(box: pysqlbox.box.Box) -> None:
    past = Due("d", datetime(2020, 1, 1, tzinfo=UTC))
    ours = [
        box.outbox.publish(past, message_id=None),
        box.outbox.publish(past, message_id=None, delay=3600),
        asyncio.run(box.outbox.publish_async(past, message_id=None, delay=timedelta(hours=1))),
    ]
    assert [row.id for row in box.outbox.claim(OWNER)] == [ours[0].id]
    assert box.inbox.receive(past, delay=3600).outcome == "created"
    assert asyncio.run(box.inbox.receive_async(past, delay=timedelta(hours=1))).outcome == "updated"
    assert box.inbox.claim(OWNER) == []
    with pytest.raises(InvalidArgument, match="delay_seconds"):
        box.outbox.publish(past, message_id=None, delay=1, due_at=past.at)


def test_publishing_for_asyncio(box: pysqlbox.box.Box) -> None:
    async def main() -> None:
        order = _order()
        assert (await box.outbox.publish_async(order)).message_id == order.id
        assert len(await box.outbox.publish_many_async([_order(), _order()])) == 2
        assert (await box.inbox.receive_async(order)).outcome == "created"
        assert (await box.inbox.receive_many_async([order], source="other"))[0].outcome == "created"

    asyncio.run(main())
    assert box.outbox.stats()[-1].ready == 3


def test_what_does_not_fit_dies_at_once_and_nothing_of_it_is_told(
    box: pysqlbox.box.Box, caplog: pytest.LogCaptureFixture
) -> None:
    worker = box.worker(threads=1)

    @worker.handler(Note)
    def handle(note: Note) -> None:
        pytest.fail(note.text)

    box.outbox.enqueue("note", f'{{"text": ["{SECRET}"]}}')
    box.outbox.enqueue("note", SECRET)
    with caplog.at_level(logging.DEBUG, "pysqlbox"):
        worker.drain()
    errors = sorted(str(letter.last_error) for letter in box.outbox.dead_letters())
    assert len(errors) == 2
    assert "the payload is no Note: it is not JSON" in errors[0]
    assert "the payload is no Note: text: must be text" in errors[1]
    assert SECRET not in caplog.text + "".join(errors)
