"""Transactional outbox, inbox, joins and idempotency ledger, as SQL routines in two dialects.

The names below are imported when they are first asked for: a producer pays for what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pysqlbox.errors import (
    AccessDenied,
    DatabaseUnavailable,
    DriverMissing,
    InvalidArgument,
    InvalidState,
    NotFound,
    PackageMissing,
    PysqlboxError,
    SchemaMismatch,
)

if TYPE_CHECKING:
    from pysqlbox.async_deployment import (
        AsyncDeployment,
        connect_async,
    )
    from pysqlbox.audit import (
        AsyncAudit,
        Audit,
    )
    from pysqlbox.deployment import (
        Deployment,
        connect,
    )
    from pysqlbox.idempotent import (
        Busy,
        Idempotent,
    )
    from pysqlbox.inbox import (
        AsyncInbox,
        Inbox,
    )
    from pysqlbox.joins import (
        AsyncJoins,
        Joins,
    )
    from pysqlbox.ledger import (
        AsyncLedger,
        Ledger,
    )
    from pysqlbox.manager import (
        Manager,
    )
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
    from pysqlbox.outbox import (
        AsyncOutbox,
        Outbox,
    )
    from pysqlbox.register import AsyncRegister, Register
    from pysqlbox.retry import (
        Retries,
    )
    from pysqlbox.schedules import (
        AsyncSchedules,
        Schedules,
    )
    from pysqlbox.serializer import (
        JsonSerializer,
        Serializer,
    )
    from pysqlbox.store import (
        AsyncOutboxStore,
        OutboxStore,
    )
    from pysqlbox.stores import (
        DrainFirst,
        HashRing,
        RoundRobin,
        Router,
        Stores,
        Weighted,
    )
    from pysqlbox.typed import (
        Undecodable,
        message,
    )
    from pysqlbox.upkeep import (
        Upkeep,
    )
    from pysqlbox.worker import (
        Ack,
        DeadLetter,
        NonRetryable,
        Release,
        Result,
        Retry,
        Worker,
    )

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
    "AsyncOutboxStore",
    "AsyncRegister",
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
    "Manager",
    "NonRetryable",
    "NotFound",
    "Outbox",
    "OutboxDeadLetter",
    "OutboxMessage",
    "OutboxStore",
    "PackageMissing",
    "PysqlboxError",
    "Register",
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
    "Upkeep",
    "WaitEnqueued",
    "Weighted",
    "Worker",
    "WorkerSeen",
    "__version__",
    "connect",
    "connect_async",
    "message",
]

__version__ = "0.1.0"

#: The module of each name that is not imported at once, as the imports above say it to type checkers.
_HOMES = {
    "async_deployment": ("AsyncDeployment", "connect_async"),
    "audit": ("AsyncAudit", "Audit"),
    "register": ("AsyncRegister", "Register"),
    "deployment": (
        "Deployment",
        "connect",
    ),
    "idempotent": (
        "Busy",
        "Idempotent",
    ),
    "inbox": ("AsyncInbox", "Inbox"),
    "joins": ("AsyncJoins", "Joins"),
    "ledger": ("AsyncLedger", "Ledger"),
    "manager": ("Manager",),
    "messages": (
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
    ),
    "outbox": ("AsyncOutbox", "Outbox"),
    "retry": ("Retries",),
    "schedules": ("AsyncSchedules", "Schedules"),
    "serializer": (
        "JsonSerializer",
        "Serializer",
    ),
    "store": ("AsyncOutboxStore", "OutboxStore"),
    "stores": (
        "DrainFirst",
        "HashRing",
        "RoundRobin",
        "Router",
        "Stores",
        "Weighted",
    ),
    "typed": (
        "Undecodable",
        "message",
    ),
    "upkeep": ("Upkeep",),
    "worker": (
        "Ack",
        "DeadLetter",
        "NonRetryable",
        "Release",
        "Result",
        "Retry",
        "Worker",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """A name of ``__all__`` that nobody has asked for yet."""
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
