"""A message as a CloudEvent 1.0: one JSON object (structured), or headers beside the payload (binary)."""

from __future__ import annotations

import json
import re
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
    """The event as one JSON text; a payload that is JSON stands in it as it is, any other is text."""
    is_json = _is_json(message.payload)
    kind = "application/json" if is_json else "text/plain"
    head = json.dumps({**attributes(message, source), "datacontenttype": kind}, ensure_ascii=False)
    # Read and written anew, long numbers would lose digits, and repeated keys all but the last.
    data = message.payload if is_json else json.dumps(message.payload, ensure_ascii=False)
    return f'{head[:-1]}, "data": {data}}}'


def binary(message: OutboxMessage | InboxMessage, source: str, prefix: str = "ce-") -> dict[str, str]:
    """The attributes as headers beside a body that is the payload; percent-encoded as HTTP needs it."""
    return {
        f"{prefix}{name}": quote(value, safe="!#$&'()*+,/:;=?@[]{}|~^`<>-._\\")
        for name, value in attributes(message, source).items()
        if _NAME.fullmatch(name)
    }


def content_type(payload: str) -> str:
    """JSON if it is that, else text."""
    return "application/json" if _is_json(payload) else "text/plain; charset=utf-8"


def _is_json(payload: str) -> bool:
    try:
        json.loads(payload, parse_constant=_refuse, parse_float=len, parse_int=len)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is Python's, and no JSON")
