"""What has been enqueued, for assertions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, overload

from pysqlbox.boxes import AnyBox
from pysqlbox.inbox import Inbox
from pysqlbox.messages import StoredInboxMessage, StoredOutboxMessage
from pysqlbox.outbox import Outbox
from pysqlbox.typed import topic_of

__all__ = ["assert_enqueued", "enqueued"]

_OUTBOX = ("Ready", "InProgress", "Done", "Failed", "Expired", "Cancelled")
_INBOX = ("Processing", "Done", "Dead", "Expired", "Cancelled")
_PAGE = 1000
#: A failure shows so many messages, and so much of each payload.
_SHOWN, _SHOWN_CHARACTERS = 20, 160

Where = Callable[[Any], object]


@overload
def enqueued(
    box: Outbox, topic: str | type | None = None, *, where: Where | None = None, connection: Any = None
) -> list[StoredOutboxMessage]: ...


@overload
def enqueued(
    box: Inbox, topic: str | type | None = None, *, where: Where | None = None, connection: Any = None
) -> list[StoredInboxMessage]: ...


def enqueued(
    box: Outbox | Inbox,
    topic: str | type | None = None,
    *,
    where: Where | None = None,
    connection: Any = None,
) -> list[Any]:
    """The messages of a box, done ones too, in the order of their ids; of a topic, if one is given.

    ``where``: is called with each payload (decoded, if it is JSON) and answers whether it is meant; where it
    raises what comes of a payload of another shape (KeyError, TypeError …), it is not. ``connection``: your
    open transaction, to see what it has not committed yet.
    """
    name = None if topic is None else topic_of(topic)
    found = _all(box, name, connection)
    return [each for each in found if where is None or _is_meant(where, each.payload)]


@overload
def assert_enqueued(
    box: Outbox, topic: str | type, *, where: Where | None = None, connection: Any = None
) -> StoredOutboxMessage: ...


@overload
def assert_enqueued(
    box: Inbox, topic: str | type, *, where: Where | None = None, connection: Any = None
) -> StoredInboxMessage: ...


def assert_enqueued(
    box: Outbox | Inbox, topic: str | type, *, where: Where | None = None, connection: Any = None
) -> Any:
    """The first message of a topic that ``where`` means; if there is none, the failure lists what is there.

    It may be done already: what counts is that it was enqueued. See ``enqueued`` for the arguments.
    """
    __tracebackhide__ = True
    name = topic_of(topic)
    there = _all(box, None, connection)
    for each in there:
        if each.topic == name and (where is None or _is_meant(where, each.payload)):
            return each
    of_topic = [each for each in there if each.topic == name]
    raise AssertionError(_failure(box, name, where is not None and bool(of_topic), of_topic or there))


def _all(box: AnyBox, topic: str | None, connection: Any) -> list[Any]:
    ids: list[int] = []
    for status in _OUTBOX if box.kind == "outbox" else _INBOX:
        behind = 0
        while True:
            page = box.list(status, topic=topic, limit=_PAGE, after_id=behind, connection=connection)
            ids += [each.id for each in page]
            if len(page) < _PAGE:
                break
            behind = page[-1].id
    return [box.get(each, connection=connection) for each in sorted(ids)]


def _is_meant(where: Where, payload: str) -> bool:
    try:
        return bool(where(_decoded(payload)))
    except (LookupError, TypeError, AttributeError, ValueError):
        return False


def _decoded(payload: str) -> Any:
    try:
        return json.loads(payload)
    except ValueError:
        return payload


def _failure(box: AnyBox, topic: str, by_payload: bool, there: list[Any]) -> str:
    title = f"no message of topic {topic!r} in {box.name}"
    if by_payload:
        title += " has a payload that where= accepts"
    if not there:
        return f"{title}: the box is empty"
    width = max(len(each.topic) for each in there[:_SHOWN])
    lines = [
        f"  {each.id:>6}  {each.status:<10}  {each.topic:<{width}}  {_cut(each.payload)}"
        for each in there[:_SHOWN]
    ]
    if len(there) > _SHOWN:
        lines.append(f"  and {len(there) - _SHOWN} more")
    return "\n".join([f"{title}; what is there:", *lines])


def _cut(payload: str) -> str:
    text = payload if len(payload) <= _SHOWN_CHARACTERS else payload[: _SHOWN_CHARACTERS - 1] + "…"
    return text.replace("\n", "\\n")
