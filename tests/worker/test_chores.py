"""Reaping and cleaning up by one elected worker, and waking up."""

from __future__ import annotations

import logging
import time

import pytest

import pysqlbox
from pysqlbox.worker.caretaker import Caretaker, Chore
from pysqlbox.worker.served_box import ServedBox
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.support import OWNER, nothing, put, put_many, status, until

Box = pysqlbox.Outbox | pysqlbox.Inbox


@pytest.mark.every_engine
def test_obx_100_ibx_112_a_worker_reaps_and_says_so(
    box: Box,
    make: MakeWorker,
    db: Database,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def schedule(served: ServedBox, _asked: int, _got: int, now: float) -> None:
        served.next_poll = now + 60  # for a claim reaps a few itself

    monkeypatch.setattr(ServedBox, "schedule", schedule)
    worker = make(threads=1, reap_seconds=0.2, listen=False)
    worker.start()
    until(lambda: all(each.last_claim_at for each in worker.health().boxes))
    made = put_many(box, 3)
    assert len(box.claim(OWNER, lease_seconds=5)) == 3
    with caplog.at_level(logging.INFO):
        db.advance(6)
        until(lambda: {box.get(message).attempt for message in made} == {1})
        until(lambda: f"{box.name}: reap, 3 messages" in caplog.text)
        worker.stop()


@pytest.mark.every_engine
def test_a_worker_cleans_up_what_is_older_than_the_retention(
    box: Box, make: MakeWorker, db: Database
) -> None:
    old = put_many(box, 3)
    box.ack(OWNER, [message.id for message in box.claim(OWNER)])
    db.advance(100)
    new = put(box)
    worker = make(cleanup_seconds=0.2, retention=50)
    worker.add_handler("t", nothing)
    worker.start()
    until(lambda: status(box, new) == "Done")

    def gone() -> bool:
        try:
            box.get(old[2])
        except pysqlbox.NotFound:
            return True
        return False

    until(gone)
    worker.stop()
    assert status(box, new) == "Done"


@pytest.mark.every_engine
def test_one_of_two_workers_does_the_chores(
    deployment: pysqlbox.Deployment,
    make: MakeWorker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An election for each round and box, in the ledger; both together do no more than one alone."""
    chores: list[Chore] = []
    monkeypatch.setattr(Caretaker, "_do", lambda _caretaker, chore: chores.append(chore))
    workers = [make(boxes=["outbox", "mail"], reap_seconds=0.4, poll_seconds=30) for _ in range(2)]
    began = time.monotonic()
    for worker in workers:
        worker.start()
    is_quick = deployment.target.dialect == "postgres"
    # Babelfish may be silent for many seconds at a time, longer than workers wait or keep quiet about it.
    until(
        lambda: (
            {chore.box for chore in chores} == {"outbox", "mail"}
            and time.monotonic() - began > (1.8 if is_quick else 5.0)
        ),
        30,
    )
    for worker in workers:
        worker.stop()
    took = time.monotonic() - began
    for name in ("outbox", "mail"):
        # What is won stays won for a second at least.
        assert 1 <= len([chore for chore in chores if chore.box == name]) <= took + 1
        assert deployment.ledger.get(f"pysqlbox:cleanup:{name}").attempts == 0
    if is_quick:
        assert not [record.message for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, set()), ({"reap_seconds": 0.2}, {"reap"}), ({"cleanup_seconds": 0.2}, {"cleanup"}),
        ({"reap_seconds": 0.2, "cleanup_seconds": 0.2}, {"reap", "cleanup"}),
    ],
    ids=["neither", "reap", "cleanup", "both"],
)  # fmt: skip
def test_each_chore_can_be_left_to_others(
    deployment: pysqlbox.Deployment, make: MakeWorker, options: dict[str, float], expected: set[str]
) -> None:
    worker = make(boxes=["outbox"], **options)

    def done() -> set[str]:
        return {
            name for name in ("reap", "cleanup") if deployment.ledger.get(f"pysqlbox:{name}:outbox").attempts
        }

    worker.start()
    if expected:
        until(lambda: done() == expected)
    else:
        time.sleep(0.4)
    worker.stop()
    assert done() == expected


@pytest.mark.dialect("postgres")
def test_a_notification_wakes_faster_than_polling(box: Box, make: MakeWorker) -> None:
    worker = make(boxes=[box.name], poll_seconds=30)
    worker.add_handler("t", nothing)
    worker.start()
    time.sleep(0.5)
    for _ in range(2):
        message = put(box)
        began = time.monotonic()
        until(lambda message=message: status(box, message) == "Done", 5)  # type: ignore[misc]
        assert time.monotonic() - began < 2
        time.sleep(0.3)
    worker.stop()


@pytest.mark.dialect("postgres")
def test_a_listener_that_was_cut_off_listens_again(
    deployment: pysqlbox.Deployment, make: MakeWorker, db: Database
) -> None:
    worker = make(boxes=["outbox"], poll_seconds=30)
    worker.add_handler("t", nothing)
    worker.start()
    time.sleep(0.3)
    (cut,) = db.sql(
        "SELECT count(pg_terminate_backend(pid)) AS n FROM pg_stat_activity"
        " WHERE datname = current_database() AND query LIKE 'LISTEN%%'"
    )
    assert cut["n"] == 1
    message = put(deployment.outbox)
    until(lambda: status(deployment.outbox, message) == "Done", 5)
    time.sleep(1)
    message = put(deployment.outbox)
    until(lambda: status(deployment.outbox, message) == "Done", 5)
    worker.stop()


@pytest.mark.every_engine
def test_polling_alone_finds_what_comes(box: Box, make: MakeWorker, db: Database) -> None:
    worker = make(poll_seconds=0.1, listen=False)
    worker.add_handler("t", nothing)
    worker.start()
    time.sleep(0.3)
    message = put(box)
    until(lambda: status(box, message) == "Done")
    later = put(box, due_at=_later(db, 0.4))
    until(lambda: status(box, later) == "Done")
    worker.stop()


def _later(db: Database, seconds: float) -> object:
    from datetime import UTC, datetime, timedelta

    del db
    return datetime.now(UTC) + timedelta(seconds=seconds)


def test_obx_116_ibx_124_polling_backs_off_when_idle(
    box: Box, make: MakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make(boxes=[box.name], poll_seconds=0.2, listen=False)
    worker.add_handler("t", nothing)
    put(box)
    with caplog.at_level(logging.DEBUG, "pysqlbox.worker"):
        worker.start()
        until(lambda: worker.stats().acked == 1)
        time.sleep(0.6)
        before = len(caplog.records)
        time.sleep(0.8)
        claims = len(caplog.records) - before
        worker.stop()
    assert 1 <= claims <= 6
