"""The end of a run: what is waited for, how long, and what becomes of messages, hooks and connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pysqlbox.worker import worker_run
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.hooks import Hooks
from tests.unit.runs import PATIENCE, MakeRun, Run, comes, make_run, waits
from tests.unit.standins import message

__all__ = ["make_run"]


class Gate:
    """A handler that lasts until the gate is opened."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Event(), threading.Event()

    def __call__(self, _message: Any) -> None:
        self.begun.set()
        self.open.wait(PATIENCE)


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Opened at the end at the latest."""
    made = Gate()
    yield made
    made.open.set()


def work(run: Run, *ids: int, topic: str = "t") -> Assignment:
    """Messages that this run has claimed."""
    return Assignment(run.parts.box, [message(each, topic) for each in ids], time.monotonic())


def begun(make_run: MakeRun, gate: Gate, **options: Any) -> Run:
    """A run in the midst of handling message 1."""
    run = make_run(**options)
    run.parts.handler("t", gate)
    run.serve(message(1))
    run.start()
    assert gate.begun.wait(PATIENCE)
    return run


# What was not begun


@pytest.mark.parametrize("where", ["ready", "parked", "behind", "loop"])
def test_what_was_not_begun_is_released(make_run: MakeRun, where: str) -> None:
    """No attempt is counted, and others have it at once."""
    run = make_run()
    handler = run.parts.handler("limited", lambda _message: None, concurrency=1)
    run.start()
    run.parts.scheduler.stop()
    comes(lambda: not run._workers[0].is_alive())
    if where == "ready":
        run.parts.scheduler.ready.append(work(run, 1))
    elif where == "parked":
        handler.parked.append(work(run, 1, topic="limited"))
    elif where == "behind":
        run._threads[0].assignment = work(run, 1)
    else:
        run._coroutines._waiting.append(work(run, 1))
    assert run.stop(0.0)
    assert run.settled == [(1, "release")]


def test_others_get_what_was_not_begun_while_handlers_go_on(make_run: MakeRun, gate: Gate) -> None:
    """Also what a claim brings that was under way."""
    run = begun(make_run, gate)
    run.parts.scheduler.ready.append(work(run, 2))
    stopping = threading.Thread(target=run.stop, args=(None,), daemon=True)
    stopping.start()
    comes(lambda: (2, "release") in run.settled)
    run.parts.scheduler.ready.append(work(run, 3))
    comes(lambda: (3, "release") in run.settled)
    gate.open.set()
    stopping.join(PATIENCE)
    assert run.settled == [(1, "ack"), (2, "release"), (3, "release")]


def test_a_stop_begins_nothing_while_it_is_launched(make_run: MakeRun) -> None:
    run = make_run()
    stopping = waits(run._stop_beginning)
    with run._lock, stopping:
        assert not run._stopping.is_set()
    stopping.answer()
    assert run._stopping.is_set()


# What is waited for


def test_running_handlers_have_until_the_timeout(make_run: MakeRun, gate: Gate) -> None:
    run = begun(make_run, gate)
    began = time.monotonic()
    assert run.stop(0.2) is False
    assert time.monotonic() - began >= 0.2
    assert run.settled == [(1, "release")]
    assert run._tally.released == 1


def test_whoever_is_in_a_hurry_waits_no_longer(make_run: MakeRun, gate: Gate) -> None:
    run = begun(make_run, gate)
    hurry = iter([False, False])
    assert run.stop(None, lambda: next(hurry, True)) is False
    assert run.settled == [(1, "release")]


def test_without_a_timeout_handlers_have_all_the_time(make_run: MakeRun, gate: Gate) -> None:
    run = begun(make_run, gate)
    threading.Timer(0.1, gate.open.set).start()
    assert run.stop(None)
    assert run.settled == [(1, "ack")]


@pytest.mark.parametrize("patient", [True, False])
def test_what_hangs_is_waited_for_by_the_patient_alone(make_run: MakeRun, gate: Gate, patient: bool) -> None:
    """Its message is not at stake any more, but it is no clean end."""
    run = begun(make_run, gate)
    thread = run._threads[0]
    assert thread.assignment is not None
    assert thread.assignment.take_handled()
    run.parts.scheduler.hangs(thread, thread.assignment)
    asked: list[bool] = []

    def hurry() -> bool:
        asked.append(True)
        return True

    assert run.stop(None, hurry, patient=patient) is False
    assert len(asked) == (2 if patient else 1), "once while waiting, and once for the hooks"
    assert run.settled == []


@pytest.mark.parametrize("how", ["at work", "hangs"])
def test_a_thread_that_does_not_come_back_is_not_waited_for_at_the_end(
    make_run: MakeRun, gate: Gate, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Its message has been released, or was given another try before."""
    monkeypatch.setattr(worker_run, "END_AT_MOST", PATIENCE)
    monkeypatch.setattr(worker_run, "CUT_AT_MOST", PATIENCE)
    run = begun(make_run, gate, threads=2)
    joined: list[str] = []
    for thread in [*run._workers, *run._helpers]:
        name = thread.name
        monkeypatch.setattr(thread, "join", lambda *_, name=name: joined.append(name))
    (busy,) = (number for number, each in enumerate(run._threads) if each.assignment is not None)
    if how == "hangs":
        state = run._threads[busy]
        assert state.assignment is not None
        run.parts.scheduler.hangs(state, state.assignment)
    run.stop(0.0)
    assert joined == [run._workers[1 - busy].name, "pysqlbox-keeper"]


def test_threads_have_so_long_to_end(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less after their calls were cut off."""
    monkeypatch.setattr(worker_run, "END_AT_MOST", 100.0)
    run = make_run()
    run.start()
    given: list[float] = []
    monkeypatch.setattr(run._workers[0], "join", given.append)
    run.stop(0.0)
    assert 0 <= given[0] <= worker_run.SETTLE_AT_MOST + worker_run.CUT_AT_MOST


# Once


def test_it_ends_once(make_run: MakeRun, gate: Gate) -> None:
    run = begun(make_run, gate)
    assert run.stop(0.0) is False
    gate.open.set()
    assert run.stop(0.0) is False, "the answer is the first one's"
    assert run.told == [run]
    assert run.closed.count("stores") == 1


def test_who_stops_it_as_well_waits_for_the_end(make_run: MakeRun, gate: Gate) -> None:
    run = begun(make_run, gate)
    first, second = waits(lambda: run.stop(None)), waits(lambda: run.stop(None))
    with first, second:
        assert run.told == []
    gate.open.set()
    assert (first.answer(), second.answer()) == (True, True)
    assert run.told == [run]


def test_a_signals_handler_that_stops_it_in_the_midst_of_that_comes_back(make_run: MakeRun) -> None:
    """It runs in the same thread, which cannot wait for itself."""
    run = make_run()
    run.start()
    answers: list[bool] = []

    def hurry() -> bool:
        answers.append(run.stop(0.0))
        return True

    assert run.stop(0.0, hurry)
    assert answers
    assert not any(answers)
    assert run.told == [run]


# The last results


def test_results_have_so_long_to_reach_the_database(
    make_run: MakeRun, gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_run, "SETTLE_AT_MOST", 0.05)
    run = begun(make_run, gate)
    keeper: Any = run._keeper
    keeper.settles = False
    run.stop(0.0)
    assert "1 result stays unsettled: the database does not answer" in caplog.text


def test_no_call_outlasts_the_last_results(make_run: MakeRun) -> None:
    run = make_run()
    run.start()
    before = time.monotonic()
    run.stop(0.0)
    (until,) = run.must_end_at
    assert before + worker_run.SETTLE_AT_MOST <= until <= time.monotonic() + worker_run.SETTLE_AT_MOST


def test_results_on_their_way_are_waited_for(make_run: MakeRun) -> None:
    run = make_run()
    run.start()
    stopping = waits(lambda: run.stop(0.0))
    with run.parts.scheduler.delivery(), stopping:
        assert run.told == []
    assert stopping.answer() is True


def test_what_reached_the_database_is_not_complained_of(
    make_run: MakeRun, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    run = begun(make_run, gate)
    gate.open.set()
    assert run.stop(None)
    assert "unsettled" not in caplog.text
    assert run.settled == [(1, "ack")]


# What is left behind


def test_everything_is_closed(make_run: MakeRun) -> None:
    run = make_run()
    rung = threading.Event()
    run.to_help["listener"] = lambda: rung.wait(PATIENCE)
    run._bells.append(rung.set)

    async def handle(_message: Any) -> None:
        """Makes the loop begin."""

    run.parts.handler("t", handle)
    run.serve(message(1))
    run.start()
    comes(lambda: run.settled)
    loop = run._coroutines.thread
    assert loop is not None
    assert run.stop(None)
    assert rung.is_set()
    assert not any(thread.is_alive() for thread in [*run._workers, *run._helpers, loop])
    assert run.closed == ["keeper", "stores"]


def test_a_start_that_failed_leaves_nothing(make_run: MakeRun) -> None:
    run = make_run()

    async def hook() -> None:
        """Makes the loop begin."""

    run.hooks.on_start.append(hook)
    run._call_on_start()
    assert run._coroutines.thread is not None
    run._close_early()
    assert not run._coroutines.thread.is_alive()
    assert run.told == [run]
    assert run.stop(0.0), "it is over"
    assert run.told == [run]


# Hooks


def hooked(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, list[float]]:
    """A run that only notes until when its hooks may take."""
    run, until = make_run(), list[float]()
    monkeypatch.setattr(run, "_call_on_stop", until.append)
    run.start()
    return run, until


def test_hooks_have_what_is_left_of_the_timeout(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run, until = hooked(make_run, monkeypatch)
    before = time.monotonic()
    run.stop(1000)
    assert before <= until[0] - 1000 - worker_run.SETTLE_AT_MOST <= time.monotonic()


@pytest.mark.parametrize("why", ["hurry", "timeout"])
def test_hooks_have_a_little_time_in_any_case(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    run, until = hooked(make_run, monkeypatch)
    before = time.monotonic()
    run.stop(1000 if why == "hurry" else 0.0, lambda: why == "hurry")
    assert before <= until[0] - worker_run.SETTLE_AT_MOST <= time.monotonic()


def test_a_hook_that_fails_costs_the_others_nothing(
    make_run: MakeRun, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    def fail() -> None:
        raise ValueError("never seen before")

    run = make_run(hooks=Hooks(on_stop=[fail, lambda: told.append("second")]))
    run.start()
    assert run.stop(1)
    assert told == ["second"]
    assert "never seen before" in caplog.text


def test_only_who_was_told_of_the_start_is_told_of_the_end(make_run: MakeRun) -> None:
    told: list[str] = []
    run = make_run(hooks=Hooks(on_stop=[lambda: told.append("stop")]))
    assert run.stop(1)
    assert told == []


def test_where_nobody_is_to_be_told_no_thread_is_begun(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run()
    run.start()
    begun: list[str] = []
    monkeypatch.setattr(run, "_spawn", lambda name, _target: begun.append(name))
    assert run.stop(1)
    assert begun == []


def test_a_hook_that_hangs_is_left_behind(
    make_run: MakeRun, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(hooks=Hooks(on_stop=[lambda: gate(None)]))
    run._hooks_called = True
    run._call_on_stop(time.monotonic() + 0.05)
    assert "has not ended in time: it is left behind" in caplog.text


def test_hooks_end_before_the_loop_does(make_run: MakeRun) -> None:
    """They may be coroutines."""
    told: list[str] = []

    async def stop() -> None:
        told.append("stop")

    run = make_run(hooks=Hooks(on_stop=[stop]))
    run.start()
    assert run.stop(None)
    assert told == ["stop"]


def test_a_run_of_nothing_has_nothing_at_work(make_run: MakeRun) -> None:
    run = make_run()
    assert not run._at_work(True)
    run._scheduler = stand_in = SimpleNamespace(busy=0, hanging=1)  # type: ignore[assignment]  # as its name says
    assert (run._at_work(True), run._at_work(False)) == (True, False)
    stand_in.busy = 1
    assert run._at_work(False)
    run._scheduler = None
