"""For whoever keeps the service running: is the process there, and can it do its work?"""

from __future__ import annotations

from typing import Any

from pysqlbox import metrics
from pysqlbox.service.operation import Asked, Operation
from pysqlbox.service.roles import Role

__all__ = ["OPERATIONS"]

_STATUS = {"type": "string", "enum": ["ok"]}


def _healthz(asked: Asked) -> Any:
    del asked
    return {"status": "ok"}


def _metrics(asked: Asked) -> str:
    return metrics.text(asked.db)


def _readyz(asked: Asked) -> Any:
    return {"status": "ok", "schema_version": asked.db.schema_version()}


OPERATIONS = (
    Operation(
        "GET", "/healthz", "healthz", "health", None,
        "Whether the process answers; the database is not asked.",
        _healthz,
        answer={"type": "object", "properties": {"status": _STATUS}, "required": ["status"]},
        asks_database=False,
    ),
    Operation(
        "GET", "/readyz", "readyz", "health", None,
        "Whether the database answers and has a schema that this release can use; else 503.",
        _readyz,
        answer={
            "type": "object",
            "properties": {"status": _STATUS, "schema_version": {"type": "integer"}},
            "required": ["status", "schema_version"],
        },
    ),
    Operation(
        "GET", "/metrics", "metrics", "health", Role.VIEWER,
        "The figures of every box for Prometheus, as text.",
        _metrics,
        answer={"type": "string"},
        media_type=metrics.CONTENT_TYPE,
    ),
)  # fmt: skip
