"""What a drain may not overlook: results on their way, and messages whose claim was never answered."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

import pysqlbox
from pysqlbox.drivers import mssql
from pysqlbox.worker.database import CallingConnection
from pysqlbox.worker.database_postgres import PostgresConnection
from tests.worker import support
from tests.worker.conftest import MakeWorker
from tests.worker.support import Calls, comes, put, status

Ask = Callable[[], list[Any]]
SURELY_DRY = 50
"""Claims of two boxes that find nothing, of which a drain believes sixteen each."""


def test_results_that_somebody_delivers_are_waited_for(
    deployment: pysqlbox.Deployment, make: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the only thread waits for one box, the lease keeper settles the other, and takes its time."""
    delivering, enough = threading.Event(), threading.Event()
    found_nothing: list[str] = []

    def around(ask: Ask, name: str, outcomes: Any, claim: int) -> list[Any]:
        if outcomes and not claim:
            delivering.set()
            comes(enough)
        elif name == "inbox" and not delivering.is_set():
            assert comes(delivering)
        messages = ask()
        if not messages and delivering.is_set():
            found_nothing.append(name)
            if len(found_nothing) >= SURELY_DRY:
                enough.set()
        return messages

    settle_by(monkeypatch, around)
    worker = make(threads=1, unknown_topics="dead")
    message = put(deployment.outbox)
    worker.drain()
    found = status(deployment.outbox, message)
    enough.set()
    assert found == "Failed"
    assert len(found_nothing) >= SURELY_DRY, "nobody had time to take it for dry"


@pytest.mark.every_engine
def test_what_a_lost_answer_would_have_brought_is_waited_for(
    box: pysqlbox.Outbox | pysqlbox.Inbox, make: MakeWorker, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease is this worker's, which knows nothing of it; when that is over the message comes again."""
    lost = lose_one_answer(monkeypatch)
    # On Babelfish the first settlement alone may take seconds.
    worker = make(boxes=[box.name], lease_seconds=1 if support.PATIENCE == 1 else 30)
    worker.add_handler("t", calls.handler())
    message = put(box)
    worker.drain()
    assert lost.is_set()
    assert status(box, message) == "Done"
    assert calls.ids == [message]


def test_a_claim_that_never_reached_the_server_is_not_waited_for(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever could not even connect holds nothing: the drain ends long before a lease would."""
    failures = iter([pysqlbox.DatabaseUnavailable("away"), pysqlbox.DatabaseUnavailable("still")])
    real = PostgresConnection._connected

    def connected(self: PostgresConnection) -> Any:
        if threading.current_thread().name == "pysqlbox-1":
            for failure in failures:
                raise failure
        return real(self)

    monkeypatch.setattr(PostgresConnection, "_connected", connected)
    worker = make(boxes=["outbox"], lease_seconds=3600, threads=1)
    worker.add_handler("t", calls.handler())
    message = put(deployment.outbox)
    assert worker.drain(60 * support.PATIENCE) == 1
    assert next(failures, None) is None
    assert calls.ids == [message]


def settle_by(monkeypatch: pytest.MonkeyPatch, around: Callable[[Ask, str, Any, int], list[Any]]) -> None:
    """Has a function make the worker's calls, which is told what they are about."""
    for kind in (PostgresConnection, CallingConnection):
        real: Callable[..., list[Any]] = kind.settle

        def settle(
            self: Any, box: Any, owner: Any, outcomes: Any, claim: int, *rest: Any, real: Any = real
        ) -> list[Any]:
            ask = functools.partial(real, self, box, owner, outcomes, claim, *rest)
            return around(ask, box.name, outcomes, claim)

        monkeypatch.setattr(kind, "settle", settle)


def lose_one_answer(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Lets the first claim that brings something end as if the connection had been lost; set when it has."""
    import psycopg
    import pyodbc

    lost = threading.Event()
    real_fetchall, real_read = psycopg.Cursor.fetchall, mssql._read_rows

    def fetchall(self: Any) -> list[Any]:
        rows = real_fetchall(self)
        columns = [column.name for column in self.description or ()]
        if rows and "payload" in columns and not lost.is_set():
            lost.set()
            self.connection.close()
            raise psycopg.OperationalError("the connection is lost")
        return rows

    def read(cursor: Any) -> tuple[list[str], list[tuple[Any, ...]]]:
        columns, rows = real_read(cursor)
        if rows and "payload" in columns and not lost.is_set():
            lost.set()
            raise pyodbc.OperationalError("08S01", "[08S01] Communication link failure (0)")
        return columns, rows

    monkeypatch.setattr(psycopg.Cursor, "fetchall", fetchall)
    monkeypatch.setattr(mssql, "_read_rows", read)
    return lost
