"""A condition that wakes its threads by rank.

``threading.Condition`` wakes whoever has waited longest, so a worker with little to do would use all its
threads in turn. Here the first ones do everything that they can do, and the last ones sleep on.
"""

from __future__ import annotations

import threading
from types import TracebackType

__all__ = ["RankedCondition"]


class RankedCondition:
    """A lock, and the threads that sleep until something that it guards has changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bells: dict[threading.Lock, int] = {}

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    @property
    def sleepers(self) -> int:
        """How many threads sleep."""
        return len(self._bells)

    def wait(self, rank: int, seconds: float | None = None) -> bool:
        """Give up the lock and sleep, at most so long; false if nobody rang."""
        bell = threading.Lock()
        bell.acquire()
        self._bells[bell] = rank
        self._lock.release()
        try:
            bell.acquire(timeout=-1 if seconds is None else max(seconds, 0.0))
        finally:
            self._lock.acquire()
            rung = self._bells.pop(bell, None) is None
        return rung

    def notify(self) -> None:
        """Wake the sleeping thread whose rank is lowest; it needs the lock to go on."""
        if self._bells:
            bell = min(self._bells, key=self._bells.__getitem__)
            del self._bells[bell]
            bell.release()

    def notify_all(self) -> None:
        """Wake all of them."""
        while self._bells:
            self.notify()
