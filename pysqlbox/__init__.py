"""Transactional outbox, inbox, joins and idempotency ledger, as SQL routines in two dialects."""

from __future__ import annotations

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

__all__ = [
    "AccessDenied",
    "DatabaseUnavailable",
    "DriverMissing",
    "InvalidArgument",
    "InvalidState",
    "NotFound",
    "PysqlboxError",
    "SchemaMismatch",
    "__version__",
]

__version__ = "0.1.0"
