"""A circuit breaker: an endpoint that fails again and again is left alone for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pysqlbox.errors import InvalidArgument

__all__ = ["Breaker"]


class Breaker:
    """Opens after so many failures in a row; then one caller at a time may try, later and later."""

    def __init__(
        self,
        *,
        failures: int = 5,
        pause: float = 30.0,
        longest_pause: float = 900.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``pause``: seconds until the first try after it opened; each failed one doubles it."""
        if failures < 1:
            raise InvalidArgument("failures: must be at least 1")
        if not 0 < pause <= longest_pause:
            raise InvalidArgument("pause: must be above 0 and at most longest_pause")
        self._failures, self._pause, self._longest = failures, pause, longest_pause
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = 0
        self._open_until = 0.0

    def wait(self) -> float:
        """How many seconds to leave the endpoint alone; 0: call it, and report what came of it."""
        with self._lock:
            now = self._clock()
            if self._failed < self._failures:
                return 0.0
            if now < self._open_until:
                return self._open_until - now
            # This caller tries; the others wait until it has reported, or for as long again if it never does.
            self._open_until = now + self._current_pause()
            return 0.0

    def succeeded(self) -> None:
        """It is closed again."""
        with self._lock:
            self._failed = 0

    def failed(self) -> None:
        """One more failure in a row."""
        with self._lock:
            self._failed += 1
            if self._failed >= self._failures:
                self._open_until = self._clock() + self._current_pause()

    @property
    def is_open(self) -> bool:
        """Whether the last calls failed."""
        with self._lock:
            return self._failed >= self._failures

    def _current_pause(self) -> float:
        return float(min(self._pause * 2.0 ** min(self._failed - self._failures, 32), self._longest))
