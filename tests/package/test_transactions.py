"""connection=: a message is there exactly if its caller commits, and the connection is left as it was."""

from __future__ import annotations

import contextlib
import importlib.util
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.json import set_json_loads

from pysqlbox import Box, InvalidArgument, InvalidState
from pysqlbox.drivers import connect
from tests.package.support import HOLDERS, django_alias, sqlalchemy_engine, wrong_connection
from tests.support.database import Database

OWNER = UUID("11111111-1111-4111-8111-111111111111")


@pytest.fixture(params=list(HOLDERS))
def holder(request: pytest.FixtureRequest, db: Database) -> Any:
    """Each way of holding a transaction that this dialect and machine have."""
    name: str = request.param
    package = name.split()[0]
    if package != "driver" and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    if package == "django" and db.dialect == "mssql":
        pytest.skip("Django has no backend of its own for SQL Server")
    return HOLDERS[name]


def _count(db: Database) -> object:
    return db.sql("SELECT count(*) AS n FROM {schema}.outbox_messages")[0]["n"]


def _fail_inside(block: Any, box: Box, connection: Any = None) -> None:
    with block as opened:
        box.outbox.enqueue("t", "p", connection=opened if connection is None else connection)
        raise ZeroDivisionError


def _refused_inside(box: Box) -> None:
    with box.transaction() as connection:
        box.outbox.enqueue("t", "p", connection=connection)
        box.outbox.enqueue("", "p", connection=connection)


def test_what_is_rolled_back_was_never_there(box: Box, db: Database, holder: Any) -> None:
    with holder(db) as (connection, _, rollback):
        done = box.outbox.enqueue("t", "p", connection=connection)
        assert box.outbox.get(done.id, connection=connection).topic == "t"
        assert box.outbox.enqueue_many([{"topic": "t", "payload": "p"}], connection=connection)
        rollback()
    assert _count(db) == 0


def test_what_is_committed_is_there(box: Box, db: Database, holder: Any) -> None:
    with holder(db) as (connection, commit, _):
        box.outbox.enqueue("t", "p", headers={"a": 1}, connection=connection)
        box.inbox.enqueue("t", "s", "1", "p", hash=b"x", connection=connection)
        commit()
        (message,) = box.outbox.claim(OWNER, connection=connection)
        assert box.outbox.ack(OWNER, [message.id], connection=connection) == 1
        commit()
    assert box.outbox.stats()[-1].done == 1
    assert box.inbox.stats()[-1].ready == 1


def test_what_is_left_alone_is_undone(box: Box, db: Database, holder: Any) -> None:
    with holder(db) as (connection, _, _rollback):
        box.outbox.enqueue("t", "p", connection=connection)
    assert _count(db) == 0


def test_sqlalchemys_own_blocks(box: Box, db: Database) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    engine = sqlalchemy_engine(db)
    with engine.begin() as connection:
        box.outbox.enqueue("t", "p", connection=connection)
    assert _count(db) == 1
    with pytest.raises(ZeroDivisionError):
        _fail_inside(engine.begin(), box)
    assert _count(db) == 1
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("SELECT 1"))
        nested = connection.begin_nested()
        box.outbox.enqueue("t", "p", connection=connection)
        nested.rollback()
        connection.commit()
    assert _count(db) == 1


@pytest.mark.dialect("postgres")
def test_djangos_atomic(box: Box, db: Database) -> None:
    pytest.importorskip("django", reason="django is not installed")
    from django.db import connections, transaction
    from django.utils.connection import ConnectionProxy

    with django_alias(db) as alias:
        connection = connections[alias]
        with transaction.atomic(using=alias):
            box.outbox.enqueue("t", "p", connection=connection)
        assert _count(db) == 1
        with pytest.raises(ZeroDivisionError):
            _fail_inside(transaction.atomic(using=alias), box, ConnectionProxy(connections, alias))
        assert _count(db) == 1
        with transaction.atomic(using=alias):
            with pytest.raises(ZeroDivisionError):
                _fail_inside(transaction.atomic(using=alias), box, connection)
            box.outbox.enqueue("t", "p", connection=connection)
        assert _count(db) == 2
        box.outbox.enqueue("t", "p", connection=connection)  # outside of atomic: at once
        assert _count(db) == 3
        assert connection.get_autocommit()
        with transaction.atomic(using=alias):
            with pytest.raises(InvalidArgument):
                box.outbox.enqueue("", "p", connection=connection)
            transaction.set_rollback(True, using=alias)
        assert _count(db) == 3


@pytest.mark.dialect("postgres")
def test_a_psycopg_connection_is_left_as_it_was(box: Box) -> None:
    class Loud(TimestamptzLoader):
        def load(self, data: Any) -> Any:
            raise AssertionError(f"the caller's own loader was used for {len(data)} bytes")

    with psycopg.connect(
        box.target.dsn, row_factory=dict_row, cursor_factory=psycopg.ClientCursor
    ) as connection:
        set_json_loads(lambda _: "mine", connection)
        connection.adapters.register_loader("timestamptz", Loud)
        connection.adapters.register_dumper(str, psycopg.types.string.StrDumper)
        connection.execute("SET TIME ZONE 'Asia/Kolkata'")
        connection.commit()
        before = (
            connection.autocommit,
            connection.row_factory,
            connection.cursor_factory,
            connection.prepare_threshold,
            dict(vars(connection.adapters)) if hasattr(connection.adapters, "__dict__") else None,
        )
        done = box.outbox.enqueue("t", "p", headers={"a": 1}, due_at=datetime.now(UTC), connection=connection)
        for _ in range(8):
            box.outbox.enqueue("t", "p", connection=connection)
        (message, *_) = box.outbox.claim(OWNER, connection=connection)
        assert message.id == done.id
        assert message.headers == {"a": 1}
        assert message.created_at.tzinfo is UTC
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        connection.commit()
        assert before == (
            connection.autocommit,
            connection.row_factory,
            connection.cursor_factory,
            connection.prepare_threshold,
            dict(vars(connection.adapters)) if hasattr(connection.adapters, "__dict__") else None,
        )
        assert connection.execute("SELECT '{}'::jsonb AS j").fetchone() == {"j": "mine"}
        assert connection.execute("SELECT name FROM pg_prepared_statements").fetchall() == []


@pytest.mark.dialect("mssql")
def test_a_pyodbc_connection_is_left_as_it_was(box: Box, db: Database) -> None:
    connection = connect(db.url)
    import pyodbc

    try:
        connection.add_output_converter(pyodbc.SQL_GUID, repr)
        before = (connection.autocommit, connection.timeout, connection.get_output_converter(pyodbc.SQL_GUID))
        done = box.outbox.enqueue("t", "p", connection=connection)
        assert isinstance(done.message_id, UUID)
        assert before == (
            connection.autocommit,
            connection.timeout,
            connection.get_output_converter(pyodbc.SQL_GUID),
        )
        connection.rollback()
    finally:
        connection.close()
    assert _count(db) == 0


def test_autocommit_is_the_callers(box: Box, db: Database) -> None:
    connection = connect(db.url, autocommit=True)
    try:
        box.outbox.enqueue("t", "p", connection=connection)
        assert connection.autocommit
    finally:
        connection.close()
    assert _count(db) == 1


def test_an_error_is_the_callers_to_undo(box: Box, db: Database) -> None:
    with db.session() as session:
        box.outbox.enqueue("t", "p", connection=session.connection)
        with pytest.raises(InvalidArgument):
            box.outbox.enqueue("", "p", connection=session.connection)
        with contextlib.suppress(box.driver.database_error()):  # FreeTDS complains if the server has done so
            session.rollback()
        box.outbox.enqueue("t", "p", connection=session.connection)
        session.commit()
    assert _count(db) == 1


def test_transaction(box: Box, db: Database) -> None:
    with box.transaction() as connection:
        box.outbox.enqueue("t", "p", connection=connection)
        connection.cursor().execute("SELECT 1")
    assert _count(db) == 1
    with pytest.raises(ZeroDivisionError):
        _fail_inside(box.transaction(), box)
    assert _count(db) == 1
    with pytest.raises(InvalidArgument):
        _refused_inside(box)
    assert _count(db) == 1
    for _ in range(5):  # none of them is lost to the pool
        box.outbox.enqueue("t", "p")
    with box.connection() as connection:
        assert connection.autocommit
    assert _count(db) == 6


def test_wrong_connections(box: Box, db: Database) -> None:
    wrong = wrong_connection(db.dialect)
    for each in (wrong, "postgresql://", 5, object()):
        with pytest.raises(InvalidArgument, match=f"connection: on {db.dialect} must be"):
            box.outbox.enqueue("t", "secret payload", connection=each)
    closed = connect(db.url)
    closed.close()
    with pytest.raises(Exception, match="closed") as caught:
        box.outbox.enqueue("t", "secret payload", connection=closed)
    assert "secret" not in str(caught.value)


def test_a_closed_box(box: Box) -> None:
    box.outbox.enqueue("t", "p")
    box.close()
    with pytest.raises(InvalidState, match="closed"):
        box.outbox.enqueue("t", "p")
    box.close()
