"""Messages by status, and one message with its whole story."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from starlette.responses import Response

from pysqlbox.boxes import AnyBox
from pysqlbox.dashboard.ask import Ask
from pysqlbox.dashboard.catalog import joins_of, list_page
from pysqlbox.dashboard.masking import Shown
from pysqlbox.dashboard.people import OPERATOR, VIEWER
from pysqlbox.errors import InvalidArgument, NotFound
from pysqlbox.inbox import Inbox
from pysqlbox.outbox import Outbox

__all__ = ["ENTRIES", "STATUSES"]

STATUSES = {
    "outbox": ("Ready", "InProgress", "Done", "Failed", "Expired", "Cancelled"),
    "inbox": ("Seen", "Processing", "Done", "Dead", "Expired", "Cancelled"),
}
OVER = {"Done", "Failed", "Dead", "Expired", "Cancelled"}
DEAD = OVER - {"Done"}
_PAGE = 50
#: Characters of an error in a list.
_ERROR = 300


def listing(ask: Ask) -> Response:
    """One page of the messages in a status."""
    boxes = ask.watched.boxes()
    box = ask.db.box(ask.query("box") or boxes[0].name)
    found = (ask.query("find") or "").strip()
    if found:
        return _find(ask, box, found)
    statuses = STATUSES[box.kind]
    status = ask.query("status") or statuses[0 if box.kind == "outbox" else 1]
    if status not in statuses:
        raise InvalidArgument(f"status: must be one of {', '.join(statuses)}")
    topic, group, after = ask.query("topic"), ask.query("group"), ask.number("after")
    rows, following = ask.watched.shared.get(
        ("messages", box.name, status, topic, group, after),
        2,
        lambda: _page(box, status, topic, group, after),
    )
    return ask.page(
        "messages.html",
        title=f"{status} in {box.name}",
        boxes=boxes, box=box, statuses=statuses, status=status, topic=topic, group=group, after=after,
        rows=rows, following=following,
    )  # fmt: skip


def _page(
    box: AnyBox, status: str, topic: str | None, group: str | None, after: int
) -> tuple[list[Any], int | None]:
    """One look, which costs what it shows: it may end before the page is full, and says where to go on."""
    rows, following = list_page(box, status, topic=topic, group_id=group, limit=_PAGE + 1, after_id=after)
    if len(rows) > _PAGE:
        rows, following = rows[:_PAGE], rows[_PAGE - 1].id
    return _cut(rows), following


def _cut(rows: list[Any]) -> list[Any]:
    """The rows with the beginnings of their errors, which may be long; each message's page has the whole."""
    return [
        replace(each, last_error=f"{each.last_error[:_ERROR]}\N{HORIZONTAL ELLIPSIS}")
        if each.last_error and len(each.last_error) > _ERROR
        else each
        for each in rows
    ]


def message(ask: Ask) -> Response:
    """One message, without payload and headers."""
    return _message(ask, is_shown=False)


def reveal(ask: Ask) -> Response:
    """One message with payload and headers; who looked is noted first."""
    subject = f"box {ask.path('box')}, message {ask.id()}"
    ask.dashboard.audit(ask.db, ask.person.name, "reveal", subject, 1)
    return _message(ask, is_shown=True)


def _message(ask: Ask, *, is_shown: bool) -> Response:
    box = ask.db.box(ask.path("box"))
    found = box.get(ask.id())
    steps = joins_of(ask.db, found.id, 20) if box.name == "outbox" else []
    payload: Shown | None = None
    headers: Shown | None = None
    if is_shown:
        masking = ask.dashboard.masking
        payload = masking.payload(found.payload) if found.payload is not None else None
        headers = masking.value(found.headers) if found.headers is not None else None
    return ask.page(
        "message.html",
        title=f"Message {found.id} of {box.name}",
        box=box, message=found, steps=steps, is_shown=is_shown, payload=payload, headers=headers,
        is_over=found.status in OVER, is_dead=found.status in DEAD,
        payload_length=len(found.payload or ""),
    )  # fmt: skip


def act(ask: Ask) -> Response:
    """Replay, discard, cancel or make due one message."""
    box = ask.db.box(ask.path("box"))
    id, action = ask.id(), ask.path("action")
    reason = f"cancelled by {ask.person.name}"
    actions: dict[str, tuple[str, Callable[[Any], int]]] = {
        "replay": ("replayed", lambda c: box.replay([id], connection=c)),
        "discard": ("discarded", lambda c: box.discard([id], connection=c)),
        "cancel": ("cancelled", lambda c: box.cancel([id], reason=reason, connection=c)),
        "now": ("rescheduled", lambda c: box.reschedule([id], connection=c)),
    }
    if action not in actions:
        raise NotFound("a message is replayed, discarded, cancelled or made due now")
    said, change = actions[action]
    affected = ask.act(action, f"box {box.name}, message {id}", change)
    if action == "discard" and affected:
        return ask.go("messages", box=box.name, said=said, n=affected)
    return ask.go(f"messages/{box.name}/{id}", said=said, n=affected)


def _find(ask: Ask, box: AnyBox, text: str) -> Response:
    """Go to the message of an id or a message_id; an inbox's has its source in front: source/message_id."""
    id: int | None = None
    if text.isascii() and text.isdigit() and len(text) < 19:
        id = int(text)
    elif isinstance(box, Outbox):
        try:
            found = box.find(UUID(text))
        except ValueError:
            raise InvalidArgument(f"find: {text!r} is neither an id nor a message_id (a uuid)") from None
        id = None if found is None else found.id
    elif isinstance(box, Inbox):
        # A source may have slashes in it, and so may a message_id.
        cuts = [cut for cut, character in enumerate(text) if character == "/"][:10]
        if not cuts:
            raise InvalidArgument(f"find: {text!r} is neither an id nor source/message_id")
        known = (box.find(text[cut + 1 :], text[:cut]) for cut in cuts if 0 < cut < len(text) - 1)
        id = next((each.id for each in known if each is not None), None)
    if id is None:
        raise NotFound(f"no message of {box.name} is {text!r}")
    return ask.go(f"messages/{box.name}/{id}")


ENTRIES = (
    ("GET", "/messages", VIEWER, listing),
    ("GET", "/messages/{box}/{id}", VIEWER, message),
    ("POST", "/messages/{box}/{id}/reveal", OPERATOR, reveal),
    ("POST", "/messages/{box}/{id}/{action}", OPERATOR, act),
)
