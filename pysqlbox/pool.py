"""A small pool of connections, the same for both drivers.

It connects in the thread that needs a connection, so that whoever asks gets the real reason if none can be
had; it keeps no threads of its own, and it survives a fork.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from pysqlbox.drivers import Driver, Target
from pysqlbox.errors import DatabaseUnavailable, InvalidArgument, InvalidState

__all__ = ["Pool"]

#: What a forked child inherits is its parent's: neither used nor closed here, so it must never be collected.
_inherited: list[Any] = []


class Pool:
    """Up to ``size`` connections in autocommit, opened when needed."""

    def __init__(
        self,
        driver: Driver,
        target: Target,
        *,
        size: int = 10,
        timeout: float = 30.0,
        connect_timeout: int = 10,
        max_idle: float = 600.0,
        max_lifetime: float = 3600.0,
    ) -> None:
        """``timeout``: how long to wait for a connection that others have; the rest is in seconds too."""
        if isinstance(size, bool) or size < 1:
            raise InvalidArgument("pool_size: must be at least 1")
        self._driver = driver
        self._target = target
        self._size = size
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._max_idle = max_idle
        self._max_lifetime = max_lifetime
        self._free = threading.Condition()
        self._idle: deque[tuple[Any, float, float]] = deque()  # connection, opened at, idle since
        self._opened_at: dict[int, float] = {}
        self._open = 0
        self._closed = False
        self._pid = os.getpid()

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
        if self._pid != os.getpid():
            self._forget_parent()
        deadline: float | None = None
        while True:
            with self._free:
                if self._closed:
                    raise InvalidState("the deployment is closed: open another with connect()")
                now = time.monotonic()
                entry = self._idle.pop() if self._idle else None
                if entry is None and self._open < self._size:
                    self._open += 1
                    break
                if entry is None:
                    deadline = deadline or now + self._timeout
                    if now >= deadline:
                        raise DatabaseUnavailable(
                            f"{self._target}: all {self._size} connections of the pool were in use"
                            f" for {self._timeout:g} seconds: raise pool_size, or give them back sooner"
                        )
                    self._free.wait(deadline - now)
            if entry is not None:
                connection, opened_at, idle_since = entry
                if now - opened_at < self._max_lifetime and self._driver.is_alive(
                    connection, now - idle_since
                ):
                    return connection
                self.discard(connection)
        return self._connect()

    def give_back(self, connection: Any) -> None:
        """Take a connection back, whatever state its user left it in."""
        if not self._driver.reset(connection):
            self.discard(connection)
            return
        with self._free:
            opened_at = self._opened_at.get(id(connection))
            now = time.monotonic()
            stale = None
            if opened_at is not None and not self._closed:
                self._idle.append((connection, opened_at, now))
                self._free.notify()
                if now - self._idle[0][2] <= self._max_idle:
                    return
                stale = self._idle.popleft()[0]
        self.discard(connection if stale is None else stale)

    def discard(self, connection: Any) -> None:
        """Close a connection instead of giving it back."""
        with self._free:
            if self._opened_at.pop(id(connection), None) is not None:
                self._open -= 1
                self._free.notify()
        self._close(connection)

    def purge(self) -> None:
        """Close every idle connection: one was lost, so the others probably are too."""
        with self._free:
            idle = [entry[0] for entry in self._idle]
            self._idle.clear()
        for connection in idle:
            self.discard(connection)

    def close(self) -> None:
        """Close what is idle now, and the rest when it is given back."""
        if self._pid != os.getpid():
            self._forget_parent()
        with self._free:
            self._closed = True
            self._free.notify_all()
        self.purge()

    @property
    def open(self) -> int:
        """How many connections are open, in use or idle."""
        return self._open

    @property
    def idle(self) -> int:
        """How many of them nobody uses."""
        return len(self._idle)

    @property
    def size(self) -> int:
        """How many there may be."""
        return self._size

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
            self._opened_at[id(connection)] = time.monotonic()
        return connection

    def _close(self, connection: Any) -> None:
        with contextlib.suppress(self._driver.database_error()):
            connection.close()

    def _forget_parent(self) -> None:
        """Begin anew in a forked child; the lock may have been held at the moment of the fork."""
        _inherited.extend(self._idle)
        self._free = threading.Condition()
        self._idle = deque()
        self._opened_at = {}
        self._open = 0
        self._pid = os.getpid()
