"""What a handler may ask while it runs."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

from pysqlbox.errors import InvalidState
from pysqlbox.wording import counted

if TYPE_CHECKING:
    from pysqlbox.deployment import Deployment
    from pysqlbox.names import StoreKey
    from pysqlbox.worker.assignment import Assignment
    from pysqlbox.worker.scheduler import Scheduler

__all__ = ["Context"]


class Context:
    """Handed to a handler that takes a second argument: whether to stop early, and what it handles."""

    __slots__ = ("_assignment", "_scheduler", "joined", "messages")

    def __init__(self, scheduler: Scheduler, assignment: Assignment, messages: list[Any]) -> None:
        self._scheduler = scheduler
        self._assignment = assignment
        self.messages = messages
        #: The connection of the handler's transaction, while there is one.
        self.joined: Any = None

    @property
    def connection(self) -> Any:
        """The connection of a transactional handler, whose commit makes the message done.

        Hand it to the methods as ``connection=``, and use it for statements of your own.
        """
        if self.joined is None:
            raise InvalidState(
                "connection: the handler is not transactional, or has ended; use it inside, and register it"
                " with transactional=True"
            )
        return self.joined

    @property
    def deployment(self) -> Deployment:
        """The deployment that the message is from."""
        found: Deployment = self._assignment.box.queue.deployment
        return found

    @property
    def store(self) -> StoreKey | None:
        """The key of the store that the message is from; None where there is but one deployment."""
        return self.deployment.store_key

    @property
    def message(self) -> Any:
        """The message as it was claimed (the first one of a batch)."""
        return self.messages[0]

    @property
    def cancelled(self) -> bool:
        """Whether to stop early: the worker is stopping, the handler's time is up, or a message was lost.

        A message is lost when it was cancelled, or when its lease ran out and it may be somebody else's.
        """
        assignment = self._assignment
        return (
            self._scheduler.stopping
            or assignment.overrun
            or any(assignment.is_lost(message) for message in self.messages)
        )

    @property
    def is_of_child(self) -> bool:
        """Whether the handler has forked, and this is the child."""
        return self._scheduler.forked

    def wait(self, seconds: float) -> bool:
        """Sleep, but not longer than the worker runs; whether to stop early."""
        self._scheduler.pause(seconds)
        return self.cancelled

    async def sleep(self, seconds: float) -> bool:
        """The same in a coroutine handler."""
        ends_at = time.monotonic() + seconds
        while not self.cancelled and (left := ends_at - time.monotonic()) > 0:
            await asyncio.sleep(min(left, 0.1))
        return self.cancelled

    def __repr__(self) -> str:
        return f"Context({counted(len(self.messages), 'message')}, thread {threading.current_thread().name})"
