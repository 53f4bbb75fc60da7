"""What goes wrong around a call: connections that break, servers that are gone, schemas that do not fit."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID, uuid4

import pytest

import pysqlbox
from pysqlbox import AccessDenied, DatabaseUnavailable, Deployment, InvalidArgument, Retries, SchemaMismatch
from pysqlbox.drivers import Values
from pysqlbox.drivers.url import odbc_string, parse_url, read_odbc
from tests.support.database import Database

OWNER = UUID("11111111-1111-4111-8111-111111111111")
QUICK = Retries(attempts=4, base_seconds=0.001, cap_seconds=0.01, give_up_seconds=600)


@pytest.fixture
def quick(db: Database) -> Iterator[Deployment]:
    """A box that does not pause long."""
    with pysqlbox.connect(db.url, schema=db.schema, pool_size=2, retries=QUICK) as opened:
        yield opened


def _sessions(db: Database) -> list[int]:
    """The ids of the package's sessions at the server."""
    if db.dialect == "postgres":
        text = (
            "SELECT pid AS id FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND application_name = 'pysqlbox'"
        )
    else:
        text = (
            "SELECT session_id AS id FROM sys.dm_exec_sessions WHERE session_id <> @@SPID AND session_id > 50"
        )
    return [int(str(row["id"])) for row in db.sql(text)]


def _kill(db: Database, connection: Any) -> None:
    """End a connection's session at the server."""
    if db.dialect == "postgres":
        db.sql("SELECT pg_terminate_backend(%s)", connection.info.backend_pid)
        return
    cursor = connection.cursor()
    (session_id,) = cursor.execute("SELECT @@SPID").fetchone()
    cursor.close()
    db.sql(f"KILL {int(session_id)}")


def _kill_idle(db: Database, deployment: Deployment) -> None:
    with deployment.connection() as connection:
        pass
    _kill(db, connection)
    time.sleep(0.1)


class Cutting:
    """A driver that cuts the connection when the server has done its part, before the answer comes."""

    def __init__(self, deployment: Deployment, db: Database, times: int = 1) -> None:
        self._inner = deployment.driver
        self._db = db
        self.left = times
        self.calls = 0

    def fetch(
        self, connection: Any, schema: str, routine: str, arguments: Mapping[str, object]
    ) -> list[Values]:
        """The call, whose answer is lost a few times."""
        self.calls += 1
        rows = self._inner.fetch(connection, schema, routine, arguments)
        if self.left:
            self.left -= 1
            _kill(self._db, connection)
            time.sleep(0.1)
            self._inner.fetch(connection, schema, "schema_version", {})
            raise AssertionError("the connection should have been cut")
        return rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _cut(deployment: Deployment, db: Database, times: int = 1) -> Cutting:
    deployment.drawing_place()  # asked once, before the first enqueue
    cutting = Cutting(deployment, db, times)
    deployment.driver = cutting
    return cutting


def test_an_idle_connection_that_was_cut_is_replaced(quick: Deployment, db: Database) -> None:
    quick.schema_version()
    _kill_idle(db, quick)
    assert quick.outbox.enqueue("t", "p").outcome == "created"
    if db.dialect == "postgres":  # where it is seen before it is used
        _kill_idle(db, quick)
        assert len(quick.outbox.claim(OWNER)) == 1


def test_an_enqueue_whose_answer_was_lost_is_written_once(quick: Deployment, db: Database) -> None:
    cutting = _cut(quick, db, 2)
    done = quick.outbox.enqueue("t", "p")
    assert cutting.calls == 3
    assert done.outcome == "created"
    assert db.sql("SELECT count(*) AS n FROM {schema}.outbox_messages")[0]["n"] == 1
    assert quick.outbox.get(done.id).message_id == done.message_id


def test_a_real_duplicate_stays_one(quick: Deployment, db: Database) -> None:
    first = quick.outbox.enqueue("t", "p", dedup_key="k")
    _cut(quick, db)
    second = quick.outbox.enqueue("t", "p", dedup_key="k")
    assert second.duplicate
    assert (second.id, second.message_id) == (first.id, first.message_id)


def test_a_batch_is_tried_again_only_under_ids_of_its_own(quick: Deployment, db: Database) -> None:
    _cut(quick, db)
    named = [{"topic": "t", "payload": "p", "message_id": uuid4()} for _ in range(2)]
    assert len(quick.outbox.enqueue_many(named)) == 2
    cutting = _cut(quick, db)
    with pytest.raises(DatabaseUnavailable):
        quick.outbox.enqueue_many([{"topic": "t", "payload": "p"}])
    assert cutting.calls == 1


def test_an_inbox_takes_a_message_once(quick: Deployment, db: Database) -> None:
    _cut(quick, db)
    assert quick.inbox.enqueue("t", "s", "1", "p").outcome == "updated"
    assert quick.inbox.stats()[-1].ready == 1


def test_a_claim_is_not_tried_again(quick: Deployment, db: Database) -> None:
    quick.outbox.enqueue("t", "p")
    cutting = _cut(quick, db)
    with pytest.raises(DatabaseUnavailable):
        quick.outbox.claim(OWNER)
    assert cutting.calls == 1
    assert quick.outbox.stats()[-1].in_flight == 1


def test_nothing_is_tried_again_in_a_callers_transaction(quick: Deployment, db: Database) -> None:
    with db.session() as session:
        cutting = _cut(quick, db)
        with pytest.raises(DatabaseUnavailable):
            quick.outbox.enqueue("t", "p", connection=session.connection)
        assert cutting.calls == 1
    assert db.sql("SELECT count(*) AS n FROM {schema}.outbox_messages")[0]["n"] == 0


def test_it_gives_up_in_the_end(quick: Deployment, db: Database) -> None:
    cutting = _cut(quick, db, 100)
    with pytest.raises(DatabaseUnavailable):
        quick.outbox.stats()
    assert cutting.calls == QUICK.attempts


class _Conflicting(Cutting):
    def fetch(
        self, connection: Any, schema: str, routine: str, arguments: Mapping[str, object]
    ) -> list[Values]:
        """The call, after a few deadlocks."""
        self.calls += 1
        if self.left:
            self.left -= 1
            raise DatabaseUnavailable("deadlock detected") from _deadlock(self._db)
        return self._inner.fetch(connection, schema, routine, arguments)


def _deadlock(db: Database) -> Exception:
    """The exception of a deadlock, as the driver raises it."""
    if db.dialect == "postgres":
        import psycopg

        return psycopg.errors.DeadlockDetected("deadlock detected")
    import pyodbc

    return pyodbc.Error("40001", "[40001] [x][y][z]Transaction was deadlocked (1205) (SQLExecDirectW)")  # type: ignore[no-any-return]  # untyped


def test_a_deadlock_is_tried_again_whatever_the_call(
    quick: Deployment, db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    quick.outbox.enqueue("t", "secret")
    quick.driver = _Conflicting(quick, db, 2)
    with caplog.at_level(logging.WARNING, "pysqlbox"):
        assert len(quick.outbox.claim(OWNER)) == 1
    assert "outbox_claim failed, trying again (2 of 4)" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.dialect("postgres")
def test_a_real_deadlock_reaches_the_caller_of_a_transaction(quick: Deployment, db: Database) -> None:
    key = "k"
    with db.session() as one, db.session() as two:
        quick.outbox.enqueue("t", "p", dedup_key="a" + key, connection=one.connection)
        quick.outbox.enqueue("t", "p", dedup_key="b" + key, connection=two.connection)
        errors: list[Exception] = []

        def cross() -> None:
            try:
                quick.outbox.enqueue("t", "p", dedup_key="b" + key, connection=one.connection)
            except DatabaseUnavailable as error:
                errors.append(error)
                one.rollback()

        other = threading.Thread(target=cross)
        other.start()
        try:
            quick.outbox.enqueue("t", "p", dedup_key="a" + key, connection=two.connection)
        except DatabaseUnavailable as error:
            errors.append(error)
        two.rollback()
        other.join()
    assert len(errors) == 1
    assert "deadlock" in str(errors[0])


def test_an_exhausted_pool_says_so(db: Database) -> None:
    with pysqlbox.connect(db.url, schema=db.schema, pool_size=1, pool_timeout=0.2) as deployment:
        with deployment.connection():
            started = time.monotonic()
            with pytest.raises(DatabaseUnavailable, match=r"all connections of the pool \(1\) were in use"):
                deployment.outbox.enqueue("t", "p")
            assert 0.15 < time.monotonic() - started < 5
        deployment.outbox.enqueue("t", "p")


def test_threads_share_a_pool(db: Database) -> None:
    failed: list[BaseException] = []
    with pysqlbox.connect(db.url, schema=db.schema, pool_size=2) as deployment:

        def produce() -> None:
            try:
                for number in range(10):
                    deployment.outbox.enqueue("t", str(number))
            except BaseException as error:
                failed.append(error)
                raise

        threads = [threading.Thread(target=produce) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert deployment.outbox.stats()[-1].ready == 60


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port at which nobody answers."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        yield probe.getsockname()[1]


def test_a_server_that_is_gone(db: Database, dead_port: int) -> None:
    scheme, rest = ("postgresql", "") if db.dialect == "postgres" else ("mssql", db.url.partition("?")[2])
    url = f"{scheme}://someone:hunter2secret@127.0.0.1:{dead_port}/there" + (f"?{rest}" if rest else "")
    with pysqlbox.connect(url, retries=QUICK, connect_timeout=2) as deployment:
        assert "hunter2" not in repr(deployment) + repr(deployment.outbox) + repr(deployment.joins) + repr(
            deployment.target
        )
        with pytest.raises(DatabaseUnavailable) as caught:
            deployment.outbox.enqueue("t", "the payload")
        text = str(caught.value)
        assert str(dead_port) in text
        assert "hunter2" not in text
        assert "the payload" not in text
        assert caught.value.__cause__ is not None


@pytest.mark.dialect("mssql")
def test_a_wrong_password_is_not_tried_again(db: Database) -> None:
    target = parse_url(db.url)
    driver = {"DRIVER": target.driver} if target.driver else {}
    url = odbc_string(driver | read_odbc(target.dsn) | {"PWD": "wr0ngSecret"})
    with pysqlbox.connect(url, schema=db.schema, retries=QUICK) as deployment:
        with pytest.raises(AccessDenied) as caught:
            deployment.outbox.stats()
        assert "wr0ngSecret" not in str(caught.value)


def test_a_schema_that_is_missing(db: Database) -> None:
    with pysqlbox.connect(db.url, schema="nowhere") as deployment:
        for step in (
            deployment.outbox.stats,
            lambda: deployment.outbox.enqueue("t", "p"),
            lambda: deployment.box("mail"),
        ):
            with pytest.raises(SchemaMismatch, match="'nowhere' has no pysqlbox in it; run pysqlbox migrate"):
                step()
        with db.session() as session, pytest.raises(SchemaMismatch, match="nowhere"):
            deployment.outbox.enqueue("t", "p", connection=session.connection)


def test_a_schema_that_is_newer(db: Database) -> None:
    db.sql("INSERT INTO {schema}._version (version) VALUES (99)")
    with pysqlbox.connect(db.url, schema=db.schema) as deployment:
        with pytest.raises(SchemaMismatch, match="version 99, newer than this release"):
            deployment.outbox.enqueue("t", "p")
        with db.session() as session, pytest.raises(SchemaMismatch, match="version 99"):
            deployment.outbox.enqueue("t", "p", connection=session.connection)
        assert deployment.outbox.name == "outbox"
    assert db.sql("SELECT count(*) AS n FROM {schema}.outbox_messages")[0]["n"] == 0


def test_migrate_through_the_box(empty_url: str) -> None:
    with pysqlbox.connect(empty_url, schema="mine") as db:
        with pytest.raises(SchemaMismatch):
            db.outbox.enqueue("t", "p")
        plan = db.migrate()
        assert plan.changes
        assert db.schema_version() == plan.target
        assert db.outbox.enqueue("t", "p").outcome == "created"
        assert not db.migrate().changes


def test_a_child_leaves_its_parents_connections_alone(quick: Deployment) -> None:
    quick.outbox.enqueue("t", "parent")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # no assertion may leave the child: it would run the rest of the suite
        status = 1
        with contextlib.suppress(BaseException):
            quick.outbox.enqueue("t", "child")
            quick.close()
            status = 0
        os._exit(status)
    os.close(writer)
    os.close(reader)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [each.payload for each in quick.outbox.claim(OWNER)] == ["parent", "child"]


def test_closing_closes_every_session(db: Database) -> None:
    if db.dialect == "mssql":
        pytest.skip("who else is connected cannot be told apart here")
    with pysqlbox.connect(db.url, schema=db.schema) as deployment:
        with deployment.connection(), deployment.connection():
            pass
        before = len(_sessions(db))
        assert before >= 2
    time.sleep(0.1)
    assert len(_sessions(db)) == before - 2


def test_bad_tuning_is_refused(db: Database) -> None:
    with pytest.raises(InvalidArgument, match="pool_size"):
        pysqlbox.connect(db.url, pool_size=0)
    with pytest.raises(InvalidArgument, match="attempts"):
        Retries(attempts=0)
    with pytest.raises(InvalidArgument, match="base_seconds"):
        Retries(base_seconds=5, cap_seconds=1)
    with pytest.raises(InvalidArgument, match="schema"):
        pysqlbox.connect(db.url, schema="")
