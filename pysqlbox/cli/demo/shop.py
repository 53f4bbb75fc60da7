"""The shop: what an application that uses pysqlbox looks like.

An order and its message are written in one transaction. Couriers carry the outbox's messages to the inbox,
which might be another service's; a bookkeeper books what the inbox holds. ``pysqlbox work`` runs both.
"""

from __future__ import annotations

import os
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pysqlbox.deployment import Deployment
from pysqlbox.idempotent import Idempotent
from pysqlbox.messages import OutboxMessage
from pysqlbox.typed import message
from pysqlbox.worker import Context, DeadLetter, Result, Retry, Worker

__all__ = [
    "ASLEEP_AFTER",
    "COURIER_THREADS",
    "CREATE",
    "TILLS",
    "Day",
    "OrderPlaced",
    "TillClose",
    "asleep",
    "bookkeeper",
    "close_tills",
    "courier",
    "doomed_courier",
    "held_like",
    "query",
]

CUSTOMERS = 40
TILLS = 12
COURIER_THREADS = 4
#: Short, so that a killed courier's messages come back while somebody is watching.
LEASE_SECONDS = 2
#: The environment's variable that says after how many deliveries the doomed courier falls asleep.
ASLEEP_AFTER = "PYSQLBOX_DEMO_ASLEEP_AFTER"

CREATE = """
CREATE SCHEMA shop;
CREATE TABLE shop.orders (
    id bigint PRIMARY KEY, customer text NOT NULL, till int NOT NULL, cents int NOT NULL
);
CREATE TABLE shop.asleep (message_id uuid NOT NULL);
CREATE TABLE shop.delivery (message_id uuid NOT NULL, outcome text NOT NULL);
CREATE TABLE shop.booking (
    no bigint GENERATED ALWAYS AS IDENTITY, order_id bigint NOT NULL, customer text NOT NULL,
    till int NOT NULL, cents int NOT NULL
);
CREATE TABLE shop.till_total (till int NOT NULL, orders int NOT NULL, cents bigint NOT NULL);
CREATE TABLE shop.daily_closing (orders int NOT NULL, cents bigint NOT NULL, tills int NOT NULL);
"""


@message("order.placed", group_id="customer")
@dataclass(frozen=True, slots=True)
class OrderPlaced:
    """The message of an order; those of one customer are a FIFO group."""

    order_id: int
    customer: str
    till: int
    cents: int
    address: str | None


@message("till.close")
@dataclass(frozen=True, slots=True)
class TillClose:
    """Add up one till."""

    till: int


class CardDeclined(Exception):
    """Why some business transactions are rolled back."""


@dataclass(slots=True)
class Day:
    """The customers' side: places orders from several threads, until the day's number is reached."""

    orders: int
    placed: int = 0
    declined: list[UUID] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, db: Deployment, *, threads: int = 2) -> None:
        """Open the doors; each thread serves customers of its own, so that theirs are placed in order."""
        for number in range(threads):
            thread = threading.Thread(target=self._serve, args=(db, number, threads), daemon=True)
            self._threads.append(thread)
            thread.start()

    @property
    def over(self) -> bool:
        """Whether everybody was served; raises what went wrong."""
        if self.failures:
            raise self.failures[0]
        return not any(thread.is_alive() for thread in self._threads)

    def _serve(self, db: Deployment, number: int, step: int) -> None:
        chance = random.Random(number)
        try:
            for order_id in range(number + 1, self.orders + 1, step):
                customer = f"customer-{step * chance.randrange(CUSTOMERS // step) + number}"
                address = None if order_id % 997 == 0 else "1 High Street"
                till = 1 + order_id % TILLS
                order = OrderPlaced(order_id, customer, till, chance.randrange(100, 20_000), address)
                declined = order_id % 31 == 0
                self._place(db, order, declined=declined)
                time.sleep(0)
        except BaseException as error:  # noqa: BLE001  # handed to the main thread, which raises it
            self.failures.append(error)

    def _place(self, db: Deployment, order: OrderPlaced, *, declined: bool) -> None:
        """One business transaction: the order and its message, both or neither."""
        message_id = None
        try:
            with db.transaction() as connection:
                connection.execute(
                    "INSERT INTO shop.orders (id, customer, till, cents) VALUES (%s, %s, %s, %s)",
                    (order.order_id, order.customer, order.till, order.cents),
                )
                message_id = db.outbox.publish(order, connection=connection).message_id
                if declined:
                    raise CardDeclined
        except CardDeclined:
            assert message_id is not None
            with self._lock:
                self.declined.append(message_id)
        else:
            with self._lock:
                self.placed += 1


def courier(db: Deployment) -> Worker:
    """A worker of the outbox: carries orders to the inbox, closes tills, and the day after the last till."""
    worker = db.worker(boxes=("outbox",), threads=COURIER_THREADS, lease_seconds=LEASE_SECONDS)
    worker.add_handler(OrderPlaced, _Round(db))
    worker.add_handler(TillClose, _closing_of_a_till(db))
    worker.add_handler("day.close", _closing_of_the_day(db))
    return worker


def doomed_courier(db: Deployment) -> Worker:
    """A courier that falls asleep on its round, with some deliveries made, and none of them acknowledged."""
    worker = db.worker(
        boxes=("outbox",), topics=("order.placed",), threads=COURIER_THREADS, lease_seconds=LEASE_SECONDS
    )
    worker.add_handler(OrderPlaced, _Round(db, asleep_after=int(os.environ[ASLEEP_AFTER])))
    return worker


class _Round:
    """A courier's handler."""

    def __init__(self, db: Deployment, *, asleep_after: int | None = None) -> None:
        self._db = db
        self._asleep_after = asleep_after
        self._carried = 0

    def __call__(self, order: OrderPlaced, context: Context) -> Result | None:
        """Deliver an order; some need a second try, some come twice, and some have nowhere to go."""
        if order.address is None:
            return DeadLetter("no address")
        if order.order_id % 50 == 7 and context.message.attempt == 0:
            return Retry(delay=0.3, error="nobody at home")
        self._carried += 1
        if self._asleep_after is not None and self._carried > self._asleep_after:
            if order.order_id % 2:
                self._deliver(context.message)
            self._fall_asleep(context.message)
        self._deliver(context.message)
        if order.order_id % 10 == 3:
            self._deliver(context.message)
        return None

    def _fall_asleep(self, message: OutboxMessage) -> None:
        with self._db.connection() as connection:
            connection.execute("INSERT INTO shop.asleep (message_id) VALUES (%s)", (message.message_id,))
        time.sleep(600)

    def _deliver(self, message: OutboxMessage) -> None:
        with self._db.transaction() as connection:
            received = self._db.inbox.enqueue(
                message.topic,
                "shop",
                str(message.message_id),
                message.payload,
                group_id=message.group_id,
                connection=connection,
            )
            connection.execute(
                "INSERT INTO shop.delivery (message_id, outcome) VALUES (%s, %s)",
                (message.message_id, received.outcome),
            )


def bookkeeper(db: Deployment) -> Worker:
    """A worker of the inbox: books each order, and its key in the ledger, in one transaction."""
    worker = db.worker(boxes=("inbox",), threads=4)
    once = Idempotent(db, bus="inbox", group="bookkeeping")

    @worker.handler(OrderPlaced)
    def book(order: OrderPlaced, context: Context) -> None:
        key = once.key("order.placed", context.message.message_id)
        with db.transaction() as connection, once.attempt(key, connection=connection) as mine:
            if mine:
                connection.execute(
                    "INSERT INTO shop.booking (order_id, customer, till, cents) VALUES (%s, %s, %s, %s)",
                    (order.order_id, order.customer, order.till, order.cents),
                )

    return worker


def close_tills(db: Deployment) -> UUID:
    """A message for each till, and a join that enqueues the closing of the day after the last of them."""
    with db.transaction() as connection:
        join_id = db.joins.start("shop", TILLS, connection=connection)
        for sent in db.outbox.publish_many(map(TillClose, range(1, TILLS + 1)), connection=connection):
            db.joins.attach(join_id, sent.message_id, connection=connection)
        db.joins.wait(join_id, on_complete_topic="day.close", connection=connection)
    return join_id


def _closing_of_a_till(db: Deployment) -> Any:
    def close(till: TillClose) -> None:
        time.sleep(0.1)  # somebody counts the money
        with db.transaction() as connection:
            connection.execute(
                "INSERT INTO shop.till_total (till, orders, cents)"
                " SELECT %s, count(*), coalesce(sum(cents), 0) FROM shop.booking WHERE till = %s",
                (till.till, till.till),
            )

    return close


def _closing_of_the_day(db: Deployment) -> Any:
    def close(_: OutboxMessage) -> None:
        with db.transaction() as connection:
            connection.execute(
                "INSERT INTO shop.daily_closing (orders, cents, tills)"
                " SELECT coalesce(sum(orders), 0), coalesce(sum(cents), 0), count(*) FROM shop.till_total"
            )

    return close


def query(db: Deployment, text: str, *values: object) -> list[tuple[Any, ...]]:
    """The answer to a question about the shop's tables."""
    with db.connection() as connection:
        return list(connection.execute(text, values or None))


def asleep(db: Deployment) -> list[UUID]:
    """The messages over which a courier has fallen asleep."""
    return [message_id for (message_id,) in query(db, "SELECT message_id FROM shop.asleep")]


def held_like(db: Deployment, message_id: UUID) -> set[UUID]:
    """The messages that the owner of this one holds."""
    held = query(
        db,
        f"SELECT message_id FROM {db.schema}.outbox_messages WHERE owner_token ="
        f" (SELECT owner_token FROM {db.schema}.outbox_messages WHERE message_id = %s)",
        message_id,
    )
    return {message_id for (message_id,) in held}
