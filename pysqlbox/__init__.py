"""Transactional outbox, inbox, joins and idempotency ledger, as SQL routines in two dialects."""

from __future__ import annotations

from pysqlbox.async_deployment import AsyncDeployment, connect_async
from pysqlbox.audit import AsyncAudit, Audit
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
from pysqlbox.inbox import AsyncInbox, Inbox
from pysqlbox.joins import AsyncJoins, Joins
from pysqlbox.ledger import AsyncLedger, Ledger
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
from pysqlbox.outbox import AsyncOutbox, Outbox
from pysqlbox.retry import Retries
from pysqlbox.schedules import AsyncSchedules, Schedules
from pysqlbox.serializer import JsonSerializer, Serializer
from pysqlbox.store import OutboxStore
from pysqlbox.stores import HashRing, Router, Stores
from pysqlbox.typed import Undecodable, message
from pysqlbox.worker import Ack, DeadLetter, NonRetryable, Release, Result, Retry, Worker

__all__ = [
    "AccessDenied",
    "Ack",
    "AlreadyProcessed",
    "AsyncAudit",
    "AsyncDeployment",
    "AsyncInbox",
    "AsyncJoins",
    "AsyncLedger",
    "AsyncOutbox",
    "AsyncSchedules",
    "Audit",
    "AuditEntry",
    "BoxMetrics",
    "Busy",
    "DatabaseUnavailable",
    "DeadCause",
    "DeadLetter",
    "DeadLetterCause",
    "Deployment",
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
    "Worker",
    "WorkerSeen",
    "__version__",
    "connect",
    "connect_async",
    "message",
]

__version__ = "0.1.0"
