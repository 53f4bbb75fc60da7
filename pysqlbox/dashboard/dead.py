"""Dead letters by cause, and what is done with all of one cause."""

from __future__ import annotations

from starlette.responses import Response

from pysqlbox.boxes import AnyBox
from pysqlbox.dashboard.ask import Ask, whole
from pysqlbox.dashboard.formatting import unpack
from pysqlbox.dashboard.people import OPERATOR, VIEWER
from pysqlbox.dashboard.runs import ACTIONS, Cause, Run, preview
from pysqlbox.errors import InvalidArgument, NotFound

__all__ = ["ENTRIES"]

_FASTEST = 100_000


def causes(ask: Ask) -> Response:
    """What died of what, in one box: one fault is one row."""
    boxes = ask.watched.boxes()
    box = ask.db.box(ask.query("box") or boxes[0].name)
    rows = ask.watched.shared.get(("causes", box.name), 5, lambda: box.dead_causes(limit=200))
    older = rows[-1] if rows and rows[-1].sample_id is None else None
    return ask.page(
        "dead.html", title=f"Dead letters of {box.name}", boxes=boxes, box=box,
        rows=[each for each in rows if each.sample_id is not None], older=older,
        runs=[run for run in ask.dashboard.runs.list() if run.box.deployment is ask.db],
    )  # fmt: skip


def bulk(ask: Ask) -> Response:
    """Before a run: how many messages it is about, and how fast it is to be."""
    box = ask.db.box(ask.path("box"))
    cause = Cause(ask.query("topic"), ask.query("cause") or "")
    found = ask.watched.shared.get(("preview", box.name, cause), 2, lambda: preview(box, cause))
    return ask.page("bulk.html", title="Replay or discard", box=box, cause=cause, found=found)


def start(ask: Ask) -> Response:
    """Begin a run, and show it."""
    box: AnyBox = ask.db.box(ask.path("box"))
    action = ask.path("action")
    if action not in ACTIONS:
        raise NotFound(f"dead letters are {' or '.join(ACTIONS)}ed")
    form = ask.form
    if "cause" not in form:
        raise InvalidArgument("cause: must be given")
    cause = Cause(unpack(form["topic"]) if "topic" in form else None, unpack(form["cause"]))
    rate = whole("rate", form.get("rate"), default=0, least=1, most=_FASTEST)
    wanted = ask.watched.shared.get(("preview", box.name, cause), 2, lambda: preview(box, cause))
    made = ask.dashboard.runs.start(box, action, cause, ask.person.name, wanted, rate or None)
    return ask.go(f"runs/{made.no}")


def run(ask: Ask) -> Response:
    """How far a run is."""
    return ask.page("run.html", title="Run", run=_run(ask))


def cancel(ask: Ask) -> Response:
    """End a run after the piece that it is at."""
    found = _run(ask)
    found.cancel()
    return ask.go(f"runs/{found.no}", said="stop")


def _run(ask: Ask) -> Run:
    found = ask.dashboard.runs.get(ask.id())
    if found is None or found.box.deployment is not ask.db:
        raise NotFound(
            "there is no such run; a restart of the service ends all, and the audit log keeps them"
        )
    return found


ENTRIES = (
    ("GET", "/dead", VIEWER, causes),
    ("GET", "/dead/{box}/bulk", OPERATOR, bulk),
    ("POST", "/dead/{box}/bulk/{action}", OPERATOR, start),
    ("GET", "/runs/{id}", VIEWER, run),
    ("POST", "/runs/{id}/cancel", OPERATOR, cancel),
)
