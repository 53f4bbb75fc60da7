"""Changes, each in one transaction with its entry in the audit log: for the routes and the dashboard."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from pysqlbox.deployment import Deployment
from pysqlbox.messages import Schedule

__all__ = [
    "audited",
    "cancel",
    "configure",
    "discard",
    "pause",
    "remove_schedule",
    "replay",
    "reschedule",
    "resume",
    "send",
]

_WRITTEN = ("created", "collapsed", "updated")
_SHOWN_IDS = 50
"""Ids in an entry; of more it has the number."""
_DETAIL_LENGTH = 4000


def audited(
    db: Deployment,
    actor: str,
    action: str,
    subject: str,
    detail: dict[str, Any],
    change: Callable[[Any], int],
) -> int:
    """Do what ``change`` does through the connection it is given, and note it if anything was changed."""
    with db.transaction() as connection:
        affected = change(connection)
        if affected:
            told = {name: value for name, value in detail.items() if value is not None}
            text = json.dumps(told, default=str)[:_DETAIL_LENGTH] if told else None
            db.audit.write(
                actor, action, subject=subject, affected=affected, detail=text, connection=connection
            )
    return affected


def send(db: Deployment, actor: str, box: str, enqueue: Callable[[Any], list[Any]]) -> list[Any]:
    """Write messages; what was there already, or is done, has changed nothing."""
    sent: list[Any] = []

    def change(connection: Any) -> int:
        sent.extend(enqueue(connection))
        return sum(each.outcome in _WRITTEN for each in sent)

    audited(db, actor, "enqueue", box, {}, change)
    return sent


def replay(db: Deployment, actor: str, box: str, ids: Sequence[int], **detail: Any) -> int:
    """Make dead messages claimable again."""
    found = db.box(box)
    return audited(
        db, actor, "replay", box, _of_ids(ids) | detail, lambda raw: found.replay(ids, connection=raw)
    )


def discard(db: Deployment, actor: str, box: str, ids: Sequence[int], **detail: Any) -> int:
    """Delete dead messages."""
    found = db.box(box)
    return audited(
        db, actor, "discard", box, _of_ids(ids) | detail, lambda raw: found.discard(ids, connection=raw)
    )


def cancel(db: Deployment, actor: str, box: str, ids: Sequence[int], reason: str | None = None) -> int:
    """Call off messages that are not over yet."""
    found = db.box(box)
    detail = _of_ids(ids) | {"reason": reason and reason[:200]}
    return audited(
        db, actor, "cancel", box, detail, lambda raw: found.cancel(ids, reason=reason, connection=raw)
    )


def reschedule(
    db: Deployment, actor: str, box: str, ids: Sequence[int], due_at: datetime | None = None
) -> int:
    """Give waiting messages a new due time, now without one."""
    found = db.box(box)
    detail = _of_ids(ids) | {"due_at": due_at}
    return audited(
        db, actor, "reschedule", box, detail, lambda raw: found.reschedule(ids, due_at, connection=raw)
    )


def pause(db: Deployment, actor: str, box: str, topic: str | None = None) -> int:
    """Stop handing out a topic, or the whole box."""
    found = db.box(box)
    return audited(db, actor, "pause", box, {"topic": topic}, lambda raw: found.pause(topic, connection=raw))


def resume(db: Deployment, actor: str, box: str, topic: str | None = None) -> int:
    """Hand out a topic, or the whole box, again."""
    found = db.box(box)
    return audited(
        db, actor, "resume", box, {"topic": topic}, lambda raw: found.resume(topic, connection=raw)
    )


def configure(db: Deployment, actor: str, box: str, name: str, value: str) -> str:
    """Change a setting of a box; answers the value as it is kept."""
    found = db.box(box)
    kept = ""

    def change(connection: Any) -> int:
        nonlocal kept
        kept = found.configure(name, value, connection=connection)
        return 1

    audited(db, actor, "configure", box, {"name": name, "value": value[:200]}, change)
    return kept


def set_schedule(
    db: Deployment, actor: str, box: str, name: str, topic: str, payload: Any, **rule: Any
) -> Schedule:
    """Set or replace a schedule; ``rule`` is what ``db.schedules.set`` takes."""
    made: list[Schedule] = []

    def change(connection: Any) -> int:
        made.append(db.schedules.set(name, topic, payload, box=box, connection=connection, **rule))
        return 1

    detail = {"schedule": name, "topic": topic, "cron": rule.get("cron"), "every": rule.get("every")}
    audited(db, actor, "schedule", box, detail, change)
    return made[0]


def remove_schedule(db: Deployment, actor: str, box: str, name: str) -> None:
    """Remove a schedule; NotFound if there is none of that name."""

    def change(connection: Any) -> int:
        db.schedules.remove(name, box=box, connection=connection)
        return 1

    audited(db, actor, "unschedule", box, {"schedule": name}, change)


def _of_ids(ids: Sequence[int]) -> dict[str, Any]:
    return {"ids": list(ids)} if len(ids) <= _SHOWN_IDS else {"ids": list(ids[:_SHOWN_IDS]), "of": len(ids)}
