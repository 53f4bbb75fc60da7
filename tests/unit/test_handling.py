"""What becomes of messages around their handlers, of those nobody handles, and what answers mean."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace
from typing import Any

import pytest

from pysqlbox import logs
from pysqlbox.typed import Undecodable
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.figures import Figures
from pysqlbox.worker.handling import describe
from pysqlbox.worker.results import Ack, DeadLetter, NonRetryable, Release, Result, Retry
from pysqlbox.worker.served_box import JOIN_WAIT
from pysqlbox.worker.settings import Settings
from pysqlbox.worker.transactions import LeaseLost
from tests.unit.standins import Parts, message


def nothing(_message: Any) -> None:
    """A handler that does nothing."""


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


@pytest.mark.parametrize("watched", [False, True])
def test_records_are_about_what_is_handled_where_somebody_sees_that(
    watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts()
    seen: list[Any] = []
    monkeypatch.setattr("pysqlbox.worker.handling.is_watched", lambda: watched)
    parts.handler("t", lambda _message: seen.append(logs._handled.get()))
    parts.handle(Assignment(parts.box, [message(1)], time.monotonic()))
    assert [None if each is None else each.fields["id"] for each in seen] == [1 if watched else None]
    assert logs._handled.get() is None


def test_whoever_watches_is_around_the_handler_and_its_middleware(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    order: list[str] = []

    def watched(box: Any, handler: Any, messages: list[Any], call: Any) -> Any:
        def around() -> Any:
            order.append(f"{box.name} {handler.topic} {[each.id for each in messages]}")
            return call()

        return around

    def middleware(_message: Any, _context: Any, call: Any) -> Any:
        order.append("middleware")
        return call()

    monkeypatch.setattr("pysqlbox.watching.watcher", SimpleNamespace(handling=watched))
    parts.handlers.add_middleware(middleware)
    parts.handler("t", lambda _message: order.append("handler"))
    parts.handle(Assignment(parts.box, [message(1)], time.monotonic()))
    assert order == ["outbox t [1]", "middleware", "handler"]


def test_middleware_of_a_batch_gets_the_batch() -> None:
    parts = Parts()
    seen: list[Any] = []

    def middleware(subject: Any, context: Any, call: Any) -> Any:
        seen.append((subject, context.messages))
        return call()

    def batched(messages: list[Any], context: Any) -> None:
        seen.append((messages, context.messages))

    parts.handlers.add_middleware(middleware)
    parts.handler("t", batched, batch=True)
    found = [message(1), message(2)]
    parts.handle(Assignment(parts.box, found, time.monotonic(), together=True))
    assert seen == [(found, found)] * 2


def test_a_handler_that_asks_for_nothing_costs_no_context(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    monkeypatch.setattr("pysqlbox.worker.handling.Context", None)
    parts.handler("t", nothing)
    parts.handle(Assignment(parts.box, [message(1)], time.monotonic()))
    assert parts.box.outcomes.acked == [1]


def test_how_long_a_handler_took_is_noted_for_claims_and_for_people() -> None:
    parts = Parts()
    parts.tally.figures = Figures()
    handler = parts.handler("t", nothing, batch=True)
    it = Assignment(parts.box, [message(1), message(2)], time.monotonic(), together=True)
    steps = parts.handling.steps(it, parts.tally)
    next(steps)
    it.began_at -= 1.0
    with pytest.raises(StopIteration):
        steps.send((None, None))
    cost = parts.box._cost
    assert cost is not None
    assert 0.5 <= cost < 60, "two messages in a second"
    assert parts.tally.figures[parts.box.key, handler.topic].handling.total >= 1.0


def test_of_a_batch_only_what_is_still_here_is_handled(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    handled: list[list[int]] = []
    parts.handler("t", lambda messages: handled.append([each.id for each in messages]), batch=True)
    it = Assignment(parts.box, [message(n) for n in (1, 2, 3)], time.monotonic(), together=True)
    it.lose([2])
    parts.handle(it)
    assert (handled, parts.box.outcomes.acked) == ([[1, 3]], [1, 3])
    assert "message 2 is not begun, its lease ran out" in caplog.text


def test_a_handler_without_a_bound_has_no_places() -> None:
    """Nor is there a lock to wait for after each of its messages."""
    parts = Parts()
    handler = parts.handler("t", nothing)
    with parts.handlers._lock:
        parts.handle(Assignment(parts.box, [message(1)], time.monotonic()))
    assert (handler.active, parts.box.outcomes.acked) == (0, [1])


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
    parts.handling.note(it, message(1), Ack(), parts.tally)
    assert parts.box.outcomes.acked == [1]
    other = Assignment(parts.box, [message(1), message(2)], time.monotonic())
    other.lose([2])
    for each in other.held():
        parts.handling.note(other, each, Retry(), parts.tally)
    assert results(parts) == [(1, "retry")], "what is not lost counts"


def test_each_result_is_counted_and_the_database_told_all_that_it_says() -> None:
    parts = Parts()
    parts.box.max_attempts = 3
    it = Assignment(parts.box, [], time.monotonic())
    answers: list[Result] = [
        Ack(), DeadLetter("bad"), Release(delay=7), Retry(delay=9, error="later"), Retry()
    ]  # fmt: skip
    for number, answer in enumerate(answers):
        parts.handling.note(it, message(number, attempt=2 if number == 4 else 0), answer, parts.tally)
    tally = parts.tally
    assert (tally.acked, tally.dead, tally.released, tally.retried) == (1, 2, 1, 1)
    assert parts.box.outcomes.acked == [0]
    assert parts.box.outcomes.others == [
        {"id": 1, "result": "fail", "error": "bad"},
        {"id": 2, "result": "release", "delay_seconds": 7.0},
        {"id": 3, "result": "retry", "error": "later", "delay_seconds": 9.0},
        {"id": 4, "result": "fail", "error": "given up after 3 attempts"},
    ]


def test_a_dead_letter_always_has_a_reason() -> None:
    parts = Parts()
    it = Assignment(parts.box, [message(1)], time.monotonic())
    parts.handling.note(it, message(1), DeadLetter(""), parts.tally)
    assert parts.box.outcomes.others[0]["error"] == "given up by its handler"


def test_behind_a_handler_that_overran_nothing_of_its_group_is_begun() -> None:
    parts = Parts()
    parts.tally.figures = Figures()
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
    assert parts.tally.figures[parts.box.key, "t"].handling.total == 1.0, "as long as it was waited for"


def test_an_exception_that_cannot_be_shown_has_a_name() -> None:
    class Shy(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    assert describe(Shy()) == "Shy"


@pytest.mark.parametrize(
    ("answer", "begun", "noted"),
    [
        (None, [1, 2], []),
        (DeadLetter("no"), [1, 2], [(1, "fail")]),
        (Retry(), [1], [(1, "retry"), (2, "release")]),
        (Release(), [1], [(1, "release"), (2, "release")]),
        (ValueError("no"), [1], [(1, "retry"), (2, "release")]),
    ],
    ids=["done", "dead", "retry", "release", "error"],
)
def test_of_a_group_nothing_is_begun_behind_what_comes_again(
    answer: Any, begun: list[int], noted: list[tuple[object, object]]
) -> None:
    parts = Parts()
    handled: list[int] = []

    def handle(each: Any) -> Any:
        handled.append(each.id)
        if each.id == 1 and isinstance(answer, Exception):
            raise answer
        return answer if each.id == 1 else None

    parts.handler("t", handle)
    group = [message(1, group_id="g"), message(2, group_id="g")]
    parts.handle(Assignment(parts.box, group, time.monotonic()))
    assert (handled, results(parts)) == (begun, noted)


@pytest.mark.parametrize("on_loop", [False, True])
def test_what_is_of_the_other_kind_goes_where_it_can_be_called(on_loop: bool) -> None:
    """With what waits behind it; where there is no loop at all, whoever has it sees to that."""
    parts = Parts()
    added: list[Any] = []

    async def coroutine(_message: Any) -> None:
        """Never called."""

    parts.handler("other", nothing if on_loop else coroutine)
    it = Assignment(parts.box, [message(1, "other", group_id="g")], time.monotonic())
    coroutines: Any = SimpleNamespace(submit=added.extend)
    parts.scheduler.coroutines = coroutines
    assert list(parts.handling.steps(it, parts.tally, on_loop=on_loop)) == []
    assert [*added, *parts.scheduler.ready] == [it]
    assert it.held()
    assert callable(next(parts.handling.steps(it, parts.tally, on_loop=not on_loop)))
    it = Assignment(parts.box, [message(1, "other")], time.monotonic())
    parts.scheduler.coroutines = None
    assert callable(next(parts.handling.steps(it, parts.tally, on_loop=on_loop)))


def test_an_exception_of_a_batch_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Its traceback is the same for all; each of them has it as a reason."""
    parts = Parts()

    def handle(_messages: Any) -> None:
        raise ValueError("no")

    parts.handler("t", handle, batch=True)
    batch = [message(1), message(2), message(3)]
    parts.handle(Assignment(parts.box, batch, time.monotonic(), together=True))
    assert [record["error"] for record in parts.box.outcomes.others] == ["ValueError: no"] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "outbox: t message 1, attempt 1: ValueError [test]"
    ]


def test_around_what_waits_for_a_join_there_is_no_middleware() -> None:
    """It is the worker's own, and none of the application's business."""
    parts = Parts()
    seen: list[str] = []

    def middleware(each: Any, _context: Any, call: Any) -> Any:
        seen.append(each.topic)
        return call()

    parts.handlers.add_middleware(middleware)
    for topic in ("t", JOIN_WAIT):
        parts.handler(topic, lambda _message: None)
        parts.handle(Assignment(parts.box, [message(1, topic)], time.monotonic()))
    assert seen == ["t"]


def test_the_database_is_told_the_worker_s_own_number_of_attempts() -> None:
    """What this user may not read here, or has changed meanwhile, it decides by that."""
    parts = Parts(settings=Settings(max_attempts=5))
    it = Assignment(parts.box, [message(1)], time.monotonic())
    parts.handling.note(it, message(1), Retry(), parts.tally)
    assert parts.box.outcomes.others[0]["max_attempts"] == 5


def test_only_another_try_is_one_too_many() -> None:
    parts = Parts()
    parts.box.max_attempts = 1
    answers: list[Result] = [Ack(), Release(), Retry(error="no"), DeadLetter("bad")]
    found = [parts.handling.final(parts.box, message(1), each) for each in answers]
    assert found == [Ack(), Release(), DeadLetter("no"), DeadLetter("bad")]


@pytest.mark.parametrize("group", [None, "g"])
def test_what_was_committed_with_its_handler_is_told_to_those_who_wait_for_it(group: str | None) -> None:
    """A drain, and the next of its group; nothing of it is settled again."""
    parts = Parts()
    parts.store.transactions = SimpleNamespace(run=lambda *_: [Ack()])
    parts.handler("t", lambda _message: None, transactional=True)
    progress, wakes = parts.scheduler.progress, parts.box.wakes
    parts.handle(Assignment(parts.box, [message(1, group_id=group)], time.monotonic()))
    assert parts.scheduler.progress > progress
    assert parts.box.wakes - wakes == (1 if group else 0)
    assert (not parts.box.outcomes, parts.tally.acked) == (True, 1)


def test_whoever_leaves_asks_for_what_claims_have_passed_over() -> None:
    """Nobody else does, for the topic was not among those that were claimed."""
    for passed_over in (False, True):
        parts = Parts()

        def handle(_message: Any, parts: Parts = parts, passed_over: bool = passed_over) -> None:
            if passed_over:
                assert parts.handlers.saturated() == {"t"}

        parts.handler("t", handle, concurrency=1)
        parts.handle(Assignment(parts.box, [message(1)], time.monotonic()))
        assert parts.box.wakes == (1 if passed_over else 0)


def test_one_that_hung_and_has_come_back_hangs_no_more() -> None:
    parts = Parts()
    limited = parts.handler("t", lambda _message: None, concurrency=2)
    it = Assignment(parts.box, [message(1)], time.monotonic())
    steps = parts.handling.steps(it, parts.tally)
    next(steps)
    assert it.take_overrun(-1.0)
    parts.handlers.hangs(limited)
    assert (limited.active, limited.hanging) == (1, 1), "it keeps its place"
    with pytest.raises(StopIteration):
        steps.send((None, None))
    assert (limited.active, limited.hanging) == (0, 0)


def test_the_first_error_is_kept() -> None:
    """For drain(raise_errors=True)."""
    parts = Parts()
    first, second = ValueError("first"), ValueError("second")
    for error in (first, second):
        parts.handling.verdict(parts.box, message(1), error)
    assert parts.handling.first_error is first


@pytest.mark.parametrize(
    ("error", "meaning", "level", "traceback"),
    [
        (ValueError("no"), Retry(error="ValueError: no"), logging.ERROR, True),
        (NonRetryable("no"), DeadLetter("NonRetryable: no"), logging.ERROR, True),
        (Undecodable("no"), DeadLetter("Undecodable: no"), logging.ERROR, False),
        (LeaseLost("no"), Retry(error="LeaseLost: no"), logging.WARNING, False),
    ],
    ids=["any", "never again", "undecodable", "lost"],
)
def test_what_an_exception_means_and_how_loud_it_is(
    error: Exception, meaning: Any, level: int, traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A lost lease is no fault of the handler's, and a payload's fault is not in the handler's code."""
    parts = Parts()
    assert parts.handling.verdict(parts.box, message(1), error) == meaning
    (record,) = caplog.records
    assert (record.levelno, bool(record.exc_info)) == (level, traceback)
    caplog.clear()
    parts.handling.verdict(parts.box, message(1), error, quiet=True)
    assert caplog.records == []
