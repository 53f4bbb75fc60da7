"""How a worker is doing, in plain data: what logs, metrics and pages are made of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

__all__ = ["BoxHealth", "DatabaseState", "ListenerState", "WorkerHealth", "moment"]

#: "unknown": nothing has been asked yet; "silent": a call has had no answer for a while; "away": calls fail.
DatabaseState = Literal["unknown", "ok", "silent", "away"]
#: "off": there is none; "deaf": notifications do not come through, as behind a pooler in transaction mode.
ListenerState = Literal["off", "connecting", "listening", "deaf"]


@dataclass(frozen=True, slots=True)
class BoxHealth:
    """One box of one store, as one worker sees it. Times are those of the worker's machine, in UTC."""

    #: What the log calls the deployment.
    store: str
    box: str
    running: bool
    #: When the database last answered a claim, be it with nothing.
    last_claim_at: datetime | None
    #: When results last reached the database.
    last_settle_at: datetime | None
    #: How many messages this worker holds, begun or not.
    in_flight: int
    #: How many handlers have overrun their time, or have none and run longer than ``stall_seconds``.
    stuck_handlers: int
    database: DatabaseState
    listener: ListenerState
    #: Whether nothing is asked until somebody wakes the worker or something falls due (``idle="sleep"``).
    asleep: bool
    #: Since when nothing has moved although messages wait.
    stalled_since: datetime | None

    @property
    def is_well(self) -> bool:
        """Whether nobody needs to look; a deaf listener only makes the start of handlers slower."""
        return self.running and self.stalled_since is None and self.database in ("ok", "unknown")


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """All boxes of a worker."""

    running: bool
    boxes: tuple[BoxHealth, ...]

    @property
    def is_well(self) -> bool:
        """Whether the worker runs and all its boxes are well."""
        return self.running and all(box.is_well for box in self.boxes)


def moment(seconds: float | None) -> datetime | None:
    """What ``time.time()`` answered, as a time."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
