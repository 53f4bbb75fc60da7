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
    from pysqlbox.worker.database_postgres import PostgresConnection, Sequences, Tables

__all__ = ["MANY_BOXES", "Survey"]

#: With more boxes than this a database is surveyed.
MANY_BOXES = 50
#: A question may last so long.
LIMIT_SECONDS = 5.0
#: ... and wait so long for a lock.
LOCK_SECONDS = 0.2
#: After so many questions in a row that failed its boxes are asked one by one.
FAILURES = 3
#: A schema that was dropped and deployed again has other tables: after so many questions they are looked up.
RESOLVE_EVERY = 30


class _Seen:
    """What one database has answered."""

    def __init__(self) -> None:
        self.written: dict[str, tuple[int, int]] = {}
        self.drawn: dict[str, int] = {}
        #: The boxes for which somebody was drawing numbers whose transaction had not ended.
        self.drawing: set[str] = set()
        #: The boxes whose tables and sequences these are, and for how many questions more.
        self.boxes: set[str] = set()
        self.left = 0
        self.failures = 0
        self.tables: Tables = ([], "{}", "{}", "{}")
        self.sequences: Sequences = {}


class Survey:
    """Asks each database with many boxes in which of them something was written; those are asked for work.

    The statistics tell of messages, returned tickets and leases that others have written. They may be late,
    so the numbers that messages have drawn are read too, which are there at once; while a transaction that
    has drawn some goes on, its box is asked each time, and once more when it has ended. What has been
    remembered, due times and ends of leases, needs neither.
    """

    def __init__(self, scheduler: StoresScheduler, sweep_seconds: float) -> None:
        self._scheduler = scheduler
        self._sweep_seconds = sweep_seconds
        self._seen: dict[ServedDatabase, _Seen] = {}
        self._next_at: dict[ServedDatabase, float] = {}

    def look(self, server: Server, meanwhile: Callable[[], None]) -> None:
        """Ask the databases of a server whose time has come."""
        now = time.monotonic()
        databases = list(server.databases.values())
        for gone in [each for each in self._next_at if each.server is server and each not in databases]:
            del self._next_at[gone]
            self._seen.pop(gone, None)
        for database in databases:
            if not database.is_postgres or self._next_at.get(database, 0.0) > now:
                continue
            self._next_at[database] = now + self._sweep_seconds
            boxes = {channel: box for channel, box in database.boxes.items() if not box.opens}
            if len(boxes) <= MANY_BOXES or not server.is_answering:
                self._forget(database)
                continue
            seen = self._seen.setdefault(database, _Seen())
            try:
                with server.lend(database, limit=LIMIT_SECONDS, meanwhile=meanwhile) as kept:
                    connection = cast("PostgresConnection", kept.worker)
                    self._find(seen, boxes, connection)
                    self._wake(self._compare_written(seen, boxes, connection.written(seen.tables)))
                    database.is_surveyed, seen.failures = True, 0
                    self._wake(self._compare_drawn(seen, boxes, connection))
            except PysqlboxError:
                seen.failures += 1
                if seen.failures >= FAILURES:
                    self._forget(database)

    @staticmethod
    def _find(seen: _Seen, boxes: dict[str, StoreBox], connection: PostgresConnection) -> None:
        """Which tables and sequences there are, found out anew every now and then."""
        if seen.left <= 0 or seen.boxes != boxes.keys():
            names = {channel: (box.store.deployment.schema, box.name) for channel, box in boxes.items()}
            seen.tables, seen.sequences = connection.tables(names), connection.sequences(names)
            seen.boxes, seen.left = set(names), RESOLVE_EVERY
        seen.left -= 1

    @staticmethod
    def _compare_written(
        seen: _Seen, boxes: dict[str, StoreBox], found: dict[str, tuple[int, int]]
    ) -> list[StoreBox]:
        """The boxes into which something was written, as statistics tell."""
        before, seen.written = seen.written, found
        now = time.monotonic()
        woken = []
        for channel, (work, planned) in found.items():
            if channel not in before:  # what came before this was seen is found by asking, which it waits for
                boxes[channel].written_at = boxes[channel].planned_at = now
                continue
            work_before, planned_before = before[channel]
            if planned != planned_before:
                boxes[channel].planned_at = now
            if work < work_before:  # the tables are gone: the schema may have others now
                seen.left = 0
            if work != work_before:
                boxes[channel].written_at = now
                woken.append(boxes[channel])
        return woken

    @staticmethod
    def _compare_drawn(
        seen: _Seen, boxes: dict[str, StoreBox], connection: PostgresConnection
    ) -> list[StoreBox]:
        """The boxes for which numbers were drawn, or were being drawn the last time."""
        try:
            drawn = connection.drawn(seen.sequences, LOCK_SECONDS)
            moved = {channel for channel, number in drawn.items() if seen.drawn.get(channel) != number}
            # After the numbers: whoever draws later than that shows the next time.
            asked = moved | seen.drawing
            drawing = connection.drawing(seen.sequences, asked, LOCK_SECONDS) if asked else set()
        except PysqlboxError:  # somebody holds a lock, a migration say; these wait, statistics have told
            return []
        now = time.monotonic()
        woken = (moved & seen.drawn.keys()) | (seen.drawing & boxes.keys())
        seen.drawn, seen.drawing = drawn, drawing
        for channel in drawn:
            boxes[channel].drawn_at = now
        for channel in woken:
            boxes[channel].written_at = now
        return [boxes[channel] for channel in woken]

    def _forget(self, database: ServedDatabase) -> None:
        """Its boxes are asked one by one again."""
        self._seen.pop(database, None)
        if database.is_surveyed:
            database.is_surveyed = False
            self._wake(list(database.boxes.values()))

    def _wake(self, boxes: list[StoreBox]) -> None:
        if boxes:
            self._scheduler.wake_all(boxes, afterwards=False)
