"""What docs/worker.md takes for granted: models, clients of mail, a Django that knows the database."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import django
import sqlalchemy
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.orm import sessionmaker

import pysqlbox
import pysqlbox.contrib.django
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
            "PORT": _given.get("port", ""),
        }
    },
    USE_TZ=True,
)
django.setup()
sessions = sessionmaker(sqlalchemy.create_engine(URL.replace("postgresql:", "postgresql+psycopg:", 1)))


@dataclass
class OrderPlaced:
    order_id: int


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


def _is_confirmed() -> bool:
    db: pysqlbox.Deployment = globals()["db"]
    return [stats.done for stats in db.outbox.stats() if stats.topic == "order.created"] == [1]


def _stop_soon() -> None:
    """Ends ``worker.run()``, which else would wait for a signal, when its order is confirmed."""
    found = None
    while found is None or not found.is_running:
        time.sleep(0.05)
        found = globals().get("worker")
    until = time.monotonic() + 100
    while not _is_confirmed() and time.monotonic() < until:
        time.sleep(0.05)
    found.stop()


threading.Thread(target=_stop_soon, daemon=True).start()


async def serve() -> None:
    await asyncio.sleep(0)


def after() -> None:
    """The first worker has confirmed the order."""
    assert _is_confirmed()
