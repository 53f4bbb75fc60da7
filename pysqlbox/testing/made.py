"""Messages that nobody has enqueued, for handlers under test."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, overload

from pysqlbox.errors import InvalidArgument
from pysqlbox.messages import InboxMessage, OutboxMessage
from pysqlbox.serializer import JsonSerializer
from pysqlbox.typed import topic_of

__all__ = ["message"]

_ids: Iterator[int] = itertools.count(1)
_LEASE = timedelta(seconds=30)


@overload
def message(topic: str | type, payload: Any = None, *, source: str, **values: Any) -> InboxMessage: ...


@overload
def message(topic: str | type, payload: Any = None, **values: Any) -> OutboxMessage: ...


def message(topic: str | type, payload: Any = None, **values: Any) -> OutboxMessage | InboxMessage:
    """A message as a claim would answer it, with these fields, the others as of one that is new.

    With ``source`` it is an inbox's, otherwise an outbox's. A payload that is not text becomes JSON.
    ``topic`` may be a message class.
    """
    kind: type[OutboxMessage | InboxMessage] = InboxMessage if "source" in values else OutboxMessage
    known = {field.name for field in fields(kind)}
    for name in values:
        if name not in known:
            raise InvalidArgument(f"{name}: a message of this kind has no such field: leave it out")
    now = datetime.now(UTC)
    identity = values.get("id", next(_ids))
    common: dict[str, Any] = {
        "id": identity,
        "topic": topic_of(topic),
        "payload": payload if isinstance(payload, str) else JsonSerializer().dumps(payload),
        "group_id": None,
        "priority": 0,
        "headers": None,
        "attempt": 0,
        "due_at": None,
        "expires_at": None,
        "last_error": None,
        "locked_until": now + _LEASE,
    }
    if kind is InboxMessage:
        own: dict[str, Any] = {
            "message_id": str(identity),
            "hash": None,
            "first_seen_at": now,
            "last_seen_at": now,
        }
    else:
        own = {"message_id": uuid.uuid4(), "correlation_id": None, "created_at": now}
    return kind(**{**common, **own, **values})
