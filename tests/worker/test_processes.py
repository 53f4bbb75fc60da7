"""Whole worker processes and what can happen to them: nothing lost, nothing acknowledged that did not end."""

from __future__ import annotations

import json
import signal
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import pysqlbox
from tests.concurrency import crashing
from tests.contract.support import headers_of
from tests.support.database import Database
from tests.support.deployed import deploy
from tests.worker.processes import (
    Journal,
    check_acknowledged,
    check_journal,
    done,
    fill,
    processes,
    until_done,
    until_ended,
)
from tests.worker.proxy import proxy
from tests.worker.support import OWNER, put, status, until


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """An empty journal."""
    return Journal(tmp_path / "journal")


@pytest.mark.every_engine
def test_a_process_killed_between_claim_and_settle_loses_nothing(
    db: Database, deployment: pysqlbox.Deployment, journal: Journal
) -> None:
    """With kill -9, again and again, in the middle of handlers and of what they had finished before."""
    lease = 1 if db.dialect == "postgres" else 6  # Babelfish's first calls on a connection take seconds
    ids = fill(deployment, 120, groups=4, sleep=0.01)
    with processes(db, journal) as start:
        for turn in range(1, 4):
            victim = start(lease_seconds=lease)
            until_ended(journal, 20 * turn)
            victim.kill()
            check_acknowledged(db, journal)
        last = start(lease_seconds=lease)
        until_done(db, ids)
        last.stop()
    check_journal(db, journal, ids)
    again = len(journal.of("end")) - len(ids)
    assert again <= 3 * 60, "what was settled before the kill was not handled again"


@pytest.mark.every_engine
def test_obx_053_two_processes_share_a_box(
    db: Database, deployment: pysqlbox.Deployment, journal: Journal
) -> None:
    """Each message once; both work; groups keep their order across them; one of them is killed on the way."""
    with processes(db, journal) as start:
        pair = [start(lease_seconds=2 if db.dialect == "postgres" else 8) for _ in range(2)]
        ids = fill(deployment, 200, groups=5, sleep=0.01)
        until_ended(journal, 60)
        assert {line.pid for line in journal.lines()} == {process.pid for process in pair}
        ended = journal.of("end")
        assert len(set(ended)) == len(ended), "handled twice"
        pair[0].kill()
        until_done(db, ids)
        pair[1].stop()
    check_journal(db, journal, ids)


@pytest.mark.every_engine
def test_schedules_fire_each_time_once_whoever_is_killed(
    db: Database, deployment: pysqlbox.Deployment, journal: Journal
) -> None:
    """With kill -9 in the middle of making up for what was missed; and nothing is missed for ever."""
    rounds, minutes = (3, 5) if db.dialect == "mssql" else (6, 50)
    first = deployment.schedules.set("s", "t", {}, every=60, catch_up=10_000, group_id="g").next_at
    assert first is not None
    with processes(db, journal) as start:
        options = {"schedule_seconds": 0.1, "lease_seconds": 2 if db.dialect == "postgres" else 8}
        running = [start(**options) for _ in range(2)]
        for number in range(1, rounds + 1):
            db.advance(60 * minutes)
            standing = first + timedelta(minutes=minutes * (number - 1))
            until(lambda at=standing: deployment.schedules.list()[0].next_at > at, 30)  # type: ignore[misc]  # a loop's lambda
            running.pop(0).kill()
            running.append(start(**options))
        end = first + timedelta(minutes=rounds * minutes)
        until(lambda: deployment.schedules.list()[0].next_at == end, 60)
        if db.dialect == "postgres":  # Babelfish may take longer over a call than a process has to end
            for process in running:
                process.stop()
    rows = db.sql("SELECT headers FROM {schema}.outbox_messages ORDER BY id")
    told = [str(each["scheduled_for"]) for row in rows if isinstance(each := headers_of(row), dict)]
    planned = [first + timedelta(minutes=number) for number in range(rounds * minutes)]
    assert list(map(datetime.fromisoformat, told)) == planned


@pytest.mark.every_engine
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_lets_handlers_finish_and_releases_the_rest(
    db: Database, deployment: pysqlbox.Deployment, journal: Journal, number: signal.Signals
) -> None:
    """Status 0, no thread left, and what was not begun can be had at once, no attempt counted."""
    ids = fill(deployment, 12, groups=1, sleep=0.7)
    with processes(db, journal) as start:
        process = start(threads=3)
        until(lambda: len(journal.of("begin")) >= 3)
        begun = set(journal.of("begin"))
        process.signal(number)
        answer = process.ended()
    assert answer["left"] == []
    ended = set(journal.of("end"))
    assert begun <= ended
    assert set(journal.of("begin")) == ended
    assert done(db) == ended
    rest = set(ids) - ended
    assert len(rest) >= 6
    assert {deployment.outbox.get(message).attempt for message in rest} == {0}
    assert {status(deployment.outbox, message) for message in rest} == {"Ready"}
    assert answer["acked"] == len(ended)


def test_a_second_signal_does_not_wait_for_the_handlers(
    db: Database, deployment: pysqlbox.Deployment, journal: Journal
) -> None:
    (message,) = fill(deployment, 1, sleep=60)
    with processes(db, journal) as start:
        process = start()
        until(lambda: journal.of("begin"))
        process.signal(signal.SIGTERM)
        time.sleep(0.5)
        assert status(deployment.outbox, message) == "InProgress"
        began = time.monotonic()
        process.signal(signal.SIGTERM)
        process.ended(10)
        assert time.monotonic() - began < 5
    assert (status(deployment.outbox, message), deployment.outbox.get(message).attempt) == ("Ready", 0)


def test_a_handler_that_hangs_holds_up_neither_the_others_nor_the_end(
    db: Database, deployment: pysqlbox.Deployment, journal: Journal
) -> None:
    hanging = [put(deployment.outbox, payload=json.dumps({"hang": True}), group_id=g) for g in (None, "g")]
    behind = put(deployment.outbox, payload="{}", group_id="g")
    ids = fill(deployment, 30)
    with processes(db, journal) as start:
        process = start(threads=2, handler_timeout=0.5, stop_timeout=1.0)
        until_done(db, [*ids, *hanging, behind])
        assert {deployment.outbox.get(message).attempt for message in hanging} == {1}
        answer = process.stop()
    assert answer["acked"] == 33
    order = [line.id for line in journal.lines() if line.group == "g" and line.what == "end"]
    assert order == [hanging[1], behind]


@pytest.mark.every_engine
@pytest.mark.dialect("postgres")
@pytest.mark.parametrize("how", ["before", "after"])
def test_connections_cut_in_the_middle_of_settle(
    db: Database, deployment: pysqlbox.Deployment, journal: Journal, how: str
) -> None:
    """The server never hears of it, or has done it and nobody learns that."""
    ids = fill(deployment, 300, groups=3, sleep=0.002)

    def cut(said: int) -> str | None:
        return how if 12 < said < 120 and said % 7 == 0 else None

    with proxy(db, cut) as (between, url), processes(db, journal) as start:
        # A claim that nobody learnt of comes back with its lease.
        process = start(url, lease_seconds=1, batch_size=5, cleanup_seconds=None, reap_seconds=None)
        until_done(db, ids, 40)
        process.stop()
        assert between.cuts >= 3
    check_journal(db, journal, ids)


@pytest.mark.parametrize("version", crashing.versions() or ["none"])
def test_a_server_restarted_under_load(version: str, journal: Journal) -> None:
    """Twice without warning; the workers come back by themselves, and with them everything that was left."""
    if version == "none":
        pytest.skip("no PostgreSQL here whose server programs can be started apart")
    with crashing.server(version) as server:
        deploy(server.url)
        db = Database("postgres", "infra", server.url, version)
        with pysqlbox.connect(server.url) as deployment, processes(db, journal) as start:
            ids = fill(deployment, 300, groups=4, sleep=0.005)
            pair = [start(lease_seconds=2) for _ in range(2)]
            for turn in range(1, 3):
                until_ended(journal, 60 * turn)
                db.close()
                server.crash()
                time.sleep(0.5)
                server.start()
                check_acknowledged(db, journal)
            ids += fill(deployment, 20)
            until_done(db, ids, 40)
            for process in pair:
                process.stop()
            check_journal(db, journal, ids)
            assert deployment.outbox.claim(OWNER) == []
            db.close()
