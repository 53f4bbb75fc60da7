"""A connection that a helper has only while it makes a call: one of those that the threads share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pysqlbox.worker.database import WorkerConnection
from pysqlbox.worker.scheduler import Scheduler

if TYPE_CHECKING:
    from pysqlbox.worker.served_store import ServedStore

__all__ = ["LentConnection", "lend"]


@contextlib.contextmanager
def lend(store: ServedStore, scheduler: Scheduler) -> Iterator[WorkerConnection]:
    """A connection in a turn of the threads'; where these have but one turn, one more."""
    if scheduler.turns < 2:
        with store.connection() as connection:
            yield connection
    else:
        with scheduler.lent_turn(), store.connection() as connection:
            yield connection


class LentConnection:
    """Calls for somebody who makes few."""

    def __init__(self, store: ServedStore, scheduler: Scheduler, lock_seconds: float) -> None:
        """``lock_seconds``: how long a call may wait for somebody's lock on PostgreSQL."""
        self._store = store
        self._scheduler = scheduler
        self._lock_seconds = lock_seconds

    def call(self, routine: str, arguments: Mapping[str, object]) -> list[dict[str, object]]:
        """Any routine."""
        with (
            lend(self._store, self._scheduler) as connection,
            connection.limited_locks(self._lock_seconds),
        ):
            return connection.call(routine, arguments)

    def close(self) -> None:
        """Nothing is kept."""
