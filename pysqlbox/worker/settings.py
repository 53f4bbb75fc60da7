"""What a worker was told, checked, in the units its threads need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import TypedDict

from pysqlbox.arguments import whole_seconds
from pysqlbox.errors import InvalidArgument
from pysqlbox.worker.backoff import Backoff
from pysqlbox.worker.handlers import seconds
from pysqlbox.worker.logs import StoreLog
from pysqlbox.worker.policies import IdlePolicy, UnknownTopicsPolicy, checked_idle, checked_policy
from pysqlbox.worker.results import Delay

__all__ = ["DEFAULTS", "Settings", "WorkerOptions", "checked_names", "lifetime", "whole"]

#: Delays that every database takes, in seconds.
SHORTEST, LONGEST = 0.001, 999_999_999.0


class WorkerOptions(TypedDict, total=False):
    """What a worker may be told."""

    name: str | None
    """What it calls itself in the register of workers; None is the program's name."""
    boxes: Sequence[str]
    """The names of the boxes that it serves."""
    topics: Sequence[str] | None
    """What it claims; None is every topic."""
    threads: int
    """How many handlers that are ordinary functions may run at once."""
    async_slots: int
    """How many coroutine handlers may run at once."""
    batch_size: int
    lease_seconds: Delay
    poll_seconds: Delay
    max_attempts: int | None
    """None is the box's own setting, 0 no limit."""
    backoff: Backoff | None
    """None is the box's own."""
    handler_timeout: Delay | None
    """How long any handler may take."""
    reap_seconds: Delay | None
    """How often one worker takes back leases that have run out; None leaves it to others."""
    cleanup_seconds: Delay | None
    """How often one worker deletes what was done longer than ``retention`` ago; None leaves it to others."""
    retention: Delay
    report_seconds: Delay | None
    """How often it says in the register of workers that it is there; None: never."""
    schedule_seconds: Delay | None
    """How soon a schedule that somebody sets is noticed; None leaves firing to others."""
    listen: bool
    """Whether to wake up by NOTIFY where the database has it."""
    unknown_topics: UnknownTopicsPolicy
    """Messages without a handler are put back for a while without counting an attempt ("snooze"), tried again
    under backoff ("abandon"), or given up ("dead")."""
    idle: IdlePolicy
    """With "sleep" nothing at all is asked while nothing is due; see ``wake``."""
    stall_seconds: Delay | None
    """When messages wait and nothing has moved for so long, that is logged; None: never."""


DEFAULTS: WorkerOptions = {
    "name": None,
    "boxes": ("outbox",),
    "topics": None,
    "threads": 8,
    "async_slots": 100,
    "batch_size": 50,
    "lease_seconds": 30,
    "poll_seconds": 0.5,
    "max_attempts": None,
    "backoff": None,
    "handler_timeout": None,
    "reap_seconds": 10.0,
    "cleanup_seconds": 60.0,
    "retention": timedelta(days=7),
    "report_seconds": 20.0,
    "schedule_seconds": 10.0,
    "listen": True,
    "unknown_topics": "snooze",
    "idle": "poll",
    "stall_seconds": 60.0,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The same for all threads of a worker."""

    name: str | None = None
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
    report_seconds: float | None = None
    schedule_seconds: float | None = None
    listen: bool = True
    unknown_topics: UnknownTopicsPolicy = "snooze"
    async_slots: int = 100
    idle: IdlePolicy = "poll"
    stall_seconds: float | None = 60.0

    @classmethod
    def checked(cls, options: WorkerOptions) -> Settings:
        """The settings of a worker's options; InvalidArgument names the one that is wrong."""
        given: WorkerOptions = {**DEFAULTS, **options}
        boxes, topics = given["boxes"], given["topics"]
        if isinstance(boxes, str) or not boxes:
            raise InvalidArgument("boxes: must be a list of at least one name")
        if isinstance(topics, str):
            raise InvalidArgument("topics: must be a list of topics")
        poll = seconds("poll_seconds", given["poll_seconds"])
        if poll is None:
            raise InvalidArgument("poll_seconds: must be above 0")
        max_attempts = given["max_attempts"]
        if max_attempts is not None:
            whole("max_attempts", max_attempts, 0, 2**31 - 1)
        name = given["name"]
        if name is not None and not (isinstance(name, str) and 1 <= len(name) <= 255):
            raise InvalidArgument("name: must have 1 to 255 characters")
        return cls(
            name=name,
            boxes=tuple(dict.fromkeys(boxes)),
            topics=None if topics is None else tuple(topics),
            batch_size=whole("batch_size", given["batch_size"], 1, 10_000),
            lease_seconds=whole(
                "lease_seconds", whole_seconds("lease_seconds", given["lease_seconds"]), 1, 86_400
            ),
            poll_seconds=poll,
            max_attempts=max_attempts,
            backoff=given["backoff"],
            handler_timeout=seconds("handler_timeout", given["handler_timeout"]),
            reap_seconds=seconds("reap_seconds", given["reap_seconds"]),
            cleanup_seconds=seconds("cleanup_seconds", given["cleanup_seconds"]),
            retention=int(lifetime("retention", given["retention"])),
            report_seconds=seconds("report_seconds", given["report_seconds"]),
            schedule_seconds=seconds("schedule_seconds", given["schedule_seconds"]),
            listen=given["listen"],
            unknown_topics=checked_policy(given["unknown_topics"]),
            async_slots=whole("async_slots", given["async_slots"], 1, 100_000),
            idle=checked_idle(given["idle"]),
            stall_seconds=seconds("stall_seconds", given["stall_seconds"]),
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


def checked_names(options: Mapping[str, object]) -> None:
    """Refuse a worker's option that there is none of, as Python does."""
    for name in options:
        if name not in DEFAULTS:
            near = get_close_matches(name, DEFAULTS, 1)
            hint = f" (is it {near[0]!r}?)" if near else ""
            raise TypeError(f"worker() got an unexpected keyword argument {name!r}{hint}")


def lifetime(name: str, value: Delay) -> float:
    """How long something is kept, in seconds; not at all is 0."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < float("inf"):
        raise InvalidArgument(f"{name}: must be seconds or a timedelta, not negative")
    return float(number)


def whole(name: str, value: object, least: int, most: int) -> int:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgument(f"{name}: must be a whole number from {least} to {most}")
    return value
