"""Wake-up by LISTEN on PostgreSQL, through a connection of its own. Polling stays underneath."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from pysqlbox.drivers import postgres
from pysqlbox.errors import PysqlboxError
from pysqlbox.worker.crew import Crew
from pysqlbox.worker.logs import log_of

if TYPE_CHECKING:
    from pysqlbox.box import Box

__all__ = ["Listener"]


class Listener:
    """Listens on the channels of a worker's boxes and wakes its crew."""

    def __init__(self, box: Box, crew: Crew) -> None:
        self._box = box
        self._crew = crew
        self._log = log_of(box)
        self._channels = {f"{box.schema}.{lane.name}": lane.name for lane in crew.lanes}
        self._bell, self._string = socket.socketpair()

    def run(self) -> None:
        """Until stop(); an interrupted connection is opened again."""
        failures = 0
        while not self._crew.stopping:
            try:
                self._listen()
                failures = 0
            except (psycopg.Error, PysqlboxError) as error:
                failures += 1
                self._log.debug("not listening: %s", error)
                self._crew.pause(random.uniform(0.5, 1) * min(0.2 * 2**failures, 10.0))
        self._bell.close()
        self._string.close()

    def stop(self) -> None:
        """Let run() end at once."""
        with contextlib.suppress(OSError):
            self._string.send(b"\0")

    def _listen(self) -> None:
        connection = postgres.connect(self._box.target, autocommit=True)
        try:
            for channel in self._channels:
                connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            for name in self._channels.values():
                self._crew.wake(name)  # what was sent while nobody listened
            self._wait(connection)
        finally:
            connection.close()

    def _wait(self, connection: psycopg.Connection[Any]) -> None:
        """Read notifications as they come, straight from libpq: a generator more would be slower to wake."""
        link = connection.pgconn
        with selectors.DefaultSelector() as selector:
            selector.register(link.socket, selectors.EVENT_READ)
            selector.register(self._bell, selectors.EVENT_READ)
            while not self._crew.stopping:
                while (notify := link.notifies()) is not None:
                    name = self._channels.get(notify.relname.decode())
                    if name is not None:
                        self._crew.wake(name)
                ready = selector.select()
                if any(key.fileobj is self._bell for key, _ in ready):
                    return
                link.consume_input()
