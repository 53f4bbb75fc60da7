"""Objects in place of topic and payload: what an outbox publishes and an inbox receives."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict
from uuid import UUID

from pysqlbox.arguments import Delay
from pysqlbox.errors import InvalidArgument
from pysqlbox.typed.declaring import envelope_of, topic_of

__all__ = ["PublishOptions", "ReceiveOptions", "incoming", "outgoing"]


class PublishOptions(TypedDict, total=False):
    """What a call may say otherwise than the class does; None takes a key away."""

    topic: str
    correlation_id: str | None
    due_at: datetime | None
    message_id: UUID | None
    group_id: str | None
    priority: int
    dedup_key: str | None
    collapse_key: str | None
    expires_at: datetime | None
    headers: Mapping[str, Any] | None
    created_at: datetime | None
    delay: Delay | None


class ReceiveOptions(TypedDict, total=False):
    """What a call may say otherwise than the class does; None takes a key away."""

    topic: str
    source: str
    message_id: str | UUID
    hash: bytes | None
    due_at: datetime | None
    group_id: str | None
    priority: int
    collapse_key: str | None
    expires_at: datetime | None
    headers: Mapping[str, Any] | None
    received_at: datetime | None
    delay: Delay | None


def outgoing(value: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an outbox's enqueue."""
    envelope = envelope_of(value)
    envelope.pop("source", None)
    if (created_at := envelope.pop("received_at", None)) is not None:
        envelope["created_at"] = created_at
    return _arguments(value, envelope, options)


def incoming(value: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an inbox's enqueue."""
    envelope = envelope_of(value)
    envelope.pop("correlation_id", None)
    dedup_key = envelope.pop("dedup_key", None)
    arguments = _arguments(value, {"message_id": dedup_key, **envelope}, options)
    for name in ("source", "message_id"):
        if arguments.get(name) is None:
            raise InvalidArgument(
                f"{name}: {type(value).__qualname__} says none, and neither does the call: give {name}="
            )
    arguments["message_id"] = str(arguments["message_id"])
    return arguments


def _arguments(value: object, envelope: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    topic = options["topic"] if "topic" in options else topic_of(type(value))
    given = {**envelope, **options, "topic": topic, "payload": value}
    if options.get("delay") is not None and "due_at" not in options:
        given.pop("due_at", None)  # the class's: the call says another time
    return {name: item for name, item in given.items() if item is not None or name == "payload"}
