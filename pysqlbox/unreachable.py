"""What is said while a database cannot be reached."""

from __future__ import annotations

import threading
import time
from typing import Any

__all__ = ["TELL_SECONDS", "Unreachable"]

#: A database that stays away is told of again after so long.
TELL_SECONDS = 60.0


class Unreachable:
    """Says once that a database cannot be reached, then seldom, and once that it is back; for any thread."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._lock = threading.Lock()
        #: When the first of the tries that failed in a row did, and when that was last told.
        self._since: float | None = None
        self._told_at = 0.0

    def note(self, error: Exception, store: str) -> None:
        """Another try has failed, and there will be one more."""
        now = time.monotonic()
        with self._lock:
            if self._since is None:
                self._since = now
            elif now - self._told_at < TELL_SECONDS:
                return
            self._told_at = now
            away = now - self._since
        if away:
            self._log.warning("no connection for %.0f s, trying on: %s [%s]", away, error, store)
        else:
            self._log.warning("no connection, trying again: %s [%s]", error, store)

    def end(self, store: str) -> None:
        """There is a connection."""
        if self._since is None:
            return
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            self._log.info("connected after %.1f s [%s]", time.monotonic() - since, store)
