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
from pysqlbox.worker.served_box import ServedBox
from pysqlbox.worker.settings import Settings
from pysqlbox.worker.stalls import StallWatch, is_stuck
from tests.unit.standins import Parts, message


class Watched:
    """A box in which nothing has moved for a minute, and a database that says what waits."""

    def __init__(self, *boxes: str, **settings: Any) -> None:
        self.parts = Parts(*boxes, settings=Settings(**{"stall_seconds": 5.0, **settings}))
        self.box = self.parts.box
        for each in self.parts.boxes:
            each.moved_at = time.monotonic() - 60.0
        self.lent: list[ServedBox] = []
        self.held: list[Assignment] = []
        self.asked = 0
        self.rows: list[dict[str, object]] = [self.row("t", 3, 50.0)]
        self.error: Exception | None = None
        self.watch = StallWatch(self.parts.scheduler, self.parts.settings, lambda _box: self.held, self._lend)

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
    def _lend(self, box: ServedBox) -> Iterator[Any]:
        self.asked += 1
        self.lent.append(box)
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


def test_of_what_moves_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    it = Watched()
    it.box.moved_at = time.monotonic()
    with caplog.at_level(logging.DEBUG):
        it.look(3)
    assert caplog.records == []


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


def test_it_asks_of_a_few_boxes_at_a_time_the_longest_unasked_first() -> None:
    """Where thousands wait for a slow database, it would only add to that."""
    it = Watched("one", "two", "three", "four", "five")
    it.rows = []
    found: list[list[str]] = []
    for _ in range(4):
        it.lent.clear()
        it.look()
        found.append(sorted(each.name for each in it.lent))
    first, second = found[1], found[2]
    assert [len(each) for each in found] == [0, 3, 2, 0]
    assert sorted([*first, *second]) == sorted(each.name for each in it.parts.boxes)


def test_what_is_stalled_is_looked_at_though_nobody_expects_anything_of_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it moves; then it is told once, and left alone."""
    it = Watched()
    it.look(2)
    found = [it.stalled]
    monkeypatch.setattr(it.parts.scheduler, "active_boxes", list)
    it.box.moved_at = time.monotonic()
    with caplog.at_level(logging.INFO):
        it.look(3)
    assert [*found, it.stalled] == [True, False]
    assert caplog.text.count("it moves again") == 1
    assert it.watch._stalled == set()


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


def test_what_is_held_and_not_begun_waits_too(caplog: pytest.LogCaptureFixture) -> None:
    """Also where the statistics may not be read; the oldest is named, wherever it is."""
    it = Watched()
    it.error = pysqlbox.AccessDenied("no right")
    it.held = [Assignment(it.box, [message(n)], time.monotonic() - 10.0 * n) for n in (1, 4, 2)]
    it.look(2)
    assert it.stalled
    assert re.search(r"though 3 messages wait, the oldest for 4\d s", caplog.text)


def test_what_is_being_handled_waits_for_nobody() -> None:
    """A long handler is told of by its time, not as a message that waits."""
    it = Watched()
    it.rows = []
    handler = it.parts.handler("t", lambda _message: None)
    begun = Assignment(it.box, [message(1)], time.monotonic() - 40.0)
    begun.begin(handler)
    begun.began_at -= 40.0
    it.held = [begun]
    it.look(2)
    assert (it.asked, it.stalled) == (1, False)


def test_only_what_this_worker_may_claim_counts() -> None:
    it = Watched()
    it.box.topics = ["t"]
    it.rows = [it.row(None, 9, 90.0), it.row("t", 0, None), it.row("other", 9, 90.0)]
    it.look(2)
    assert (it.asked, it.stalled) == (1, False)
    every = Watched()
    every.rows = [every.row(None, 9, 90.0), every.row("t", 0, None)]  # the first is a sum
    every.look(2)
    some = Watched()
    some.box.topics = ["t"]
    some.look(2)
    assert [every.stalled, some.stalled] == [False, True]


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


@pytest.mark.parametrize(
    ("handler", "worker", "stall", "stuck"),
    [
        (10.0, None, None, True), (90.0, 10.0, 10.0, False), (None, 10.0, 90.0, True),
        (None, 90.0, 10.0, False), (None, None, 10.0, True), (None, None, None, False),
    ],
)  # fmt: skip
def test_whose_time_tells_that_a_handler_is_stuck(
    handler: float | None, worker: float | None, stall: float | None, stuck: bool
) -> None:
    """Its own first, then the worker's, else when anybody would wonder."""
    parts = Parts()
    it = Assignment(parts.box, [message(1)], time.monotonic())
    it.begin(parts.handler("t", lambda _message: None, timeout=handler))
    it.began_at -= 30.0
    assert is_stuck(it, Settings(handler_timeout=worker, stall_seconds=stall)) is stuck
