"""Carrying batches on to a broker: groups side by side, each in its order, and a result for each message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pysqlbox.errors import InvalidArgument
from pysqlbox.messages import InboxMessage, OutboxMessage
from pysqlbox.worker.results import Ack, Release, Result, Retry

__all__ = ["Message", "Relay"]

Message = OutboxMessage | InboxMessage


class Relay:
    """A batch handler around a coroutine function that returns once its message is confirmed.

    ``worker.add_handler(topic, Relay(publish), batch=True)``. Messages of one ``group_id`` go one after the
    other, all others at once. One that fails is tried again under backoff, and those of its group behind it
    are handed back, so that none overtakes it. It is for the worker's event loop: one relay, one worker.
    """

    def __init__(self, publish: Callable[[Message], Awaitable[object]], *, timeout: float = 10.0) -> None:
        """``timeout``: how many seconds a confirmation may take."""
        if timeout <= 0:
            raise InvalidArgument("timeout: must be above 0")
        self._publish = publish
        self._timeout = timeout

    async def __call__(self, messages: Sequence[Message]) -> list[Result]:
        """Publish a batch; a result for each message, in their order."""
        results: list[Result] = [Release()] * len(messages)
        lanes: dict[str | int, list[int]] = {}
        for position, message in enumerate(messages):
            lanes.setdefault(message.group_id or position, []).append(position)
        await asyncio.gather(*(self._lane(messages, lane, results) for lane in lanes.values()))
        return results

    async def _lane(self, messages: Sequence[Message], lane: list[int], results: list[Result]) -> None:
        for position in lane:
            try:
                async with asyncio.timeout(self._timeout):
                    await self._publish(messages[position])
            except Exception as error:  # noqa: BLE001  # a broker's client raises what it likes; the message stays
                results[position] = Retry(error=f"{type(error).__name__}: {error}")
                return
            results[position] = Ack()
