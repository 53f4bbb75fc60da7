"""A shop on SQLAlchemy: ``shop.py 20`` places orders, ``pysqlbox work shop:make_worker`` ships them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

import pysqlbox
from pysqlbox.worker import Context

engine = create_engine(os.environ["DATABASE_URL"])
sessions = sessionmaker(engine)
db = pysqlbox.connect(engine.url.render_as_string(hide_password=False))


class Base(DeclarativeBase):
    """SQLAlchemy's."""


class Order(Base):
    """What a customer ordered."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    cents: Mapped[int]
    state: Mapped[str] = mapped_column(default="placed")


@pysqlbox.message("order.placed", group_id="customer")
@dataclass
class OrderPlaced:
    """An order is kept."""

    order_id: int
    customer: str


def place(customer: str, cents: int) -> None:
    """The order and its message, by one commit of the session."""
    with sessions.begin() as session:
        order = Order(customer=customer, cents=cents)
        session.add(order)
        session.flush()  # which gives the order its id
        db.outbox.publish(OrderPlaced(order.id, customer), connection=session)


def ship(message: OrderPlaced, context: Context) -> None:
    """The order's new state and the message's end, by one commit of the session that the worker opened."""
    session: Session = context.connection
    session.get_one(Order, message.order_id).state = "shipped"


def make_worker() -> pysqlbox.Worker:
    """The worker; its transactions are sessions."""
    worker = db.worker(threads=2)
    worker.handler(OrderPlaced, transactional=sessions.begin)(ship)
    return worker


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        place(f"customer {number % 3}", 100 + number)
