"""What docs/worker.md takes for granted: models, clients of mail, a Django that knows the database."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import django
import sqlalchemy
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

import pysqlbox
import pysqlbox.contrib.django
import pysqlbox.logs
from pysqlbox import Ack, OutboxMessage, Result, Retry
from pysqlbox.worker import Context

URL: str
_given = conninfo_to_dict(URL)
settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": _given["dbname"],
            "USER": _given["user"],
            "HOST": _given["host"],
        }
    },
    USE_TZ=True,
)
django.setup()
engine = sqlalchemy.create_engine(URL.replace("postgresql:", "postgresql+psycopg:", 1))
sessions = sessionmaker(engine)
async_session = async_sessionmaker(create_async_engine(engine.url))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)

    #: Django's way of the same model.
    objects = SimpleNamespace(create=lambda **_: None)

    def __init__(self, id: int) -> None:
        # The page adds the same order again and again.
        super().__init__(id=id + next(_numbers))


_numbers = iter(range(1000, 2000))


@dataclass
class OrderPaid:
    order_id: int


@dataclass
class Mail:
    address: str
    text: str


def in_stock(_: object) -> bool:
    return True


def refund(_: OutboxMessage) -> None:
    pass


def send(_: OutboxMessage) -> None:
    pass


async def _post(*_: str) -> None:
    pass


client = SimpleNamespace(post=_post)
smtp = SimpleNamespace(send_all=lambda mails: [True for _ in mails])
timer = contextlib.nullcontext


def _stop_soon() -> None:
    """Ends ``worker.run()``, which else would wait for a signal."""
    found = None
    while found is None or not found.is_running:
        time.sleep(0.05)
        found = globals().get("worker")
    time.sleep(0.5)
    found.stop()


threading.Thread(target=_stop_soon, daemon=True).start()


async def serve() -> None:
    await asyncio.sleep(0)


def serve_http() -> None:
    pass
