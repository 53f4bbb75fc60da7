"""Groups and what blocks them, joins and their steps, schedules, the ledger."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from starlette.responses import Response

from pysqlbox.dashboard.ask import Ask
from pysqlbox.dashboard.catalog import steps_of
from pysqlbox.dashboard.formatting import unpack
from pysqlbox.dashboard.people import OPERATOR, VIEWER
from pysqlbox.errors import InvalidArgument

__all__ = ["ENTRIES"]

_PAGE = 50
JOIN_STATUSES = ("Pending", "Completed", "Failed", "Cancelled")
KEY_STATUSES = ("Acquired", "Processed")


def groups(ask: Ask) -> Response:
    """FIFO groups, those that are held up first, each with the head that holds it up."""
    boxes = ask.watched.boxes()
    box = ask.db.box(ask.query("box") or boxes[0].name)
    only_blocked = ask.query("blocked") is not None
    rows = ask.watched.shared.get(
        ("groups", box.name, only_blocked), 2, lambda: box.groups(limit=100, only_blocked=only_blocked)
    )
    return ask.page(
        "groups.html",
        title=f"Groups of {box.name}",
        boxes=boxes,
        box=box,
        rows=rows,
        only_blocked=only_blocked,
    )


def joins(ask: Ask) -> Response:
    """Joins by status and tenant, the oldest first."""
    status = ask.query("status") or JOIN_STATUSES[0]
    if status not in JOIN_STATUSES:
        raise InvalidArgument(f"status: must be one of {', '.join(JOIN_STATUSES)}")
    tenant, after = ask.query("tenant"), _uuid(ask.query("after"))
    rows = ask.watched.shared.get(
        ("joins", status, tenant, after),
        2,
        lambda: ask.db.joins.list(tenant, status=status, after=after, limit=_PAGE + 1),
    )
    return ask.page(
        "joins.html", title="Joins", statuses=JOIN_STATUSES, status=status, tenant=tenant, after=after,
        rows=rows[:_PAGE], more=len(rows) > _PAGE,
    )  # fmt: skip


def join(ask: Ask) -> Response:
    """One join and the steps that it waits for."""
    join_id = ask.uuid("join_id")
    after = _uuid(ask.query("after"))
    found = ask.db.joins.get(join_id)
    steps = steps_of(ask.db, join_id, _PAGE * 2 + 1, after)
    return ask.page(
        "join.html", title="Join", join=found, after=after,
        steps=steps[: _PAGE * 2], more=len(steps) > _PAGE * 2,
    )  # fmt: skip


def cancel_join(ask: Ask) -> Response:
    """Give a join up."""
    join_id = ask.uuid("join_id")
    affected = ask.act(
        "cancel join", f"join {join_id}", lambda c: int(ask.db.joins.cancel(join_id, connection=c))
    )
    return ask.go(f"joins/{join_id}", said="join" if affected else "no-join")


def schedules(ask: Ask) -> Response:
    """The schedules of every outbox."""
    outboxes = [box.name for box in ask.watched.boxes() if box.kind == "outbox"]
    found = {
        name: ask.watched.shared.get(("schedules", name), 2, partial(ask.db.schedules.list, box=name))
        for name in outboxes
    }
    return ask.page("schedules.html", title="Schedules", found=found)


def remove_schedule(ask: Ask) -> Response:
    """Remove a schedule; its name may be any text, so the form carries it."""
    box, name = ask.path("box"), unpack(ask.form.get("name", ""))

    def remove(connection: object) -> int:
        ask.db.schedules.remove(name, box=box, connection=connection)
        return 1

    ask.act("remove schedule", f"box {box}, schedule {name}", remove)
    return ask.go("schedules", said="removed")


def ledger(ask: Ask) -> Response:
    """Keys of the ledger, by key."""
    prefix, status, after = ask.query("prefix"), ask.query("status"), ask.query("after")
    if status not in (None, *KEY_STATUSES):
        raise InvalidArgument(f"status: must be one of {', '.join(KEY_STATUSES)}")
    rows = ask.watched.shared.get(
        ("ledger", prefix, status, after),
        2,
        lambda: ask.db.ledger.list(prefix, status=status, after=after, limit=_PAGE + 1),
    )
    return ask.page(
        "ledger.html", title="Ledger", statuses=KEY_STATUSES, prefix=prefix, status=status, after=after,
        rows=rows[:_PAGE], more=len(rows) > _PAGE,
    )  # fmt: skip


def _uuid(text: str | None) -> UUID | None:
    try:
        return None if text is None else UUID(text)
    except ValueError:
        raise InvalidArgument("after: must be a uuid") from None


ENTRIES = (
    ("GET", "/groups", VIEWER, groups),
    ("GET", "/joins", VIEWER, joins),
    ("GET", "/joins/{join_id}", VIEWER, join),
    ("POST", "/joins/{join_id}/cancel", OPERATOR, cancel_join),
    ("GET", "/schedules", VIEWER, schedules),
    ("POST", "/schedules/{box}/remove", OPERATOR, remove_schedule),
    ("GET", "/ledger", VIEWER, ledger),
)
