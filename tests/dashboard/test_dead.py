"""Dead letters by cause, and what is done with all of one cause, on every engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from markupsafe import escape

import pysqlbox
from pysqlbox.dashboard import Dashboard
from pysqlbox.dashboard.runs import Run
from tests.dashboard.support import HOSTILE, OWNER, Audited, Visitor, kill


def ended(run: Run) -> Run:
    """The run, when it is over."""
    return _until(lambda: run.status != "running" and run.ended_at is not None, run)


def _until(condition: Callable[[], bool], run: Run) -> Run:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, run
        time.sleep(0.01)
    return run


def started(dashboard: Dashboard, visitor: Visitor, action: str, cause: str, topic: str, **more: str) -> Run:
    """The run that a form begins."""
    query = urlencode({"topic": topic, "cause": cause})
    visitor.text(f"/dead/outbox/bulk?{query}")
    answer = visitor.post(f"/dead/outbox/bulk/{action}", {"cause": cause, "topic": topic} | more)
    assert answer.status_code == 303, answer.text
    run = dashboard.runs.get(int(answer.headers["location"].removeprefix("/runs/")))
    assert run is not None
    return run


def test_one_fault_is_one_row(visitor: Visitor, deployment: pysqlbox.Deployment) -> None:
    assert "No dead letters in outbox." in visitor.text("/dead")
    kill(deployment, 3, topic="a", error="order 17 is gone")
    kill(deployment, 2, topic=HOSTILE, error=HOSTILE)
    page = visitor.text("/dead")
    assert "order # is gone" in page
    assert escape(HOSTILE) in page
    assert HOSTILE not in page
    assert page.index("order # is gone") < page.index("onerror")
    assert "/dead/outbox/bulk?topic=a&amp;cause=order+%23+is+gone" in page


def test_a_preview_counts_and_a_run_replays_that_cause_alone(
    dashboard: Dashboard, visitor: Visitor, deployment: pysqlbox.Deployment, audited: Audited
) -> None:
    gone = kill(deployment, 250, topic="a", error="order 17 is gone")
    late = kill(deployment, 3, topic="a", error="order 17 is late")
    other = kill(deployment, 2, topic="b", error="order 17 is gone")
    page = visitor.text("/dead/outbox/bulk?topic=a&cause=order+%23+is+gone")
    assert "<h1>250 dead letters</h1>" in page
    run = ended(started(dashboard, visitor, "replay", "order # is gone", "a"))
    assert (run.status, run.affected) == ("finished", 250)
    left = [each.id for each in deployment.outbox.dead_letters(limit=1000)]
    assert left == late + other
    entries = audited()
    assert {entry[:2] for entry in entries} == {("the operator", "replay")}
    assert (entries[0][2] or "").endswith("on: order # is gone (topic a)")
    assert sum(entry[3] or 0 for entry in entries) == 250
    assert "250 of 250" in visitor.text(f"/runs/{run.no}")
    assert f'/runs/{run.no}"' in visitor.text("/dead")
    assert "None is left." in visitor.text("/dead/outbox/bulk?topic=a&cause=order+%23+is+gone")
    assert sorted(each.id for each in deployment.outbox.claim(OWNER, batch_size=1000)) == gone


def test_a_discard_deletes(dashboard: Dashboard, visitor: Visitor, deployment: pysqlbox.Deployment) -> None:
    first = kill(deployment, 3, topic=HOSTILE, error=HOSTILE)[0]
    cause = deployment.outbox.dead_causes()[0].cause
    run = ended(started(dashboard, visitor, "discard", cause, HOSTILE))
    assert (run.status, run.affected) == ("finished", 3)
    assert visitor.get(f"/messages/outbox/{first}").status_code == 404


def test_a_run_keeps_its_rate_and_is_cancelled(
    dashboard: Dashboard, visitor: Visitor, deployment: pysqlbox.Deployment
) -> None:
    kill(deployment, 60, topic="a", error="no")
    run = started(dashboard, visitor, "replay", "no", "a", rate="5")
    _until(lambda: run.affected > 0, run)
    assert run.affected <= 10  # five at once, and as many a second later
    page = visitor.text(f"/runs/{run.no}")
    assert 'data-every="1"' in page
    assert "at most 5 a second" in page
    answer = visitor.post(f"/runs/{run.no}/cancel")
    assert answer.headers["location"] == f"/runs/{run.no}?said=stop"
    assert ended(run).status == "cancelled"
    left = len(deployment.outbox.dead_letters(limit=100))
    assert left == 60 - run.affected > 0


def test_what_another_has_replayed_meanwhile_is_passed_over(
    dashboard: Dashboard, visitor: Visitor, deployment: pysqlbox.Deployment, monkeypatch: Any
) -> None:
    ids = kill(deployment, 20, topic="a", error="no")
    act, stolen = dashboard.runs._act, threading.Event()

    def steal(run: Run, piece: list[int]) -> int:
        if not stolen.is_set():
            stolen.set()
            deployment.outbox.replay([ids[3], ids[11]])
        return act(run, piece)

    monkeypatch.setattr(dashboard.runs, "_act", steal)
    run = ended(started(dashboard, visitor, "replay", "no", "a"))
    assert (run.status, run.affected) == ("finished", 18)
    assert deployment.outbox.dead_letters() == []


def test_a_run_that_the_database_ends_says_so(
    dashboard: Dashboard, visitor: Visitor, deployment: pysqlbox.Deployment, monkeypatch: Any
) -> None:
    kill(deployment, 2, topic="a", error="no")

    def fail(*_: object) -> int:
        raise pysqlbox.DatabaseUnavailable("the server is gone")

    monkeypatch.setattr(dashboard.runs, "_act", fail)
    run = ended(started(dashboard, visitor, "replay", "no", "a"))
    assert run.status == "broken"
    assert "the server is gone" in visitor.text(f"/runs/{run.no}")


def test_only_so_many_run_at_once_and_they_end_with_the_dashboard(
    dashboard: Dashboard, visitor: Visitor, deployment: pysqlbox.Deployment
) -> None:
    kill(deployment, 50, topic="a", error="no")
    runs = [started(dashboard, visitor, "replay", "no", "a", rate="1") for _ in range(4)]
    fields = {"cause": "no", "topic": "a"}
    assert visitor.post("/dead/outbox/bulk/replay", fields).status_code == 409
    dashboard.runs.close()
    assert {ended(run).status for run in runs} == {"cancelled"}


def test_odd_forms_are_refused(visitor: Visitor, deployment: pysqlbox.Deployment) -> None:
    kill(deployment, 1, topic="a", error="no")
    visitor.text("/dead")
    fields = {"cause": "no", "topic": "a"}
    for rate in ("0", "-1", "x", "1e3", "9999999999"):
        assert visitor.post("/dead/outbox/bulk/replay", fields | {"rate": rate}).status_code == 400
    assert visitor.post("/dead/outbox/bulk/replay", {"topic": "a"}).status_code == 400
    assert visitor.post("/dead/outbox/bulk/explode", fields).status_code == 404
    assert visitor.post("/dead/none/bulk/replay", fields).status_code == 404
    for path in ("/runs/99", "/runs/x", "/runs/%E2%82%AC"):
        assert visitor.get(path).status_code == 404
    assert len(deployment.outbox.dead_letters()) == 1
