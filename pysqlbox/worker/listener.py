"""Wake-up by LISTEN on PostgreSQL, through a connection of its own. Polling stays underneath."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
from typing import Any

import psycopg
from psycopg import sql

from pysqlbox.drivers import postgres
from pysqlbox.errors import PysqlboxError
from pysqlbox.worker.database import CALL_SECONDS, Calls, Database
from pysqlbox.worker.logs import log_of
from pysqlbox.worker.scheduler import Scheduler

__all__ = ["Listener"]


class Listener:
    """Listens on the channels of a worker's boxes and wakes its threads."""

    def __init__(self, database: Database, scheduler: Scheduler) -> None:
        db = database.deployment
        self._db = db
        self._calls = Calls(database, CALL_SECONDS)
        self._scheduler = scheduler
        self._log = log_of(db)
        self._channels = {f"{db.schema}.{served.name}": served for served in scheduler.boxes}
        self._bell, self._string = socket.socketpair()

    def run(self) -> None:
        """Until stop(); an interrupted connection is opened again."""
        failures = 0
        while not self._scheduler.stopping:
            try:
                self._listen()
                failures = 0
            except (psycopg.Error, PysqlboxError) as error:
                failures += 1
                self._log.debug("not listening: %s", error)
                self._scheduler.pause(random.uniform(0.5, 1) * min(0.2 * 2**failures, 10.0))
        self._bell.close()
        self._string.close()

    def stop(self) -> None:
        """Let run() end at once."""
        with contextlib.suppress(OSError):
            self._string.send(b"\0")

    def _listen(self) -> None:
        with self._calls.one():
            connection = postgres.connect(
                self._db.target,
                autocommit=True,
                connect_timeout=self._calls.connect_seconds,
                overdue=self._calls.overdue,
            )
        try:
            for channel in self._channels:
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
        with selectors.DefaultSelector() as selector:
            selector.register(link.socket, selectors.EVENT_READ)
            selector.register(self._bell, selectors.EVENT_READ)
            while not self._scheduler.stopping:
                while (notify := link.notifies()) is not None:
                    box = self._channels.get(notify.relname.decode())
                    if box is not None:
                        self._scheduler.wake(box)
                ready = selector.select()
                if any(key.fileobj is self._bell for key, _ in ready):
                    return
                link.consume_input()
