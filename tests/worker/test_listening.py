"""A listener notices whether it hears anything: notifications do not come through a pooler."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import pysqlbox
from pysqlbox.worker import listener
from pysqlbox.worker.database_postgres import PostgresConnection
from tests.deploy.test_postgres import PGBOUNCER, pgbouncer
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.support import Calls, nothing, put, status, until
from tests.worker.test_health import health

pytestmark = pytest.mark.dialect("postgres")


def test_a_listener_that_hears_itself(
    make: MakeWorker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start, and again and again while nothing else is heard; without a word."""
    monkeypatch.setattr(listener, "SILENT_SECONDS", 0.05)
    sent: list[str] = []
    call = PostgresConnection.notify

    def counted(self: PostgresConnection, channel: str) -> None:
        sent.append(channel)
        call(self, channel)

    monkeypatch.setattr(PostgresConnection, "notify", counted)
    worker = make()
    worker.start()
    until(lambda: health(worker).listener == "listening")
    until(lambda: len(sent) >= 5)
    assert len(set(sent)) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_pooler_that_swallows_notifications_is_told_of_within_five_seconds(
    db: Database,
    deployment: pysqlbox.Deployment,
    calls: Calls,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """PgBouncer in transaction mode: once in the log, in the health, and polling goes on."""
    assert listener.CALLS * listener.HEAR_SECONDS < 5  # beside which connecting and asking is little
    if not Path(PGBOUNCER).exists():
        pytest.skip("pgbouncer is not installed")
    with pgbouncer(db.url) as url, pysqlbox.connect(url, schema=db.schema) as through:
        worker = through.worker(boxes=["outbox"], poll_seconds=0.1)
        worker.add_handler("t", calls.handler())
        worker.start()
        try:
            until(lambda: health(worker).last_claim_at is not None)
            until(lambda: health(worker).listener == "deaf", 15)
            told = [r.message for r in caplog.records if "notifications do not come through" in r.message]
            assert len(told) == 1
            assert "polling, every 0.1 seconds" in told[0]
            assert health(worker).is_well
            made = put(deployment.outbox)
            until(lambda: status(deployment.outbox, made) == "Done")
        finally:
            worker.stop(0.5)


def test_a_deaf_listener_tries_again(
    make: MakeWorker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once notifications come through it listens, and says so."""
    monkeypatch.setattr(listener, "HEAR_SECONDS", 0.05)
    monkeypatch.setattr(listener, "AGAIN_SECONDS", 0.1)
    with monkeypatch.context() as swallowing:
        swallowing.setattr(PostgresConnection, "notify", lambda _self, _channel: None)
        worker = make()
        worker.add_handler("t", nothing)
        worker.start()
        until(lambda: health(worker).listener == "deaf")
    with caplog.at_level(logging.INFO):
        until(lambda: health(worker).listener == "listening")
        until(lambda: "notifications come through again" in caplog.text)
    assert caplog.text.count("notifications do not come through") == 1
