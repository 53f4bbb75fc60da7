"""What a handler may ask while it runs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from pysqlbox.worker.crew import copy_of

if TYPE_CHECKING:
    from pysqlbox.worker.hand import Hand

__all__ = ["Context"]


class Context:
    """Handed to a handler that takes a second argument: whether to stop early, and what it handles."""

    __slots__ = ("_hand", "messages")

    def __init__(self, hand: Hand, messages: list[Any]) -> None:
        self._hand = hand
        self.messages = messages

    @property
    def message(self) -> Any:
        """The message as it was claimed (the first one of a batch)."""
        return self.messages[0]

    @property
    def cancelled(self) -> bool:
        """Whether to stop early: the worker is stopping, the handler's time is up, or the lease is lost."""
        hand = self._hand
        return (
            hand.crew.stopping
            or hand.written_off
            or time.monotonic() - hand.leased_at > hand.settings.lease_seconds
            or any(copy_of(message) in hand.crew.lost for message in self.messages)
        )

    def wait(self, seconds: float) -> bool:
        """Sleep, but not longer than the worker runs; whether to stop early."""
        self._hand.crew.pause(seconds)
        return self.cancelled

    def __repr__(self) -> str:
        return f"Context({len(self.messages)} messages, thread {threading.current_thread().name})"
