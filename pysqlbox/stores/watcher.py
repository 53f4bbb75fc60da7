"""One thread that hears what databases say, and sees in a server's statistics where something was written."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg.pq import ConnStatus, ExecStatus

from pysqlbox.drivers import postgres
from pysqlbox.errors import PysqlboxError
from pysqlbox.stores.scheduler import StoresScheduler
from pysqlbox.stores.servers import Kept, ServedDatabase, Server

__all__ = ["Statistics", "Watcher"]

_log = logging.getLogger("pysqlbox.worker")

#: How often statistics are looked at while there are databases that nobody listens to, and otherwise.
LOOK_SECONDS, CALM_SECONDS = 0.1, 0.5
#: A database that tells of what comes is believed if it has more boxes than this. With fewer, what its
#: statistics say counts too: boxes may be set not to notify, and a pooler may swallow what they say.
FEW_BOXES = 16
#: These are woken by that no more often, for what they tell by themselves is written into statistics too; and
#: more and more seldom, up to the last, while nothing is found there that was not told.
HEARD_SECONDS, TOLD_ALL_SECONDS = 1.0, 8.0
#: The part of its time that a server may be kept busy with that.
SHARE = 0.05
#: What was slow once is asked again after so long.
LONGEST_LOOK_SECONDS = 1.0
#: A server that does not answer is left alone for so long.
AGAIN_SECONDS = 5.0
#: How often it is asked too who may have written something that statistics do not tell yet.
WHOLE_SECONDS = 1.0
#: A session tells of what it has written when it has been idle for ten seconds, if not before.
TOLD_SECONDS = 12
#: What has been written where; what is rolled back counts too, which does no harm.
WRITTEN = """
    SELECT d.datname, d.tup_inserted + d.tup_updated + d.tup_deleted AS written, {complete} AS is_complete
    FROM pg_catalog.pg_stat_database AS d
    WHERE d.datname IS NOT NULL
"""
QUERY = WRITTEN.format(complete="false").encode()
#: The same, and of which databases that is all: of those that keep statistics, where every session but ours
#: has been idle for so long that it has told. Whose state we may not see may be in the midst of something.
#: Before PostgreSQL 15 idle sessions tell nothing.
WHOLE_QUERY = WRITTEN.format(
    complete=f"""
        pg_catalog.current_setting('server_version_num')::int4 >= 150000
        AND pg_catalog.current_setting('track_counts') = 'on'
        AND NOT EXISTS (
            SELECT FROM pg_catalog.pg_db_role_setting AS s, pg_catalog.unnest(s.setconfig) AS e (setting)
            WHERE s.setdatabase IN (0, d.datid) AND e.setting LIKE 'track_counts=%'
        )
        AND d.datid NOT IN (
            SELECT a.datid
            FROM pg_catalog.pg_stat_activity AS a
            WHERE a.datid IS NOT NULL AND a.pid <> pg_catalog.pg_backend_pid() AND a.pid <> ALL ($1::int4[])
                AND a.backend_type NOT LIKE 'autovacuum %'
                AND (
                    a.state IS NULL OR a.state <> 'idle'
                    OR a.state_change > pg_catalog.clock_timestamp() - interval '{TOLD_SECONDS} seconds'
                )
        )
    """
).encode()


class Statistics:
    """What one server's statistics say, asked for without ever waiting."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._seen: dict[str, bytes | None] = {}
        self._whole_at = 0.0
        #: When the question was sent that is not answered yet.
        self.asked_at: float | None = None
        self.next_at = 0.0

    @property
    def link(self) -> Any:
        """What to wait for while an answer is due."""
        return self._connection.pgconn

    def ask(self, processes: Callable[[], Sequence[int]]) -> None:
        """Send the question; ``processes``: the server's for our own connections."""
        self.asked_at = now = time.monotonic()
        if now >= self._whole_at:
            self._whole_at = now + WHOLE_SECONDS
            ours = "{" + ",".join(map(str, processes())) + "}"
            self._connection.pgconn.send_query_params(WHOLE_QUERY, [ours.encode()])
        else:
            self._connection.pgconn.send_query_params(QUERY, [])
        self._connection.pgconn.flush()

    def read(self, pause: float) -> tuple[list[str], set[str]] | None:
        """The databases in which something was written since the last answer, and those of which it was known
        when the question was asked that this is all; None while the answer is not there.
        """
        link = self._connection.pgconn
        link.consume_input()
        if link.is_busy():
            return None
        found, complete = [], set()
        while (result := link.get_result()) is not None:
            if result.status != ExecStatus.TUPLES_OK:
                raise psycopg.OperationalError(result.error_message.decode("utf-8", "replace"))
            for row in range(result.ntuples):
                name = (result.get_value(row, 0) or b"").decode()
                count = result.get_value(row, 1)
                if result.get_value(row, 2) == b"t":
                    complete.add(name)
                if self._seen.get(name) != count:
                    found.append(name)
                self._seen[name] = count
        now = time.monotonic()
        took = now - (self.asked_at or now)
        self.asked_at = None
        # An answer that was late because this process or the machine is busy says little of the server.
        self.next_at = now + min(max(pause, took / SHARE), LONGEST_LOOK_SECONDS)
        return found, complete

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(psycopg.Error):
            self._connection.close()


class Watcher:
    """Wakes boxes by what it hears and sees."""

    def __init__(
        self, servers: Callable[[], Sequence[Server]], scheduler: StoresScheduler, watches: bool
    ) -> None:
        """``watches``: look at statistics, too."""
        self._servers = servers
        self._scheduler = scheduler
        self._watches = watches
        self._statistics: dict[Server, Statistics] = {}
        self._again_at: dict[Server, float] = {}
        #: Where something was written, and whose boxes have not been woken for that yet.
        self._written: set[ServedDatabase] = set()
        self._selector = selectors.DefaultSelector()
        #: What is waited for, and whom it concerns.
        self._waiting: dict[Any, Kept | Server] = {}
        self._sockets: dict[Any, int] = {}
        self._lock = threading.Lock()
        self._bell, self._string = socket.socketpair()
        self._bell.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)

    def ring(self) -> None:
        """A connection is to be listened to now, or the end has come."""
        with contextlib.suppress(OSError):
            self._string.send(b"\0", socket.MSG_DONTWAIT if hasattr(socket, "MSG_DONTWAIT") else 0)

    def wants(self, server: Server) -> bool:
        """Whether somebody who talks to a server is to open() its statistics."""
        return (
            self._watches
            and server.budget > 2
            and server not in self._statistics
            and time.monotonic() >= self._again_at.get(server, 0.0)
        )

    def open(self, database: ServedDatabase) -> None:
        """Connect to a server for its statistics, in the thread of somebody who talks to it anyway."""
        server = database.server
        with self._lock:
            if not self.wants(server):
                return
            self._again_at[server] = time.monotonic() + AGAIN_SECONDS
        if not server.take_extra():
            return
        try:
            connection = postgres.connect(database.target, autocommit=True, connect_timeout=3)
        except PysqlboxError:
            server.drop_extra()
            return
        connection.pgconn.nonblocking = 1
        with self._lock:
            self._statistics[server] = Statistics(connection)
            server.is_watched = True
        self.ring()

    def run(self) -> None:
        """Until the worker stops."""
        try:
            while not self._scheduler.stopping:
                try:
                    self._round()
                except Exception:  # noqa: BLE001  # without it, everything would wait for the sweep
                    _log.exception("watching the servers: unexpected; going on")
                    self._scheduler.pause(1.0)
        finally:
            for server in list(self._statistics):
                self._close(server)
            self._selector.close()
            self._bell.close()
            self._string.close()

    def _round(self) -> None:
        now = time.monotonic()
        ears: list[tuple[Kept, Any]] = []
        next_at = now + 1.0
        for server in self._servers():
            ears += server.ears()
            statistics = self._statistics.get(server)
            if statistics is None:
                continue
            if statistics.asked_at is None and statistics.next_at <= now:
                try:
                    statistics.ask(server.processes)
                except psycopg.Error:
                    self._close(server)
                    continue
            next_at = min(next_at, statistics.next_at if statistics.asked_at is None else now + 1.0)
        wanted: dict[Any, Kept | Server] = {ear.pgconn: kept for kept, ear in ears}
        for server, statistics in self._statistics.copy().items():
            if statistics.asked_at is not None:
                wanted[statistics.link] = server
        self._wait_for(wanted)
        for key, _ in self._selector.select(max(0.0, next_at - time.monotonic())):
            whom = self._waiting.get(key.data)
            if isinstance(whom, Kept):
                self._hear(whom)
            elif isinstance(whom, Server):
                self._see(whom)
            else:
                with contextlib.suppress(BlockingIOError):
                    self._bell.recv(4096)

    def _wait_for(self, wanted: dict[Any, Kept | Server]) -> None:
        """Wait for these connections from now on. What was closed goes first: another may have its number."""
        for link in [each for each in self._waiting if each not in wanted]:
            self._selector.unregister(self._sockets.pop(link))
            del self._waiting[link]
        for link, whom in wanted.items():
            if link not in self._waiting:
                with contextlib.suppress(psycopg.Error, KeyError, ValueError, OSError):  # closed meanwhile
                    if link.status == ConnStatus.OK:
                        number = link.socket
                        self._selector.register(number, selectors.EVENT_READ, link)
                        self._sockets[link], self._waiting[link] = number, whom

    def _hear(self, kept: Kept) -> None:
        database = kept.database
        channels, alive = database.server.hear(kept)
        boxes = database.boxes
        if alive:
            self._scheduler.wake_all([boxes[each] for each in channels if each in boxes])
        else:
            self._scheduler.wake_all(list(boxes.values()))

    def _see(self, server: Server) -> None:
        statistics = self._statistics[server]
        databases = list(server.databases.values())
        unheard = any(not each.is_heard for each in databases)
        asked_at = statistics.asked_at or 0.0
        try:
            found = statistics.read(LOOK_SECONDS if unheard else CALM_SECONDS)
        except psycopg.Error:
            self._close(server)
            return
        if found is None:
            return
        written, complete = found
        now = time.monotonic()
        for database in databases:
            if database.name in written:
                database.changed_at = now
                self._written.add(database)
            if database.name in complete:
                database.complete_at = asked_at
        self._wake(now)

    def _wake(self, now: float) -> None:
        """Wake the boxes of databases in which something was written; those that are heard, not each time."""
        for database in list(self._written):
            is_told = database.is_heard and len(database.boxes) > FEW_BOXES
            if not database.is_heard or database.has_untold:
                database.has_untold, database.pause = False, HEARD_SECONDS
            if database.is_heard and not is_told:
                if now - database.woken_at < database.pause:
                    continue
                database.pause = min(2 * database.pause, TOLD_ALL_SECONDS)
            self._written.discard(database)
            if not is_told:
                database.woken_at = now
                self._scheduler.wake_all(list(database.boxes.values()), afterwards=False)

    def _close(self, server: Server) -> None:
        server.is_watched = False
        statistics = self._statistics.pop(server, None)
        if statistics is not None:
            statistics.close()
            server.drop_extra()
