"""A shop with FastAPI and SQLAlchemy's asyncio: ``uvicorn shop:app``.

The order and its message are kept by one commit of the request's session; the worker runs in the
application's lifespan, its handlers on the application's own event loop; the dashboard is under /ops.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, FastAPI
from pydantic import BaseModel
from sqlalchemy import ForeignKey, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import pysqlbox
from pysqlbox import service

URL = os.environ["DATABASE_URL"]  # postgresql://user:password@host/name
engine = create_async_engine(URL.replace("postgresql:", "postgresql+psycopg:", 1))
sessions = async_sessionmaker(engine)
db = pysqlbox.connect_async(URL)
operated = pysqlbox.connect(URL, pool_size=4)  # for the dashboard, which works in threads
worker = db.worker(async_slots=20)


class Base(DeclarativeBase):
    """SQLAlchemy's."""


class Order(Base):
    """What a customer ordered."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    cents: Mapped[int]


class Invoice(Base):
    """One for each order."""

    __tablename__ = "invoices"
    order_id: Mapped[int] = mapped_column(ForeignKey(Order.id), primary_key=True)
    cents: Mapped[int]


@pysqlbox.message("order.placed", group_id="customer")
@dataclass
class OrderPlaced:
    """An order is kept; those of one customer are handled in order."""

    order_id: int
    customer: str
    cents: int


@worker.handler(OrderPlaced)
async def invoice(order: OrderPlaced) -> None:
    """At least once, so the write is one that may come twice."""
    async with sessions.begin() as session:
        row = insert(Invoice).values(order_id=order.order_id, cents=order.cents)
        await session.execute(row.on_conflict_do_nothing())


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Deploys, and works while the application serves."""
    await db.migrate()
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with worker:
        yield
    operated.close()
    await db.close()
    await engine.dispose()


async def request_session() -> AsyncIterator[AsyncSession]:
    """The request's session: committed when the request went well."""
    async with sessions.begin() as session:
        yield session


Session = Annotated[AsyncSession, Depends(request_session)]
app = FastAPI(lifespan=lifespan)
app.mount("/ops", service.app(operated))  # answers this machine only: give it tokens for others


class Wanted(BaseModel):
    """What comes in."""

    customer: str
    cents: int


@app.post("/orders", status_code=201)
async def place_order(wanted: Wanted, session: Session) -> dict[str, int]:
    """The order and its message: both, or neither."""
    order = Order(customer=wanted.customer, cents=wanted.cents)
    session.add(order)
    await session.flush()  # which gives the order its id
    await db.outbox.publish(OrderPlaced(order.id, order.customer, order.cents), connection=session)
    return {"id": order.id}


@app.get("/totals")
async def totals(session: Session) -> dict[str, int]:
    """How many orders there are, and how many are invoiced."""
    orders = await session.scalar(select(func.count()).select_from(Order))
    invoices = await session.scalar(select(func.count()).select_from(Invoice))
    return {"orders": orders or 0, "invoices": invoices or 0}
