"""How long a worker's calls may last, and what is said of a database that is silent."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from pysqlbox.drivers import parse_url
from pysqlbox.worker import database as module
from pysqlbox.worker.database import CALL_SECONDS, SILENT_SECONDS, CallingConnection, Database
from pysqlbox.worker.database_postgres import PostgresConnection
from tests.unit.standins import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time that goes by."""
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


@pytest.fixture
def database() -> Database:
    """One that nobody has connected to."""
    deployment: Any = SimpleNamespace(
        store="shop", store_key=None, schema="infra", target=parse_url("postgresql://host/db")
    )
    return Database(deployment)


def test_a_call_is_cut_off_at_its_own_limit(clock: Clock, database: Database) -> None:
    for limit, connection in ((CALL_SECONDS, database.open()), (2.0, database.open(limit=2.0))):
        with connection.calls.one():
            clock.now += limit
            assert not connection.calls.overdue()
            clock.now += 0.1
            assert connection.calls.overdue()


def test_a_call_is_cut_off_at_the_end_of_the_worker(clock: Clock, database: Database) -> None:
    calls = database.open().calls
    with calls.one():
        database.must_end_at = clock.now + 1
        assert not calls.overdue()
        clock.now += 1.1
        assert calls.overdue()


def test_whoever_waits_does_something_meanwhile(clock: Clock, database: Database) -> None:
    calls = database.open().calls
    told: list[float] = []
    calls.meanwhile = lambda: told.append(clock.now)
    with calls.one():
        calls.overdue()
    assert told == [clock.now]


def test_a_call_that_failed_is_over(clock: Clock, database: Database) -> None:
    """It neither counts as silence, nor is the next one's lost answer."""
    calls = database.open().calls
    calls.lost = True
    with contextlib.suppress(ZeroDivisionError), calls.one():
        lost = calls.lost
        raise ZeroDivisionError
    assert not lost
    clock.now += 2 * SILENT_SECONDS
    assert not database.is_silent


def test_silence_is_told_of_once_a_call(
    clock: Clock, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    idle, calls = database.open().calls, database.open().calls
    silent = []
    for _ in range(2):
        with calls.one():
            for seconds in (SILENT_SECONDS, 1, 1):
                clock.now += seconds
                database.report_silence()
                silent.append(database.is_silent)
        clock.now += 2 * SILENT_SECONDS
        database.report_silence()
        silent.append(database.is_silent)
    assert silent == [False, True, True, False] * 2
    assert caplog.messages == ["the database has not answered for 6 seconds [shop]"] * 2
    assert not idle.reported


def test_nobody_is_silent_on_a_connection_that_is_gone(clock: Clock, database: Database) -> None:
    database.open().calls.began_at = clock.now
    clock.now += 2 * SILENT_SECONDS
    assert not database.is_silent


def test_each_dialect_has_its_connection(database: Database) -> None:
    pytest.importorskip("pyodbc", reason="the extra pysqlbox[mssql] is not installed")
    assert isinstance(database.open(), PostgresConnection)
    database.deployment.target = parse_url("mssql://sa:x@host/db")
    assert isinstance(database.open(), CallingConnection)
