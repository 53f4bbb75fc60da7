"""What both pools are: how many connections there may be, which are idle, and which of them are too old."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Any, TypedDict

from pysqlbox.drivers import Target
from pysqlbox.errors import DatabaseUnavailable, InvalidArgument, InvalidState
from pysqlbox.wording import counted

__all__ = ["PoolBase", "PoolLimits"]

#: What a forked child inherits is its parent's: neither used nor closed here, so it must never be collected.
_inherited: list[Any] = []


class PoolLimits(TypedDict, total=False):
    """What a pool may be told; times are in seconds."""

    size: int
    timeout: float
    """How long to wait for a connection that others have."""
    connect_timeout: int
    max_idle: float
    max_lifetime: float


class PoolBase:
    """Up to ``size`` connections in autocommit, opened when needed. How to wait for one the faces know."""

    def __init__(
        self,
        target: Target,
        *,
        connect: str,
        size: int = 10,
        timeout: float = 30.0,
        connect_timeout: int = 10,
        max_idle: float = 600.0,
        max_lifetime: float = 3600.0,
    ) -> None:
        """``connect``: the function that makes another one."""
        if isinstance(size, bool) or size < 1:
            raise InvalidArgument("pool_size: must be at least 1")
        self._target = target
        self._connect_again = connect
        self._size = size
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._max_idle = max_idle
        self._max_lifetime = max_lifetime
        self._closed = False
        self._forget_all()

    @property
    def idle(self) -> int:
        """How many connections nobody uses."""
        return len(self._idle)

    @property
    def size(self) -> int:
        """How many there may be."""
        return self._size

    def _forget_all(self) -> None:
        """Begin with nothing, as at first; in a forked child what there is belongs to the parent."""
        self._idle: deque[tuple[Any, float]] = deque()  # connection, idle since
        self._opened_at: dict[int, float] = {}  # of those that are in use or idle
        self._pid = os.getpid()

    def _leave_to_parent(self) -> None:
        """Of a forked child: keep what it inherits from being closed by the garbage collector."""
        _inherited.extend(self._idle)

    @property
    def _is_forked(self) -> bool:
        return self._pid != os.getpid()

    def _is_young(self, connection: Any, now: float) -> bool:
        """Whether it is not too old to be used."""
        return now - self._opened_at.get(id(connection), now) < self._max_lifetime

    def _stale(self, now: float) -> Any | None:
        """Take out the connection that has been idle longest, if that is too long."""
        if self._idle and now - self._idle[0][1] > self._max_idle:
            return self._idle.popleft()[0]
        return None

    def _note_opened(self, connection: Any) -> None:
        self._opened_at[id(connection)] = time.monotonic()

    def _exhausted(self) -> DatabaseUnavailable:
        return DatabaseUnavailable(
            f"{self._target}: all connections of the pool ({self._size}) were in use"
            f" for {counted(self._timeout, 'second')}: raise pool_size, or give them back sooner"
        )

    def _is_closed(self) -> InvalidState:
        return InvalidState(f"the deployment is closed: open another with {self._connect_again}()")
