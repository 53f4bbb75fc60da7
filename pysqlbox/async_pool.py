"""A small pool of connections for the tasks of an event loop; the blocking one's rules, without its locks."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Unpack

from pysqlbox.drivers import Target
from pysqlbox.drivers.asynchronous import AsyncDriver
from pysqlbox.errors import InvalidState
from pysqlbox.pool_base import PoolBase, PoolLimits

__all__ = ["AsyncPool"]


class AsyncPool(PoolBase):
    """A pool for tasks.

    It belongs to the event loop that uses it. When that has ended, another one may take over: the connections
    of the first are closed, as what they wait with is gone.
    """

    _loop: asyncio.AbstractEventLoop | None

    def __init__(self, driver: AsyncDriver, target: Target, **limits: Unpack[PoolLimits]) -> None:
        super().__init__(target, connect="connect_async", **limits)
        self._driver = driver

    @property
    def open(self) -> int:
        """How many connections are open, in use or idle."""
        return len(self._opened_at)

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
                now = time.monotonic()
                self._idle.append((connection, now))
                self._room.release()
                stale = self._stale(now)
                if stale is not None:
                    self._forget(stale)
            else:
                self.discard(connection)

    def discard(self, connection: Any) -> None:
        """Close a connection instead of giving it back."""
        if id(connection) in self._opened_at:  # else it is of an earlier loop or process
            self._room.release()
        self._forget(connection)

    def purge(self) -> None:
        """Close every idle connection: one was lost, so the others probably are too."""
        while self._idle:
            self._forget(self._idle.pop()[0])

    def close(self) -> None:
        """Close what is idle now, and the rest when it is given back."""
        if self._is_forked:
            self._begin_anew()
        self._closed = True
        self.purge()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._room.release)  # who waits hears of it, and wakes the next

    def _belong(self) -> None:
        """Refuse what cannot work: a closed pool, or one whose connections wait on another running loop."""
        if self._closed:
            raise self._is_closed()
        loop = asyncio.get_running_loop()
        if self._is_forked:
            self._begin_anew()
        if self._loop is not None and self._loop is not loop:
            if self._loop.is_running():
                raise InvalidState(
                    "the deployment is in use on another event loop; call connect_async() for each"
                )
            self.purge()
            self._begin_anew()
        self._loop = loop

    async def _wait_for_room(self) -> None:
        if not self._room.locked():
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout(self._timeout):
                await self._room.acquire()
        except TimeoutError:
            raise self._exhausted() from None
        if self._closed:
            self._room.release()
            raise self._is_closed()

    async def _is_good(self, connection: Any, idle_since: float) -> bool:
        now = time.monotonic()
        return self._is_young(connection, now) and await self._driver.is_alive(connection, now - idle_since)

    async def _connect(self) -> Any:
        connection = await self._driver.connect(self._target, connect_timeout=self._connect_timeout)
        self._note_opened(connection)
        return connection

    def _forget(self, connection: Any) -> None:
        """Close a connection, which takes no room."""
        self._opened_at.pop(id(connection), None)
        self._driver.close(connection)

    def _begin_anew(self) -> None:
        self._leave_to_parent()  # nothing, where another loop takes over: that has purged
        self._forget_all()

    def _forget_all(self) -> None:
        super()._forget_all()
        self._room = asyncio.Semaphore(self._size)
        self._loop = None
