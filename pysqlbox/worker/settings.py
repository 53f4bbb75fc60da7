"""What a worker was told, in the units its threads need."""

from __future__ import annotations

from dataclasses import dataclass

from pysqlbox.worker.backoff import Backoff
from pysqlbox.worker.handlers import seconds
from pysqlbox.worker.logs import StoreLog
from pysqlbox.worker.results import Delay

__all__ = ["Settings"]

#: Delays that every database takes, in seconds.
SHORTEST, LONGEST = 0.001, 999_999_999.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The same for all threads of a worker."""

    lease_seconds: int
    backoff: Backoff | None
    handler_timeout: float | None

    def delay(self, attempt: int, asked: Delay | None) -> float | None:
        """Seconds until the next try: the handler's wish, else the policy's, else None for the box's own."""
        if asked is None and self.backoff is not None:
            asked = self.backoff(attempt)
        delay = seconds("delay", asked)
        return None if delay is None else min(max(delay, SHORTEST), LONGEST)

    def delay_or_none(self, log: StoreLog, attempt: int, asked: Delay | None) -> float | None:
        """The same; a wish or a policy that makes no sense is logged, and the box's own backoff used."""
        try:
            return self.delay(attempt, asked)
        except Exception as error:  # noqa: BLE001  # the policy is the caller's code
            log.error("the delay before attempt %d is left to the box: %s", attempt + 1, error)
            return None
