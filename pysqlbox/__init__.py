"""Transactional outbox, inbox, joins and idempotency ledger, as SQL routines in two dialects."""

from __future__ import annotations

from pysqlbox.audit import Audit
from pysqlbox.deployment import Deployment, connect
from pysqlbox.errors import (
    AccessDenied,
    DatabaseUnavailable,
    DriverMissing,
    InvalidArgument,
    InvalidState,
    NotFound,
    PysqlboxError,
    SchemaMismatch,
)
from pysqlbox.idempotent import Busy, Idempotent
from pysqlbox.inbox import Inbox
from pysqlbox.joins import Joins
from pysqlbox.ledger import Ledger
from pysqlbox.messages import (
    AlreadyProcessed,
    AuditEntry,
    BoxMetrics,
    DeadCause,
    DeadLetterCause,
    Enqueued,
    Extended,
    Finding,
    Group,
    InboxDeadLetter,
    InboxEnqueued,
    InboxMessage,
    Join,
    JoinResolution,
    LedgerClaim,
    LedgerEntry,
    LedgerKey,
    ListedInboxMessage,
    ListedOutboxMessage,
    OutboxDeadLetter,
    OutboxMessage,
    Retried,
    Schedule,
    ScheduleClock,
    ScheduleFired,
    StoredInboxMessage,
    StoredOutboxMessage,
    TopicStats,
    WaitEnqueued,
    WorkerSeen,
)
from pysqlbox.outbox import Outbox
from pysqlbox.retry import Retries
from pysqlbox.schedules import Schedules
from pysqlbox.serializer import JsonSerializer, Serializer
from pysqlbox.store import OutboxStore
from pysqlbox.stores import DrainFirst, HashRing, RoundRobin, Router, Stores, Weighted
from pysqlbox.typed import Undecodable, message
from pysqlbox.worker import Ack, DeadLetter, NonRetryable, Release, Result, Retry, Worker

__all__ = [
    "AccessDenied",
    "Ack",
    "AlreadyProcessed",
    "Audit",
    "AuditEntry",
    "BoxMetrics",
    "Busy",
    "DatabaseUnavailable",
    "DeadCause",
    "DeadLetter",
    "DeadLetterCause",
    "Deployment",
    "DrainFirst",
    "DriverMissing",
    "Enqueued",
    "Extended",
    "Finding",
    "Group",
    "HashRing",
    "Idempotent",
    "Inbox",
    "InboxDeadLetter",
    "InboxEnqueued",
    "InboxMessage",
    "InvalidArgument",
    "InvalidState",
    "Join",
    "JoinResolution",
    "Joins",
    "JsonSerializer",
    "Ledger",
    "LedgerClaim",
    "LedgerEntry",
    "LedgerKey",
    "ListedInboxMessage",
    "ListedOutboxMessage",
    "NonRetryable",
    "NotFound",
    "Outbox",
    "OutboxDeadLetter",
    "OutboxMessage",
    "OutboxStore",
    "PysqlboxError",
    "Release",
    "Result",
    "Retried",
    "Retries",
    "Retry",
    "RoundRobin",
    "Router",
    "Schedule",
    "ScheduleClock",
    "ScheduleFired",
    "Schedules",
    "SchemaMismatch",
    "Serializer",
    "StoredInboxMessage",
    "StoredOutboxMessage",
    "Stores",
    "TopicStats",
    "Undecodable",
    "WaitEnqueued",
    "Weighted",
    "Worker",
    "WorkerSeen",
    "__version__",
    "connect",
    "message",
]

__version__ = "0.1.0"
