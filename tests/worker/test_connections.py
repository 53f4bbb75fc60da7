"""A worker's own connection to PostgreSQL: whatever it does when the server lets go of it, it comes back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

import pysqlbox
from pysqlbox.worker.database import Database as WorkerDatabase
from pysqlbox.worker.database_postgres import PostgresConnection
from pysqlbox.worker.outcomes import Outcomes
from tests.deploy.test_postgres import PGBOUNCER, pgbouncer
from tests.support.database import Database
from tests.worker.support import OWNER, put, put_many, status, until

pytestmark = pytest.mark.dialect("postgres")


@pytest.fixture
def connection(deployment: pysqlbox.Deployment) -> Iterator[PostgresConnection]:
    """One that has connected."""
    made = WorkerDatabase(deployment).open()
    assert isinstance(made, PostgresConnection)
    made.call("outbox_stats", {})
    yield made
    made.close()


def cut(db: Database, connection: PostgresConnection) -> None:
    """Lets the server end it, and waits until it has."""
    process = connection.process
    db.sql(f"SELECT pg_terminate_backend({process})")
    until(lambda: not db.sql(f"SELECT 1 AS n FROM pg_stat_activity WHERE pid = {process}"))


USES: dict[str, Callable[[PostgresConnection, pysqlbox.Deployment], Any]] = {
    "call": lambda it, _: it.call("outbox_stats", {}),
    "has_routine": lambda it, _: it.has_routine("outbox_stats"),
    "setting": lambda it, db: it.setting(db.outbox, "max_attempts"),
    "tables": lambda it, db: it.tables({"outbox": (db.schema, "outbox")}),
    "written": lambda it, _: it.written((["outbox"], "{1}", "{ready}", "{0}")),
    "sequences": lambda it, db: it.sequences({"outbox": (db.schema, "outbox")}),
    "drawn": lambda it, _: it.drawn({0: "outbox"}, 5.0),
    "drawing": lambda it, _: it.drawing({0: "outbox"}, {"outbox"}, 5.0),
    "add_to_name": lambda it, _: it.add_to_name(" (x)"),
    "database_name": lambda it, _: it.database_name(),
    "listen": lambda it, _: it.listen('LISTEN "x"', lambda _notify: None),
    "notify": lambda it, _: it.notify("x"),
    "settle": lambda it, db: it.settle(db.outbox, OWNER, Outcomes(), 1, 30, None),
    "limited_locks": lambda it, _: it.limited_locks(5.0).__enter__(),
}


@pytest.mark.parametrize("use", USES)
def test_a_connection_that_was_cut_is_opened_again(
    use: str, connection: PostgresConnection, deployment: pysqlbox.Deployment, db: Database
) -> None:
    first = connection.process
    cut(db, connection)
    with pytest.raises(pysqlbox.DatabaseUnavailable):
        USES[use](connection, deployment)
    assert connection.process is None, "it is closed"
    assert connection.calls.began_at == 0.0, "the call is over"
    USES[use](connection, deployment)
    assert connection.process not in (None, first)


def test_only_of_a_settlement_the_answer_can_be_lost(
    connection: PostgresConnection, deployment: pysqlbox.Deployment, db: Database
) -> None:
    """Nobody knows what it did. Before there was a connection there was no call."""
    cut(db, connection)
    with pytest.raises(pysqlbox.DatabaseUnavailable):
        connection.settle(deployment.outbox, OWNER, Outcomes(), 1, 30, None)
    assert connection.calls.lost
    connection._target = SimpleNamespace(**{**_fields(connection._target), "dsn": "host=/nowhere"})  # type: ignore[assignment]
    with pytest.raises(pysqlbox.DatabaseUnavailable):
        connection.settle(deployment.outbox, OWNER, Outcomes(), 1, 30, None)
    assert not connection.calls.lost


def _fields(target: Any) -> dict[str, Any]:
    names = [name for name in dir(target) if not name.startswith("_")]
    return {name: getattr(target, name) for name in names}


def test_a_limit_of_locks_ends_with_its_block_and_with_its_connection(
    connection: PostgresConnection, db: Database
) -> None:
    def limit() -> str:
        raw: Any = connection._connected()
        return str(raw.execute("SHOW lock_timeout").fetchone()[0])

    with connection.limited_locks(5.0):
        assert limit() == "5s"
    assert limit() == "0"
    with connection.limited_locks(5.0):
        cut(db, connection)
        with pytest.raises(pysqlbox.DatabaseUnavailable):
            connection.call("outbox_stats", {})
        assert connection.process is None
    assert connection.process is None, "nothing was opened to take back what went with the connection"


LIMITED: dict[str, Callable[[PostgresConnection], Any]] = {
    "call": lambda it: it.call("outbox_stats", {}),
    "drawn": lambda it: it.drawn({0: "outbox"}, 5.0),
    "drawing": lambda it: it.drawing({0: "outbox"}, {"outbox"}, 5.0),
}


@pytest.mark.parametrize("use", LIMITED)
def test_behind_a_pooler_a_limit_of_locks_is_in_nobody_elses_session(db: Database, use: str) -> None:
    """Which the pooler gives others as soon as a transaction has ended, with whatever was set in it."""
    if not Path(PGBOUNCER).exists():
        pytest.skip("pgbouncer is not installed")
    shown: list[Any] = []
    with (
        pgbouncer(db.url) as url,
        pysqlbox.connect(url, schema=db.schema) as through,
        psycopg.connect(url, autocommit=True, prepare_threshold=None) as other,
    ):
        connection = WorkerDatabase(through).open()
        assert isinstance(connection, PostgresConnection)
        with contextlib.closing(connection):
            connection.call("outbox_stats", {})
            limit = connection.limited_locks(5.0) if use == "call" else contextlib.nullcontext()
            with limit:
                shown.append(other.execute("SHOW lock_timeout").fetchone())
                LIMITED[use](connection)
            shown.append(other.execute("SHOW lock_timeout").fetchone())
    assert shown == [("0",)] * 2


def test_sequences_that_somebody_has_locked_are_not_waited_for(
    connection: PostgresConnection, deployment: pysqlbox.Deployment, db: Database
) -> None:
    put(deployment.outbox)
    sequences = connection.sequences({"outbox": (deployment.schema, "outbox")})
    if not sequences:
        pytest.skip("before PostgreSQL 15 sequences tell nothing")
    before = connection.drawn(sequences, 5.0)
    assert before["outbox"] >= 1
    assert connection.drawing(sequences, {"outbox"}, 5.0) == set()
    (oid,) = sequences
    name = db.sql(f"SELECT {oid}::regclass::text AS name")[0]["name"]
    with db.session() as session:
        session.sql(f"ALTER SEQUENCE {name} CYCLE")
        with pytest.raises(pysqlbox.DatabaseUnavailable, match="lock timeout"):
            connection.drawn(sequences, 0.05)
        session.rollback()
    assert connection.drawn(sequences, 5.0) == before


def test_who_may_not_read_settings_keeps_his_connection(
    connection: PostgresConnection, deployment: pysqlbox.Deployment, db: Database
) -> None:
    put(deployment.outbox)
    table = f'"{deployment.schema}"."outbox_settings"'
    db.sql("CREATE ROLE pysqlbox_test_reader")
    try:
        raw: Any = connection._connected()
        raw.execute("SET ROLE pysqlbox_test_reader")
        process = connection.process
        assert connection.setting(deployment.outbox, "max_attempts") is None
        assert connection.process == process
        raw.execute("RESET ROLE")
        assert db.sql(f"SELECT count(*) AS n FROM {table}")
    finally:
        connection.close()
        db.sql("DROP ROLE pysqlbox_test_reader")


def test_what_cannot_even_be_closed_is_forgotten(
    connection: PostgresConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = connection._connected()

    def failing() -> None:
        raise psycopg.OperationalError("already gone")

    with monkeypatch.context() as patch:
        patch.setattr(raw, "close", failing)
        connection.close()
    raw.close()
    assert connection.process is None


def test_with_nothing_to_say_nobody_is_asked(
    connection: PostgresConnection, deployment: pysqlbox.Deployment
) -> None:
    connection.close()
    put_many(deployment.outbox, 2)
    assert connection.settle(deployment.outbox, OWNER, Outcomes(), 0, 30, None) == []
    assert connection.process is None


def test_statements_that_are_gone_are_not_prepared_again_on_a_new_connection(
    connection: PostgresConnection, deployment: pysqlbox.Deployment
) -> None:
    """Whoever swallows them does so for every connection."""
    made = put_many(deployment.outbox, 40)
    found: list[int] = []
    for turn in range(10):
        found += [m.id for m in connection.settle(deployment.outbox, OWNER, Outcomes(), 1, 30, None)]
        if turn == 7:
            raw: Any = connection._connection
            raw.pgconn.exec_(b"DEALLOCATE ALL")  # behind psycopg's back
    connection.close()
    assert connection._connected().prepare_threshold is None
    for _ in range(10):
        found += [m.id for m in connection.settle(deployment.outbox, OWNER, Outcomes(), 1, 30, None)]
    assert found == made[:20]
    assert status(deployment.outbox, found[0]) == "InProgress"


def test_a_connection_that_is_lost_while_it_is_set_up_is_closed(
    deployment: pysqlbox.Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pysqlbox.drivers import postgres

    closed: list[int] = []

    class Lost:
        prepare_threshold = 5

        def execute(self, _text: str) -> None:
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        def close(self) -> None:
            closed.append(1)

    made = WorkerDatabase(deployment).open()
    with monkeypatch.context() as patch:
        patch.setattr(postgres, "connect", lambda *_arguments, **_options: Lost())
        with pytest.raises(pysqlbox.DatabaseUnavailable):
            made.call("outbox_stats", {})
    assert closed == [1]
    made.call("outbox_stats", {})
    made.close()
