"""Which messaging operation a call of a routine is, on which messages, and what it tells of itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pysqlbox import calls
from pysqlbox.otel import names
from pysqlbox.otel.instruments import Attributes

__all__ = ["Operation", "common", "operation_of"]


@dataclass(slots=True)
class Operation:
    """A call that sends, receives or settles."""

    step: str
    type: str
    attributes: Attributes
    #: The records that are sent, which may be given headers.
    records: list[dict[str, Any]] = field(default_factory=list)

    @property
    def by_topic(self) -> Counter[Any]:
        """How many messages of each topic are sent."""
        return Counter(record.get("topic") for record in self.records)


def common(db: Any, box: str, name: str, kind: str) -> Attributes:
    """What every operation on a box tells."""
    found: Attributes = {
        names.MESSAGING_SYSTEM: names.SYSTEM,
        names.OPERATION_NAME: name,
        names.OPERATION_TYPE: kind,
        names.BOX: box,
    }
    key = getattr(db, "store_key", None)
    if key is not None:
        found[names.STORE] = str(key)
    host, port = _server(db.target)
    if host:
        found[names.SERVER_ADDRESS] = host
    if host and port:
        found[names.SERVER_PORT] = port
    return found


def operation_of(db: Any, routine: str, arguments: Mapping[str, object]) -> Operation | None:
    """The operation that a call is; None if it is none."""
    known = calls.operation_of(routine)
    if known is None:
        return None
    box, step, kind = known
    if step == "join_wait":
        attributes = _to(common(db, box, "send", kind), "join.wait")
        return Operation(step, kind, attributes, [{"topic": "join.wait", "headers": {"traceparent": ""}}])
    attributes = common(db, box, step if kind == "settle" else kind, kind)
    found = Operation(step, kind, attributes)
    if step == "enqueue":
        found.records = [dict(arguments)]
    elif step == "enqueue_many" and isinstance(arguments.get("messages"), list):
        found.records = [dict(record) for record in arguments["messages"]]  # type: ignore[attr-defined]
    elif step == "enqueue_payloads":
        payloads = arguments.get("payloads")
        count = len(payloads) if isinstance(payloads, Sequence) else 0
        found.records = [{"topic": arguments.get("topic"), "headers": arguments.get("headers")}] * count
    elif kind == "settle":
        _count_settled(attributes, arguments)
    if kind == "send":
        topics = found.by_topic
        if len(topics) == 1:
            _to(attributes, next(iter(topics)))
        if step != "enqueue":
            attributes[names.BATCH_MESSAGE_COUNT] = len(found.records)
    return found


def _to(attributes: Attributes, topic: object) -> Attributes:
    if isinstance(topic, str):
        attributes[names.DESTINATION_NAME] = topic
    return attributes


def _count_settled(attributes: Attributes, arguments: Mapping[str, object]) -> None:
    ids = arguments.get("ids")
    if isinstance(ids, Sequence) and not isinstance(ids, str):
        attributes[names.BATCH_MESSAGE_COUNT] = len(ids)


def _server(target: Any) -> tuple[str | None, int | None]:
    """The server's address, where the URL names one and only one."""
    shown = re.fullmatch(r"(?:[a-z]+://|odbc:)(?P<server>[^/]*)/.*", str(target.display))
    match = re.fullmatch(
        r"(?P<host>\[[^\]]+\]|[^:,;\s\[\]]+)(?:[:,](?P<port>[0-9]+))?", shown["server"] if shown else ""
    )
    if match is None:
        return None, None
    return match["host"].strip("[]"), int(match["port"]) if match["port"] else None
