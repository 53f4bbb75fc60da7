"""The handler of ``join.wait`` messages: resolves a join once its last step has landed."""

from __future__ import annotations

import json
import uuid
from typing import Any

from pysqlbox.errors import NotFound
from pysqlbox.worker.context import Context
from pysqlbox.worker.results import NonRetryable, Result, Retry

__all__ = ["handle_join_wait"]


def handle_join_wait(message: Any, context: Context) -> Result | None:
    """Ask the database to resolve the join, which enqueues the follow-up exactly once."""
    try:
        join_id = uuid.UUID(json.loads(message.payload)["join_id"])
    except (ValueError, TypeError, KeyError) as error:
        raise NonRetryable("the payload names no join") from error
    try:
        resolution = context.deployment.joins.resolve(join_id)
    except NotFound as error:
        raise NonRetryable("there is no such join") from error
    return Retry(error="the join still waits for steps") if resolution.status == "Pending" else None
