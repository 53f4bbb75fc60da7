"""A run of a worker: how it begins, what it tells of itself, and who ends it."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

import pysqlbox
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.hooks import Hooks
from pysqlbox.worker.worker_run import MORE_THREADS
from tests.unit.runs import PATIENCE, MakeRun, Run, comes, make_run, waits
from tests.unit.standins import Parts, message

__all__ = ["make_run"]


def work(parts: Parts, *ids: int, topic: str = "t") -> Assignment:
    """Messages to be handled."""
    return Assignment(parts.box, [message(each, topic) for each in ids], time.monotonic())


# Beginning


def test_a_run_asks_no_longer_than_until_its_start_fails(make_run: MakeRun) -> None:
    """A signal may only end a start that waits for somebody."""
    run = make_run()
    asking = run._asking()
    asking.__enter__()
    assert run.is_asking
    error = ValueError("no")
    assert not asking.__exit__(ValueError, error, None)
    assert not run.is_asking


def test_what_was_stopped_before_it_began_calls_no_hook(make_run: MakeRun) -> None:
    told: list[str] = []
    hooks = Hooks(on_start=[lambda: told.append("start")], on_stop=[lambda: told.append("stop")])
    run = make_run(hooks=hooks)
    assert run.stop(0.0)
    run.start()
    assert (told, run._workers, run._scheduler) == ([], [], None)


def test_hooks_may_be_coroutines(make_run: MakeRun) -> None:
    told: list[str] = []

    async def start() -> None:
        await asyncio.sleep(0)
        told.append("start")

    run = make_run(hooks=Hooks(on_start=[start, lambda: told.append("second")]))
    run.start()
    assert told == ["start", "second"]


def test_nothing_is_launched_while_somebody_stops_it(make_run: MakeRun) -> None:
    run = make_run()
    launching = waits(lambda: run._launch(run.parts.scheduler))
    with run._lock, launching:
        run._stopping.set()
    launching.answer()
    assert run._workers == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_everybody_who_counts_keeps_figures(make_run: MakeRun, when: str) -> None:
    """The lease keeper and the loop, too; measured before the launch or after it."""
    run = make_run(threads=2, measured=when == "before")
    run.start()
    if when == "after":
        run.measure()
    assert len(run.tallies()) == 5
    assert all(tally.figures is not None for tally in run.tallies())
    kept = [tally.figures for tally in run.tallies()]
    run.measure()
    assert all(tally.figures is before for tally, before in zip(run.tallies(), kept, strict=True))


@pytest.mark.parametrize("when", ["made so", "before", "after"])
def test_a_drain_ends_whenever_it_was_asked_for(make_run: MakeRun, when: str) -> None:
    run = make_run(drain=when == "made so")
    if when == "before":
        run.drain()
    run.start()
    if when == "after":
        run.drain()
    comes(lambda: run.stopping)


def test_who_begins_to_measure_while_a_thread_is_added_sees_it(make_run: MakeRun) -> None:
    run = make_run()

    class Threads(list[Any]):
        def append(self, thread: Any) -> None:
            run.measure()
            super().append(thread)

    run._threads = Threads()
    run.start()
    assert run._threads[0].tally.figures is not None


@pytest.mark.parametrize("which", ["2", "keeper", "helper"])
def test_a_launch_that_fails_leaves_nothing(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """The process may have as many threads as it is allowed."""
    told: list[str] = []
    run = make_run(threads=2, hooks=Hooks(on_stop=[lambda: told.append("stop")]))
    run.to_help["helper"] = bool
    crowded(monkeypatch, run, which)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        run.start()
    assert run.told == [run]
    assert told == ["stop"]
    assert not any(thread.is_alive() for thread in [*run._workers, *run._helpers])


def test_a_thread_that_cannot_be_replaced_is_not_counted(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a worker whose threads all hang would go on claiming."""
    run = make_run()
    run.start()
    crowded(monkeypatch, run, "2")
    with pytest.raises(RuntimeError, match="can't start new thread"):
        run._replace()
    assert (len(run._threads), len(run._workers), run.parts.scheduler._active) == (1, 1, 1)


def crowded(monkeypatch: pytest.MonkeyPatch, run: Run, which: str) -> None:
    """Lets one of the run's threads not begin."""
    spawn = run._spawn

    def failing(name: str, target: Any) -> threading.Thread:
        if name == which:
            raise RuntimeError("can't start new thread")
        return spawn(name, target)

    monkeypatch.setattr(run, "_spawn", failing)


def test_a_drain_waits_for_a_launch(make_run: MakeRun) -> None:
    """Otherwise neither of the two might tell the scheduler."""
    run = make_run()
    draining = waits(run.drain)
    with run._lock, draining:
        pass
    draining.answer()
    assert run._drain


def test_a_lease_keeper_that_ends_whyever_closes_its_connection(make_run: MakeRun) -> None:
    run = make_run()

    def fail(_ended: Any) -> None:
        raise SystemExit

    keeper: Any = SimpleNamespace(run=fail)
    with pytest.raises(SystemExit):
        run._keep(keeper)
    assert run.closed == ["keeper"]


def test_threads_do_not_keep_a_process_from_ending(make_run: MakeRun) -> None:
    run = make_run(threads=2)
    run.to_help["helper"] = bool
    run.start()
    assert len(run._workers) == 2
    assert all(thread.daemon for thread in [*run._workers, *run._helpers])


def test_a_thread_that_hangs_is_replaced_once_there_are_threads(make_run: MakeRun) -> None:
    run = make_run()
    run._replace()
    assert run._workers == []
    run.start()
    replacing = waits(run._replace)
    with run._lock, replacing:
        pass
    replacing.answer()
    assert len(run._workers) == 2
    assert run.parts.scheduler._active == 2


# Meanwhile


@pytest.mark.parametrize("how", ["goes on", "stopped before", "stopped", "dry"])
def test_it_stops_when_a_drain_ends_and_when_somebody_says_so(make_run: MakeRun, how: str) -> None:
    run = make_run()
    if how != "stopped before":
        run.start()
    if how == "dry":
        run.parts.scheduler.stop()
    elif how != "goes on":
        run._stopping.set()
    assert run.stopping is (how != "goes on")


def test_before_anything_has_begun_there_is_nothing_to_wake_or_count(make_run: MakeRun) -> None:
    run = make_run()
    run.wake("outbox")
    run.wake(None)
    assert (run.busy, run.first_error) == (0, None)
    assert run._held(run.parts.box) == []
    assert len(run.tallies()) == 2
    assert run.wait(0.0) is False
    assert run.health().boxes == ()


def test_waiting_ends_with_the_beginning_of_the_end(make_run: MakeRun) -> None:
    """Before anything has begun it looks up soon, since there is no scheduler yet that would tell."""
    run, begun = make_run(), make_run()
    assert not run.wait(3600)
    begun.start()
    threading.Timer(0.02, begun.parts.scheduler.stop).start()
    assert begun.wait(3600) is True
    run._stopping.set()
    assert run.wait(3600) is True


def test_whoever_is_named_is_woken(make_run: MakeRun) -> None:
    run = make_run("outbox", "orders")
    with pytest.raises(pysqlbox.InvalidArgument, match="not 'orders'"):
        run.wake("orders")  # the settings of the stand-in name the outbox only
    run.start()
    before = [box.wakes for box in run.parts.boxes]
    run.wake("outbox")
    run.wake(None)
    assert [box.wakes - old for box, old in zip(run.parts.boxes, before, strict=True)] == [2, 1]


@pytest.mark.parametrize("how", ["runs", "stops", "failed"])
def test_what_has_failed_or_stops_does_not_run(make_run: MakeRun, how: str) -> None:
    run = make_run()
    run.start()
    if how == "stops":
        run._stopping.set()
    elif how == "failed":
        run.failure = ValueError("no")
    found = run.health()
    assert found.running is (how == "runs")
    assert [box.running for box in found.boxes] == [how == "runs"]


@pytest.mark.parametrize("state", ["unknown", "ok", "away", "silent"])
def test_health_tells_how_a_boxes_database_is(make_run: MakeRun, state: str) -> None:
    run = make_run()
    box = run.parts.box
    store: Any = box.store
    store.database.is_silent = state == "silent"
    box.claimed_at = None if state == "unknown" else time.time()
    box.failures = int(state == "away")
    assert run._health_of(box, True).database == state


def test_health_counts_what_is_held_of_each_box(make_run: MakeRun) -> None:
    """What waits, what is parked, what threads and coroutines work on."""
    run = make_run("outbox", "orders")
    parts = run.parts
    handler = parts.handler("limited", lambda _message: None, concurrency=1)
    run.start()
    parts.scheduler.stop()
    run._threads[0].assignment = work(parts, 1)
    handler.parked.append(work(parts, 2, topic="limited"))
    parts.scheduler.ready.append(work(parts, 3))
    parts.scheduler.ready.append(Assignment(parts.boxes[1], [message(4)], time.monotonic()))
    run._coroutines._waiting.append(work(parts, 5))
    held = sorted(each.id for assignment in run._held(parts.box) for each in assignment.held())
    assert held == [1, 2, 3, 5]


# Who ends it


def helped(run: Run) -> threading.Event:
    """A helper that runs until its bell is rung; whether it has been."""
    rung = threading.Event()
    run.to_help["helper"] = lambda: rung.wait(PATIENCE)
    run._bells.append(rung.set)
    return rung


def alive(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Lets the run have all the threads that it may."""
    more = [*run._workers, *(SimpleNamespace(is_alive=lambda: True) for _ in range(2 + MORE_THREADS))]
    monkeypatch.setattr(run, "_workers", more)


def test_whoever_cannot_wait_has_another_thread_end_it(make_run: MakeRun) -> None:
    run = make_run()
    rung = helped(run)
    run.start()
    ended: list[str] = []
    run._end_elsewhere(lambda: ended.append(threading.current_thread().name))
    comes(lambda: ended)
    assert ended == ["pysqlbox-stopper"]
    assert not rung.is_set()


def test_where_there_are_threads_enough_a_helper_ends_it(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is rung up for that, and is not one that it waits for."""
    run = make_run()
    rung = helped(run)
    run.start()
    ended: list[str] = []
    with monkeypatch.context() as patch:
        alive(patch, run)
        run._end_elsewhere(lambda: ended.append(threading.current_thread().name))
        assert rung.is_set()
        comes(lambda: ended)
    assert ended == ["pysqlbox-helper"]


def test_a_helper_does_not_wait_for_itself(make_run: MakeRun) -> None:
    run = make_run()
    rung = helped(run)
    run.start()
    answers: list[bool] = []
    run._left_to_helper = lambda: answers.append(run.stop(5))
    rung.set()
    comes(lambda: answers)
    assert answers == [True]
    assert run.told == [run]


def test_a_helper_that_fails_ends_it_all_the_same(make_run: MakeRun) -> None:
    run = make_run()
    run._ending_helpers = 1
    ended: list[int] = []
    run._left_to_helper = lambda: ended.append(1)

    def fail() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        run._help(fail)
    assert (ended, run._ending_helpers) == ([1], 0)
    run._ending_helpers = 1
    run._help(bool)
    assert ended == [1], "it is done once"


def test_where_no_helper_is_left_a_thread_more_ends_it(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last helper may just have gone."""
    run = make_run()
    run.to_help["helper"] = bool
    run.start()
    comes(lambda: run._ending_helpers == 0)
    ended: list[str] = []
    with monkeypatch.context() as patch:
        alive(patch, run)
        run._end_elsewhere(lambda: ended.append(threading.current_thread().name))
        comes(lambda: ended)
    assert ended == ["pysqlbox-stopper"]


def test_nothing_is_left_to_a_helper_that_is_just_going(make_run: MakeRun) -> None:
    """Both look under the lock: whoever goes sees what was left, or is not counted on."""
    run = make_run()
    run.start()
    run._ending_helpers = 1
    going, leaving = waits(lambda: run._help(bool)), waits(lambda: run._end_elsewhere(bool))
    with run._lock, going, leaving:
        pass
    going.answer()
    leaving.answer()
    assert run._ending_helpers == 0


def test_a_loop_that_was_closed_ends_it_at_once(make_run: MakeRun) -> None:
    """By another thread: the one that has noticed is waited for."""
    run = make_run()
    run.start()
    parts = run.parts
    with parts.scheduler._changed:
        parts.scheduler.ready.append(work(parts, 1))
        threading.Thread(target=run._end_without_loop).start()
        comes(run._stopping.is_set)
    comes(lambda: run.told)
    assert run.settled == [(1, "release")]
    assert run.closed_by == "pysqlbox-stopper"


@pytest.mark.parametrize("who", ["thread", "loop"])
def test_a_handler_that_stops_its_own_run_comes_back(make_run: MakeRun, who: str) -> None:
    """It is one of those that are waited for, so its message is done."""
    run = make_run()
    answers: list[bool] = []

    async def on_loop() -> None:
        answers.append(run.stop(PATIENCE))

    def handle(_message: Any) -> Any:
        return on_loop() if who == "loop" else answers.append(run.stop(PATIENCE))

    run.parts.handler("t", handle)
    run.serve(message(1))
    run.start()
    comes(lambda: run.told)
    assert answers == [False]
    assert run.settled == [(1, "ack")]
    assert run.closed_by == "pysqlbox-stopper"


def test_a_hook_that_stops_its_own_run_comes_back(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Since that ends already, no thread is needed for it."""
    run = make_run()
    begun, answers, spawn = list[str](), list[bool](), run._spawn

    def noting(name: str, target: Any) -> threading.Thread:
        begun.append(name)
        return spawn(name, target)

    monkeypatch.setattr(run, "_spawn", noting)
    run.hooks.on_stop.append(lambda: answers.append(run.stop(PATIENCE)))
    run.start()
    before = time.monotonic()
    assert run.stop(PATIENCE)
    assert time.monotonic() - before < PATIENCE
    assert (answers, run.told) == ([False], [run])
    assert begun == ["1", "keeper", "hooks"]


def test_in_a_forked_child_the_thread_of_its_parents_run_ends(make_run: MakeRun) -> None:
    run = make_run()
    run.is_parents()  # before anything has begun there is none
    run.start()
    run.is_parents()
    scheduler = run.parts.scheduler
    assert (scheduler.forked, scheduler.stopping) == (True, True)
