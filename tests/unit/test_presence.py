"""What a worker says of itself."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from pysqlbox.worker.handlers import Handler, Handlers
from pysqlbox.worker.presence import FORGET_AFTER, presence
from pysqlbox.worker.served_box import JOIN_WAIT
from pysqlbox.worker.settings import Settings
from tests.unit.standins import OWNER


def handlers(*topics: str) -> Handlers:
    """Handlers of these topics."""
    made = Handlers()
    for topic in topics:
        made.add(Handler(topic, lambda _message: None))
    return made


def said(of: Handlers | None = None, **settings: Any) -> dict[str, Any]:
    """What the first chore tells the register."""
    chore = presence(OWNER, Settings(**{"report_seconds": 20.0, **settings}), of or handlers(), 3)[0]
    assert (chore.name, chore.every_seconds, chore.routine, chore.by_all) == (
        "report", 20.0, "worker_report", True,
    )  # fmt: skip
    return dict(chore.arguments)


def test_who_is_to_say_nothing_says_nothing() -> None:
    assert presence(OWNER, Settings(cleanup_seconds=1.0), handlers(), 1) == []


def test_it_says_who_it_is() -> None:
    found = said(boxes=("outbox", "orders"), name="courier")
    assert (found["owner_token"], found["name"], found["pid"]) == (OWNER, "courier", os.getpid())
    assert (found["boxes"], found["threads"]) == (["outbox", "orders"], 3)
    assert 1 <= len(found["host"]) <= 255


def test_its_topics_are_those_that_it_was_told_or_handles() -> None:
    """Its own, with which it waits for joins, tells nobody anything."""
    assert said(handlers("b", "a", JOIN_WAIT))["topics"] == ["a", "b"]
    assert said(handlers("b"), topics=("z", "c", "c"))["topics"] == ["c", "z"]
    assert len(said(topics=tuple(f"t{n}" for n in range(10_001)))["topics"]) == 10_000


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/usr/bin/shop.py", "shop.py"), ("/lib/shop/__main__.py", "shop"), ("", "python"),
        ("/" + "x" * 300, "x" * 255),
    ],
)  # fmt: skip
def test_without_a_name_it_is_the_programs(monkeypatch: pytest.MonkeyPatch, program: str, name: str) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    assert said()["name"] == name


@pytest.mark.parametrize(("node", "host"), [("", "unknown"), ("x" * 300, "x" * 255)])
def test_a_host_has_a_name(monkeypatch: pytest.MonkeyPatch, node: str, host: str) -> None:
    monkeypatch.setattr("platform.node", lambda: node)
    assert said()["host"] == host


def test_who_cleans_up_forgets_those_that_could_not_say_goodbye() -> None:
    """But not those that only keep silent for a while."""
    (_, forget) = presence(OWNER, Settings(report_seconds=1.0, cleanup_seconds=2.0), handlers(), 1)
    assert (forget.name, forget.every_seconds, forget.routine) == ("forget", 120.0, "worker_cleanup")
    assert forget.arguments == {"retention_seconds": FORGET_AFTER}
    assert len(presence(OWNER, Settings(report_seconds=1.0), handlers(), 1)) == 1
