"""One deployment that a run of a worker serves, with the worker's connections to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pysqlbox.worker.database import Database, WorkerConnection
from pysqlbox.worker.transactions import Transactions

if TYPE_CHECKING:
    from pysqlbox.deployment import Deployment

__all__ = ["ServedStore"]


class ServedStore:
    """A deployment, the few connections that threads share to talk about it, and those of transactions."""

    def __init__(self, db: Deployment, transactions: Transactions, kept: int) -> None:
        """``kept``: how many connections stay open while nobody uses them."""
        self.deployment = db
        self.database = Database(db)
        self.transactions = transactions
        self._kept = kept
        self._free: list[WorkerConnection] = []
        self._helper: WorkerConnection | None = None
        self._closed = False

    @contextlib.contextmanager
    def connection(self) -> Iterator[WorkerConnection]:
        """One of the connections that are open and free, else a new one."""
        try:
            connection = self._free.pop()
        except IndexError:
            connection = self.database.open()
        try:
            yield connection
        finally:
            if len(self._free) < self._kept:
                self._free.append(connection)
            else:
                connection.close()
            if self._closed:
                self._close_free()

    @contextlib.contextmanager
    def helper_connection(self, limit: float, meanwhile: Callable[[], None]) -> Iterator[WorkerConnection]:
        """The lease keeper's own, whose calls are shorter; ``meanwhile`` is called while one lasts."""
        if self._helper is None:
            self._helper = self.database.open(limit=limit)
            self._helper.calls.meanwhile = meanwhile
        yield self._helper

    def close_helper(self) -> None:
        """The lease keeper needs its connection no more."""
        if self._helper is not None:
            self._helper.close()

    def close(self) -> None:
        """Close the connections: the free ones now, the others when they come back."""
        self._closed = True
        self._close_free()
        self.transactions.close()

    def _close_free(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._free.pop().close()
