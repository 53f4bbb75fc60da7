"""Calls of the database from an event loop: a bounded number of threads, and a bounded wait for one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from pysqlbox.service.limits import Limits
from pysqlbox.service.problems import Problem

__all__ = ["Calls"]

Answer = TypeVar("Answer")


class Calls:
    """Runs blocking functions in at most ``limits.threads`` threads, which start when they are needed."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = self._executor()
        self._busy = 0
        self._lock = threading.Lock()

    async def run(self, function: Callable[[], Answer]) -> Answer:
        """What a function answers; 503 if it takes too long, or too many wait already.

        One that takes too long goes on in its thread, and keeps that until it ends.
        """
        limits = self._limits
        with self._lock:
            if self._busy >= limits.threads + limits.waiting:
                raise self._come_again("too many requests are waiting for the database")
            self._busy += 1
        future = self._threads.submit(function)
        future.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(limits.call_seconds) as deadline:
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if not deadline.expired():
                raise
            text = f"the database did not answer within {limits.call_seconds:g} seconds"
            raise self._come_again(text) from None

    def close(self) -> None:
        """Wait for what runs, and start nothing that waits. A later call starts threads anew."""
        ended, self._threads = self._threads, self._executor()
        ended.shutdown(wait=True, cancel_futures=True)

    def _executor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._limits.threads, thread_name_prefix="pysqlbox-service")

    def _ended(self, future: Future[Any]) -> None:
        del future
        with self._lock:
            self._busy -= 1

    def _come_again(self, detail: str) -> Problem:
        headers = {"retry-after": str(self._limits.retry_after)}
        return Problem(503, detail, name="DatabaseUnavailable", headers=headers)
