"""How a worker is doing, in plain data: what logs, metrics and pages are made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pysqlbox.worker.assignment import Assignment
    from pysqlbox.worker.served_box import ServedBox

__all__ = [
    "BoxHealth",
    "DatabaseState",
    "ListenerState",
    "WorkerHealth",
    "before_the_first_claim",
    "health_of",
]

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


def before_the_first_claim(
    store: str,
    boxes: Iterable[str],
    *,
    running: bool = False,
    database: DatabaseState = "unknown",
    listener: ListenerState = "off",
) -> WorkerHealth:
    """That of a worker that does not run, or has not reached its database yet."""
    return WorkerHealth(
        running,
        tuple(
            BoxHealth(
                store=store, box=box, running=running, last_claim_at=None, last_settle_at=None, in_flight=0,
                stuck_handlers=0, database=database, listener=listener, asleep=False, stalled_since=None,
            )
            for box in boxes
        ),
    )  # fmt: skip


def health_of(
    box: ServedBox,
    held: Collection[Assignment],
    stuck: int,
    *,
    running: bool,
    silent: bool,
    listener: ListenerState,
) -> BoxHealth:
    """That of a box that is served: what the worker holds of it, how many handlers are stuck."""
    database: DatabaseState = "unknown" if box.claimed_at is None else "ok"
    if box.failures:
        database = "away"
    elif silent:
        database = "silent"
    return BoxHealth(
        store=box.queue.deployment.store,
        box=box.name,
        running=running,
        last_claim_at=moment(box.claimed_at),
        last_settle_at=moment(box.settled_at),
        in_flight=sum(len(each.held()) for each in held),
        stuck_handlers=stuck,
        database=database,
        listener=listener,
        asleep=box.asleep,
        stalled_since=moment(box.stalled_since),
    )


def moment(seconds: float | None) -> datetime | None:
    """What ``time.time()`` answered, as a time."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
