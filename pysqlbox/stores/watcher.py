"""One thread that hears what databases say, and sees in a server's statistics where something was written."""

from __future__ import annotations

import contextlib
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

#: How often statistics are looked at while there are databases that nobody listens to, and otherwise.
LOOK_SECONDS, CALM_SECONDS = 0.1, 0.5
#: A database that tells of what comes is believed if it has more boxes than this. With fewer, what its
#: statistics say counts too: boxes may be set not to notify, and a pooler may swallow what they say.
FEW_BOXES = 16
#: The part of its time that a server may be kept busy with that.
SHARE = 0.05
#: A server that does not answer is left alone for so long.
AGAIN_SECONDS = 5.0
#: What has been written where; what is rolled back counts too, which does no harm.
QUERY = b"SELECT datname, tup_inserted FROM pg_catalog.pg_stat_database WHERE datname IS NOT NULL"


class Statistics:
    """What one server's statistics say, asked for without ever waiting."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._seen: dict[str, int] = {}
        self.asked_at: float | None = None
        self.next_at = 0.0

    @property
    def socket(self) -> int:
        """What to wait for while an answer is due."""
        return self._connection.pgconn.socket

    def ask(self) -> None:
        """Send the question."""
        self.asked_at = time.monotonic()
        self._connection.pgconn.send_query(QUERY)
        self._connection.pgconn.flush()

    def read(self, pause: float) -> list[str] | None:
        """The databases in which something was written since the last answer; None while it is not there."""
        link = self._connection.pgconn
        link.consume_input()
        if link.is_busy():
            return None
        found = []
        while (result := link.get_result()) is not None:
            if result.status != ExecStatus.TUPLES_OK:
                raise psycopg.OperationalError(result.error_message.decode("utf-8", "replace"))
            for row in range(result.ntuples):
                name = (result.get_value(row, 0) or b"").decode()
                count = int(result.get_value(row, 1) or 0)
                if self._seen.get(name) != count:
                    found.append(name)
                self._seen[name] = count
        now = time.monotonic()
        took = now - (self.asked_at or now)
        self.asked_at = None
        self.next_at = now + max(pause, took / SHARE)
        return found

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
        self._lock = threading.Lock()
        self._bell, self._string = socket.socketpair()
        self._bell.setblocking(False)

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
                self._round()
        finally:
            for server in list(self._statistics):
                self._close(server)
            self._bell.close()
            self._string.close()

    def _round(self) -> None:
        now = time.monotonic()
        ears: list[Kept] = []
        next_at = now + 1.0
        for server in self._servers():
            ears += server.ears()
            statistics = self._statistics.get(server)
            if statistics is None:
                continue
            if statistics.asked_at is None and statistics.next_at <= now:
                try:
                    statistics.ask()
                except psycopg.Error:
                    self._close(server)
                    continue
            next_at = min(next_at, statistics.next_at if statistics.asked_at is None else now + 1.0)
        with selectors.DefaultSelector() as selector:
            selector.register(self._bell, selectors.EVENT_READ, None)
            for kept in ears:
                self._register(selector, kept.ear.pgconn, kept)
            for server, statistics in list(self._statistics.items()):
                if statistics.asked_at is not None:
                    self._register(selector, statistics._connection.pgconn, server)
            for key, _ in selector.select(max(0.0, next_at - time.monotonic())):
                if isinstance(key.data, Kept):
                    self._hear(key.data)
                elif isinstance(key.data, Server):
                    self._see(key.data)
                else:
                    with contextlib.suppress(BlockingIOError):
                        self._bell.recv(4096)

    @staticmethod
    def _register(selector: selectors.BaseSelector, link: Any, data: object) -> None:
        with contextlib.suppress(psycopg.Error, KeyError, ValueError, OSError):  # closed meanwhile
            if link.status == ConnStatus.OK:
                selector.register(link.socket, selectors.EVENT_READ, data)

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
        unheard = any(not each.is_heard for each in list(server.databases.values()))
        try:
            written = statistics.read(LOOK_SECONDS if unheard else CALM_SECONDS)
        except psycopg.Error:
            self._close(server)
            return
        for database in list(server.databases.values()) if written else ():
            is_told = database.is_heard and len(database.boxes) > FEW_BOXES
            if database.name in (written or ()) and not is_told:
                self._scheduler.wake_all(list(database.boxes.values()), afterwards=False)

    def _close(self, server: Server) -> None:
        server.is_watched = False
        statistics = self._statistics.pop(server, None)
        if statistics is not None:
            statistics.close()
            server.drop_extra()
