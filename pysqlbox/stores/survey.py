"""Databases with many boxes: one question now and then, in place of one to each box."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pysqlbox.errors import PysqlboxError
from pysqlbox.stores.scheduler import StoresScheduler
from pysqlbox.stores.servers import ServedDatabase, Server

if TYPE_CHECKING:
    from pysqlbox.stores.served import StoreBox
    from pysqlbox.worker.database_postgres import PostgresConnection, Tables

__all__ = ["MANY_BOXES", "Survey"]

#: With more boxes than this a database is surveyed.
MANY_BOXES = 50
#: A question may last so long.
LIMIT_SECONDS = 5.0
#: A schema that was dropped and deployed again has other tables: after so many questions they are looked up.
RESOLVE_EVERY = 30


class Survey:
    """Asks each database with many boxes in which of them something was written; those are asked for work.

    The statistics tell of messages, returned tickets and leases that others have written. What has been
    remembered, due times and ends of leases, needs none.
    """

    def __init__(self, scheduler: StoresScheduler, sweep_seconds: float) -> None:
        self._scheduler = scheduler
        self._sweep_seconds = sweep_seconds
        self._seen: dict[ServedDatabase, dict[str, tuple[int, int]]] = {}
        #: The tables of each database's boxes, for which boxes, and for how many questions more.
        self._tables: dict[ServedDatabase, tuple[set[str], Tables, int]] = {}
        self._next_at: dict[ServedDatabase, float] = {}

    def look(self, server: Server, meanwhile: Callable[[], None]) -> None:
        """Ask the databases of a server whose time has come."""
        now = time.monotonic()
        databases = list(server.databases.values())
        for gone in [each for each in self._seen if each.server is server and each not in databases]:
            del self._seen[gone], self._next_at[gone]
            self._tables.pop(gone, None)
        for database in databases:
            if not database.is_postgres or self._next_at.get(database, 0.0) > now:
                continue
            self._next_at[database] = now + self._sweep_seconds
            boxes = {channel: box for channel, box in database.boxes.items() if not box.opens}
            if len(boxes) <= MANY_BOXES or not server.is_answering:
                self._forget(database)
                continue
            try:
                with server.lend(database, limit=LIMIT_SECONDS, meanwhile=meanwhile) as kept:
                    found = self._ask(database, boxes, cast("PostgresConnection", kept.worker))
            except PysqlboxError:
                self._forget(database)
                continue
            before = self._seen.get(database)
            self._seen[database] = found
            if before is not None:
                self._compare(boxes, before, found, time.monotonic())
            database.is_surveyed = True

    def _ask(
        self, database: ServedDatabase, boxes: dict[str, StoreBox], connection: PostgresConnection
    ) -> dict[str, tuple[int, int]]:
        """What was written into each box; which tables it has is found out anew every now and then."""
        known, tables, left = self._tables.get(database, (set(), None, 0))
        if tables is None or left <= 0 or known != boxes.keys():
            names = {channel: (box.store.deployment.schema, box.name) for channel, box in boxes.items()}
            known, tables, left = set(names), connection.tables(names), RESOLVE_EVERY
        self._tables[database] = known, tables, left - 1
        return connection.written(tables)

    def _compare(
        self,
        boxes: dict[str, StoreBox],
        before: dict[str, tuple[int, int]],
        found: dict[str, tuple[int, int]],
        now: float,
    ) -> None:
        """Ask for work where something was written."""
        woken = []
        for channel, (work, planned) in found.items():
            work_before, planned_before = before.get(channel, (0, 0))
            if planned != planned_before:
                boxes[channel].planned_at = now
            if work < work_before:  # the tables are gone: the schema may have others now
                self._tables.pop(boxes[channel].store.place, None)
            if work != work_before:
                boxes[channel].written_at = now
                woken.append(boxes[channel])
        self._wake(woken)

    def _forget(self, database: ServedDatabase) -> None:
        """Its boxes are asked one by one again."""
        self._tables.pop(database, None)
        if database.is_surveyed:
            database.is_surveyed = False
            self._wake(list(database.boxes.values()))

    def _wake(self, boxes: list[StoreBox]) -> None:
        if boxes:
            self._scheduler.wake_all(boxes, afterwards=False)
