"""For whoever keeps the service running: is the process there, and can it do its work?"""

from __future__ import annotations

from typing import Any

from pysqlbox import metrics
from pysqlbox.service.operation import Asked, Operation
from pysqlbox.service.roles import Role

__all__ = ["OPERATIONS"]

_STATUS = {"type": "string", "enum": ["ok"]}
_NUMBER = {"type": "integer", "minimum": 0}


def _healthz(asked: Asked) -> Any:
    del asked
    return {"status": "ok"}


def _metrics(asked: Asked) -> str:
    return asked.behind.metrics()


def _readyz(asked: Asked) -> Any:
    return asked.behind.ready()


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
        description="Of many stores one suffices; it tells how many there are, and how many are away.",
        answer={
            "type": "object",
            "properties": {
                "status": _STATUS,
                "schema_version": _NUMBER,
                "stores": _NUMBER,
                "away": _NUMBER,
            },
            "required": ["status"],
        },
        over_all=True,
    ),
    Operation(
        "GET", "/metrics", "metrics", "health", Role.VIEWER,
        "The figures of every box for Prometheus, as text.",
        _metrics,
        answer={"type": "string"},
        media_type=metrics.CONTENT_TYPE,
        over_all=True,
    ),
)  # fmt: skip
