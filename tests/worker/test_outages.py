"""A database that is slow, silent, away, or not there yet."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pysqlbox
from pysqlbox.worker import Worker, database, deployment_run, fixed, lease_keeper
from pysqlbox.worker.deployment_run import DeploymentRun
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.processes import Journal, fill, processes
from tests.worker.proxy import Proxy, proxy
from tests.worker.support import OWNER, Calls, comes, nothing, put, put_many, status, threads, until

pytestmark = pytest.mark.dialect("postgres")


def running(worker: Worker) -> bool:
    """Whether it runs now."""
    return worker.is_running


@contextlib.contextmanager
def behind_proxy(db: Database, **options: Any) -> Iterator[tuple[Proxy, Worker]]:
    """A worker that reaches its database through a proxy."""
    with proxy(db) as (between, url), pysqlbox.connect(url, schema=db.schema) as through:
        worker = through.worker(
            **{
                "boxes": ["outbox"],
                "poll_seconds": 0.1,
                "reap_seconds": None,
                "cleanup_seconds": None,
                **options,
            }
        )
        try:
            yield between, worker
        finally:
            between.frozen.clear()
            worker.stop(0.5)


def test_a_stalled_database_makes_no_handler_late(
    db: Database, deployment: pysqlbox.Deployment, calls: Calls
) -> None:
    """The time of a handler begins when it is called, not when something was asked of the database."""
    with behind_proxy(db, threads=1, handler_timeout=0.4) as (between, worker):
        worker.add_handler("t", calls.handler(sleep=0.04))
        made = put_many(deployment.outbox, 40)
        worker.start()
        until(lambda: len(calls.all) >= 3)
        between.frozen.set()
        time.sleep(1.2)
        between.frozen.clear()
        until(lambda: worker.stats().acked == 40)
        worker.stop()
    assert worker.stats().retried == 0
    assert sorted(calls.ids) == made, "handled twice"


@pytest.mark.every_engine
def test_what_was_finished_during_an_outage_is_settled_with_its_result(
    db: Database, deployment: pysqlbox.Deployment, monkeypatch: pytest.MonkeyPatch, calls: Calls
) -> None:
    """However many connections were tried meanwhile, and although a handler overran its time in between."""
    monkeypatch.setattr(lease_keeper, "LIMIT_SECONDS", 1.0)
    monkeypatch.setattr(database, "CALL_SECONDS", 1.0)
    go = threading.Event()
    with behind_proxy(db, threads=4, backoff=fixed(3600)) as (between, worker):

        @worker.handler("t")
        def handle(message: Any) -> Any:
            call = calls.begin(message)
            comes(go, 10)
            calls.end(call)
            return pysqlbox.DeadLetter("no") if message.payload == "dead" else None

        worker.add_handler("hangs", lambda _message: time.sleep(3), timeout=0.5)
        made = [put(deployment.outbox), put(deployment.outbox, payload="dead"), put(deployment.outbox)]
        hanging = put(deployment.outbox, "hangs")
        worker.start()
        until(lambda: len(calls.all) == 3 and status(deployment.outbox, hanging) == "InProgress")
        between.frozen.set()
        go.set()
        time.sleep(3)
        between.frozen.clear()
        until(
            lambda: [status(deployment.outbox, message) for message in made] == ["Done", "Failed", "Done"], 20
        )
        until(lambda: deployment.outbox.get(hanging).attempt == 1, 20)
        assert sorted(calls.ids) == made, "handled again"
        worker.stop(5)


@pytest.mark.every_engine
def test_a_silent_database_is_reported_within_ten_seconds_and_holds_up_no_end(
    db: Database, deployment: pysqlbox.Deployment, caplog: pytest.LogCaptureFixture, calls: Calls
) -> None:
    with behind_proxy(db, threads=2) as (between, worker):
        worker.add_handler("t", calls.handler())
        put(deployment.outbox)
        worker.start()
        until(lambda: worker.stats().acked == 1)
        between.frozen.set()
        until(lambda: "has not answered for" in caplog.text, 10)
        assert threads()
        began = time.monotonic()
        worker.stop(0.5)
        assert time.monotonic() - began < 0.5 + 5
        between.frozen.clear()
    until(lambda: not threads())


def test_a_process_ends_in_time_though_the_database_says_nothing(
    db: Database, deployment: pysqlbox.Deployment, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "journal")
    with proxy(db) as (between, url), processes(db, journal) as start:
        fill(deployment, 2, sleep=1.0)
        process = start(url, stop_timeout=1.0)
        until(lambda: len(journal.of("begin")) == 2)
        between.frozen.set()
        time.sleep(0.3)
        began = time.monotonic()
        process.signal(signal.SIGTERM)
        process.ended(10)
        assert time.monotonic() - began < 1 + 5 + 1  # and what the interpreter takes
        between.frozen.clear()


def test_a_call_that_takes_too_long_is_cut_off_and_made_again(
    db: Database,
    deployment: pysqlbox.Deployment,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(database, "CALL_SECONDS", 0.5)
    with behind_proxy(db, threads=1, poll_seconds=0.05, listen=False, lease_seconds=1) as (between, worker):
        worker.add_handler("t", nothing)
        worker.start()
        message = put(deployment.outbox)
        until(lambda: status(deployment.outbox, message) == "Done")
        between.frozen.set()
        until(lambda: "did not answer in time" in caplog.text)
        between.frozen.clear()  # the claim that was cut off may still reach the server, and get the message
        message = put(deployment.outbox)
        until(lambda: status(deployment.outbox, message) == "Done")
        worker.stop()


def test_a_worker_waits_for_a_database_that_is_down_at_the_start(
    db: Database, deployment: pysqlbox.Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    with proxy(db) as (between, url):
        port = between.port
    with pysqlbox.connect(url, schema=db.schema, retries=pysqlbox.Retries(attempts=1)) as through:
        worker = through.worker(boxes=["outbox", "mail"], poll_seconds=0.1)
        worker.add_handler("t", nothing)
        runner = threading.Thread(target=worker.run)
        runner.start()
        until(lambda: "waiting for it" in caplog.text)
        time.sleep(0.5)
        assert running(worker)
        assert sum("waiting for it" in record.getMessage() for record in caplog.records) == 1
        message = put(deployment.box("mail"))
        with proxy(db, port=port):
            until(lambda: status(deployment.box("mail"), message) == "Done", 15)
            worker.stop()
            runner.join(5)
    assert not runner.is_alive()
    assert not running(worker)
    until(lambda: not threads())


@pytest.mark.parametrize("box", ["outbox", "mail"])
def test_a_signal_ends_a_start_though_the_database_says_nothing(db: Database, box: str) -> None:
    """It lets nobody in, and takes its time for that; a named box is asked for through the pool."""
    with proxy(db) as (between, url), pysqlbox.connect(url, schema=db.schema) as through:
        between.frozen.set()
        worker = through.worker(boxes=[box])
        worker.add_handler("t", nothing)
        asked = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
        began = time.monotonic()
        asked.start()
        worker.run(stop_timeout=0)
        assert time.monotonic() - began < 0.5 + 5
        assert not running(worker)
        between.frozen.clear()
    until(lambda: not threads())


@pytest.mark.parametrize("kind", ["function", "coroutine function"])
def test_a_signal_ends_a_start_though_a_hook_does_not_end(make: MakeWorker, kind: str) -> None:
    worker = make(boxes=["outbox"], threads=1)
    told: list[str] = []

    def signalled() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    if kind == "function":

        @worker.on_start
        def hang() -> None:
            try:
                threading.Timer(0.1, signalled).start()
                threading.Event().wait(60)
                told.append("it came to an end")
            finally:
                told.append("cleaned up")
    else:

        @worker.on_start
        async def hang_on_loop() -> None:
            try:
                threading.Timer(0.1, signalled).start()
                await asyncio.sleep(60)
                told.append("it came to an end")
            finally:
                told.append("cleaned up")

    worker.on_stop(lambda: told.append("stopped"))
    worker.run(stop_timeout=0)
    assert not running(worker)
    until(lambda: not threads())
    assert told == ["cleaned up"]


def test_what_ends_a_start_behind_an_outage_is_raised_by_whoever_waits(
    make: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is: a hook may even raise SystemExit."""

    class Odd(BaseException):
        pass

    load, tries = DeploymentRun._load_boxes, iter([True])

    def load_later(run: DeploymentRun) -> Any:
        if next(tries, False):
            raise pysqlbox.DatabaseUnavailable("away")
        return load(run)

    monkeypatch.setattr(DeploymentRun, "_load_boxes", load_later)
    worker = make()

    @worker.on_start
    def start() -> None:
        raise Odd

    with pytest.raises(Odd):
        worker.drain(timeout=30)
    assert not running(worker)


def test_a_worker_can_be_stopped_while_it_waits_for_the_database() -> None:
    with pysqlbox.connect(
        "postgresql://nobody@127.0.0.1:1/none", retries=pysqlbox.Retries(attempts=1)
    ) as nowhere:
        worker = nowhere.worker()
        worker.start()
        assert running(worker)
        assert worker.stop(1)
        assert not running(worker)
        assert worker.stats().busy_threads == 0
    until(lambda: not threads())


def test_a_database_that_stays_away_is_told_of_now_and_then(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployment_run, "TELL_SECONDS", 0.5)
    with pysqlbox.connect(
        "postgresql://nobody@127.0.0.1:1/none", retries=pysqlbox.Retries(attempts=1)
    ) as nowhere:
        worker = nowhere.worker()
        worker.start()
        until(lambda: caplog.text.count("cannot be reached for") >= 2)
        worker.stop(1)
    assert caplog.text.count("waiting for it") == 1


def test_what_waiting_does_not_mend_is_said_at_once(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    """A database that does not exist, or whose password is wrong, will not come by itself."""
    url, _, query = db.url.partition("?")
    with pysqlbox.connect(f"{url}_nowhere?{query}") as missing:
        worker = missing.worker()
        no_longer = threading.Timer(5, worker.stop)
        no_longer.start()
        with pytest.raises(pysqlbox.AccessDenied, match="does not exist"):
            worker.run()
        no_longer.cancel()
        assert "waiting" not in caplog.text


def test_interrupting_drain_stops_the_worker(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls, request: pytest.FixtureRequest
) -> None:
    # Whoever runs the tests in the background may have had this signal ignored.
    request.addfinalizer(functools.partial(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT)))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    worker = make(boxes=["outbox"], threads=2)
    worker.add_handler("t", calls.handler(sleep=0.3))
    made = put_many(deployment.outbox, 20)

    def interrupt() -> None:
        until(lambda: calls.all)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        worker.drain()
    sender.join()
    assert not running(worker)
    assert threads() == []
    found = [status(deployment.outbox, message) for message in made]
    assert set(found) == {"Done", "Ready"}
    assert found.count("Done") == len(calls.all) == worker.stats().acked
    assert len(deployment.outbox.claim(OWNER)) == found.count("Ready")


def test_what_the_database_refuses_costs_the_others_nothing(
    deployment: pysqlbox.Deployment,
    make: MakeWorker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch that is refused as a whole is settled one by one."""
    from pysqlbox.worker import outcomes

    monkeypatch.setattr(outcomes, "storable", lambda error: str(error))  # what protects us from it otherwise
    worker = make(boxes=["outbox"], threads=1)
    worker.add_handler("bad", lambda _message: pysqlbox.DeadLetter("nul \0"))
    worker.add_handler("t", nothing)
    worker.add_handler("dead", lambda _message: pysqlbox.DeadLetter("d"))
    bad = put(deployment.outbox, "bad")
    good, dead = put(deployment.outbox), put(deployment.outbox, "dead")
    with caplog.at_level(logging.ERROR):
        worker.start()
        until(
            lambda: status(deployment.outbox, good) == "Done" and status(deployment.outbox, dead) == "Failed"
        )
        until(lambda: "is left to its lease" in caplog.text)
        worker.stop()
    assert status(deployment.outbox, bad) == "InProgress"


@pytest.mark.parametrize(
    "refusal",
    [
        pysqlbox.PysqlboxError("could not extend file: No space left on device (SQLSTATE 53100)"),
        pysqlbox.AccessDenied("permission denied for function outbox_settle"),
        pysqlbox.SchemaMismatch("function infra.outbox_settle does not exist; run pysqlbox migrate"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_results_outlast_a_refusal_that_is_not_for_their_sake(
    deployment: pysqlbox.Deployment,
    make: MakeWorker,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Exception,
) -> None:
    """A full disk, a role that is just being changed: what handlers finished is settled when that is over."""
    made = [put(deployment.outbox), put(deployment.outbox, payload="dead")]
    refused = refuse_settlements(monkeypatch, refusal)
    worker = make(boxes=["outbox"], threads=1, backoff=fixed(3600))

    @worker.handler("t")
    def handle(message: Any) -> Any:
        calls.end(calls.begin(message))
        return pysqlbox.DeadLetter("no") if message.payload == "dead" else None

    worker.start()
    until(lambda: len(refused.told) >= 6)
    assert [status(deployment.outbox, message) for message in made] == ["InProgress", "InProgress"]
    assert not worker.health().is_well
    refused.over.set()
    until(lambda: [status(deployment.outbox, message) for message in made] == ["Done", "Failed"])
    assert sorted(calls.ids) == made, "handled again"
    until(lambda: worker.health().is_well)
    worker.stop()


def test_what_is_refused_for_longer_than_its_lease_holds_up_nobody(
    deployment: pysqlbox.Deployment,
    make: MakeWorker,
    calls: Calls,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = put_many(deployment.outbox, 20)
    refuse_settlements(monkeypatch, pysqlbox.PysqlboxError("no reason"), only=made[7])
    worker = make(boxes=["outbox"], threads=1, lease_seconds=1, reap_seconds=None, max_attempts=0)
    worker.add_handler("t", calls.handler())
    with caplog.at_level(logging.ERROR):
        worker.start()
        until(lambda: [status(deployment.outbox, each) for each in made].count("Done") == 19)
        assert status(deployment.outbox, made[7]) != "Done"
        until(lambda: "Outcomes(1 acknowledged) is left to its lease" in caplog.text)
        worker.stop()


def test_one_that_is_refused_alone_holds_up_claims_no_longer_than_its_lease(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = put(deployment.outbox)
    refuse_settlements(monkeypatch, pysqlbox.PysqlboxError("no reason"), only=refused)
    worker = make(boxes=["outbox"], threads=1, lease_seconds=1, reap_seconds=None, max_attempts=0)
    worker.add_handler("t", calls.handler())
    worker.start()
    until(lambda: calls.ids == [refused])
    other = put(deployment.outbox)
    until(lambda: status(deployment.outbox, other) == "Done")
    worker.stop()


class Refusals:
    """What was refused, and when that is over."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.over = threading.Event()


def refuse_settlements(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception, only: int | None = None
) -> Refusals:
    """Let the database refuse every settlement, or those with one message in them."""
    from pysqlbox.worker.database_postgres import PostgresConnection

    real, refusals = PostgresConnection.settle, Refusals()

    def settle(self: Any, box: Any, owner: Any, outcomes: Any, *rest: Any) -> Any:
        if outcomes and not refusals.over.is_set() and (only is None or only in outcomes.acked):
            refusals.told.append(outcomes)
            raise refusal
        return real(self, box, owner, outcomes, *rest)

    monkeypatch.setattr(PostgresConnection, "settle", settle)
    return refusals
