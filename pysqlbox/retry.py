"""When a call is tried again, and how long the pauses are."""

from __future__ import annotations

import random
from dataclasses import dataclass

from pysqlbox.errors import InvalidArgument

__all__ = ["Retries"]


@dataclass(frozen=True, slots=True)
class Retries:
    """Up to ``attempts`` tries, none begun later than ``give_up_seconds`` after the first.

    The pauses are random, of up to ``base_seconds``, then twice that, and so on up to ``cap_seconds``.

    Only faults that pass are tried again: no connection; a deadlock or a serialization failure, which undid
    the call; a connection lost on the way, if the call may be made twice. Never in a caller's transaction.
    """

    attempts: int = 4
    base_seconds: float = 0.05
    cap_seconds: float = 2.0
    give_up_seconds: float = 20.0

    def __post_init__(self) -> None:
        if isinstance(self.attempts, bool) or self.attempts < 1:
            raise InvalidArgument("attempts: must be at least 1")
        if self.base_seconds < 0 or self.cap_seconds < self.base_seconds:
            raise InvalidArgument("base_seconds: must be from 0 to cap_seconds")

    def pause(self, tried: int) -> float:
        """The seconds to wait after the given number of tries."""
        return random.uniform(0.5, 1.0) * min(self.base_seconds * 2.0 ** (tried - 1), self.cap_seconds)
