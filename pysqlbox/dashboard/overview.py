"""The overview, and the topics of the boxes with what stops and starts them."""

from __future__ import annotations

from starlette.responses import Response

from pysqlbox.dashboard.ask import Ask
from pysqlbox.dashboard.formatting import unpack
from pysqlbox.dashboard.people import OPERATOR, VIEWER
from pysqlbox.errors import PysqlboxError
from pysqlbox.messages import Finding

__all__ = ["ENTRIES"]


def overview(ask: Ask) -> Response:
    """The boxes as they are now, under what doctor warns of."""
    snapshot = ask.watched.snapshot()
    bad: list[Finding] = []
    blind: PysqlboxError | None = None
    if snapshot.error is None:
        try:
            bad = one_of_each_first([each for each in ask.watched.findings() if each.is_bad])
        except PysqlboxError as error:
            blind = error
    elif not snapshot.boxes:
        raise snapshot.error
    return ask.page("overview.html", title="Overview", snapshot=snapshot, bad=bad, blind=blind)


def one_of_each_first(findings: list[Finding]) -> list[Finding]:
    """Errors, then the first that each other check warns of: ten tables must not hide a dead letter."""
    told: set[str] = set()
    first: list[Finding] = []
    rest: list[Finding] = []
    for each in findings:
        (rest if each.check in told and each.level != "error" else first).append(each)
        told.add(each.check)
    return first + rest


def topics(ask: Ask) -> Response:
    """The topics of every box, or of one."""
    snapshot = ask.watched.snapshot()
    if snapshot.error is not None and not snapshot.boxes:
        raise snapshot.error
    box = ask.query("box")
    boxes = [each for each in snapshot.boxes if box in (None, each.name)]
    return ask.page(
        "topics.html", title="Topics", snapshot=snapshot, boxes=boxes, box=box, paused=_paused(ask)
    )


def _paused(ask: Ask) -> set[str]:
    """What is paused, as doctor names it: ``box mail``, ``box mail, topic news``."""
    try:
        return {
            each.subject for each in ask.watched.findings() if each.check == "paused" and each.level != "ok"
        }
    except PysqlboxError:
        return set()


def pause(ask: Ask) -> Response:
    """Hand out nothing more of a topic, or of the whole box."""
    return _switch(ask, "pause", "paused")


def resume(ask: Ask) -> Response:
    """Hand it out again."""
    return _switch(ask, "resume", "resumed")


def _switch(ask: Ask, action: str, said: str) -> Response:
    box = ask.db.box(ask.path("box"))
    topic = unpack(ask.form["topic"]) if "topic" in ask.form else None
    subject = f"box {box.name}" if topic is None else f"box {box.name}, topic {topic}"
    switch = box.pause if action == "pause" else box.resume
    ask.act(action, subject, lambda connection: switch(topic, connection=connection))
    return ask.go("topics", box=box.name, said=said)


ENTRIES = (
    ("GET", "/", VIEWER, overview),
    ("GET", "/topics", VIEWER, topics),
    ("POST", "/boxes/{box}/pause", OPERATOR, pause),
    ("POST", "/boxes/{box}/resume", OPERATOR, resume),
)
