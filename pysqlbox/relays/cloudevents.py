"""A message as a CloudEvent 1.0: one JSON object (structured), or headers beside the payload (binary)."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

from pysqlbox.errors import InvalidArgument
from pysqlbox.messages import InboxMessage, OutboxMessage

__all__ = ["CONTENT_TYPE", "attributes", "binary", "content_type", "structured"]

CONTENT_TYPE = "application/cloudevents+json"

#: Our headers that CloudEvents has extension attributes for.
_TRACING = ("traceparent", "tracestate")
_NAME = re.compile(r"[a-z0-9]{1,20}")


def attributes(message: OutboxMessage | InboxMessage, source: str) -> dict[str, str]:
    """The context attributes: ``id`` is the message_id, ``type`` the topic, ``subject`` the group, if any."""
    if not source:
        raise InvalidArgument("source: must be a URI that says who sends, such as /shop")
    created = message.created_at if isinstance(message, OutboxMessage) else message.first_seen_at
    found = {
        "specversion": "1.0",
        "id": str(message.message_id),
        "source": source,
        "type": message.topic,
        "time": created.isoformat().replace("+00:00", "Z"),
    }
    if message.group_id:
        found["subject"] = message.group_id
    if isinstance(message, OutboxMessage) and message.correlation_id:
        found["correlationid"] = message.correlation_id
    for name in _TRACING:
        if value := (message.headers or {}).get(name):
            found[name] = str(value)
    return found


def structured(message: OutboxMessage | InboxMessage, source: str) -> str:
    """The event as one JSON text; a payload that is JSON stays it, any other is text."""
    event: dict[str, Any] = {**attributes(message, source)}
    try:
        event["data"] = json.loads(message.payload)
        event["datacontenttype"] = "application/json"
    except ValueError:
        event["data"] = message.payload
        event["datacontenttype"] = "text/plain"
    return json.dumps(event, ensure_ascii=False)


def binary(message: OutboxMessage | InboxMessage, source: str, prefix: str = "ce-") -> dict[str, str]:
    """The attributes as headers beside a body that is the payload; percent-encoded as HTTP needs it."""
    return {
        f"{prefix}{name}": quote(value, safe="!#$&'()*+,/:;=?@[]{}|~^`<>-._\\")
        for name, value in attributes(message, source).items()
        if _NAME.fullmatch(name)
    }


def content_type(payload: str) -> str:
    """JSON if it is that, else text."""
    try:
        json.loads(payload)
    except ValueError:
        return "text/plain; charset=utf-8"
    return "application/json"
