"""Wake-up by LISTEN on PostgreSQL, through a connection of its own. Polling stays underneath.

A listener that hears nothing cannot tell silence from deafness: a pooler in transaction mode lets it listen,
and passes nothing on. So it has a channel of its own, on which it calls itself through one of the worker's
other connections, at the start and after every half minute of silence.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import psycopg
from psycopg import sql

from pysqlbox.drivers import postgres
from pysqlbox.errors import PysqlboxError
from pysqlbox.worker.database import CALL_SECONDS, Calls, Database, WorkerConnection
from pysqlbox.worker.health import ListenerState
from pysqlbox.worker.logs import log_of
from pysqlbox.worker.scheduler import Scheduler

__all__ = ["Listener"]

#: It calls itself after so long without hearing anything ...
SILENT_SECONDS = 30.0
#: ... and so often, waiting so long each time, before it takes itself for deaf.
CALLS, HEAR_SECONDS = 2, 2.0
#: Somebody may take the pooler away: deaf, it tries again after so long.
AGAIN_SECONDS = 60.0
#: What it does not wait for in slices of this length, so as not to wake a database that sleeps.
SLICE_SECONDS = 0.5


class _Deaf(Exception):
    """Notifications do not come through."""


class Listener:
    """Listens on the channels of a worker's boxes and wakes its threads."""

    def __init__(
        self,
        database: Database,
        scheduler: Scheduler,
        connection: Callable[[], AbstractContextManager[WorkerConnection]],
        poll_seconds: float,
    ) -> None:
        """``connection``: one that the worker has anyway, to call itself through."""
        db = database.deployment
        self.state: ListenerState = "connecting"
        self._db = db
        self._calls = Calls(database, CALL_SECONDS)
        self._scheduler = scheduler
        self._connection = connection
        self._poll_seconds = poll_seconds
        self._told = False
        self._log = log_of(db)
        self._channels = {f"{db.schema}.{served.name}": served for served in scheduler.boxes}
        self._own = f"pysqlbox.{uuid.uuid4().hex}"
        self._bell, self._string = socket.socketpair()

    def run(self) -> None:
        """Until stop(); an interrupted connection is opened again."""
        try:
            self._run()
        finally:
            self._bell.close()
            self._string.close()

    def _run(self) -> None:
        failures = 0
        while not self._scheduler.stopping:
            try:
                self._listen()
            except _Deaf:
                self.state = "deaf"
                self._tell()
                self._pause(AGAIN_SECONDS, asleep=True)
            except (psycopg.Error, PysqlboxError) as error:
                self._log.debug("not listening: %s", error)
                was_lost = self.state == "listening"
                if was_lost:
                    self.state, failures = "connecting", 0
                failures += 1
                self._pause(random.uniform(0.5, 1) * min(0.2 * 2**failures, 10.0), asleep=was_lost)

    def stop(self) -> None:
        """Let run() end at once."""
        with contextlib.suppress(OSError):
            self._string.send(b"\0")

    def _pause(self, seconds: float, *, asleep: bool) -> None:
        """Wait; and ``asleep``: as long as the worker sleeps, for a connection would wake the database."""
        until = time.monotonic() + seconds
        while time.monotonic() < until or (asleep and self._scheduler.asleep):
            if self._scheduler.pause(min(SLICE_SECONDS, seconds)):
                return

    def _tell(self) -> None:
        if self._told:
            return
        self._told = True
        self._log.warning(
            "notifications do not come through: is this a pooler in transaction mode? Messages are found by"
            " polling, every %g seconds; connect the worker to the server itself, or say listen=False",
            self._poll_seconds,
        )

    def _listen(self) -> None:
        with self._calls.one():
            connection = postgres.connect(
                self._db.target,
                autocommit=True,
                connect_timeout=self._calls.connect_seconds,
                overdue=self._calls.overdue,
            )
        try:
            for channel in (self._own, *self._channels):
                with self._calls.one():
                    connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            for box in self._channels.values():
                self._scheduler.wake(box)  # what was sent while nobody listened
            self._wait(connection)
        finally:
            connection.close()

    def _wait(self, connection: psycopg.Connection[Any]) -> None:
        """Read notifications as they come, straight from libpq: a generator more would be slower to wake."""
        link = connection.pgconn
        call_at, unheard = time.monotonic(), 0
        with selectors.DefaultSelector() as selector:
            selector.register(link.socket, selectors.EVENT_READ)
            selector.register(self._bell, selectors.EVENT_READ)
            while not self._scheduler.stopping:
                while (notify := link.notifies()) is not None:
                    call_at, unheard = time.monotonic() + SILENT_SECONDS, 0
                    self._heard(notify.relname.decode())
                now = time.monotonic()
                if now >= call_at and not self._scheduler.asleep:
                    if unheard == CALLS:
                        raise _Deaf
                    unheard += self._call()
                    call_at = time.monotonic() + HEAR_SECONDS
                ready = selector.select(call_at - now if not self._scheduler.asleep else SILENT_SECONDS)
                if any(key.fileobj is self._bell for key, _ in ready):
                    return
                link.consume_input()

    def _heard(self, channel: str) -> None:
        if self.state == "deaf":
            self._told = False
            self._log.info("notifications come through again")
        self.state = "listening"
        box = self._channels.get(channel)
        if box is not None:
            self._scheduler.wake(box)

    def _call(self) -> bool:
        """Call itself; whether that went out, as it does not while the database is away."""
        try:
            with self._connection() as connection:
                connection.notify(self._own)
        except PysqlboxError as error:
            self._log.debug("cannot tell whether notifications come through: %s", error)
            return False
        return True
