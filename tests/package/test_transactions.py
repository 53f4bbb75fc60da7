"""connection=: a message is there exactly if its caller commits, and the connection is left as it was."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.json import set_json_loads

import pysqlbox
from pysqlbox import Deployment, InvalidArgument, InvalidState
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


def _fail_inside(block: Any, db: Deployment, connection: Any = None) -> None:
    with block as opened:
        db.outbox.enqueue("t", "p", connection=opened if connection is None else connection)
        raise ZeroDivisionError


def _refused_inside(db: Deployment) -> None:
    with db.transaction() as connection:
        db.outbox.enqueue("t", "p", connection=connection)
        db.outbox.enqueue("", "p", connection=connection)


def test_what_is_rolled_back_was_never_there(deployment: Deployment, db: Database, holder: Any) -> None:
    with holder(db) as (connection, _, rollback):
        done = deployment.outbox.enqueue("t", "p", connection=connection)
        assert deployment.outbox.get(done.id, connection=connection).topic == "t"
        assert deployment.outbox.enqueue_many([{"topic": "t", "payload": "p"}], connection=connection)
        rollback()
    assert _count(db) == 0


def test_what_is_committed_is_there(deployment: Deployment, db: Database, holder: Any) -> None:
    with holder(db) as (connection, commit, _):
        deployment.outbox.enqueue("t", "p", headers={"a": 1}, connection=connection)
        deployment.inbox.enqueue("t", "s", "1", "p", hash=b"x", connection=connection)
        commit()
        (message,) = deployment.outbox.claim(OWNER, connection=connection)
        assert deployment.outbox.ack(OWNER, [message.id], connection=connection) == 1
        commit()
    assert deployment.outbox.stats()[-1].done == 1
    assert deployment.inbox.stats()[-1].ready == 1


def test_what_is_left_alone_is_undone(deployment: Deployment, db: Database, holder: Any) -> None:
    with holder(db) as (connection, _, _rollback):
        deployment.outbox.enqueue("t", "p", connection=connection)
    assert _count(db) == 0


def test_sqlalchemys_own_blocks(deployment: Deployment, db: Database) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    engine = sqlalchemy_engine(db)
    with engine.begin() as connection:
        deployment.outbox.enqueue("t", "p", connection=connection)
    assert _count(db) == 1
    with pytest.raises(ZeroDivisionError):
        _fail_inside(engine.begin(), deployment)
    assert _count(db) == 1
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("SELECT 1"))
        nested = connection.begin_nested()
        deployment.outbox.enqueue("t", "p", connection=connection)
        nested.rollback()
        connection.commit()
    assert _count(db) == 1


@pytest.mark.dialect("postgres")
def test_djangos_atomic(deployment: Deployment, db: Database) -> None:
    pytest.importorskip("django", reason="django is not installed")
    from django.db import connections, transaction
    from django.utils.connection import ConnectionProxy

    with django_alias(db) as alias:
        connection = connections[alias]
        with transaction.atomic(using=alias):
            deployment.outbox.enqueue("t", "p", connection=connection)
        assert _count(db) == 1
        with pytest.raises(ZeroDivisionError):
            _fail_inside(transaction.atomic(using=alias), deployment, ConnectionProxy(connections, alias))
        assert _count(db) == 1
        with transaction.atomic(using=alias):
            with pytest.raises(ZeroDivisionError):
                _fail_inside(transaction.atomic(using=alias), deployment, connection)
            deployment.outbox.enqueue("t", "p", connection=connection)
        assert _count(db) == 2
        deployment.outbox.enqueue("t", "p", connection=connection)  # outside of atomic: at once
        assert _count(db) == 3
        assert connection.get_autocommit()
        with transaction.atomic(using=alias):
            with pytest.raises(InvalidArgument):
                deployment.outbox.enqueue("", "p", connection=connection)
            transaction.set_rollback(True, using=alias)
        assert _count(db) == 3


@pytest.mark.dialect("postgres")
def test_a_psycopg_connection_is_left_as_it_was(deployment: Deployment) -> None:
    class Loud(TimestamptzLoader):
        def load(self, data: Any) -> Any:
            raise AssertionError(f"the caller's own loader was used for {len(data)} bytes")

    with psycopg.connect(
        deployment.target.dsn, row_factory=dict_row, cursor_factory=psycopg.ClientCursor
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
        done = deployment.outbox.enqueue(
            "t", "p", headers={"a": 1}, due_at=datetime.now(UTC), connection=connection
        )
        for _ in range(8):
            deployment.outbox.enqueue("t", "p", connection=connection)
        (message, *_) = deployment.outbox.claim(OWNER, connection=connection)
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
def test_a_pyodbc_connection_is_left_as_it_was(deployment: Deployment, db: Database) -> None:
    connection = connect(db.url)
    import pyodbc

    try:
        connection.add_output_converter(pyodbc.SQL_GUID, repr)
        before = (connection.autocommit, connection.timeout, connection.get_output_converter(pyodbc.SQL_GUID))
        done = deployment.outbox.enqueue("t", "p", connection=connection)
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


def test_autocommit_is_the_callers(deployment: Deployment, db: Database) -> None:
    connection = connect(db.url, autocommit=True)
    try:
        deployment.outbox.enqueue("t", "p", connection=connection)
        assert connection.autocommit
    finally:
        connection.close()
    assert _count(db) == 1


def test_an_error_is_the_callers_to_undo(deployment: Deployment, db: Database) -> None:
    with db.session() as session:
        deployment.outbox.enqueue("t", "p", connection=session.connection)
        with pytest.raises(InvalidArgument):
            deployment.outbox.enqueue("", "p", connection=session.connection)
        with contextlib.suppress(
            deployment.driver.database_error()
        ):  # FreeTDS complains if the server has done so
            session.rollback()
        deployment.outbox.enqueue("t", "p", connection=session.connection)
        session.commit()
    assert _count(db) == 1


def test_transaction(deployment: Deployment, db: Database) -> None:
    with deployment.transaction() as connection:
        deployment.outbox.enqueue("t", "p", connection=connection)
        connection.cursor().execute("SELECT 1")
    assert _count(db) == 1
    with pytest.raises(ZeroDivisionError):
        _fail_inside(deployment.transaction(), deployment)
    assert _count(db) == 1
    with pytest.raises(InvalidArgument):
        _refused_inside(deployment)
    assert _count(db) == 1
    for _ in range(5):  # none of them is lost to the pool
        deployment.outbox.enqueue("t", "p")
    with deployment.connection() as connection:
        assert connection.autocommit
    assert _count(db) == 6


def _swallow(deployment: Deployment) -> None:
    with deployment.transaction() as connection:
        deployment.outbox.enqueue("t", "lost", connection=connection)
        with contextlib.suppress(InvalidArgument):
            deployment.outbox.enqueue("", "p", connection=connection)


def _go_on(deployment: Deployment) -> None:
    with deployment.transaction() as connection:
        with contextlib.suppress(InvalidArgument):
            deployment.outbox.enqueue("", "p", connection=connection)
        deployment.outbox.enqueue("t", "lost", connection=connection)


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize(
    ("ends", "says"),
    [(_swallow, "transaction: an error has ended it"), (_go_on, "aborted.*must be rolled back")],
)
def test_a_transaction_that_an_error_has_ended_is_never_taken_for_committed(
    deployment: Deployment, db: Database, ends: Callable[[Deployment], None], says: str
) -> None:
    """The server answers its commit by rolling it back, and calls that no error."""
    with pytest.raises(InvalidState, match=says):
        ends(deployment)
    with deployment.transaction() as connection:
        with contextlib.suppress(InvalidArgument), connection.transaction():
            deployment.outbox.enqueue("", "p", connection=connection)
        deployment.outbox.enqueue("t", "kept", connection=connection)
    assert _count(db) == 1


@pytest.mark.dialect("postgres")
def test_what_somebody_told_a_lent_connection_the_next_one_does_not_find(db: Database) -> None:
    with pysqlbox.connect(db.url, schema=db.schema, pool_size=1) as deployment:
        with deployment.connection() as lent:
            lent.row_factory, lent.cursor_factory = dict_row, psycopg.ClientCursor
            lent.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
            lent.read_only = lent.deferrable = True
        with deployment.transaction() as again:
            assert again is lent
            assert type(again.cursor()) is psycopg.Cursor
            found = again.execute("SELECT current_setting('transaction_isolation')")
            assert found.fetchone() == ("read committed",)
            assert deployment.outbox.claim(OWNER, connection=again) == []
        entered = contextlib.ExitStack()
        with deployment.connection() as lent:
            entered.enter_context(lent.pipeline())
        assert lent.closed, "nobody knows what is still to come"
        with contextlib.suppress(psycopg.Error):
            entered.close()
        assert deployment.outbox.enqueue("t", "p").outcome == "created"


def test_wrong_connections(deployment: Deployment, db: Database) -> None:
    wrong = wrong_connection(db.dialect)
    for each in (wrong, "postgresql://", 5, object()):
        with pytest.raises(InvalidArgument, match=f"connection: on {db.dialect} must be"):
            deployment.outbox.enqueue("t", "secret payload", connection=each)
    closed = connect(db.url)
    closed.close()
    with pytest.raises(Exception, match="closed") as caught:
        deployment.outbox.enqueue("t", "secret payload", connection=closed)
    assert "secret" not in str(caught.value)


def test_a_closed_box(deployment: Deployment) -> None:
    deployment.outbox.enqueue("t", "p")
    deployment.close()
    with pytest.raises(InvalidState, match="closed"):
        deployment.outbox.enqueue("t", "p")
    deployment.close()
