"""A small pool of connections, the same for both drivers.

It connects in the thread that needs a connection, so that whoever asks gets the real reason if none can be
had; it keeps no threads of its own, and it survives a fork.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any, Unpack

from pysqlbox.drivers import Driver, Target
from pysqlbox.pool_base import PoolBase, PoolLimits

__all__ = ["Pool"]


class Pool(PoolBase):
    """A pool for threads."""

    def __init__(self, driver: Driver, target: Target, **limits: Unpack[PoolLimits]) -> None:
        super().__init__(target, connect="connect", **limits)
        self._driver = driver

    @contextlib.contextmanager
    def connection(self) -> Iterator[Any]:
        """A connection, given back at the end of the block."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.give_back(connection)

    def take(self) -> Any:
        """A connection that works, as far as can be told cheaply; give it back."""
        if self._is_forked:
            self._begin_anew()
        deadline: float | None = None
        while True:
            with self._free:
                if self._closed:
                    raise self._is_closed()
                now = time.monotonic()
                entry = self._idle.pop() if self._idle else None
                if entry is None and self._open < self._size:
                    self._open += 1
                    break
                if entry is None:
                    deadline = deadline or now + self._timeout
                    if now >= deadline:
                        raise self._exhausted()
                    self._free.wait(deadline - now)
            if entry is not None:
                connection, idle_since = entry
                if self._is_young(connection, now) and self._driver.is_alive(connection, now - idle_since):
                    return connection
                self.discard(connection)
        return self._connect()

    def give_back(self, connection: Any) -> None:
        """Take a connection back, whatever state its user left it in."""
        if not self._driver.reset(connection):
            self.discard(connection)
            return
        with self._free:
            if id(connection) not in self._opened_at or self._closed:
                stale = connection
            else:
                now = time.monotonic()
                self._idle.append((connection, now))
                self._free.notify()
                stale = self._stale(now)
        if stale is not None:
            self.discard(stale)

    def discard(self, connection: Any) -> None:
        """Close a connection instead of giving it back."""
        with self._free:
            if self._opened_at.pop(id(connection), None) is not None:
                self._open -= 1
                self._free.notify()
        with contextlib.suppress(self._driver.database_error()):
            connection.close()

    def purge(self) -> None:
        """Close every idle connection: one was lost, so the others probably are too."""
        with self._free:
            idle = [connection for connection, _ in self._idle]
            self._idle.clear()
        for connection in idle:
            self.discard(connection)

    def close(self) -> None:
        """Close what is idle now, and the rest when it is given back."""
        if self._is_forked:
            self._begin_anew()
        with self._free:
            self._closed = True
            self._free.notify_all()
        self.purge()

    @property
    def open(self) -> int:
        """How many connections are open, in use or idle, or being opened."""
        return self._open

    def _connect(self) -> Any:
        """Open a connection for which room was made."""
        try:
            connection = self._driver.connect(
                self._target, autocommit=True, connect_timeout=self._connect_timeout, reused=True
            )
        except BaseException:
            with self._free:
                self._open -= 1
                self._free.notify()
            raise
        with self._free:
            self._note_opened(connection)
        return connection

    def _begin_anew(self) -> None:
        self._leave_to_parent()
        self._forget_all()

    def _forget_all(self) -> None:
        super()._forget_all()
        self._free = threading.Condition()  # a new one: its lock may have been held at the moment of a fork
        self._open = 0
