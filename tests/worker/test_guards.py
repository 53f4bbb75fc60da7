"""Guards that nothing else would miss: each of these tests is here because of one of them."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import pysqlbox
from pysqlbox import DeadLetter
from pysqlbox.worker import fixed
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.database import Database as WorkerDatabase
from pysqlbox.worker.outcomes import Outcomes
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.support import OWNER, Calls, comes, nothing, put, put_many, status, until


@pytest.mark.every_engine
def test_the_late_answer_for_a_lost_message_does_nothing_to_its_next_claim(
    db: Database, deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    """The same worker has claimed it again; what the first handler answers is not for that claim."""
    lease = 2 if db.dialect == "postgres" else 20
    worker = make(boxes=["outbox"], threads=2, lease_seconds=lease, poll_seconds=0.05, max_attempts=0)
    gates = [threading.Event() for _ in range(2)]
    calls = Calls()

    def handle(message: Any) -> Any:
        call = calls.begin(message)
        number = len(calls.all) - 1
        comes(gates[number], 20)
        calls.end(call)
        return DeadLetter("too late") if number == 0 else None

    worker.add_handler("t", handle)
    message = put(deployment.outbox)
    worker.start()
    until(lambda: len(calls.all) == 1)
    deadline = time.monotonic() + 20
    while len(calls.all) == 1 and time.monotonic() < deadline:
        db.advance(10 * lease)  # unless the lease keeper is quicker
        time.sleep(0.3)
    assert len(calls.all) == 2
    time.sleep(lease)  # the lease keeper learns which claim is lost
    gates[0].set()
    until(lambda: calls.all[0].ended)
    time.sleep(0.5)
    assert status(deployment.outbox, message) == "InProgress"
    gates[1].set()
    until(lambda: status(deployment.outbox, message) == "Done")
    worker.stop()


@pytest.mark.dialect("postgres")
def test_prepared_statements_that_are_gone_are_done_without(deployment: pysqlbox.Deployment) -> None:
    """As behind a pooler that gives every transaction another connection."""
    made = put_many(deployment.outbox, 30)
    connection: Any = WorkerDatabase(deployment).open()
    found: list[int] = []
    try:
        for turn in range(12):
            done = Outcomes()
            done.acked.extend(found[-2:])
            found += [m.id for m in connection.settle(deployment.outbox, OWNER, done, 2, 30, None)]
            if turn == 8:
                connection._connection.pgconn.exec_(b"DEALLOCATE ALL")  # behind psycopg's back
    finally:
        connection.close()
    assert found == made[:24]
    assert {status(deployment.outbox, message) for message in found[:-2]} == {"Done"}


@pytest.mark.dialect("postgres")
def test_statistics_too_are_read_without_prepared_statements_that_are_gone(
    deployment: pysqlbox.Deployment,
) -> None:
    """On the same connection, which only the first refusal costs anything."""
    connection: Any = WorkerDatabase(deployment).open()
    try:
        tables = connection.tables({"box": (deployment.schema, "outbox")})
        session = connection.process
        for turn in range(12):
            assert set(connection.written(tables)) == {"box"}
            if turn in (8, 10):
                connection._connection.pgconn.exec_(b"DEALLOCATE ALL")  # behind psycopg's back
        assert connection.process == session
    finally:
        connection.close()


@pytest.mark.dialect("postgres")
def test_what_was_sent_before_anybody_listened_waits_for_no_poll(
    deployment: pysqlbox.Deployment, make: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pysqlbox.worker.listener import Listener

    listen, go = Listener._listen, threading.Event()

    def late(listener: Listener) -> None:
        comes(go, 20)
        listen(listener)

    monkeypatch.setattr(Listener, "_listen", late)
    monkeypatch.setattr("pysqlbox.worker.served_box.DROWSY_AFTER", 0.1)
    worker = make(boxes=["outbox"], poll_seconds=60)
    worker.add_handler("t", nothing)
    worker.start()
    time.sleep(1.0)
    message = put(deployment.outbox)
    time.sleep(0.5)
    assert status(deployment.outbox, message) == "Ready"
    go.set()
    until(lambda: status(deployment.outbox, message) == "Done", 5)
    worker.stop()


def test_messages_claimed_together_are_not_begun_after_their_lease(
    deployment: pysqlbox.Deployment,
    make: MakeWorker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Quick ones too: a process that slept looks at its clock before each of them."""
    monkeypatch.setattr("pysqlbox.worker.lease_keeper.LeaseKeeper._extend_all", lambda *_: None)
    monkeypatch.setattr("pysqlbox.worker.lease_keeper.LeaseKeeper._look", lambda *_: None)
    calls = Calls()
    worker = make(boxes=["outbox"], threads=1, lease_seconds=1)

    def handle(message: Any) -> None:
        call = calls.begin(message)
        if message.payload == "50" and message.attempt == 0:
            time.sleep(1.2)
        calls.end(call)

    worker.add_handler("t", handle)
    made = put_many(deployment.outbox, 400)
    worker.drain()
    late = {int(str(r.args[1])) for r in caplog.records if "not begun" in r.msg and isinstance(r.args, tuple)}
    assert late, "those that were claimed with the slow one"
    time.sleep(1.2)
    worker.drain()
    assert {call.attempt for call in calls.all if call.id in late} == {1}
    assert {status(deployment.outbox, message) for message in made[::20]} == {"Done"}


@pytest.mark.parametrize("quick", [False, True])
def test_an_assignment_gives_each_message_away_once(quick: bool) -> None:
    """Whoever asks: the thread that begins, the stop that takes what waits and what runs."""
    from types import SimpleNamespace

    box: Any = SimpleNamespace(settings=SimpleNamespace(lease_seconds=30))
    handler: Any = SimpleNamespace(simple=True)
    for _ in range(200):
        messages = [SimpleNamespace(id=n, topic="t") for n in range(40)]
        assignment = Assignment(box, messages, time.monotonic(), loose=quick)
        taken: list[int] = []

        def work_quickly(assignment: Assignment = assignment, taken: list[int] = taken) -> None:
            message = assignment.next_quick({"t": handler}, 30)
            while message is not None:
                following = assignment.next_quick({"t": handler}, 30)
                if following is not None or not assignment.overrun:
                    taken.append(message.id)
                message = following

        def work(assignment: Assignment = assignment, taken: list[int] = taken) -> None:
            while (found := assignment.begin(handler)) is not None:
                if assignment.finish():
                    taken.extend(message.id for message in found)

        def stop(assignment: Assignment = assignment, taken: list[int] = taken) -> None:
            taken.extend(message.id for message in assignment.take_handled())
            taken.extend(message.id for message in assignment.take_waiting())

        threads = [threading.Thread(target=target) for target in (work_quickly if quick else work, stop)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken) == list(range(40))
        assert assignment.held() == []


def test_retries_given_up_by_the_worker_and_by_the_database_agree(
    deployment: pysqlbox.Deployment, make: MakeWorker, db: Database
) -> None:
    """A worker that may not read the settings leaves the decision to the database."""
    from pysqlbox.worker.served_box import ServedBox

    worker = make(boxes=["outbox"], max_attempts=2, backoff=fixed(1))
    worker.add_handler("t", Calls().handler(ValueError("no")))
    message = put(deployment.outbox)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServedBox, "gives_up", lambda *_: False)
        worker.drain()
        assert status(deployment.outbox, message) == "Ready"
        db.advance(3)
        worker.drain()
    assert status(deployment.outbox, message) == "Failed"


def test_what_a_claim_brings_while_the_worker_stops_is_released(
    deployment: pysqlbox.Deployment, make: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim was under way; nobody begins what it brought, and nobody keeps it."""
    from pysqlbox.worker.exchange import Exchange

    begun, go = threading.Event(), threading.Event()
    size = Exchange._claim_size

    def slow(exchange: Exchange, served: Any) -> int:
        found = size(exchange, served)
        begun.set()
        comes(go, 20)
        return found

    monkeypatch.setattr(Exchange, "_claim_size", slow)
    calls = Calls()
    worker = make(boxes=["outbox"], threads=1)
    worker.add_handler("t", calls.handler())
    made = put_many(deployment.outbox, 3)
    worker.start()
    assert begun.wait(10)
    stopper = threading.Thread(target=worker.stop)
    stopper.start()
    time.sleep(0.3)
    go.set()
    stopper.join(20)
    assert calls.all == []
    assert {status(deployment.outbox, message) for message in made} == {"Ready"}
    assert len(deployment.outbox.claim(OWNER)) == 3


@pytest.mark.dialect("postgres")
def test_the_pools_prepared_statements_that_are_gone_are_done_without(
    deployment: pysqlbox.Deployment,
) -> None:
    for _ in range(5):
        put(deployment.outbox)
    with deployment.connection() as raw:
        raw.pgconn.exec_(b"DEALLOCATE ALL")  # behind psycopg's back, as a pooler does
    made = [put(deployment.outbox) for _ in range(5)]
    assert len(set(made)) == 5
