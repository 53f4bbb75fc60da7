"""idle="sleep": nothing at all is asked of the database while nothing is due; the worker gets up in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

import pysqlbox
from pysqlbox.errors import InvalidArgument
from pysqlbox.worker import Worker, alarm, caretaker, listener, served_box
from pysqlbox.worker.caretaker import Caretaker, Chore
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.proxy import proxy
from tests.worker.support import OWNER, Calls, put, status, until
from tests.worker.test_health import health


def fall_asleep_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers do."""
    monkeypatch.setattr(served_box, "DROWSY_AFTER", 0.2)
    monkeypatch.setattr(served_box, "EMPTY_CLAIMS", 3)
    monkeypatch.setattr(listener, "SLICE_SECONDS", 0.02)  # they are awake for a moment only


def asleep(worker: Worker) -> bool:
    """Whether all of its boxes are."""
    return all(box.asleep for box in worker.health().boxes)


@pytest.fixture
def said(db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[float], Worker]]:
    """When a worker said something to the server, and that worker."""
    fall_asleep_soon(monkeypatch)
    times: list[float] = []
    with (
        proxy(db, lambda _count: times.append(time.monotonic())) as (_, url),
        pysqlbox.connect(url, schema=db.schema) as through,
    ):
        worker = through.worker(
            boxes=["outbox", "inbox"],
            idle="sleep",
            poll_seconds=0.05,
            reap_seconds=0.1,
            cleanup_seconds=0.1,
            schedule_seconds=0.1,
        )
        try:
            yield times, worker
        finally:
            worker.stop(0.5)


def silence(times: list[float], seconds: float) -> int:
    """How often the worker says something within so many seconds."""
    before = len(times)
    threading.Event().wait(seconds)
    return len(times) - before


@pytest.mark.dialect("postgres")
def test_no_statement_reaches_the_server(
    said: tuple[list[float], Worker], deployment: pysqlbox.Deployment, calls: Calls
) -> None:
    """Not of the threads, nor the caretaker, the listener or the lease keeper; then NOTIFY wakes it."""
    times, worker = said
    worker.add_handler("t", calls.handler())
    worker.start()
    until(lambda: asleep(worker) and health(worker).listener == "listening")
    until(lambda: silence(times, 0.3) == 0, 20, "what was under way is over")
    assert silence(times, 3.0) == 0
    made = put(deployment.outbox)
    until(lambda: status(deployment.outbox, made) == "Done")
    until(lambda: asleep(worker))


@pytest.mark.dialect("postgres")
def test_a_lost_listener_does_not_wake_the_database(
    said: tuple[list[float], Worker], deployment: pysqlbox.Deployment, db: Database, calls: Calls
) -> None:
    """A database that goes to sleep closes connections: the worker comes back when it is woken itself."""
    times, worker = said
    worker.add_handler("t", calls.handler())
    worker.start()
    until(lambda: asleep(worker) and health(worker).listener == "listening")
    until(lambda: silence(times, 0.3) == 0, 20)
    db.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE 'LISTEN%'"
    )
    until(lambda: health(worker).listener == "connecting")
    assert silence(times, 1.5) == 0
    made = put(deployment.outbox)  # nobody hears of it
    worker.wake()
    until(lambda: status(deployment.outbox, made) == "Done")
    until(lambda: health(worker).listener == "listening")


@pytest.mark.every_engine
def test_wake_brings_it_back(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name of a box, or all of them; a name that it does not serve is refused."""
    fall_asleep_soon(monkeypatch)
    worker = make(idle="sleep", listen=False)
    worker.add_handler("t", calls.handler())
    worker.wake()  # before the start it is nothing
    worker.start()
    for box in (deployment.outbox, deployment.inbox):
        until(lambda: asleep(worker))
        made = put(box)
        # On a slow engine a claim may still have been under way, which finds it.
        assert asleep(worker) or deployment.target.dialect == "mssql"
        worker.wake(box.name if box.kind == "inbox" else None)
        until(lambda box=box, made=made: status(box, made) == "Done")  # type: ignore[misc]
    with pytest.raises(InvalidArgument, match="must be one that this worker serves, not 'orders'"):
        worker.wake("orders")


@pytest.mark.every_engine
def test_known_due_times_and_ends_of_leases_wake_it(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it knew of when it fell asleep."""
    fall_asleep_soon(monkeypatch)
    worker = make(boxes=["outbox"], idle="sleep", listen=False)
    worker.add_handler("t", calls.handler())
    lost = put(deployment.outbox)
    slow = 1 if deployment.target.dialect == "postgres" else 10  # it must be asleep before
    assert len(deployment.outbox.claim(OWNER, lease_seconds=3 * slow)) == 1
    delayed = put(deployment.outbox, delay=2 * slow)
    worker.start()
    until(lambda: asleep(worker))
    assert not calls.all
    until(lambda: status(deployment.outbox, delayed) == "Done", 20)
    until(lambda: status(deployment.outbox, lost) == "Done", 20)
    assert calls.ids == [delayed, lost]


@pytest.mark.every_engine
def test_schedules_wake_it(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    fall_asleep_soon(monkeypatch)
    deployment.schedules.set("often", "t", "p", every=2)
    worker = make(boxes=["outbox"], idle="sleep", listen=False, schedule_seconds=600)
    worker.add_handler("t", calls.handler())
    worker.start()
    until(lambda: len(calls.all) >= 2, 30)


@pytest.mark.dialect("postgres")
def test_chores_wait_until_it_is_awake(
    make: MakeWorker, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reaping, cleaning up and looking at schedules, however often they are asked for."""
    fall_asleep_soon(monkeypatch)
    monkeypatch.setattr(caretaker, "NAP_SECONDS", 0.02)
    done: list[str] = []
    monkeypatch.setattr(Caretaker, "_try", lambda _caretaker, chore: done.append(_postponed(chore)))
    worker = make(boxes=["outbox"], idle="sleep", listen=False, reap_seconds=0.1)
    worker.add_handler("t", calls.handler())
    worker.start()
    until(lambda: asleep(worker) and done)
    threading.Event().wait(0.3)
    before = len(done)
    threading.Event().wait(1.0)
    assert len(done) == before
    worker.wake()
    until(lambda: len(done) > before)


def _postponed(chore: Chore) -> str:
    chore.next_at = time.monotonic() + chore.every_seconds
    return chore.name


@pytest.mark.dialect("postgres")
def test_a_retry_of_its_own_wakes_it(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delay begins when the handler ends, at which the worker may be asleep already."""
    fall_asleep_soon(monkeypatch)
    worker = make(boxes=["outbox"], idle="sleep", listen=False)
    worker.add_handler("t", calls.handler(pysqlbox.Retry(delay=1), None, sleep=0.8))
    put(deployment.outbox)
    worker.start()
    until(lambda: len(calls.all) == 2, 20)


@pytest.mark.dialect("postgres")
def test_a_worker_that_cannot_see_when_to_get_up_stays_awake(
    deployment: pysqlbox.Deployment,
    make: MakeWorker,
    calls: Calls,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its results are not settled again for that."""

    fall_asleep_soon(monkeypatch)

    def fail(*_: object) -> float:
        raise pysqlbox.PysqlboxError("no right to see")

    monkeypatch.setattr("pysqlbox.worker.exchange.alarm", fail)
    assert callable(alarm.alarm)
    worker = make(boxes=["outbox"], idle="sleep", listen=False)
    worker.add_handler("t", calls.handler())
    worker.start()
    until(lambda: "does not sleep, for it cannot see when to get up" in caplog.text)
    made = put(deployment.outbox)
    until(lambda: status(deployment.outbox, made) == "Done")
    assert not asleep(worker)


def test_other_policies_are_refused(make: MakeWorker) -> None:
    with pytest.raises(InvalidArgument, match='idle: must be "poll" or "sleep"'):
        make(idle="doze")
