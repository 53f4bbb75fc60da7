"""What becomes of messages around their handlers: while the worker stops, and of those nobody handles."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.handling import describe
from pysqlbox.worker.results import DeadLetter, Retry
from tests.unit.standins import Parts, message


def results(parts: Parts) -> list[tuple[object, object]]:
    """What is noted other than done."""
    return [(record["id"], record["result"]) for record in parts.box.outcomes.others]


def test_while_the_worker_stops_nothing_more_of_a_group_is_begun() -> None:
    parts = Parts()
    handled: list[int] = []

    def handle(each: Any) -> None:
        handled.append(each.id)
        parts.scheduler.stopping = True

    parts.handler("t", handle)
    it = Assignment(parts.box, [message(n, group_id="g") for n in (1, 2, 3)], time.monotonic())
    parts.handle(it)
    assert (handled, parts.box.outcomes.acked) == ([1], [1])
    assert results(parts) == [(2, "release"), (3, "release")]
    assert parts.tally.released == 2


def test_what_was_parked_when_the_worker_stops_is_released_by_whoever_leaves() -> None:
    parts = Parts()
    limited = parts.handler("t", lambda _message: None, concurrency=1)
    parked = Assignment(parts.box, [message(2)], time.monotonic())

    def handle(_each: Any) -> None:
        assert not parts.handlers.enter(limited, parked)
        parts.scheduler.stopping = True

    limited.function = handle
    parts.handle(Assignment(parts.box, [message(1)], time.monotonic()))
    assert results(parts) == [(2, "release")]
    assert (limited.active, list(limited.parked), list(parts.scheduler.ready)) == (0, [], [])


def test_what_was_parked_goes_on_when_a_place_is_free() -> None:
    parts = Parts()
    limited = parts.handler("t", lambda _message: None, concurrency=1)
    parked = Assignment(parts.box, [message(2)], time.monotonic())

    def handle(_each: Any) -> None:
        assert not parts.handlers.enter(limited, parked)

    limited.function = handle
    parts.handle(Assignment(parts.box, [message(1)], time.monotonic()))
    assert (results(parts), list(parts.scheduler.ready)) == ([], [parked])


def test_a_place_is_left_whatever_becomes_of_the_steps() -> None:
    parts = Parts()
    limited = parts.handler("t", lambda _message: None, concurrency=1)
    steps = parts.handling.steps(Assignment(parts.box, [message(1)], time.monotonic()), parts.tally)
    next(steps)
    assert limited.active == 1
    steps.close()
    assert limited.active == 0


def test_behind_an_unknown_topic_its_group_waits_without_a_try() -> None:
    parts = Parts()
    group = [message(1, "unknown", group_id="g"), message(2, group_id="g"), message(3, group_id="g")]
    parts.handle(Assignment(parts.box, group, time.monotonic()))
    assert results(parts) == [(1, "release"), (2, "release"), (3, "release")]
    assert "delay_seconds" in parts.box.outcomes.others[0]
    assert "delay_seconds" not in parts.box.outcomes.others[1]


def test_what_somebody_has_taken_is_neither_handled_nor_refused() -> None:
    """The stop may take it while a thread looks at it."""
    parts = Parts()
    parts.handler("t", lambda _message: None)

    class Taken(Assignment):
        """Taken just after the thread has looked."""

        @property
        def head(self) -> Any:
            found = super().head
            self.take_waiting()
            return found

    for topic in ("t", "unknown"):
        parts.handle(Taken(parts.box, [message(1, topic)], time.monotonic()))
    assert (results(parts), parts.box.outcomes.acked) == ([], [])


def test_an_answer_for_a_lost_message_counts_only_if_it_is_done() -> None:
    """The database takes an ack of whoever still holds it, and of nobody else."""
    parts = Parts()
    it = Assignment(parts.box, [message(1), message(2)], time.monotonic())
    it.lose([1, 2])
    parts.handling.note(it, message(1), Retry(), parts.tally)
    parts.handling.note(it, message(2), DeadLetter("no"), parts.tally)
    assert results(parts) == []


def test_a_dead_letter_always_has_a_reason() -> None:
    parts = Parts()
    it = Assignment(parts.box, [message(1)], time.monotonic())
    parts.handling.note(it, message(1), DeadLetter(""), parts.tally)
    assert parts.box.outcomes.others[0]["error"] == "given up by its handler"


def test_behind_a_handler_that_overran_nothing_of_its_group_is_begun() -> None:
    parts = Parts()
    parts.handler("t", lambda _message: None)
    it = Assignment(parts.box, [message(1, group_id="g"), message(2, group_id="g")], time.monotonic())
    steps = parts.handling.steps(it, parts.tally)
    next(steps)
    taken = it.take_overrun(-1.0)
    parts.handling.overran(it, taken, 1.0, parts.tally)
    with pytest.raises(StopIteration):
        steps.send((None, None))
    assert results(parts) == [(1, "retry"), (2, "release")]
    assert parts.box.outcomes.acked == [], "its answer is void"


def test_an_exception_that_cannot_be_shown_has_a_name() -> None:
    class Shy(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    assert describe(Shy()) == "Shy"
