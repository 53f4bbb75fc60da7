"""The handler of ``join.wait`` messages: resolves a join once its last step has landed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pysqlbox.errors import NotFound
from pysqlbox.worker.results import NonRetryable, Result, Retry

if TYPE_CHECKING:
    from pysqlbox.deployment import Deployment

__all__ = ["join_wait_handler"]


def join_wait_handler(db: Deployment) -> Callable[[Any], Result | None]:
    """A handler that asks the database to resolve the join, which enqueues the follow-up exactly once."""

    def handle(message: Any) -> Result | None:
        try:
            join_id = uuid.UUID(json.loads(message.payload)["join_id"])
        except (ValueError, TypeError, KeyError) as error:
            raise NonRetryable("the payload names no join") from error
        try:
            resolution = db.joins.resolve(join_id)
        except NotFound as error:
            raise NonRetryable("there is no such join") from error
        return Retry(error="the join still waits for steps") if resolution.status == "Pending" else None

    return handle
