"""What doctor says, the audit log, and who works here."""

from __future__ import annotations

from starlette.responses import Response

from pysqlbox.dashboard.ask import Ask
from pysqlbox.dashboard.people import ADMIN, VIEWER

__all__ = ["ENTRIES"]

_PAGE = 100


def doctor(ask: Ask) -> Response:
    """Everything that doctor found, the worst first; what is fine below."""
    found = ask.watched.findings()
    told = [each for each in found if each.level != "ok"]
    return ask.page(
        "doctor.html", title="Doctor", told=told, fine=[each for each in found if each.level == "ok"]
    )


def workers(ask: Ask) -> Response:
    """Who works on each box, what they hold, and since when they have been seen from here."""
    found = {
        box.name: ask.watched.shared.get(("workers", box.name), 3, lambda box=box: ask.watched.seen(box))  # type: ignore[misc]  # a default of a lambda
        for box in ask.watched.boxes()
    }
    return ask.page("workers.html", title="Workers", found=found)


def audit(ask: Ask) -> Response:
    """Who changed what, the latest first."""
    actor, action = ask.query("actor"), ask.query("action")
    before = ask.number("before", least=1)
    rows = ask.db.audit.list(actor=actor, action=action, before_id=before or None, limit=_PAGE + 1)
    return ask.page(
        "audit.html", title="Audit", actor=actor, action=action, before=before,
        rows=rows[:_PAGE], more=len(rows) > _PAGE,
    )  # fmt: skip


ENTRIES = (
    ("GET", "/workers", VIEWER, workers),
    ("GET", "/doctor", VIEWER, doctor),
    ("GET", "/audit", ADMIN, audit),
)
