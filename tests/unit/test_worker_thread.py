"""One thread of a worker: what it does with what it gets, whatever its handlers do."""

from __future__ import annotations

import logging
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from pysqlbox import Ack, DeadLetter, Retry, watching
from pysqlbox.worker import worker_thread
from pysqlbox.worker.assignment import STUCK_SECONDS, Assignment
from pysqlbox.worker.coroutines import Coroutines
from pysqlbox.worker.figures import Figures
from pysqlbox.worker.served_box import ServedBox
from pysqlbox.worker.worker_thread import WorkerThread
from tests.unit.standins import Parts, message


class Exchange:
    """Notes which boxes were settled, or asked."""

    def __init__(self) -> None:
        self.settled: list[ServedBox] = []
        self.asked: list[ServedBox] = []

    def settle(self, box: ServedBox) -> None:
        self.settled.append(box)

    def run(self, _thread: WorkerThread, box: ServedBox) -> None:
        self.asked.append(box)


class ChildEnds(BaseException):
    """In place of the end of a child process."""


class It:
    """A thread's state, whose steps the test takes; and what surrounds it."""

    def __init__(self) -> None:
        self.parts = Parts(threads=2)
        self.scheduler = self.parts.scheduler
        self.box = self.parts.box
        self.exchange = Exchange()
        exchange: Any = self.exchange
        self.thread = WorkerThread(self.scheduler, self.parts.handling, exchange, Coroutines(1, None), 0)
        self.called: list[int] = []

    def handler(self, function: Any = None, topic: str = "t", **options: Any) -> None:
        """Registers a handler that notes its calls, and does something more."""

        def handle(each: Any) -> Any:
            self.called.append(each.id)
            return None if function is None else function(each)

        self.parts.handler(topic, handle, **options)

    def work(self, *ids: int, loose: bool = False, topic: str = "t") -> Assignment:
        """Messages for it."""
        return Assignment(self.box, [message(each, topic) for each in ids], time.monotonic(), loose=loose)

    @property
    def others(self) -> list[tuple[object, object]]:
        """What came of messages that were not simply done."""
        return [(each["id"], each["result"]) for each in self.box.outcomes.others]


@pytest.fixture
def it() -> It:
    """One with a handler that does nothing."""
    return It()


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever ends a child raises."""

    def end_child(_log: Any) -> None:
        raise ChildEnds

    monkeypatch.setattr(worker_thread, "end_child", end_child)


def scripted(it: It, monkeypatch: pytest.MonkeyPatch, *works: Any) -> list[float]:
    """Lets the thread run through these; how long it has paused in between."""
    following, paused = iter(works), list[float]()
    monkeypatch.setattr(it.scheduler, "next", lambda _thread: next(following, None))

    def pause(seconds: float) -> None:
        assert it.thread.assignment is None, "the lease keeper would extend it"
        paused.append(seconds)

    monkeypatch.setattr(it.scheduler, "pause", pause)
    it.thread.run()
    return paused


# Its life


def test_it_handles_what_it_gets_and_asks_when_it_is_told_to(it: It, monkeypatch: pytest.MonkeyPatch) -> None:
    it.handler()
    ready = it.work(2)
    it.scheduler.ready.append(ready)
    assert scripted(it, monkeypatch, it.work(1), it.box) == []
    assert it.exchange.asked == [it.box]
    assert (it.called, it.box.outcomes.acked) == ([1, 2], [1, 2])


@pytest.mark.parametrize("what", ["handling", "asking"])
def test_the_unforeseen_costs_no_thread(
    it: It, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """Nor does it come again at once; what the thread had is left to its lease, and nobody begins it."""
    it.handler()
    broken, steps = it.work(1, 2), it.parts.handling.steps

    def failing(assignment: Assignment, *rest: Any) -> Any:
        if assignment is broken:
            assignment.begin(it.parts.handlers.by_topic["t"])
            raise SystemExit("never seen before")
        return steps(assignment, *rest)

    def refuse(*_: Any) -> None:
        raise SystemExit("never seen before")

    monkeypatch.setattr(it.parts.handling, "steps", failing)
    monkeypatch.setattr(it.exchange, "run", refuse)
    paused = scripted(it, monkeypatch, broken if what == "handling" else it.box, it.work(3))
    assert it.called == [3]
    assert paused == [1.0]
    assert "never seen before" in caplog.text
    if what == "handling":
        assert "unexpected; messages [1, 2] are left to leases" in caplog.text
        assert (broken.held(), it.thread.assignment) == ([], None)


def test_who_hung_says_that_it_is_back_and_begins_nothing_before(
    it: It, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one may be in its place."""
    it.handler(lambda _message: setattr(it.thread, "hanging", True))
    back: list[WorkerThread] = []
    monkeypatch.setattr(it.scheduler, "came_back", back.append)
    it.scheduler.ready.append(it.work(2))
    scripted(it, monkeypatch, it.work(1))
    assert (it.called, back) == ([1], [it.thread])


def test_who_did_not_hang_says_nothing(it: It, monkeypatch: pytest.MonkeyPatch) -> None:
    it.handler()
    back: list[WorkerThread] = []
    monkeypatch.setattr(it.scheduler, "came_back", back.append)
    scripted(it, monkeypatch, it.work(1))
    assert back == []


# One thing after the other


def test_nothing_is_taken_while_it_stops(it: It) -> None:
    it.handler()
    it.scheduler.ready.append(it.work(1))
    it.scheduler.stopping = True
    it.thread._work(None)
    assert (it.called, len(it.scheduler.ready)) == ([], 1)


def test_when_little_is_left_it_asks_for_more(it: It) -> None:
    """It comes back for that, with work ready for the others."""
    it.handler()
    it.scheduler.ready.extend(it.work(each) for each in range(5))
    it.scheduler.low_water = 2
    it.thread._work(None)
    assert (it.called, len(it.scheduler.ready)) == ([0, 1, 2], 2)


def test_another_thread_may_be_quicker(it: It) -> None:
    """Between the look and the grip."""

    class Taken(deque[Assignment]):
        def popleft(self) -> Assignment:
            self.clear()
            return super().popleft()

    it.handler()
    it.scheduler.ready = Taken([it.work(1)])
    it.thread._work(None)
    assert it.called == []


@pytest.mark.parametrize("quick", [True, False])
def test_help_is_called_for_what_takes_long(it: It, monkeypatch: pytest.MonkeyPatch, quick: bool) -> None:
    it.handler()
    it.box.note_cost(1e-6 if quick else 1.0)
    helped: list[int] = []
    monkeypatch.setattr(it.scheduler, "call_help", lambda: helped.append(len(it.scheduler.ready)))
    it.scheduler.ready.append(it.work(2))
    it.scheduler.low_water = 1
    it.thread._work(it.work(1))
    assert helped == ([] if quick else [1])


def test_nobody_is_called_where_there_is_nothing_to_do(it: It, monkeypatch: pytest.MonkeyPatch) -> None:
    it.handler()
    it.box.note_cost(1.0)
    helped: list[int] = []
    monkeypatch.setattr(it.scheduler, "call_help", lambda: helped.append(1))
    it.thread._work(it.work(1))
    assert helped == []


@pytest.mark.parametrize("loose", [True, False])
def test_the_lease_keeper_sees_what_it_handles_and_no_longer(it: It, loose: bool) -> None:
    seen: list[Any] = []
    it.handler(lambda _message: seen.append(it.thread.assignment))
    work = it.work(1, loose=loose)
    it.thread._work(work)
    assert (seen, it.thread.assignment) == ([work], None)


@pytest.mark.parametrize("why", ["they wait", "it stops", "neither"])
def test_results_are_settled_while_handlers_go_on(it: It, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    monkeypatch.setattr(worker_thread, "SETTLE_SECONDS", -1.0 if why == "they wait" else 3600.0)
    it.handler(lambda _message: setattr(it.scheduler, "stopping", why == "it stops"))
    it.thread._work(it.work(1))
    assert it.exchange.settled == ([] if why == "neither" else [it.box])


# A handler


@pytest.mark.parametrize("loose", [True, False])
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(), KeyboardInterrupt()])
def test_whatever_a_handler_raises_means_again(it: It, loose: bool, error: BaseException) -> None:
    def fail(each: Any) -> None:
        if each.id == 1:
            raise error

    it.handler(fail)
    work = it.work(1, 2, loose=loose)
    it.thread._work(work)
    assert it.others[0] == (1, "retry")
    assert it.box.outcomes.acked == ([2] if loose else [])


@pytest.mark.parametrize("loose", [True, False])
def test_a_function_may_answer_with_a_coroutine(it: It, loose: bool) -> None:
    async def later() -> DeadLetter:
        return DeadLetter("no")

    it.handler(lambda _message: later())
    it.thread._work(it.work(1, loose=loose))
    assert it.others == [(1, "fail")]
    it.thread._coroutines.close()


@pytest.mark.usefixtures("child")
@pytest.mark.parametrize("how", ["returns", "raises"])
@pytest.mark.parametrize("loose", [True, False])
def test_a_child_that_comes_back_from_a_handler_ends(it: It, loose: bool, how: str) -> None:
    def fork(_message: Any) -> None:
        it.scheduler.forked = it.scheduler.stopping = True
        if how == "raises":
            raise ValueError("in the child")

    it.handler(fork)
    with pytest.raises(ChildEnds):
        it.thread._work(it.work(1, loose=loose))
    assert it.box.outcomes.acked == []
    assert it.others == []


@pytest.mark.usefixtures("child")
def test_the_parent_goes_on(it: It) -> None:
    it.handler(lambda _message: setattr(it.scheduler, "stopping", True))
    it.thread._work(it.work(1, loose=True))
    assert it.box.outcomes.acked == [1]


# Quick messages


def test_quick_messages_are_handled_one_after_the_other(it: It) -> None:
    it.handler()
    it.thread._work(it.work(1, 2, 3, loose=True))
    assert it.box.outcomes.acked == [1, 2, 3]
    assert it.thread.tally.acked == 3
    assert it.box._cost is not None


@pytest.mark.parametrize("why", ["middleware", "logs", "watcher"])
def test_where_there_is_more_to_a_message_each_is_handled_by_itself(
    it: It, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    it.handler()
    if why == "middleware":
        it.parts.handlers.add_middleware(lambda _message, _context, call_next: call_next())
    elif why == "logs":
        monkeypatch.setattr(worker_thread, "is_watched", lambda: True)
    else:
        monkeypatch.setattr(watching, "watcher", SimpleNamespace())
    it.scheduler.low_water = 9
    it.thread._work(it.work(1, 2, loose=True))
    assert it.called == []
    assert [[each.id for each in split.held()] for split in it.scheduler.ready] == [[1], [2]]
    assert not any(split.loose for split in it.scheduler.ready)


@pytest.mark.parametrize("what", ["a watcher comes", "it stops"])
def test_after_what_comes_in_between_no_quick_message_is_begun(
    it: It, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def handle(_message: Any) -> None:
        if what == "it stops":
            it.scheduler.stopping = True
        else:
            monkeypatch.setattr(watching, "watcher", SimpleNamespace())

    it.handler(handle)
    it.scheduler.low_water = 9
    work = it.work(1, 2, loose=True)
    it.thread._work(work)
    assert (it.called, it.box.outcomes.acked) == ([1], [1])
    assert work.take_handled() == [], "a stop would release what is done"
    assert it.others == ([(2, "release")] if what == "it stops" else [])
    assert len(it.scheduler.ready) == (0 if what == "it stops" else 1)


def test_behind_a_slow_one_the_rest_goes_to_others(it: It) -> None:
    it.handler(lambda _message: time.sleep(2 * STUCK_SECONDS))
    it.scheduler.low_water = 9
    it.thread._work(it.work(1, 2, 3, loose=True))
    assert it.called == [1]
    assert [each.id for split in it.scheduler.ready for each in split.held()] == [2, 3]


@pytest.mark.parametrize("answer", [None, Retry()])
def test_the_answer_for_what_was_taken_away_is_void(it: It, answer: Any) -> None:
    """And what waits behind it is not this thread's either."""
    work = it.work(1, 2, loose=True)
    it.handler(lambda _message: work.take_handled() and answer)
    it.scheduler.low_water = 9
    it.thread._work(work)
    assert (it.called, it.box.outcomes.acked, it.others) == ([1], [], [])
    assert it.thread.tally.acked == 0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(Ack(), "ack"), (Retry(delay=1), "retry"), (DeadLetter("no"), "fail"), ("nonsense", "retry")],
)
def test_quick_messages_may_have_any_result(it: It, answer: Any, expected: str) -> None:
    it.handler(lambda each: answer if each.id == 2 else None)
    it.thread._work(it.work(1, 2, 3, loose=True))
    assert it.others == ([] if expected == "ack" else [(2, expected)])
    assert it.box.outcomes.acked == ([1, 2, 3] if expected == "ack" else [1, 3])


def test_figures_of_quick_messages_count_each_once(it: It) -> None:
    it.handler(lambda each: Retry() if each.id == 2 else None)
    it.thread.tally.figures = Figures()
    it.thread._work(it.work(1, 2, 3, loose=True))
    figures = it.thread.tally.figures[it.box.key, "t"]
    assert (figures.acked, figures.retried, it.thread.tally.acked) == (2, 1, 2)
    assert sum(figures.handling.counts) == 3


@pytest.mark.parametrize("verbose", [True, False])
def test_every_quick_message_is_logged_where_somebody_reads(
    it: It, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, verbose: bool
) -> None:
    """Where nobody does it costs nothing."""
    it.handler()
    info, asked = it.box.log.info, list[int]()

    def told(*arguments: Any, **more: Any) -> None:
        asked.append(1)
        info(*arguments, **more)

    monkeypatch.setattr(it.box.log, "info", told)
    caplog.set_level(logging.INFO if verbose else logging.WARNING, "pysqlbox.worker")
    it.thread._work(it.work(1, 2, loose=True))
    assert len([r for r in caplog.records if "t message" in r.getMessage()]) == len(asked)
    assert len(asked) == (2 if verbose else 0)


def test_what_a_quick_handler_takes_is_decoded(it: It) -> None:
    """It has a class of its own for that."""
    got: list[Any] = []

    def handle(order: dict[str, int]) -> None:
        got.append(order)

    handler = it.parts.handler("t", handle)
    handler.decode = lambda each: {"id": each.id}
    it.thread._work(it.work(1, loose=True))
    assert got == [{"id": 1}]


def test_without_one_that_was_begun_nothing_was_learned(it: It) -> None:
    """A cost of no message would be a division by zero."""
    it.thread._work(it.work(1, loose=True, topic="nobody's"))
    assert it.box._cost is None
