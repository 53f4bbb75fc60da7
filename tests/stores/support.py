"""What the tests of many stores share."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import pytest

from pysqlbox.drivers import postgres


class Seen:
    """A handler that notes the messages of each store, in their order."""

    def __init__(self) -> None:
        self.ids: dict[Any, list[int]] = defaultdict(list)
        self.order: list[Any] = []
        self._lock = threading.Lock()

    def __call__(self, message: Any, context: Any) -> None:
        with self._lock:
            self.ids[context.store].append(message.id)
            self.order.append(context.store)

    def __len__(self) -> int:
        return len(self.order)


def fill(db: Any, count: int, topic: str = "t", **options: Any) -> list[int]:
    """Messages in the outbox of a deployment; their ids."""
    records = [{"topic": topic, "payload": str(n), **options} for n in range(count)]
    return [made.id for made in db.outbox.enqueue_many(records)]


class Connections:
    """The connections to PostgreSQL that this process opens from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._all: list[Any] = []
        #: How many of them were open at once.
        self.most = 0
        real = postgres.connect

        def connect(*arguments: Any, **options: Any) -> Any:
            connection = real(*arguments, **options)
            self._all.append(connection)
            self.most = max(self.most, self.open)
            return connection

        monkeypatch.setattr(postgres, "connect", connect)

    @property
    def open(self) -> int:
        """How many of them are open."""
        return sum(not connection.closed for connection in list(self._all))
