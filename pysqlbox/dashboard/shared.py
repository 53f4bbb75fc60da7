"""What all viewers share: the database is asked once for all who look at the same thing."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

__all__ = ["Shared"]

Value = TypeVar("Value")


_LONGEST = 30.0


class _Entry:
    __slots__ = ("at", "cost", "lock", "value")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.at: float | None = None
        self.cost = 0.0
        self.value: Any = None


class Shared:
    """Answers that stay good for a moment. While one asks the database, the others wait for his answer.

    What was dear stays good for longer: twenty times as long as it took, up to half a minute, so that no
    page, however many have it open, keeps the database busy for more than a twentieth of the time.
    """

    def __init__(self, *, size: int = 256, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = size
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    def get(self, key: Hashable, seconds: float, ask: Callable[[], Value]) -> Value:
        """What ``ask`` answers, or has answered not longer ago than ``seconds``."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            # Nor is anything kept that nobody has asked for of late; the least lately asked come first.
            while len(self._entries) > self._size or self._is_old(next(iter(self._entries.values()))):
                self._entries.popitem(last=False)
        with entry.lock:
            now = self._clock()
            if entry.at is None or now - entry.at >= max(seconds, min(20 * entry.cost, _LONGEST)):
                value = ask()
                entry.at = self._clock()
                entry.cost = entry.at - now
                entry.value = value
            found: Value = entry.value
            return found

    def _is_old(self, entry: _Entry) -> bool:
        return entry.at is not None and self._clock() - entry.at > 2 * _LONGEST and len(self._entries) > 1

    def forget(self) -> None:
        """Ask anew: somebody has changed something here."""
        with self._lock:
            self._entries.clear()
