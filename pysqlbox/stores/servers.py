"""The servers that stores are on, and the connections that one worker may have to each of them.

A connection belongs to a database, whose stores (schemas) share it. What nobody uses stays open as long as
there is room; beyond that the one that was used longest ago makes way.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pysqlbox.drivers import Target
from pysqlbox.drivers.url import read_odbc
from pysqlbox.errors import DatabaseUnavailable
from pysqlbox.worker.database import CALL_SECONDS, Database, WorkerConnection

if TYPE_CHECKING:
    from pysqlbox.deployment import Deployment
    from pysqlbox.stores.served import StoreBox

__all__ = ["Kept", "NoRoom", "ServedDatabase", "Server", "server_name"]

#: A database from which messages came so recently is busy: that its connection makes way means that the
#: budget is small.
BUSY_SECONDS = 10.0
#: A session of PostgreSQL keeps what it has compiled and planned: two megabytes for a schema whose messages
#: it claims. One that has talked to so many schemas gets no further ones.
MOST_SCHEMAS = 100
#: What statistics said longer ago does not count as now.
FRESH_SECONDS = 3.0


class NoRoom(DatabaseUnavailable):
    """Every connection that the worker may have to this server is in use."""


def server_name(target: Target) -> str:
    """Which server a database is on, as far as its address tells."""
    if target.dialect == "postgres":
        from psycopg.conninfo import conninfo_to_dict

        given = conninfo_to_dict(target.dsn)
        host = given.get("hostaddr") or given.get("host") or given.get("service") or "local"
        return f"postgresql {host}:{given.get('port') or 5432}".lower()
    entries = {key.lower(): value for key, value in read_odbc(target.dsn).items()}
    host = entries.get("server") or entries.get("servername") or entries.get("dsn") or "local"
    return f"mssql {host}{',' + entries['port'] if 'port' in entries else ''}".lower()


class Kept:
    """A connection within a server's budget."""

    __slots__ = ("database", "ear", "has_heard", "heard", "is_named", "raw", "schemas", "used_at", "worker")

    def __init__(self, database: ServedDatabase) -> None:
        self.database = database
        #: What claims and settles go through, or ...
        self.worker: WorkerConnection | None = None
        #: ... what a transactional handler writes through.
        self.raw: Any = None
        #: The driver's connection on which this one listens, if it does.
        self.ear: Any = None
        #: The channels that it listens to, and the schemas that it has talked to.
        self.heard: set[str] = set()
        #: Whether anything has come over it, and whether the server was told so.
        self.has_heard = self.is_named = False
        self.schemas: set[str] = set()
        self.used_at = 0.0

    def close(self) -> None:
        """Close it, if it is open."""
        self.ear = None
        if self.database.ear is self:
            self.database.ear = None
        if self.worker is not None:
            self.worker.close()
        if self.raw is not None:
            with contextlib.suppress(self.database.driver.database_error()):
                self.raw.close()
            self.raw = None


class ServedDatabase:
    """One database of a server, with the boxes that are served in it."""

    def __init__(self, server: Server, db: Deployment) -> None:
        self.server = server
        self.target = db.target
        self.driver = db.driver
        self.calls = Database(db)
        self.boxes: dict[str, StoreBox] = {}
        #: What the server calls it, once it was asked.
        self.name: str | None = None
        #: The connection that listens for its boxes, and when one was last told to.
        self.ear: Kept | None = None
        self.listened_at = float("-inf")
        #: When messages were last claimed there.
        self.worked_at = float("-inf")
        #: Whether one question, now and then, tells which of its boxes are to be asked.
        self.is_surveyed = False
        #: When its statistics last told of something written; and when they were last known to tell of all.
        self.changed_at = time.monotonic()
        self.complete_at = float("-inf")
        #: When its boxes were last woken for that, and how long not again; and whether messages came of which
        #: nobody had told.
        self.woken_at = float("-inf")
        self.pause = 0.0
        self.has_untold = False
        #: By how many seconds the server's clock is ahead of ours, and when that was found out.
        self.ahead = 0.0
        self.compared_at = float("-inf")

    @property
    def is_heard(self) -> bool:
        """Whether it can tell us of what comes."""
        ear = self.ear
        return ear is not None and ear.ear is not None and not ear.ear.closed

    def is_unchanged(self, since: float, now: float, changed_at: float | None = None) -> bool:
        """Whether nothing was written there since then, as far as could be told just now.

        ``changed_at``: when what matters was last written, if that is not the whole database.
        """
        changed_at = self.changed_at if changed_at is None else changed_at
        return changed_at < since and self.complete_at > max(since, now - FRESH_SECONDS)

    @property
    def is_busy(self) -> bool:
        """Whether messages came from there a moment ago."""
        return time.monotonic() - self.worked_at < BUSY_SECONDS

    @property
    def is_postgres(self) -> bool:
        """Whether it tells by itself that something has happened."""
        return self.target.dialect == "postgres"


class Server:
    """The connections to one server: never more than ``budget``."""

    def __init__(self, name: str, budget: int) -> None:
        self.name = name
        self.budget = budget
        self.databases: dict[str, ServedDatabase] = {}
        #: Whether the last call to it was answered.
        self.is_answering = True
        #: Whether its statistics are looked at.
        self.is_watched = False
        #: How many databases were busy at once when one of them last had to make way for another.
        self.busy_databases = 0
        self._crowded_since = self._crowded_at = float("-inf")
        self._free: list[Kept] = []
        self._open = 0
        self._extra = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def has_room(self) -> bool:
        """Whether somebody could be lent a connection now."""
        return bool(self._free) or self._open < self.budget

    @property
    def open(self) -> int:
        """How many connections there are."""
        return self._open

    @property
    def is_over(self) -> bool:
        """Whether there are more databases than connections."""
        return len(self.databases) > self.budget

    @property
    def crowded_seconds(self) -> float:
        """For how long more databases have been busy than there are connections; 0 if that is over."""
        if time.monotonic() - self._crowded_at > BUSY_SECONDS:
            return 0.0
        return self._crowded_at - self._crowded_since

    @contextlib.contextmanager
    def lend(
        self,
        database: ServedDatabase,
        *,
        schema: str = "",
        raw: bool = False,
        limit: float | None = None,
        meanwhile: Callable[[], None] | None = None,
        wait_seconds: float = 1.0,
    ) -> Iterator[Kept]:
        """A connection to a database; NoRoom if none becomes free in time.

        ``schema``: what it will talk to; best one that has done so before. ``limit``: of each call.
        """
        kept = self._take(database, schema, raw, wait_seconds)
        try:
            if kept.worker is not None:
                kept.worker.calls.limit = CALL_SECONDS if limit is None else limit
                kept.worker.calls.meanwhile = meanwhile
            yield kept
        except BaseException:
            if raw:
                self._drop(kept)
                kept = None  # type: ignore[assignment]  # nothing to give back
            raise
        finally:
            if kept is not None:
                self._give_back(kept)

    def take_extra(self) -> bool:
        """Count a connection that somebody keeps for good; False if there is no room for one."""
        with self._changed:
            if self._open >= self.budget:
                return False
            self._open += 1
            self._extra += 1
            return True

    def drop_extra(self) -> None:
        """That connection is no more."""
        with self._changed:
            self._open -= 1
            self._extra -= 1
            self._changed.notify()

    def processes(self) -> list[int]:
        """The server's processes of the connections that nobody uses just now."""
        with self._changed:
            found = [getattr(kept.worker, "process", None) for kept in self._free]
        return [each for each in found if each is not None]

    def ears(self) -> list[tuple[Kept, Any]]:
        """The connections that listen and that nobody uses, each with the driver's."""
        with self._changed:
            pairs = [(kept, kept.ear) for kept in self._free]
        return [(kept, ear) for kept, ear in pairs if ear is not None]

    def hear(self, kept: Kept) -> tuple[list[str], bool]:
        """The channels on which something has come, of a connection that nobody uses; whether it is alive."""
        with self._changed:
            ear = kept.ear
            if kept not in self._free or ear is None:
                return [], True
            link = ear.pgconn
            found = []
            try:
                link.consume_input()
                while (notify := link.notifies()) is not None:
                    found.append(notify.relname.decode())
            except Exception:  # noqa: BLE001  # whatever libpq says, it is of no more use
                found, alive = [], False
            else:
                alive = ear.closed is False and link.status == 0
            if not alive:
                self._free.remove(kept)
                self._open -= 1
                self._changed.notify()
        kept.has_heard |= bool(found)
        if not alive:
            kept.close()
        return found, alive

    def forget(self, database: ServedDatabase) -> None:
        """Nothing is served there any more."""
        with self._changed:
            self.databases = {dsn: each for dsn, each in self.databases.items() if each is not database}
        self.drop_free(database)

    def drop_free(self, database: ServedDatabase) -> None:
        """Close the connections of a database that nobody uses: one of them was lost, and they may be."""
        with self._changed:
            gone = [kept for kept in self._free if kept.database is database]
            self._free = [kept for kept in self._free if kept.database is not database]
            self._open -= len(gone)
            self._changed.notify_all()
        for kept in gone:
            kept.close()

    def close(self) -> None:
        """Close what is free now, and the rest when it comes back."""
        with self._changed:
            self._closed = True
            free, self._free = self._free, []
            self._open -= len(free)
        for kept in free:
            kept.close()

    def _take(self, database: ServedDatabase, schema: str, raw: bool, wait_seconds: float) -> Kept:
        until = time.monotonic() + wait_seconds
        evicted: Kept | None = None
        with self._changed:
            while True:
                kept = self._find(database, schema, raw)
                if kept is not None:
                    self._free.remove(kept)
                    kept.schemas.add(schema)
                    return kept
                if self._open < self.budget:
                    self._open += 1
                    break
                if self._free:
                    evicted = self._least_worth()
                    self._free.remove(evicted)
                    if evicted.database is not database and self._serves_busy(evicted):
                        self._note_crowd(time.monotonic())
                    break
                left = until - time.monotonic()
                if left <= 0:
                    raise NoRoom(f"{self.name}: all {self.budget} of connections= are in use")
                self._changed.wait(left)
        if evicted is not None:
            evicted.close()
        kept = Kept(database)
        kept.schemas.add(schema)
        if not raw:
            kept.worker = database.calls.open()
        return kept

    def _note_crowd(self, now: float) -> None:
        """A busy database has lost a connection: to one of too many others, or to a second one of its own."""
        busy = sum(database.is_busy for database in self.databases.values())
        if busy <= self.budget - self._extra:
            return
        if now - self._crowded_at > BUSY_SECONDS:
            self._crowded_since = now
        self._crowded_at = now
        self.busy_databases = busy

    @staticmethod
    def _serves_busy(kept: Kept) -> bool:
        """Whether it is the one connection by which messages of a busy database come."""
        return kept.database.is_busy and (kept.database.ear is kept or not kept.database.is_heard)

    def _least_worth(self) -> Kept:
        """Which of the free ones makes way: the longest unused one; those that messages come from, last."""
        return min(
            self._free,
            key=lambda kept: (kept.database.worked_at if self._serves_busy(kept) else 0.0, kept.used_at),
        )

    def _find(self, database: ServedDatabase, schema: str, raw: bool) -> Kept | None:
        """A free one: one that knows the schema; else the one that listens, so that it stays."""
        found = [
            kept
            for kept in self._free
            if kept.database is database
            and (kept.worker is None) == raw
            and (schema in kept.schemas or len(kept.schemas) < MOST_SCHEMAS)
        ]
        return max(
            found, key=lambda kept: (schema in kept.schemas, kept.ear is not None, kept.used_at), default=None
        )

    def _give_back(self, kept: Kept) -> None:
        kept.used_at = time.monotonic()
        with self._changed:
            known = self.databases.get(kept.database.target.dsn) is kept.database
            keep = not self._closed and known
            if keep:
                self._free.append(kept)
            else:
                self._open -= 1
            self._changed.notify()
        if not keep:
            kept.close()

    def _drop(self, kept: Kept) -> None:
        kept.close()
        with self._changed:
            self._open -= 1
            self._changed.notify()
