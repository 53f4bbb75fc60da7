"""A driver that only blocks, for asynchronous callers: its calls run in a few threads."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pysqlbox.drivers import Driver, Target, Values

__all__ = ["Threaded"]

Answer = TypeVar("Answer")
_TRUSTED_SECONDS = 1.0


class Threaded:
    """Each call takes one of the threads until it ends; the next in line waits on the event loop."""

    def __init__(self, driver: Driver, threads: int) -> None:
        self._driver = driver
        self._size = threads
        self._threads: ThreadPoolExecutor | None = None
        self._pid = os.getpid()

    async def connect(self, target: Target, *, connect_timeout: int = 10) -> Any:
        """Open a connection in autocommit."""
        return await self._in_thread(
            lambda: self._driver.connect(
                target, autocommit=True, connect_timeout=connect_timeout, reused=True
            ),
            undo=self.close,
        )

    async def fetch(
        self, connection: Any, schema: str, routine: str, arguments: Mapping[str, object]
    ) -> list[Values]:
        """Run one routine with named arguments and answer its rows."""
        return await self._in_thread(lambda: self._driver.fetch(connection, schema, routine, arguments))

    async def has_routine(self, connection: Any, schema: str, routine: str) -> bool:
        """Whether a schema has a routine of this name."""
        return await self._in_thread(lambda: self._driver.has_routine(connection, schema, routine))

    async def boxes(self, connection: Any, schema: str) -> list[str]:
        """The names of the boxes that a schema has routines for."""
        return await self._in_thread(lambda: self._driver.boxes(connection, schema))

    def is_connection(self, value: object) -> bool:
        """Whether a value is a connection that fetch takes."""
        return self._driver.is_connection(value)

    async def is_alive(self, connection: Any, idle_seconds: float) -> bool:
        """Whether an idle connection still works."""
        if idle_seconds < _TRUSTED_SECONDS:  # then the driver asks nobody
            return self._driver.is_alive(connection, idle_seconds)
        return await self._in_thread(lambda: self._driver.is_alive(connection, idle_seconds))

    async def reset(self, connection: Any) -> bool:
        """Bring a connection back to autocommit without a transaction; false if it is of no more use."""
        if connection.closed or connection.autocommit:  # nothing to roll back, so nobody is asked
            return self._driver.reset(connection)
        return await self._in_thread(lambda: self._driver.reset(connection))

    async def begin(self, connection: Any) -> None:
        """Leave autocommit."""
        connection.autocommit = False

    async def commit(self, connection: Any) -> None:
        """Commit."""
        await self._in_thread(connection.commit)

    async def rollback(self, connection: Any) -> None:
        """Roll back."""
        await self._in_thread(connection.rollback)

    def close(self, connection: Any) -> None:
        """Close a connection in a thread, as closing may wait for the network."""
        self._pool().submit(self._close, connection)

    def shut_down(self) -> None:
        """Let go of the threads, once what they were given is done."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)

    def _close(self, connection: Any) -> None:
        with contextlib.suppress(self._driver.database_error()):
            connection.close()

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None or self._pid != os.getpid():  # a forked child has none of the threads
            self._pid = os.getpid()
            self._threads = ThreadPoolExecutor(self._size, thread_name_prefix="pysqlbox")
        return self._threads

    async def _in_thread(
        self, work: Callable[[], Answer], *, undo: Callable[[Answer], None] | None = None
    ) -> Answer:
        """What the work answers. A cancelled caller waits until it has ended: nobody else may have the
        connection before. The driver's own timeout bounds that."""
        begun = self._pool().submit(work)
        ended = asyncio.wrap_future(begun)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            if not begun.cancel():
                while not ended.done():
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.wait([ended])
                if ended.exception() is None and undo is not None:
                    undo(ended.result())
            raise
