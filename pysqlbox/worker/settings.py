"""What a worker was told, checked, in the units its threads need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from pysqlbox.arguments import whole_seconds
from pysqlbox.errors import InvalidArgument
from pysqlbox.worker.backoff import Backoff
from pysqlbox.worker.handlers import seconds
from pysqlbox.worker.logs import StoreLog
from pysqlbox.worker.policies import IdlePolicy, UnknownTopicsPolicy, checked_idle, checked_policy
from pysqlbox.worker.results import Delay

__all__ = ["Settings", "whole"]

#: Delays that every database takes, in seconds.
SHORTEST, LONGEST = 0.001, 999_999_999.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The same for all threads of a worker."""

    boxes: tuple[str, ...] = ("outbox",)
    topics: tuple[str, ...] | None = None
    batch_size: int = 50
    lease_seconds: int = 30
    poll_seconds: float = 0.5
    max_attempts: int | None = None
    backoff: Backoff | None = None
    handler_timeout: float | None = None
    reap_seconds: float | None = None
    cleanup_seconds: float | None = None
    retention: int = 0
    schedule_seconds: float | None = None
    listen: bool = True
    unknown_topics: UnknownTopicsPolicy = "snooze"
    async_slots: int = 100
    idle: IdlePolicy = "poll"
    stall_seconds: float | None = 60.0

    @classmethod
    def checked(
        cls,
        *,
        boxes: Sequence[str],
        topics: Sequence[str] | None,
        batch_size: int,
        lease_seconds: Delay,
        poll_seconds: Delay,
        max_attempts: int | None,
        backoff: Backoff | None,
        handler_timeout: Delay | None,
        reap_seconds: Delay | None,
        cleanup_seconds: Delay | None,
        retention: Delay,
        schedule_seconds: Delay | None,
        listen: bool,
        unknown_topics: str,
        async_slots: int,
        idle: str,
        stall_seconds: Delay | None,
    ) -> Settings:
        """The settings of these arguments of a worker; InvalidArgument names the one that is wrong."""
        if isinstance(boxes, str) or not boxes:
            raise InvalidArgument("boxes: must be a list of at least one name")
        if isinstance(topics, str):
            raise InvalidArgument("topics: must be a list of topics")
        poll = seconds("poll_seconds", poll_seconds)
        if poll is None:
            raise InvalidArgument("poll_seconds: must be above 0")
        if max_attempts is not None:
            whole("max_attempts", max_attempts, 0, 2**31 - 1)
        keep = retention.total_seconds() if isinstance(retention, timedelta) else float(retention)
        if keep < 0:
            raise InvalidArgument("retention: must not be negative")
        return cls(
            boxes=tuple(dict.fromkeys(boxes)),
            topics=None if topics is None else tuple(topics),
            batch_size=whole("batch_size", batch_size, 1, 10_000),
            lease_seconds=whole("lease_seconds", whole_seconds("lease_seconds", lease_seconds), 1, 86_400),
            poll_seconds=poll,
            max_attempts=max_attempts,
            backoff=backoff,
            handler_timeout=seconds("handler_timeout", handler_timeout),
            reap_seconds=seconds("reap_seconds", reap_seconds),
            cleanup_seconds=seconds("cleanup_seconds", cleanup_seconds),
            retention=int(keep),
            schedule_seconds=seconds("schedule_seconds", schedule_seconds),
            listen=listen,
            unknown_topics=checked_policy(unknown_topics),
            async_slots=whole("async_slots", async_slots, 1, 100_000),
            idle=checked_idle(idle),
            stall_seconds=seconds("stall_seconds", stall_seconds),
        )

    def delay(self, log: StoreLog, attempt: int, asked: Delay | None) -> float | None:
        """Seconds that a handler asks for; a wish that makes no sense is logged, and none."""
        try:
            delay = seconds("delay", asked)
        except InvalidArgument as error:
            log.error("the delay before attempt %d is left to the box: %s", attempt + 1, error)
            return None
        return None if delay is None else min(max(delay, SHORTEST), LONGEST)

    def retry_delay(self, log: StoreLog, attempt: int, asked: Delay | None) -> float | None:
        """The same until the next try: the handler's wish, else the policy's, else None for the box's own."""
        if asked is None and self.backoff is not None:
            try:
                asked = self.backoff(attempt)
            except Exception as error:  # noqa: BLE001  # the policy is the caller's code
                log.error("the delay before attempt %d is left to the box: %s", attempt + 1, error)
        return self.delay(log, attempt, asked)


def whole(name: str, value: object, least: int, most: int) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgument(f"{name}: must be a whole number from {least} to {most}")
    return value
