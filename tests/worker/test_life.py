"""Starting, stopping, draining, and what is left afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

import pysqlbox
from pysqlbox import InvalidState
from pysqlbox.worker import Worker
from pysqlbox.worker.deployment_run import DeploymentRun
from pysqlbox.worker.lease_keeper import LeaseKeeper
from pysqlbox.worker.served_box import ServedBox
from tests.contract.support import server_now
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.support import (
    OWNER,
    Calls,
    comes,
    connections,
    nothing,
    put,
    put_many,
    status,
    threads,
    until,
)

Box = pysqlbox.Outbox | pysqlbox.Inbox


@pytest.mark.every_engine
def test_drain_answers_how_many_results_there_were_and_ends(box: Box, make: MakeWorker, calls: Calls) -> None:
    worker = make()
    worker.add_handler("t", calls.handler(None, pysqlbox.Retry(delay=100), pysqlbox.DeadLetter("d"), None))
    assert worker.drain() == 0
    put_many(box, 20)
    assert worker.drain() == 20
    assert worker.drain() == 0
    assert threads() == []
    assert len(calls.all) == 20


def test_drain_takes_what_handlers_put_in_meanwhile(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    """Also in the other box, and behind a message of the same group."""
    worker = make(threads=3)

    @worker.handler("t")
    def handle(message: Any) -> None:
        depth = int(message.payload)
        if depth:
            other = deployment.inbox if isinstance(message, pysqlbox.OutboxMessage) else deployment.outbox
            put(other, payload=str(depth - 1), group_id="g" if depth % 2 else None)

    put(deployment.outbox, payload="12")
    assert worker.drain() == 13


def test_drain_gets_through_many_expired_messages(
    deployment: pysqlbox.Deployment, make: MakeWorker, db: Database
) -> None:
    """A claim gives up after some thousands and answers empty; what lies behind is handled all the same."""
    soon = server_now(db) + timedelta(seconds=60)
    for _ in range(6):
        put_many(deployment.outbox, 5000, expires_at=soon)
    put(deployment.outbox, "t")
    db.advance(120)
    worker = make(threads=2)
    worker.add_handler("t", nothing)
    assert worker.drain() == 1
    assert deployment.outbox.stats()[-1].dead == 30_000


def test_drain_waits_for_no_delays(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    worker = make()
    worker.add_handler("t", lambda _message: pysqlbox.Retry(delay=3600))
    put_many(deployment.outbox, 5)
    assert worker.drain(timeout=60) == 5


def test_drain_of_a_started_worker_ends_it(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls
) -> None:
    worker = make()
    worker.add_handler("t", calls.handler(sleep=0.01))
    made = put_many(deployment.outbox, 30)
    worker.start()
    worker.drain()
    assert {status(deployment.outbox, message) for message in made} == {"Done"}
    assert threads() == []
    worker.start()
    worker.stop()


def test_start_stop_and_start_again(box: Box, make: MakeWorker, calls: Calls) -> None:
    worker = make()
    worker.add_handler("t", calls.handler())
    assert worker.stop()
    for turn in range(1, 4):
        worker.start()
        with pytest.raises(InvalidState):
            worker.start()
        message = put(box)
        until(lambda message=message: status(box, message) == "Done")  # type: ignore[misc]
        assert worker.stop()
        assert worker.stop()
        assert worker.stats().acked == turn
    left = put(box)
    time.sleep(0.15)
    assert status(box, left) == "Ready"
    with worker:
        until(lambda: status(box, left) == "Done")
    assert threads() == []


def test_stop_lets_handlers_finish_and_releases_the_rest_at_once(
    box: Box, make: MakeWorker, calls: Calls
) -> None:
    """Before the running ones have ended, the others can be had; no attempt is counted."""
    worker = make(threads=1)
    worker.add_handler("t", calls.handler(sleep=0.8))
    made = put_many(box, 4)
    group = put_many(box, 3, group_id="g")
    worker.start()
    until(lambda: calls.all and status(box, made[3]) == "InProgress")
    running = calls.all[0].id
    stopper = threading.Thread(target=worker.stop)
    stopper.start()
    until(lambda: sum(status(box, i) == "InProgress" for i in made + group) == 1, 0.6)
    assert status(box, running) == "InProgress"
    stopper.join()
    assert status(box, running) == "Done"
    assert len(calls.all) == 1
    assert {box.get(message).attempt for message in made + group} == {0}
    assert len(box.claim(OWNER)) == 6
    stats = worker.stats()
    assert (stats.acked, stats.busy_threads) == (1, 0)
    assert threads() == []


def test_stop_releases_the_rest_of_a_group_whose_first_is_running(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls
) -> None:
    worker = make(threads=1)
    worker.add_handler("t", calls.handler(None, sleep=0.6))
    worker.add_handler("quick", calls.handler())
    put_many(deployment.outbox, 20, "quick", group_id="g")
    worker.drain()
    made = put_many(deployment.outbox, 4, group_id="g")
    worker.start()
    until(lambda: any(call.topic == "t" for call in calls.all))
    stopper = threading.Thread(target=worker.stop)
    stopper.start()
    until(lambda: [status(deployment.outbox, i) for i in made[1:]] == ["Ready"] * 3, 0.5)
    stopper.join()
    assert [status(deployment.outbox, i) for i in made] == ["Done", "Ready", "Ready", "Ready"]
    assert [message.id for message in deployment.outbox.claim(OWNER)] == made[1:]


def test_a_handler_that_outlasts_the_timeout_of_stop_is_released(
    box: Box, make: MakeWorker, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    go = threading.Event()
    worker = make(threads=2)
    worker.add_handler("t", lambda message: calls.begin(message) and go.wait(20) and None)
    message = put(box)
    done = put(box, "done")
    worker.add_handler("done", nothing)
    worker.start()
    until(lambda: calls.all and status(box, done) == "Done")
    began = time.monotonic()
    assert worker.stop(0.3) is False
    assert 0.25 < time.monotonic() - began < 3
    assert (status(box, message), box.get(message).attempt) == ("Ready", 0)
    assert any("still being handled" in record.getMessage() for record in caplog.records)
    assert worker.stats().busy_threads == 0
    # The worker can start again; what the old thread answers counts no more.
    box.claim(OWNER)
    worker.start()
    go.set()
    until(lambda: len(threads()) == 4 if "listener" in str(threads()) else 3)
    time.sleep(0.1)
    assert status(box, message) == "InProgress"
    assert worker.stop()
    until(lambda: not threads())
    assert worker.stats().acked == 1


def test_stop_from_within_a_handler(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    worker = make(boxes=["outbox"])
    answers: list[bool] = []
    worker.add_handler("t", lambda _message: answers.append(worker.stop(5)))
    message = put(deployment.outbox)
    worker.start()
    until(lambda: not threads())
    assert answers == [False]
    assert status(deployment.outbox, message) == "Done", "it is not released while it is being handled"
    assert worker.stats().released == 0


def test_stop_while_the_database_is_idle_is_quick(make: MakeWorker) -> None:
    worker = make(poll_seconds=30, reap_seconds=10, cleanup_seconds=60, threads=8)
    worker.start()
    time.sleep(0.2)
    began = time.monotonic()
    assert worker.stop()
    assert time.monotonic() - began < 1
    assert threads() == []


@pytest.mark.every_engine
@pytest.mark.dialect("postgres")
def test_no_threads_and_no_connections_are_left(
    db: Database, make: MakeWorker, deployment: pysqlbox.Deployment
) -> None:
    deployment.close()
    until(lambda: connections(db) == 0)
    with pysqlbox.connect(db.url, schema=db.schema) as other:
        put_many(other.outbox, 50)
    worker = make(threads=4, reap_seconds=0.1, cleanup_seconds=0.1)
    worker.add_handler("t", lambda _message: time.sleep(0.01))
    worker.start()
    until(lambda: worker.stats().acked == 50)
    # A connection for each thread, the lease keeper, the listener, the caretaker, and the box's own.
    assert connections(db) <= 4 + 3 + 1
    worker.stop()
    deployment.close()
    assert threads() == []
    until(lambda: connections(db) == 0)


def test_a_fault_of_the_package_itself_costs_no_thread(
    deployment: pysqlbox.Deployment,
    make: MakeWorker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    costs, looks = iter(range(1000)), iter(range(1000))
    note, extend = ServedBox.note_cost, LeaseKeeper._extend_all

    def note_cost(served: ServedBox, seconds: float, count: int = 1) -> None:
        if next(costs) == 0:
            raise RuntimeError("never seen before")
        note(served, seconds, count)

    def extend_all(keeper: LeaseKeeper) -> None:
        if next(looks) == 1:
            raise RuntimeError("neither was this")
        extend(keeper)

    monkeypatch.setattr(ServedBox, "note_cost", note_cost)
    monkeypatch.setattr(LeaseKeeper, "_extend_all", extend_all)
    worker = make(threads=1, lease_seconds=2)
    worker.add_handler("t", nothing)
    put(deployment.outbox)
    worker.start()
    until(lambda: "never seen before" in caplog.text)
    made = put_many(deployment.outbox, 5)
    until(lambda: {status(deployment.outbox, message) for message in made} == {"Done"})
    assert worker.stop()
    assert threads() == []


def test_stats_tell_what_happened(box: Box, make: MakeWorker) -> None:
    answers: dict[str, Any] = {
        "ack": None, "retry": pysqlbox.Retry(delay=9), "dead": pysqlbox.DeadLetter("d")
    }  # fmt: skip
    worker = make()
    for topic, answer in answers.items():
        worker.add_handler(topic, lambda _message, answer=answer: answer)
    for topic, count in (("ack", 5), ("retry", 3), ("dead", 2)):
        put_many(box, count, topic)
    worker.start()
    until(lambda: worker.stats().handled == 10)
    worker.stop()
    stats = worker.stats()
    assert (stats.acked, stats.retried, stats.dead, stats.released) == (5, 3, 2, 0)
    assert (stats.handled, stats.busy_threads) == (10, 0)


def test_a_worker_shows_no_secrets(db: Database) -> None:
    scheme = "postgresql" if db.dialect == "postgres" else "mssql"
    with pysqlbox.connect(f"{scheme}://u:hunter2@localhost:1/x") as deployment:
        assert "hunter2" not in repr(deployment.worker())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_ends_on_a_signal_and_puts_the_old_handlers_back(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls, number: signal.Signals
) -> None:
    worker = make()
    worker.add_handler("t", calls.handler(sleep=0.3))
    message = put(deployment.outbox)
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]

    def interrupt() -> None:
        until(lambda: calls.all)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=interrupt)
    sender.start()
    worker.run()
    sender.join()
    assert status(deployment.outbox, message) == "Done"
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before
    assert threads() == []


def test_run_ends_when_another_thread_stops_the_worker(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls
) -> None:
    worker = make()
    worker.add_handler("t", calls.handler(sleep=0.2))
    message = put(deployment.outbox)

    def stop() -> None:
        until(lambda: calls.all)
        worker.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    worker.run()
    stopper.join()
    assert status(deployment.outbox, message) == "Done"
    assert threads() == []


def test_run_in_another_thread_leaves_signals_alone(make: MakeWorker) -> None:
    worker: Worker = make()
    before = signal.getsignal(signal.SIGTERM)
    runner = threading.Thread(target=worker.run)
    runner.start()
    until(lambda: len(threads()) > 1)
    assert signal.getsignal(signal.SIGTERM) is before
    worker.stop()
    runner.join(5)
    assert not runner.is_alive()


def test_a_stop_from_elsewhere_while_it_starts_leaves_nothing(
    db: Database, make: MakeWorker, calls: Calls
) -> None:
    """It comes while start() calls the hooks, and has ended before start() goes on."""
    worker = make()
    worker.add_handler("t", calls.handler())
    told: list[str] = []
    worker.on_stop(lambda: told.append("stop"))

    @worker.on_start
    def start() -> None:
        stopper = threading.Thread(target=worker.stop)
        stopper.start()
        stopper.join(30)
        told.append("start")

    worker.start()
    assert not worker.is_running
    assert threads() == []
    assert told == ["stop", "start"]
    until(lambda: connections(db) == 0)


def test_a_coroutine_of_a_worker_that_was_stopped_is_not_run(make: MakeWorker) -> None:
    worker = make()
    ran: list[str] = []

    async def late() -> None:
        ran.append("late")

    @worker.on_start
    def start() -> Any:
        stopper = threading.Thread(target=worker.stop)
        stopper.start()
        stopper.join(30)
        return late()

    with pytest.raises(InvalidState, match="stopped"):
        worker.start()
    assert ran == []
    assert threads() == []
    assert not worker.is_running


def test_a_hook_at_the_end_may_call_stop(make: MakeWorker) -> None:
    worker = make()
    answers: list[bool] = []
    worker.on_stop(lambda: answers.append(worker.stop()))
    worker.start()
    assert worker.stop()
    assert answers == [False]
    assert threads() == []


def test_a_handler_cannot_wait_for_its_own_worker(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    worker = make(boxes=["outbox"])
    worker.add_handler("t", lambda _message: worker.drain() and None)
    put(deployment.outbox)
    with pytest.raises(InvalidState, match="drain: must not be called"):
        worker.drain(timeout=30, raise_errors=True)


def test_an_asynchronous_start_that_is_cancelled_leaves_nothing_running(
    make: MakeWorker, calls: Calls
) -> None:
    worker = make()
    worker.add_handler("t", calls.handler())
    starting, go_on = threading.Event(), threading.Event()

    @worker.on_start
    def start() -> None:
        starting.set()
        go_on.wait(30)

    async def main() -> None:
        task = asyncio.create_task(worker.run_async())
        await asyncio.to_thread(starting.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    asyncio.run(main())
    assert not worker.is_running
    until(lambda: not threads())


def test_a_start_that_is_cancelled_in_its_last_moment_lets_handlers_end(
    deployment: pysqlbox.Deployment, make: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads claim as soon as they run, which may be before whoever started them hears of it."""
    launch, go_on = DeploymentRun.start, threading.Event()

    def start_and_linger(run: DeploymentRun) -> None:
        launch(run)
        go_on.wait(60)

    monkeypatch.setattr(DeploymentRun, "start", start_and_linger)
    worker = make(boxes=["outbox"])
    ended: list[int] = []

    async def main() -> None:
        begun, finish = asyncio.Event(), asyncio.Event()

        @worker.handler("t")
        async def handle(message: Any) -> None:
            begun.set()
            await finish.wait()
            ended.append(message.id)

        put(deployment.outbox)
        task = asyncio.create_task(worker.run_async())
        await begun.wait()
        task.cancel()
        try:
            for _ in range(60):  # in which it does not end
                await asyncio.sleep(0.005)
                assert worker.is_running
            finish.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        finally:
            go_on.set()

    asyncio.run(main())
    assert len(ended) == 1
    assert status(deployment.outbox, ended[0]) == "Done"
    assert not worker.is_running


def test_a_hook_at_the_end_that_hangs_is_left_behind(
    make: MakeWorker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Come what may, the worker ends; the other hooks wait for it as long as there is time."""
    monkeypatch.setattr("pysqlbox.worker.worker_run.SETTLE_AT_MOST", 0.3)
    gate, begun = threading.Event(), threading.Event()
    worker = make(boxes=["outbox"], threads=1)

    @worker.on_stop
    def hang() -> None:
        begun.set()
        comes(gate, 60)

    worker.start()
    worker.stop(0.1)
    assert begun.is_set()
    assert not worker.is_running
    assert "has not ended in time: it is left behind" in caplog.text
    gate.set()
    until(lambda: threads() == [])


def test_a_hook_at_the_end_has_what_is_left_of_the_timeout(
    make: MakeWorker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pysqlbox.worker.worker_run.SETTLE_AT_MOST", 0.1)
    ended: list[str] = []
    worker = make(boxes=["outbox"], threads=1)

    @worker.on_stop
    def slow() -> None:
        time.sleep(0.5)
        ended.append("slow")

    @worker.on_stop
    async def other() -> None:
        ended.append("other")

    worker.start()
    worker.stop(60)
    assert ended == ["slow", "other"]
    assert "left behind" not in caplog.text


def test_a_stop_from_within_a_handler_needs_no_thread_more_than_there_may_be(
    deployment: pysqlbox.Deployment, make: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every thread hangs, so do their replacements, and each helper runs."""
    from pysqlbox.worker.worker_run import WorkerRun

    spawned: list[str] = []
    spawn = WorkerRun._spawn

    def noting(run: WorkerRun, name: str, target: Any) -> threading.Thread:
        spawned.append(name)
        return spawn(run, name, target)

    monkeypatch.setattr(WorkerRun, "_spawn", noting)
    gate, asked = threading.Event(), threading.Event()
    worker = make(boxes=["outbox"], threads=1, handler_timeout=0.3, report_seconds=60, max_attempts=1)

    async def on_loop(_message: Any) -> None:
        """Makes the worker begin its loop."""

    def hang(_message: Any) -> None:
        comes(gate, 60)

    def stop(_message: Any) -> None:
        until(lambda: len(threads()) == 2 * 1 + 4)
        assert worker.stop(20) is False
        asked.set()

    worker.add_handler("loop", on_loop)
    worker.add_handler("hang", hang)
    worker.add_handler("stop", stop, timeout=60)
    put(deployment.outbox, "loop")
    worker.start()
    until(lambda: worker.stats().acked == 1)
    put(deployment.outbox, "hang")
    until(lambda: "2" in spawned)
    put(deployment.outbox, "stop")
    assert comes(asked, 30)
    gate.set()
    until(lambda: not worker.is_running, 30)
    assert "stopper" not in spawned
    until(lambda: threads() == [])


def test_a_worker_that_is_measured_before_its_start_counts_everything(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    """By threads and by the loop."""
    worker = make(boxes=["outbox"], threads=2)

    async def on_loop(_message: Any) -> None:
        """Nothing to do."""

    worker.add_handler("t", nothing)
    worker.add_handler("loop", on_loop)
    worker.measure()
    put_many(deployment.outbox, 20)
    put_many(deployment.outbox, 10, "loop")
    assert worker.drain() == 30
    found = {topic: figures.acked for (_, topic), figures in worker.figures().items()}
    assert found == {"t": 20, "loop": 10}
    assert {topic: each.claimed for (_, topic), each in worker.figures().items()} == found


def test_results_that_never_reach_the_database_are_told_of(
    deployment: pysqlbox.Deployment,
    make: MakeWorker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from pysqlbox.worker.database_postgres import PostgresConnection

    monkeypatch.setattr("pysqlbox.worker.worker_run.SETTLE_AT_MOST", 0.3)
    settle, away = PostgresConnection.settle, threading.Event()

    def failing(connection: Any, box: Any, owner: Any, outcomes: Any, *rest: Any) -> list[Any]:
        if outcomes and away.is_set():
            raise pysqlbox.DatabaseUnavailable("gone")
        return settle(connection, box, owner, outcomes, *rest)

    monkeypatch.setattr(PostgresConnection, "settle", failing)
    worker = make(boxes=["outbox"], threads=1)
    worker.add_handler("t", lambda _message: away.set())
    message = put(deployment.outbox)
    worker.start()
    assert comes(away)
    worker.stop(5)
    assert "1 result stays unsettled" in caplog.text
    assert status(deployment.outbox, message) == "InProgress"


def test_a_worker_that_is_stopped_while_it_launches_begins_nothing(
    make: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop comes between the hooks and the threads."""
    from pysqlbox.worker.deployment_run import DeploymentRun

    worker = make(boxes=["outbox"])
    told: list[str] = []
    worker.on_start(lambda: told.append("start"))
    worker.on_stop(lambda: told.append("stop"))
    schedule = DeploymentRun._schedule

    def stopping(run: DeploymentRun, boxes: Any) -> Any:
        worker.stop()
        return schedule(run, boxes)

    monkeypatch.setattr(DeploymentRun, "_schedule", stopping)
    worker.start()
    assert not worker.is_running
    assert told == ["start", "stop"]
    assert threads() == []
