"""Calls of the database from an event loop: a bounded number of threads, and a bounded wait for one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from pysqlbox.dashboard.lanes import Lanes, TooMany
from pysqlbox.service.limits import Limits
from pysqlbox.service.problems import Problem
from pysqlbox.wording import counted

__all__ = ["Calls"]

Answer = TypeVar("Answer")


class Calls:
    """Runs blocking functions in at most ``limits.threads`` threads, of which no store gets all."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lanes = Lanes(
            limits.threads, limits.waiting, name="pysqlbox-service", rest=float(limits.retry_after)
        )

    async def run(self, function: Callable[[], Answer], store: str | None = None) -> Answer:
        """What a function answers; 503 if it takes too long, or too many wait already.

        One that takes too long goes on in its thread, and keeps that until it ends.
        """
        limits = self._limits
        try:
            future = self._lanes.submit(function, store)
        except TooMany:
            raise self._come_again("too many requests are waiting for the database") from None
        try:
            async with asyncio.timeout(limits.call_seconds) as deadline:
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if not deadline.expired():
                raise
            text = f"the database did not answer within {counted(limits.call_seconds, 'second')}"
            raise self._come_again(text) from None

    def close(self) -> None:
        """Wait for what runs, and start nothing that waits. A later call starts threads anew."""
        self._lanes.close(wait=True)

    def _come_again(self, detail: str) -> Problem:
        headers = {"retry-after": str(self._limits.retry_after)}
        return Problem(503, detail, name="DatabaseUnavailable", headers=headers)
