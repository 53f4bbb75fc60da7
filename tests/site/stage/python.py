"""What docs/python.md takes for granted: a table, a message's class, the FastAPI application around it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import pysqlbox
from pysqlbox import AsyncOutbox
from pysqlbox.names import NamedBox
from pysqlbox.typed import message

URL: str
engine = create_async_engine(URL.replace("postgresql:", "postgresql+psycopg:", 1))
sessions = async_sessionmaker(engine)


with pysqlbox.connect() as _db:
    _db.migrate(boxes=[NamedBox("orders", "inbox")])


class Base(DeclarativeBase):
    pass


class OrderRow(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]


@message("order.created")
class Order(BaseModel):
    id: int
    customer: str


class Application(FastAPI):
    """The page makes the functions before it says where the application is."""


app = Application(lifespan=lambda app: lifespan(app))  # the page's


def after() -> None:
    from starlette.testclient import TestClient

    with TestClient(app) as client:
        assert client.post("/orders", json={"id": 1000, "customer": "Ann"}).status_code == 200
    with pysqlbox.connect() as db:
        (row,) = (row for row in db.outbox.stats() if row.topic is None)
        assert row.ready == 2
        assert sum(row.ready for row in db.box("orders", kind="inbox").stats() if row.topic is None) == 1
