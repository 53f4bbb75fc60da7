"""When a message that failed is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable

from pysqlbox.errors import InvalidArgument
from pysqlbox.worker.results import Delay

__all__ = ["Backoff", "exponential", "fixed"]

#: From the number of the attempt that has just failed (1 for the first) to a delay; None: the box's backoff.
Backoff = Callable[[int], Delay | None]


def exponential(base: float = 1.0, cap: float = 60.0, *, jitter: float = 0.0) -> Backoff:
    """``min(base * 2**attempt, cap)`` seconds, spread by ``jitter`` (0.2: up to 20 % more or less)."""
    if base <= 0 or cap < base:
        raise InvalidArgument("base: must be above 0 and at most cap")
    if not 0 <= jitter < 1:
        raise InvalidArgument("jitter: must be from 0 to below 1")

    def delay(attempt: int) -> float:
        wait = min(base * 2.0 ** min(attempt, 64), cap)
        return wait * random.uniform(1 - jitter, 1 + jitter)

    return delay


def fixed(*delays: float) -> Backoff:
    """The first delay after the first failure, the second after the second, and the last from then on."""
    if not delays or any(delay <= 0 for delay in delays):
        raise InvalidArgument("delays: must be at least one, all above 0")
    return lambda attempt: delays[min(max(attempt, 1), len(delays)) - 1]
