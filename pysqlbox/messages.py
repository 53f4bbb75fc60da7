"""What the routines answer, as Python values: times are aware and in UTC, headers are decoded.

Fields stand in the order of the routines' columns. Payloads and headers never show in a ``repr``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID

__all__ = [
    "AlreadyProcessed",
    "AuditEntry",
    "BoxMetrics",
    "DeadCause",
    "DeadLetterCause",
    "Enqueued",
    "Extended",
    "Finding",
    "Group",
    "InboxDeadLetter",
    "InboxEnqueued",
    "InboxMessage",
    "Join",
    "JoinResolution",
    "LedgerClaim",
    "LedgerEntry",
    "LedgerKey",
    "ListedInboxMessage",
    "ListedOutboxMessage",
    "OutboxDeadLetter",
    "OutboxMessage",
    "Retried",
    "Schedule",
    "ScheduleClock",
    "ScheduleFired",
    "StoredInboxMessage",
    "StoredOutboxMessage",
    "TopicStats",
    "WaitEnqueued",
    "WorkerSeen",
]

Headers = dict[str, object]
OutboxStatus = Literal["Ready", "InProgress", "Done", "Failed", "Expired", "Cancelled"]
InboxStatus = Literal["Seen", "Processing", "Done", "Dead", "Expired", "Cancelled"]
JoinStatus = Literal["Pending", "Completed", "Failed", "Cancelled"]
LedgerStatus = Literal["Unknown", "Acquired", "Processed"]


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A claimed message of an outbox."""

    id: int
    message_id: UUID
    topic: str
    payload: str = field(repr=False)
    correlation_id: str | None
    group_id: str | None
    priority: int
    headers: Headers | None = field(repr=False)
    attempt: int
    created_at: datetime
    due_at: datetime | None
    expires_at: datetime | None
    last_error: str | None = field(repr=False)
    locked_until: datetime


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """A claimed message of an inbox."""

    id: int
    message_id: str
    source: str
    topic: str
    payload: str = field(repr=False)
    hash: bytes | None = field(repr=False)
    group_id: str | None
    priority: int
    headers: Headers | None = field(repr=False)
    attempt: int
    first_seen_at: datetime
    last_seen_at: datetime
    due_at: datetime | None
    expires_at: datetime | None
    last_error: str | None = field(repr=False)
    locked_until: datetime


@dataclass(frozen=True, slots=True)
class StoredOutboxMessage:
    """A message of an outbox with its status and bookkeeping, wherever it is."""

    id: int
    message_id: UUID
    topic: str
    payload: str = field(repr=False)
    correlation_id: str | None
    group_id: str | None
    priority: int
    dedup_key: str | None
    collapse_key: str | None
    headers: Headers | None = field(repr=False)
    status: OutboxStatus
    attempt: int
    created_at: datetime
    due_at: datetime | None
    expires_at: datetime | None
    last_error: str | None = field(repr=False)
    owner_token: UUID | None
    locked_until: datetime | None
    processed_at: datetime | None
    processed_by: UUID | None
    died_at: datetime | None


@dataclass(frozen=True, slots=True)
class StoredInboxMessage:
    """A message of an inbox with its status and bookkeeping; one only seen has no topic and no payload."""

    id: int
    message_id: str
    source: str
    topic: str | None
    payload: str | None = field(repr=False)
    hash: bytes | None = field(repr=False)
    group_id: str | None
    priority: int
    collapse_key: str | None
    headers: Headers | None = field(repr=False)
    status: InboxStatus
    attempt: int
    first_seen_at: datetime
    last_seen_at: datetime
    due_at: datetime | None
    expires_at: datetime | None
    last_error: str | None = field(repr=False)
    owner_token: UUID | None
    locked_until: datetime | None
    processed_at: datetime | None
    processed_by: UUID | None
    died_at: datetime | None


@dataclass(frozen=True, slots=True)
class ListedOutboxMessage:
    """A message of an outbox as a list shows it: without payload and headers."""

    id: int
    message_id: UUID
    status: OutboxStatus
    topic: str
    correlation_id: str | None
    group_id: str | None
    priority: int
    dedup_key: str | None
    collapse_key: str | None
    attempt: int
    created_at: datetime
    due_at: datetime | None
    expires_at: datetime | None
    last_error: str | None = field(repr=False)
    owner_token: UUID | None
    locked_until: datetime | None
    processed_at: datetime | None
    processed_by: UUID | None
    died_at: datetime | None


@dataclass(frozen=True, slots=True)
class ListedInboxMessage:
    """A message of an inbox as a list shows it: without payload, hash and headers; see StoredInboxMessage."""

    id: int
    message_id: str
    source: str
    status: InboxStatus
    topic: str | None
    group_id: str | None
    priority: int
    collapse_key: str | None
    attempt: int
    first_seen_at: datetime
    last_seen_at: datetime
    due_at: datetime | None
    expires_at: datetime | None
    last_error: str | None = field(repr=False)
    owner_token: UUID | None
    locked_until: datetime | None
    processed_at: datetime | None
    processed_by: UUID | None
    died_at: datetime | None


@dataclass(frozen=True, slots=True)
class OutboxDeadLetter:
    """A message of an outbox that was given up or has expired."""

    id: int
    message_id: UUID
    topic: str
    payload: str = field(repr=False)
    correlation_id: str | None
    group_id: str | None
    priority: int
    dedup_key: str | None
    collapse_key: str | None
    headers: Headers | None = field(repr=False)
    status: OutboxStatus
    attempt: int
    created_at: datetime
    due_at: datetime | None
    expires_at: datetime | None
    last_error: str | None = field(repr=False)
    died_at: datetime


@dataclass(frozen=True, slots=True)
class InboxDeadLetter:
    """A message of an inbox that was given up or has expired."""

    id: int
    message_id: str
    source: str
    topic: str | None
    payload: str | None = field(repr=False)
    hash: bytes | None = field(repr=False)
    group_id: str | None
    priority: int
    collapse_key: str | None
    headers: Headers | None = field(repr=False)
    status: InboxStatus
    attempt: int
    first_seen_at: datetime
    last_seen_at: datetime
    due_at: datetime | None
    expires_at: datetime | None
    last_error: str | None = field(repr=False)
    died_at: datetime


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of a message given to an outbox; ``ordinal`` counts a batch's records from 1."""

    id: int
    message_id: UUID
    outcome: Literal["created", "collapsed", "duplicate"]
    ordinal: int | None = None

    @property
    def duplicate(self) -> bool:
        """Whether nothing was written: ``id`` and ``message_id`` are then the earlier message's."""
        return self.outcome == "duplicate"


@dataclass(frozen=True, slots=True)
class InboxEnqueued:
    """What became of a message given to an inbox; ``ordinal`` counts a batch's records from 1."""

    id: int
    outcome: Literal["created", "collapsed", "updated", "done"]
    hash_mismatch: bool
    ordinal: int | None = None

    @property
    def duplicate(self) -> bool:
        """Whether the inbox knew the message: it was brought up to date, or was done and left alone."""
        return self.outcome in ("updated", "done")


@dataclass(frozen=True, slots=True)
class Extended:
    """A lease that is still held, and its new end."""

    id: int
    locked_until: datetime


@dataclass(frozen=True, slots=True)
class Retried:
    """How many messages a retry found, and how many of them it gave up."""

    affected: int
    dead: int


@dataclass(frozen=True, slots=True)
class AlreadyProcessed:
    """Whether an inbox has done a message; true in a condition if it has."""

    already_processed: bool
    hash_mismatch: bool

    def __bool__(self) -> bool:
        return self.already_processed


@dataclass(frozen=True, slots=True)
class TopicStats:
    """The counts of one topic, or of the whole box where ``topic`` is None."""

    topic: str | None
    ready: int
    scheduled: int
    in_flight: int
    done: int
    dead: int
    oldest_ready_seconds: float | None


@dataclass(frozen=True, slots=True)
class BoxMetrics:
    """What monitoring asks of one topic of a box, or of the whole box where ``topic`` is None."""

    box: str
    topic: str | None
    ready: int
    scheduled: int
    in_flight: int
    done: int
    dead: int
    #: Of those dead: what neither expired nor was cancelled.
    given_up: int
    expired_leases: int
    oldest_ready_seconds: float | None
    oldest_dead_seconds: float | None
    #: From here on only of the whole box.
    blocked_groups: int | None
    longest_blocked_seconds: float | None
    upkeep_seconds: float | None
    reap_seconds: float | None


@dataclass(frozen=True, slots=True)
class DeadCause:
    """Dead letters of one topic and one cause.

    A last one without ``messages`` and ``sample_id`` tells of older ones, which were not looked at.
    """

    topic: str | None
    cause: str
    messages: int | None
    oldest_died_at: datetime | None
    newest_died_at: datetime
    sample_id: int | None


@dataclass(frozen=True, slots=True)
class DeadLetterCause:
    """A dead letter and its cause, as DeadCause has it."""

    id: int
    topic: str | None
    cause: str


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """Who works on a box: what it holds, until when at least, what it has done in the last minutes.

    Who it is stands in the register, where the worker has said so; ``topics`` is None for all of them.
    """

    owner_token: UUID
    in_flight: int
    locked_until: datetime | None
    done_lately: int
    last_done_at: datetime | None
    name: str | None = None
    host: str | None = None
    pid: int | None = None
    version: str | None = None
    threads: int | None = None
    topics: list[str] | None = None
    started_at: datetime | None = None
    seen_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A FIFO group that has messages; ``blocked_seconds`` is None unless its head holds up another one."""

    group_id: str
    waiting: int
    leased: int
    head_id: int
    head_status: OutboxStatus | InboxStatus
    head_due_at: datetime | None
    blocked_seconds: float | None


@dataclass(frozen=True, slots=True)
class Join:
    """A join and its counters."""

    join_id: UUID
    tenant_id: str
    #: None while the join is open.
    expected_steps: int | None
    completed_steps: int
    failed_steps: int
    status: JoinStatus
    metadata: str | None = field(repr=False)
    created_at: datetime
    last_updated_at: datetime


@dataclass(frozen=True, slots=True)
class JoinResolution:
    """How a join stands, and the message that followed its completion, if one did."""

    status: JoinStatus
    completed_steps: int
    failed_steps: int
    expected_steps: int | None
    enqueued_message_id: UUID | None


@dataclass(frozen=True, slots=True)
class WaitEnqueued:
    """The ``join.wait`` message of a join."""

    id: int
    message_id: UUID


@dataclass(frozen=True, slots=True)
class LedgerClaim:
    """The answer to trying to begin a key: Acquired, Processed or Busy; true in a condition if Acquired."""

    status: Literal["Acquired", "Processed", "Busy"]
    lease_id: UUID | None
    expires_at: datetime | None
    attempts: int

    @property
    def acquired(self) -> bool:
        """Whether the key is now this caller's."""
        return self.status == "Acquired"

    def __bool__(self) -> bool:
        return self.acquired


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What the ledger knows of a key; status is Unknown, Acquired or Processed."""

    status: LedgerStatus
    attempts: int
    first_seen_at: datetime | None
    last_seen_at: datetime | None
    lease_until: datetime | None
    handler: str | None


@dataclass(frozen=True, slots=True)
class LedgerKey:
    """A key of the ledger and what is known of it."""

    key: str
    status: LedgerStatus
    attempts: int
    first_seen_at: datetime
    last_seen_at: datetime
    lease_until: datetime | None
    handler: str | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule, and when it fires next; ``next_at`` is None while that is still to be worked out."""

    name: str
    topic: str
    cron: str | None
    every_seconds: int | None
    timezone: str
    next_at: datetime | None
    last_fired_at: datetime | None
    catch_up: int
    enabled: bool
    group_id: str | None
    priority: int


@dataclass(frozen=True, slots=True)
class ScheduleFired:
    """Whether this caller fired a planned time, and its message; true in a condition if so."""

    fired: bool
    id: int | None
    message_id: UUID | None

    def __bool__(self) -> bool:
        return self.fired


@dataclass(frozen=True, slots=True)
class ScheduleClock:
    """The server's clock, whether any schedule is due, and when the next one will be."""

    now_at: datetime
    is_due: bool
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change that was noted: when, who, what, to what, and how many."""

    id: int
    changed_at: datetime
    actor: str
    action: str
    subject: str | None
    affected: int | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class Finding:
    """What doctor found out about one thing: level is ok, note, warning, error or unknown."""

    check: str
    level: Literal["ok", "note", "warning", "error", "unknown"]
    subject: str
    detail: str
    advice: str | None

    @property
    def is_bad(self) -> bool:
        """Whether somebody should see to it: a warning or an error."""
        return self.level in ("warning", "error")
