"""Messages in: one, or an array of them."""

from __future__ import annotations

from typing import Any

from pysqlbox.boxes import AnyBox
from pysqlbox.errors import InvalidArgument
from pysqlbox.inbox import Inbox
from pysqlbox.outbox import Outbox
from pysqlbox.service import actions
from pysqlbox.service.boxes import BOX, box_of
from pysqlbox.service.limits import Limits
from pysqlbox.service.operation import Asked, Operation, Parameter
from pysqlbox.service.roles import Role
from pysqlbox.service.schema import Schema, moment, null_or

__all__ = ["OPERATIONS"]

_TEXT = {"type": "string", "minLength": 1, "maxLength": 255}
_TIME = {"type": "string", "format": "date-time"}
_TIMES = ("due_at", "expires_at", "created_at", "received_at")
_ID = {"type": "integer"}

_SHARED: dict[str, Any] = {
    "topic": _TEXT,
    "payload": {
        "description": "Text as it is; any other JSON as its text.",
        "type": ["string", "object", "array", "number", "boolean"],
    },
    "group_id": null_or(_TEXT),
    "priority": null_or({"type": "integer", "minimum": -32768, "maximum": 32767}),
    "collapse_key": null_or(_TEXT),
    "due_at": null_or(_TIME),
    "delay_seconds": null_or({"type": "number", "minimum": 0, "maximum": 1_000_000_000}),
    "expires_at": null_or(_TIME),
    "headers": null_or({"type": "object"}),
}
_OUTBOX: dict[str, Any] = {
    "type": "object",
    "title": "A message for an outbox",
    "properties": _SHARED
    | {
        "message_id": null_or({"type": "string", "format": "uuid"}),
        "correlation_id": null_or(_TEXT),
        "dedup_key": null_or(_TEXT),
        "created_at": null_or(_TIME),
    },
    "required": ["topic", "payload"],
    "additionalProperties": False,
}
_INBOX: dict[str, Any] = {
    "type": "object",
    "title": "A message for an inbox",
    "properties": _SHARED
    | {
        "source": _TEXT,
        "message_id": _TEXT,
        "hash": null_or({"type": "string", "pattern": "^([0-9a-fA-F]{2})*$"}),
        "received_at": null_or(_TIME),
    },
    "required": ["topic", "payload", "source", "message_id"],
    "additionalProperties": False,
}
_ENQUEUED = {
    "type": "object",
    "properties": {
        "id": _ID,
        "message_id": {"type": "string", "format": "uuid", "description": "Of an outbox."},
        "outcome": {"type": "string", "enum": ["created", "collapsed", "duplicate", "updated", "done"]},
        "hash_mismatch": {"type": "boolean", "description": "Of an inbox."},
    },
    "required": ["id", "outcome"],
}


def _body(limits: Limits) -> Schema:
    one = {"anyOf": [_INBOX, _OUTBOX]}
    many = {"type": "array", "items": one, "minItems": 1, "maxItems": limits.array_length}
    return {"anyOf": [*one["anyOf"], many]}


def _enqueue(asked: Asked) -> Any:
    box = box_of(asked)
    key = asked.request.headers.get("idempotency-key")
    if isinstance(asked.body, list):
        if key is not None:
            raise InvalidArgument("Idempotency-Key: goes with one message; give each of several a dedup_key")
        records = [_record(each, f"{number}.") for number, each in enumerate(asked.body, 1)]
        sent = actions.send(
            asked.db, asked.actor, box.name, lambda raw: box.enqueue_many(records, connection=raw)
        )
        return [_answer(each) for each in sent]
    record = _record(asked.body, "")
    if key is not None and isinstance(box, Outbox) and record.setdefault("dedup_key", key) != key:
        raise InvalidArgument("dedup_key: must be the Idempotency-Key, or left out")
    record = _of_one(box, record)
    sent = actions.send(asked.db, asked.actor, box.name, lambda raw: [box.enqueue(connection=raw, **record)])
    return _answer(sent[0])


def _of_one(box: AnyBox, record: dict[str, Any]) -> dict[str, Any]:
    """One message as the routine for one takes it."""
    schema = _INBOX if isinstance(box, Inbox) else _OUTBOX
    for name in schema["required"]:
        if name not in record:
            raise InvalidArgument(f"{name}: is missing, and must be given")
    for name in record:
        if name not in schema["properties"]:
            raise InvalidArgument(
                f"{name}: must be left out: {box.name} is an {box.kind}, whose messages have none"
            )
    if "delay_seconds" in record:
        record["delay"] = record.pop("delay_seconds")
    if "hash" in record:
        record["hash"] = bytes.fromhex(record["hash"])
    return record


def _record(message: dict[str, Any], where: str) -> dict[str, Any]:
    """A message as the methods take it: what is null is left out, times are times."""
    record = {name: value for name, value in message.items() if value is not None}
    if "priority" in record:
        record["priority"] = int(record["priority"])
    for name in _TIMES:
        if name in record:
            record[name] = moment(f"{where}{name}", record[name])
    return record


def _answer(found: Any) -> dict[str, Any]:
    answer = {"id": found.id, "outcome": found.outcome}
    if hasattr(found, "message_id"):
        answer["message_id"] = found.message_id
    else:
        answer["hash_mismatch"] = found.hash_mismatch
    return answer


OPERATIONS = (
    Operation(
        "POST", "/v1/messages/{box}", "enqueue", "send", Role.PRODUCER,
        "Write a message, or an array of them: all or none.",
        _enqueue,
        description=(
            "The answer is what became of the message, or an array in the order of the messages. An outbox"
            " takes the header Idempotency-Key for the dedup_key of a single message; an inbox knows one"
            " by its source and message_id."
        ),
        parameters=(BOX,),
        headers=(Parameter("Idempotency-Key", _TEXT, "The dedup_key of a single message for an outbox."),),
        body=_body,
        answer={"anyOf": [_ENQUEUED, {"type": "array", "items": _ENQUEUED}]},
    ),
)  # fmt: skip
