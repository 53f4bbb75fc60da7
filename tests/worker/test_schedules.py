"""Workers and schedules: fired when due, once, by the server's clock; what is broken costs nobody else."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import pysqlbox
from pysqlbox.errors import AccessDenied, DatabaseUnavailable, PysqlboxError
from pysqlbox.worker import timetable
from pysqlbox.worker.database import CallingConnection
from pysqlbox.worker.timetable import Timetable
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.support import Calls, threads, until

HOUR = timedelta(hours=1)
PAST = datetime(2026, 3, 1, 2, 30, tzinfo=UTC)


def count(db: pysqlbox.Deployment) -> int:
    """How many messages there are."""
    return sum(
        sum((each.ready, each.in_flight, each.done)) for each in db.outbox.stats() if each.topic is None
    )


def next_at(db: pysqlbox.Deployment, name: str = "s") -> datetime | None:
    """When a schedule fires next."""
    (found,) = [each for each in db.schedules.list() if each.name == name]
    return found.next_at


@pytest.fixture
def worker(make: MakeWorker, calls: Calls) -> Iterator[Any]:
    """A worker that looks often."""
    made = make(boxes=["outbox"], schedule_seconds=0.1)
    made.add_handler("t", calls.handler())
    yield made
    made.stop()


@pytest.mark.every_engine
def test_contract_a_worker_fires_what_is_due_and_handles_it(
    worker: Any, deployment: pysqlbox.Deployment, db: Database, calls: Calls
) -> None:
    made = deployment.schedules.set("s", "t", {"a": 1}, every=3600, headers={"x": "y"})
    assert made.next_at is not None
    worker.start()
    time.sleep(0.5)
    assert not calls.all
    db.advance(3601)
    until(lambda: next_at(deployment) == made.next_at + HOUR)  # type: ignore[operator]  # it has one
    until(lambda: len(calls.all) == 1)
    message = deployment.outbox.get(calls.all[0].id)
    assert message.payload == '{"a":1}'
    assert message.headers is not None
    assert message.headers["x"] == "y"
    assert datetime.fromisoformat(str(message.headers["scheduled_for"])) == made.next_at


@pytest.mark.every_engine
def test_contract_missed_times_are_made_up_for(
    make: MakeWorker, deployment: pysqlbox.Deployment, db: Database, calls: Calls
) -> None:
    first: dict[int, datetime] = {}
    for catch_up in (0, 1, 3):
        made = deployment.schedules.set(
            f"s{catch_up}", "t", str(catch_up), every=3600, catch_up=catch_up
        ).next_at
        assert made is not None
        first[catch_up] = made
    db.advance(5 * 3600 + 600)
    worker = make(boxes=["outbox"], schedule_seconds=0.1)
    worker.add_handler("t", calls.handler())
    worker.start()
    until(lambda: len(calls.all) >= 4)
    until(lambda: all(next_at(deployment, f"s{n}") == first[n] + 5 * HOUR for n in first))
    worker.stop()
    told: dict[str, list[datetime]] = {}
    for call in calls.all:
        headers = deployment.outbox.get(call.id).headers or {}
        told.setdefault(call.payload, []).append(datetime.fromisoformat(str(headers["scheduled_for"])))
    assert told.pop("1") == [first[1] + 4 * HOUR]
    assert sorted(told.pop("3")) == [first[3] + number * HOUR for number in (2, 3, 4)]
    assert not told


@pytest.mark.every_engine
def test_contract_workers_that_come_together_fire_once(
    make: MakeWorker, deployment: pysqlbox.Deployment, db: Database
) -> None:
    for number in range(10):
        deployment.schedules.set(f"s{number}", "t", f"p{number}", every=60)
    several = 2 if db.dialect == "mssql" else 4
    workers = [
        make(boxes=["outbox"], schedule_seconds=0.1, threads=1, topics=["other"]) for _ in range(several)
    ]
    for worker in workers:
        worker.start()
    for round_ in (1, 2, 3):
        db.advance(61)
        until(lambda expected=10 * round_: count(deployment) >= expected)  # type: ignore[misc]  # a loop's lambda
        time.sleep(0.3)
        rows = db.sql("SELECT m.payload, m.headers FROM {schema}.outbox_message AS m")
        fired = sorted(f"{row['payload']} {row['headers']}" for row in rows)
        assert len(set(fired)) == len(fired) == 10 * round_, fired
    for worker in workers:
        worker.stop()


def test_contract_a_worker_notices_what_is_set_and_changed_meanwhile(
    worker: Any, deployment: pysqlbox.Deployment, calls: Calls
) -> None:
    worker.start()
    until(lambda: "pysqlbox-caretaker" in threads())
    deployment.schedules.set("s", "t", "first", every=3600, next_at=PAST)
    until(lambda: [call.payload for call in calls.all] == ["first"])
    deployment.schedules.set("s", "t", "second", every=3600, next_at=PAST)
    until(lambda: [call.payload for call in calls.all] == ["first", "second"])
    deployment.schedules.set("s", "t", "third", every=3600, next_at=PAST, enabled=False)
    deployment.schedules.set("gone", "t", "gone", every=1)
    deployment.schedules.remove("gone")
    time.sleep(1.3)
    assert len(calls.all) == 2


def test_contract_a_cron_text_set_by_sql_gets_its_time_from_a_worker(
    worker: Any, deployment: pysqlbox.Deployment, db: Database
) -> None:
    db.call(
        "outbox_schedule_set", name="s", topic="t", payload="p", cron="30 2 * * *", timezone="Europe/Berlin"
    )
    assert next_at(deployment) is None
    worker.start()
    until(lambda: next_at(deployment) is not None)
    found = next_at(deployment)
    assert found is not None
    assert (found.minute, found.hour in (0, 1), found > datetime.now(UTC)) == (30, True, True)
    assert count(deployment) == 0


@pytest.mark.dialect("postgres")
def test_a_schedule_that_gets_another_rule_meanwhile_gets_its_time_from_that(
    worker: Any, deployment: pysqlbox.Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just when the worker has worked a time out from the old one."""
    from pysqlbox.worker.database_postgres import PostgresConnection

    call = PostgresConnection.call
    skipped: list[object] = []

    def changing(self: Any, routine: str, arguments: Any) -> Any:
        if routine == "outbox_schedule_skip":
            if not skipped:
                deployment.outbox.schedule_set("s", "t", "p", cron="* * * * *")
            skipped.append(arguments["next_at"])
        return call(self, routine, arguments)

    monkeypatch.setattr(PostgresConnection, "call", changing)
    deployment.outbox.schedule_set("s", "t", "p", cron="0 0 1 1 *")
    worker.start()
    until(lambda: next_at(deployment) is not None)
    worker.stop()
    found = next_at(deployment)
    assert found is not None
    assert found - deployment.outbox.schedule_next().now_at <= timedelta(minutes=1)
    assert len(skipped) == 2


@pytest.mark.every_engine
def test_contract_a_schedule_that_cannot_be_read_costs_the_others_nothing(
    worker: Any,
    deployment: pysqlbox.Deployment,
    db: Database,
    calls: Calls,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timetable, "BATCH", 2)
    for number in range(3):
        broken = {"name": f"b{number}", "topic": "t", "payload": "p", "cron": "0 3 * *"}
        db.call("outbox_schedule_set", **broken, **({"next_at": PAST} if number else {}))
    zone = {"cron": "* * * * *", "timezone": "Mars/Olympus", "next_at": PAST}
    db.call("outbox_schedule_set", name="b3", topic="t", payload="p", **zone)
    deployment.schedules.set("z", "t", "good", every=3600)
    with caplog.at_level(logging.WARNING):
        worker.start()
        db.advance(3601)
        until(lambda: [call.payload for call in calls.all] == ["good"])
        until(lambda: deployment.outbox.get(calls.all[0].id).status == "Done")  # else its lease would run out
        db.advance(3600)
        until(lambda: len(calls.all) == 2)
        time.sleep(0.5)
        worker.stop()
    told = [record.getMessage() for record in caplog.records if "cannot be read here" in record.getMessage()]
    assert len(told) == 4, "each once a minute"
    assert any("timezone: this machine knows none of that name" in text for text in told)
    assert "Mars" not in caplog.text
    assert [next_at(deployment, f"b{number}") for number in range(4)] == [None, PAST, PAST, PAST]


def test_a_schedule_that_the_database_refuses_costs_the_others_nothing(
    worker: Any,
    deployment: pysqlbox.Deployment,
    calls: Calls,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pysqlbox.worker.database_postgres import PostgresConnection

    kind = PostgresConnection if deployment.target.dialect == "postgres" else CallingConnection
    call = kind.call

    def refusing(self: Any, routine: str, arguments: Any) -> Any:
        if routine == "outbox_schedule_fire" and arguments["name"] == "a":
            raise PysqlboxError("a trigger says no")
        return call(self, routine, arguments)

    monkeypatch.setattr(kind, "call", refusing)
    for name in ("a", "b"):
        deployment.schedules.set(name, "t", name, every=3600, next_at=PAST, catch_up=2)
    with caplog.at_level(logging.WARNING):
        worker.start()
        until(lambda: len(calls.all) == 2)
        time.sleep(0.5)
        worker.stop()
    assert [call.payload for call in calls.all] == ["b", "b"]
    assert caplog.text.count("schedule 'a' could not be fired: a trigger says no") == 1


@pytest.mark.dialect("postgres")
def test_a_schedule_that_somebody_keeps_locked_holds_up_the_others_for_a_moment(
    make: MakeWorker,
    deployment: pysqlbox.Deployment,
    db: Database,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody begins to change it just when the worker has seen that it is due, and does not end."""
    from pysqlbox.worker import deployment_run
    from pysqlbox.worker.database_postgres import PostgresConnection

    monkeypatch.setattr(deployment_run, "LOCK_SECONDS", 0.5)
    call = PostgresConnection.call
    with db.session() as stranger:

        def locking(self: Any, routine: str, arguments: Any) -> Any:
            if routine == "outbox_schedule_fire" and arguments["name"] == "a" and not seen:
                seen.append(1)
                again = {"name": "a", "topic": "t", "payload": "a", "every_seconds": 3600}
                stranger.call("outbox_schedule_set", **again)
            return call(self, routine, arguments)

        seen: list[int] = []
        monkeypatch.setattr(PostgresConnection, "call", locking)
        for name in ("a", "b"):
            deployment.schedules.set(name, "t", name, every=3600, next_at=PAST)
        worker = make(boxes=["outbox"], schedule_seconds=0.2)
        worker.add_handler("t", calls.handler())
        worker.start()
        until(lambda: [call.payload for call in calls.all] == ["b"])
        assert seen
        stranger.rollback()
        until(lambda: sorted(call.payload for call in calls.all) == ["a", "b"])
        worker.stop()


@pytest.mark.parametrize(("error", "goes_on"), [(DatabaseUnavailable, True), (AccessDenied, False)])
def test_the_caretaker_outlives_what_happens_to_schedules(
    worker: Any,
    deployment: pysqlbox.Deployment,
    calls: Calls,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: type[PysqlboxError],
    goes_on: bool,
) -> None:
    look, looks = Timetable.look, []

    def failing(self: Timetable, connection: Any, scheduler: Any) -> None:
        looks.append(1)
        if len(looks) < 3:
            self.next_at = time.monotonic() + 0.1
            raise error("not now")
        look(self, connection, scheduler)

    monkeypatch.setattr(Timetable, "look", failing)
    deployment.schedules.set("s", "t", "p", every=3600, next_at=PAST)
    with caplog.at_level(logging.INFO):
        worker.start()
        if goes_on:
            until(lambda: len(calls.all) == 1)
            assert caplog.text.count("schedules failed: not now") == 2
        else:
            until(lambda: "no schedules by this worker: not now" in caplog.text)
            until(lambda: "pysqlbox-caretaker" not in threads())
            assert len(looks) == 1


def test_a_drain_fires_nothing_and_neither_does_who_is_told_not_to(
    make: MakeWorker, deployment: pysqlbox.Deployment, calls: Calls
) -> None:
    deployment.schedules.set("s", "t", "p", every=3600, next_at=PAST)
    worker = make(boxes=["outbox"], schedule_seconds=0.1)
    worker.add_handler("t", calls.handler())
    assert worker.drain() == 0
    for other in (make(boxes=["outbox"]), make(boxes=["inbox"], schedule_seconds=0.1)):
        other.start()
        time.sleep(0.4)
        other.stop()
    assert next_at(deployment) == PAST


@pytest.mark.dialect("postgres")
def test_an_idle_worker_looks_once_in_a_while(
    make: MakeWorker, deployment: pysqlbox.Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement each ``schedule_seconds``, and four where there is something that cannot be fired."""
    from pysqlbox.worker.database_postgres import PostgresConnection

    called: list[str] = []
    call = PostgresConnection.call

    def spy(self: Any, routine: str, arguments: Any) -> Any:
        called.append(routine)
        return call(self, routine, arguments)

    monkeypatch.setattr(PostgresConnection, "call", spy)
    deployment.schedules.set("s", "t", "p", every=3600)
    worker = make(boxes=["outbox"], schedule_seconds=0.5)
    worker.start()
    time.sleep(2.2)
    worker.stop()
    assert 3 <= len(called) <= 6
    assert set(called) == {"outbox_schedule_next"}
    called.clear()
    deployment.outbox.schedule_set("broken", "t", "p", cron="x", next_at=PAST)
    worker.start()
    time.sleep(2.2)
    worker.stop()
    assert Counter(called)["outbox_schedule_due"] <= 12, "two a look"
    assert Counter(called)["outbox_schedule_next"] <= 12
    assert set(called) == {"outbox_schedule_next", "outbox_schedule_due"}


@pytest.mark.dialect("postgres")
def test_the_servers_clock_decides(
    make: MakeWorker, deployment: pysqlbox.Deployment, db: Database, calls: Calls
) -> None:
    """The server's clock is a day ahead of this machine's, and then it is set back."""
    db.advance(86_400)
    made = deployment.schedules.set("s", "t", "p", cron="* * * * *")
    now = deployment.outbox.schedule_next().now_at
    assert made.next_at is not None
    assert timedelta(0) < made.next_at - now <= timedelta(seconds=60)
    assert now - datetime.now(UTC) > timedelta(hours=23)
    worker = make(boxes=["outbox"], schedule_seconds=0.2)
    worker.add_handler("t", calls.handler())
    worker.start()
    db.advance(60)
    until(lambda: len(calls.all) == 1)
    db.advance(-86_400)
    time.sleep(0.6)
    assert len(calls.all) == 1
    worker.stop()
