"""What a worker knows of itself: its health, and that it tells when nothing moves."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta

import pytest

import pysqlbox
from pysqlbox.worker import BoxHealth, Worker, stalls
from tests.support.database import Database
from tests.worker import support
from tests.worker.conftest import MakeWorker
from tests.worker.proxy import proxy
from tests.worker.support import Calls, comes, nothing, put, put_many, until


def health(worker: Worker, box: str = "outbox") -> BoxHealth:
    """That of one box."""
    (found,) = [each for each in worker.health().boxes if each.box == box]
    return found


@pytest.mark.every_engine
def test_health_follows_a_worker_s_life(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls
) -> None:
    worker = make(listen=False)
    going_on = threading.Event()

    def wait(message: pysqlbox.OutboxMessage) -> None:
        calls.begin(message)
        comes(going_on, 60)

    worker.add_handler("t", wait)
    before = worker.health()
    assert (before.running, before.is_well) == (False, False)
    assert [(each.box, each.running, each.database) for each in before.boxes] == [
        ("outbox", False, "unknown"), ("inbox", False, "unknown"),
    ]  # fmt: skip
    began = datetime.now(UTC) - timedelta(seconds=1)
    put(deployment.outbox)
    worker.start()
    try:
        until(lambda: calls.all and health(worker).in_flight == 1)
        until(lambda: health(worker, "inbox").last_claim_at is not None)
        now = health(worker)
        assert (now.store, now.running, now.database, now.listener) == (
            deployment.store, True, "ok", "off",
        )  # fmt: skip
        assert now.last_claim_at is not None
        assert began <= now.last_claim_at <= datetime.now(UTC)
        assert (now.last_settle_at, now.stuck_handlers, now.stalled_since, now.asleep) == (
            None, 0, None, False,
        )  # fmt: skip
        assert worker.health().is_well
    finally:
        going_on.set()
    until(lambda: health(worker).last_settle_at is not None)
    assert health(worker).in_flight == 0
    worker.stop()
    assert not worker.health().running


@pytest.mark.every_engine
def test_a_stall_is_told_once_and_over_when_something_moves(
    deployment: pysqlbox.Deployment,
    make: MakeWorker,
    calls: Calls,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All threads are in handlers that do not end, and more messages wait."""
    monkeypatch.setattr(stalls, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(stalls, "ASK_SECONDS", 0.5)
    # Babelfish's first claim may take seconds, in which nothing moves either.
    worker = make(boxes=["outbox"], stall_seconds=0.5 if support.PATIENCE == 1 else 20)
    going_on = threading.Event()

    def hang(message: pysqlbox.OutboxMessage) -> None:
        calls.begin(message)
        going_on.wait(60)

    worker.add_handler("t", hang)
    put_many(deployment.outbox, worker.threads + 3)
    try:
        with caplog.at_level(logging.INFO):
            worker.start()
            until(lambda: health(worker).stalled_since is not None, 20)
            found = health(worker)
            assert found.stuck_handlers == worker.threads
            assert not worker.health().is_well
            assert found.stalled_since is not None
            assert found.stalled_since < datetime.now(UTC)
            until(lambda: "nothing has moved for" in caplog.text)
            threading.Event().wait(1.0)  # it is not told again and again
            going_on.set()
            until(lambda: health(worker).stalled_since is None, 20)
    finally:
        going_on.set()
    told = [record.message for record in caplog.records if "nothing has moved" in record.message]
    assert len(told) == 1
    assert f"{worker.threads} handlers run" in told[0]
    assert "3 messages wait" in told[0]
    assert "outbox: it moves again" in caplog.text


def test_what_nobody_may_claim_is_no_stall(
    deployment: pysqlbox.Deployment,
    make: MakeWorker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Paused topics, topics of others, groups that their head holds up, and an empty box."""
    monkeypatch.setattr(stalls, "LOOK_SECONDS", 0.05)
    outbox = deployment.outbox
    outbox.pause("paused")
    put_many(outbox, 3, "paused")
    put_many(outbox, 3, "others")
    put(outbox, "t", group_id="g", delay=3600)
    put(outbox, "t", group_id="g")
    worker = make(stall_seconds=0.2, topics=["t", "paused"])
    worker.add_handler("t", nothing)
    worker.start()
    until(lambda: health(worker).last_claim_at is not None)
    threading.Event().wait(1.5)
    assert health(worker).stalled_since is None
    assert "nothing has moved" not in caplog.text


@pytest.mark.dialect("postgres")
def test_a_long_handler_is_no_stall_before_its_timeout(
    deployment: pysqlbox.Deployment,
    make: MakeWorker,
    monkeypatch: pytest.MonkeyPatch,
    calls: Calls,
) -> None:
    monkeypatch.setattr(stalls, "LOOK_SECONDS", 0.05)
    worker = make(boxes=["outbox"], stall_seconds=0.2, threads=1)
    worker.add_handler("t", calls.handler(sleep=1.2), timeout=30)
    put_many(deployment.outbox, 2)
    worker.start()
    until(lambda: calls.all)
    seen = []
    while len(calls.all) < 2:
        seen.append((health(worker).stalled_since, health(worker).stuck_handlers))
    assert set(seen) == {(None, 0)}


@pytest.mark.dialect("postgres")
def test_a_database_that_does_not_answer_shows(db: Database) -> None:
    """Silent while a call waits for it, away when it is refused."""
    with proxy(db) as (between, url), pysqlbox.connect(url, schema=db.schema) as through:
        worker = through.worker(boxes=["outbox"], poll_seconds=0.05, listen=False)
        worker.start()
        try:
            until(lambda: health(worker).database == "ok")
            between.frozen.set()
            until(lambda: health(worker).database == "silent", 20)
            assert not worker.health().is_well
            between.frozen.clear()
            until(lambda: health(worker).database == "ok", 20)
        finally:
            between.frozen.clear()
            worker.stop(0.5)


def test_a_worker_that_waits_for_its_database() -> None:
    with pysqlbox.connect("postgresql://127.0.0.1:1/nowhere?connect_timeout=2") as nowhere:
        worker = nowhere.worker()
        worker.start()
        try:
            assert worker.is_running
            assert health(worker).database == "away"
        finally:
            worker.stop(0.5)
