"""When it is said that nothing moves, and what becomes of that where the database cannot be asked."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

import pysqlbox
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.settings import Settings
from pysqlbox.worker.stalls import StallWatch, is_stuck
from tests.unit.standins import Parts, message


class Watched:
    """A box in which nothing has moved for a minute, and a database that says what waits."""

    def __init__(self, **settings: Any) -> None:
        self.parts = Parts(settings=Settings(**{"stall_seconds": 5.0, **settings}))
        self.box = self.parts.box
        self.box.moved_at = time.monotonic() - 60.0
        self.held: list[Assignment] = []
        self.asked = 0
        self.rows: list[dict[str, object]] = [self.row("t", 3, 50.0)]
        self.error: Exception | None = None
        self.watch = StallWatch(
            self.parts.scheduler, self.parts.settings, lambda _box: self.held, lambda _box: self._lend()
        )

    @staticmethod
    def row(topic: str | None, ready: int, oldest: float | None) -> dict[str, object]:
        """What statistics say of a topic."""
        return {"topic": topic, "ready": ready, "oldest_ready_seconds": oldest}

    def look(self, times: int = 1) -> None:
        """Looks, whenever it is time to."""
        for _ in range(times):
            self.watch._next_look = 0.0
            self.watch.look()

    @contextlib.contextmanager
    def _lend(self) -> Iterator[Any]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        self.parts.connection.on_call = lambda *_: self.rows
        yield self.parts.connection

    @property
    def stalled(self) -> bool:
        """Whether it has been said."""
        return self.box.stalled_since is not None


def test_it_looks_twice_before_it_asks_and_says_it_once(caplog: pytest.LogCaptureFixture) -> None:
    it = Watched()
    it.look()
    assert (it.asked, it.stalled) == (0, False), "perhaps between two handlers"
    it.look()
    assert (it.asked, it.stalled) == (1, True)
    it.watch._next_ask.clear()
    it.look(3)
    assert it.asked == 1
    assert caplog.text.count("nothing has moved") == 1
    assert "no handler runs, and claims bring nothing or are refused" in caplog.text


def test_what_moves_again_is_said_and_suspected_anew(caplog: pytest.LogCaptureFixture) -> None:
    it = Watched()
    it.look(2)
    it.box.moved_at = time.monotonic()
    with caplog.at_level(logging.INFO):
        it.look()
    assert not it.stalled
    assert "it moves again" in caplog.text
    it.watch._next_ask.clear()
    it.box.moved_at = time.monotonic() - 60.0
    it.look()
    assert not it.stalled, "it looks twice again"


def test_suspicion_ends_with_a_claim_that_finds_nothing() -> None:
    """Nothing waited then; though nothing has moved since, it is to look twice again."""
    it = Watched()
    it.look()
    it.box.emptied_at = time.monotonic()
    it.look()
    it.box.emptied_at = 0.0
    it.look()
    assert it.asked == 0
    it.look()
    assert it.asked == 1


def test_it_looks_every_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease keeper comes by a hundred times a second."""
    it = Watched()
    looks: list[Any] = []
    monkeypatch.setattr(it.watch, "_look_at", lambda box, *_: looks.append(box))
    for _ in range(5):
        it.watch.look()
    assert looks == [it.box]


@pytest.mark.parametrize(
    ("error", "level"),
    [(pysqlbox.AccessDenied("no right"), "DEBUG"), (pysqlbox.DatabaseUnavailable("gone"), "WARNING")],
    ids=["no right", "outage"],
)
def test_who_cannot_be_asked_says_nothing_of_what_waits(
    error: Exception, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    it = Watched()
    it.error = error
    with caplog.at_level(logging.DEBUG):
        it.look(2)
    assert not it.stalled
    (record,) = [each for each in caplog.records if "cannot tell whether messages wait" in each.getMessage()]
    assert record.levelname == level
    it.look(5)
    assert it.asked == 1, "it asks seldom"


def test_what_is_held_and_not_begun_waits_too() -> None:
    """Also where the statistics may not be read."""
    it = Watched()
    it.error = pysqlbox.AccessDenied("no right")
    it.held = [Assignment(it.box, [message(1)], time.monotonic() - 40.0)]
    it.look(2)
    assert it.stalled


def test_only_what_this_worker_may_claim_counts() -> None:
    it = Watched()
    it.box.topics = ["t"]
    it.rows = [it.row(None, 9, 90.0), it.row("t", 0, None), it.row("other", 9, 90.0)]
    it.look(2)
    assert (it.asked, it.stalled) == (1, False)


@pytest.mark.parametrize("why", ["asleep", "outage", "emptied", "stopping", "never"])
def test_what_has_another_reason_is_no_stall(why: str) -> None:
    it = Watched(**({"stall_seconds": None} if why == "never" else {}))
    if why == "asleep":
        it.box.asleep = True
    elif why == "outage":
        it.box.failures = 1
    elif why == "emptied":
        it.box.emptied_at = time.monotonic()
    elif why == "stopping":
        it.parts.scheduler.stopping = True
    it.look(3)
    assert (it.asked, it.stalled) == (0, False)


@pytest.mark.parametrize("whose", ["handler", "worker"])
def test_a_handler_has_its_own_time(whose: str) -> None:
    it = Watched(**({"handler_timeout": 600.0} if whose == "worker" else {}))
    handler = it.parts.handler("t", lambda _message: None, timeout=600.0 if whose == "handler" else None)
    begun = Assignment(it.box, [message(1)], time.monotonic())
    begun.begin(handler)
    it.held = [begun]
    it.look(3)
    assert (it.asked, it.stalled) == (0, False)


def test_the_longest_handler_is_named(caplog: pytest.LogCaptureFixture) -> None:
    it = Watched()
    handler = it.parts.handler("t", lambda _message: None)
    for number in (1, 2):
        begun = Assignment(it.box, [message(number)], time.monotonic())
        begun.begin(handler)
        begun.began_at -= 30.0 * number
        it.held.append(begun)
    it.look(2)
    assert re.search(r"2 handlers run, the longest for 6\d s \(t message 2\)", caplog.text)


def test_who_is_stuck() -> None:
    parts = Parts()
    handler = parts.handler("t", lambda _message: None)
    it = Assignment(parts.box, [message(1)], time.monotonic())
    it.began_at = time.monotonic() - 600.0
    settings = Settings(stall_seconds=5.0)
    found = [is_stuck(it, settings)]  # it is not being handled
    it.begin(handler)
    found.append(is_stuck(it, settings))
    it.began_at -= 60.0
    found.append(is_stuck(it, settings))
    it.take_handled()
    assert [*found, is_stuck(it, settings)] == [False, False, True, True]
