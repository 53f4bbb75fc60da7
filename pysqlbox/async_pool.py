"""A small pool of connections for the tasks of an event loop; the blocking one's rules, without its locks."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from typing import Any

from pysqlbox.drivers import Target
from pysqlbox.drivers.asynchronous import AsyncDriver
from pysqlbox.errors import DatabaseUnavailable, InvalidArgument, InvalidState

__all__ = ["AsyncPool"]

#: What a forked child inherits is its parent's: neither used nor closed here, so it must never be collected.
_inherited: list[Any] = []


class AsyncPool:
    """Up to ``size`` connections in autocommit, opened when needed.

    It belongs to the event loop that uses it. When that has ended, another one may take over: the connections
    of the first are closed, as what they wait with is gone.
    """

    def __init__(
        self,
        driver: AsyncDriver,
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
        self._idle: deque[tuple[Any, float]] = deque()  # connection, idle since
        self._opened_at: dict[int, float] = {}  # of those that are in use or idle
        self._room = asyncio.Semaphore(size)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._pid = os.getpid()

    @property
    def open(self) -> int:
        """How many connections are open, in use or idle."""
        return len(self._opened_at)

    @property
    def idle(self) -> int:
        """How many of them nobody uses."""
        return len(self._idle)

    @property
    def size(self) -> int:
        """How many there may be."""
        return self._size

    async def take(self) -> Any:
        """A connection that works, as far as can be told cheaply; give it back."""
        self._belong()
        await self._wait_for_room()
        try:
            while self._idle:
                connection, idle_since = self._idle.pop()
                try:
                    if await self._is_good(connection, idle_since):
                        return connection
                except BaseException:
                    self._forget(connection)
                    raise
                self._forget(connection)
            return await self._connect()
        except BaseException:
            self._room.release()
            raise

    async def give_back(self, connection: Any) -> None:
        """Take a connection back, whatever state its user left it in."""
        kept = False
        try:
            kept = await self._driver.reset(connection)
        finally:
            if kept and not self._closed and id(connection) in self._opened_at:
                self._idle.append((connection, time.monotonic()))
                self._release(connection)
                self._drop_stale()
            else:
                self.discard(connection)

    def discard(self, connection: Any) -> None:
        """Close a connection instead of giving it back."""
        self._release(connection, gone=True)
        self._driver.close(connection)

    def purge(self) -> None:
        """Close every idle connection: one was lost, so the others probably are too."""
        while self._idle:
            self._forget(self._idle.pop()[0])

    def close(self) -> None:
        """Close what is idle now, and the rest when it is given back."""
        if self._pid != os.getpid():
            self._begin_anew()
        self._closed = True
        self.purge()

    def _belong(self) -> None:
        """Refuse what cannot work: a closed pool, or one whose connections wait on another running loop."""
        if self._closed:
            raise InvalidState("the deployment is closed: open another with connect_async()")
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            self._begin_anew()
        if self._loop is not None and self._loop is not loop:
            if self._loop.is_running():
                raise InvalidState(
                    "the deployment is in use on another event loop; call connect_async() for each"
                )
            self.purge()
            self._begin_anew()
        self._loop = loop

    def _begin_anew(self) -> None:
        _inherited.extend(self._idle)  # none, unless they are a parent process's
        self._idle = deque()
        self._opened_at = {}
        self._room = asyncio.Semaphore(self._size)
        self._loop = None
        self._pid = os.getpid()

    async def _wait_for_room(self) -> None:
        if not self._room.locked():
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout(self._timeout):
                await self._room.acquire()
        except TimeoutError:
            raise DatabaseUnavailable(
                f"{self._target}: all {self._size} connections of the pool were in use"
                f" for {self._timeout:g} seconds: raise pool_size, or give them back sooner"
            ) from None
        if self._closed:
            self._room.release()
            raise InvalidState("the deployment is closed: open another with connect_async()")

    async def _is_good(self, connection: Any, idle_since: float) -> bool:
        now = time.monotonic()
        if now - self._opened_at[id(connection)] >= self._max_lifetime:
            return False
        return await self._driver.is_alive(connection, now - idle_since)

    async def _connect(self) -> Any:
        connection = await self._driver.connect(self._target, connect_timeout=self._connect_timeout)
        self._opened_at[id(connection)] = time.monotonic()
        return connection

    def _drop_stale(self) -> None:
        """Close the one that has been idle longest, if that is too long."""
        if self._idle and time.monotonic() - self._idle[0][1] > self._max_idle:
            self._forget(self._idle.popleft()[0])

    def _release(self, connection: Any, *, gone: bool = False) -> None:
        """Make room for another one; nothing if the connection is of an earlier loop or process."""
        if id(connection) in self._opened_at:
            self._room.release()
            if gone:
                del self._opened_at[id(connection)]

    def _forget(self, connection: Any) -> None:
        """Close an idle connection, which takes no room."""
        self._opened_at.pop(id(connection), None)
        self._driver.close(connection)
