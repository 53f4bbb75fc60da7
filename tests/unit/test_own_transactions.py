"""How the drivers begin and end a handler's transaction, on stand-ins for libpq and pyodbc."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg.pq import DiagnosticField, ExecStatus, PipelineStatus, TransactionStatus

from pysqlbox import DatabaseUnavailable, InvalidState, PysqlboxError
from pysqlbox.drivers import mssql, postgres
from pysqlbox.drivers.url import parse_url
from tests.unit.standins import OWNER

TARGET = parse_url("postgresql://someone:secret@host/db")
CALL = "infra", "outbox_ack", {"owner_token": OWNER, "ids": [7]}
TEXT = f"""SELECT 1 / "infra"."outbox_ack"(owner_token => '{OWNER}', ids => '{{7}}'); COMMIT"""


class Libpq:
    """What a psycopg connection has below. Its answers are errors: an SQLSTATE and a text, or libpq's own."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.answers: deque[tuple[str, str] | Exception] = deque()
        self.transaction_status = TransactionStatus.IDLE
        self.pipeline_status = PipelineStatus.OFF
        self.error_message = b"server closed the connection unexpectedly"

    def exec_(self, text: bytes) -> Any:
        self.sent.append(text.decode())
        answer = self.answers.popleft() if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        code, message = answer or ("", "")
        fields = {DiagnosticField.SQLSTATE: code.encode(), DiagnosticField.MESSAGE_PRIMARY: message.encode()}
        status = ExecStatus.COMMAND_OK if answer is None else ExecStatus.FATAL_ERROR
        return SimpleNamespace(status=status, error_field=lambda field: fields[field] or None)


class Own(postgres._Reused):
    """One of ours without a server."""

    def __init__(self) -> None:  # no server
        self.pgconn: Any = Libpq()
        self.lock = threading.Lock()

    @property
    def closed(self) -> bool:
        """True: nothing is left for a finalizer."""
        return True


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Own:
    """A connection in a transaction."""
    connection = Own()
    ended: list[str] = connection.pgconn.sent
    monkeypatch.setattr(psycopg.Connection, "commit", lambda _: ended.append("commit()"))
    monkeypatch.setattr(psycopg.Connection, "rollback", lambda _: ended.append("rollback()"))
    postgres.begin_transaction(connection, TARGET)
    assert ended == ["BEGIN"]
    connection.pgconn.transaction_status = TransactionStatus.INTRANS
    return connection


def test_its_user_can_end_it_only_when_it_is_over(own: Own) -> None:
    for end in (own.commit, own.rollback):
        with pytest.raises(psycopg.ProgrammingError, match=r"\(\) is not for the handler"):
            end()
    assert own.pgconn.sent == ["BEGIN"]
    assert postgres.end_transaction(own, TARGET, *CALL, 1) == 1
    own.commit()
    own.rollback()
    assert own.pgconn.sent[2:] == ["commit()", "rollback()"]


def test_a_message_and_its_transaction_end_in_one_text(own: Own) -> None:
    assert postgres.end_transaction(own, TARGET, *CALL, 1) == 1
    assert own.pgconn.sent == ["BEGIN", TEXT]


def test_a_name_with_quotes_and_percents_is_one(own: Own) -> None:
    postgres.end_transaction(own, TARGET, 'a"b%', "outbox_ack", CALL[2], 1)
    assert own.pgconn.sent[1].startswith('SELECT 1 / "a""b%"."outbox_ack"(')


def test_what_affects_nothing_commits_nothing(own: Own) -> None:
    own.pgconn.answers.append(("22012", "division by zero"))
    own.pgconn.transaction_status = TransactionStatus.INERROR
    assert postgres.end_transaction(own, TARGET, *CALL, 1) == 0
    with pytest.raises(psycopg.ProgrammingError):
        own.commit()
    postgres.undo_transaction(own)
    assert own.pgconn.sent[-1] == "rollback()"


def test_a_division_by_zero_that_the_commit_meets_is_an_error_as_any_other(own: Own) -> None:
    """In a deferred trigger: behind it there is no transaction any more."""
    own.pgconn.answers.append(("22012", "division by zero"))
    own.pgconn.transaction_status = TransactionStatus.IDLE
    with pytest.raises(PysqlboxError, match="division by zero"):
        postgres.end_transaction(own, TARGET, *CALL, 1)


def test_another_error_before_the_commit_is_no_lost_lease(own: Own) -> None:
    own.pgconn.answers.append(("25P02", "current transaction is aborted"))
    own.pgconn.transaction_status = TransactionStatus.INERROR
    with pytest.raises(InvalidState, match="aborted"):
        postgres.end_transaction(own, TARGET, *CALL, 1)


@pytest.mark.parametrize("affected", [3, 2])
def test_several_are_counted_before_the_commit(
    own: Own, monkeypatch: pytest.MonkeyPatch, affected: int
) -> None:
    monkeypatch.setattr(postgres, "fetch", lambda *call: own.pgconn.sent.append(call[2]) or [(affected,)])
    arguments = {"owner_token": OWNER, "ids": [7, 8, 9]}
    assert postgres.end_transaction(own, TARGET, "infra", "outbox_ack", arguments, 3) == affected
    assert own.pgconn.sent == ["BEGIN", "outbox_ack", *(["COMMIT"] if affected == 3 else [])]
    assert own.guarded == (affected != 3)


def test_a_commit_of_several_that_fails_is_told(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "fetch", lambda *_: [(2,)])
    own.pgconn.answers.append(("40001", "could not serialize access"))
    with pytest.raises(DatabaseUnavailable, match="serialize"):
        postgres.end_transaction(own, TARGET, "infra", "outbox_ack", {}, 2)


@pytest.mark.parametrize("answer", [("", ""), psycopg.OperationalError("the connection is closed")])
def test_a_lost_connection_is_one_however_libpq_tells(own: Own, answer: Any) -> None:
    own.pgconn.answers.append(answer)
    with pytest.raises(DatabaseUnavailable, match="closed"):
        postgres.end_transaction(own, TARGET, *CALL, 1)


def test_a_transaction_that_cannot_be_begun_guards_nothing() -> None:
    connection = Own()
    connection.pgconn.answers.append(("57P01", "terminating connection"))
    with pytest.raises(DatabaseUnavailable, match="terminating"):
        postgres.begin_transaction(connection, TARGET)
    assert not connection.guarded


def test_a_pipeline_that_was_not_left_is_told_in_words(own: Own) -> None:
    own.pgconn.pipeline_status = PipelineStatus.ON
    with pytest.raises(InvalidState, match="pipeline"):
        postgres.end_transaction(own, TARGET, *CALL, 1)
    assert own.pgconn.sent == ["BEGIN"]


# pyodbc

pyodbc = pytest.importorskip("pyodbc", reason="the extra pysqlbox[mssql] is not installed")


class Odbc:
    """A pyodbc connection."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fails = False

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "autocommit":
            self._do(f"autocommit {value}")
        super().__setattr__(name, value)

    def _do(self, what: str) -> None:
        self.done.append(what)
        if self.fails:
            raise pyodbc.OperationalError("08S01", "[08S01] Communication link failure (0)")

    def commit(self) -> None:
        self._do("commit")

    def rollback(self) -> None:
        self._do("rollback")


@pytest.mark.parametrize("affected", [1, 0])
def test_on_sql_server_only_what_affects_all_is_committed(
    monkeypatch: pytest.MonkeyPatch, affected: int
) -> None:
    connection = Odbc()

    def fetch(*call: Any) -> list[tuple[int]]:
        connection.done.append(call[2])
        return [(affected,)]

    monkeypatch.setattr(mssql, "fetch", fetch)
    mssql.begin_transaction(connection, TARGET)
    assert mssql.end_transaction(connection, TARGET, *CALL, 1) == affected
    assert connection.done == ["autocommit False", "outbox_ack", *(["commit"] if affected else [])]
    mssql.undo_transaction(connection)
    assert connection.done[-1] == "rollback"


def test_on_sql_server_a_begin_or_commit_that_fails_is_told_as_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Odbc()
    connection.fails = True
    with pytest.raises(DatabaseUnavailable):
        mssql.begin_transaction(connection, TARGET)
    monkeypatch.setattr(mssql, "fetch", lambda *_: [(1,)])
    with pytest.raises(DatabaseUnavailable):
        mssql.end_transaction(connection, TARGET, *CALL, 1)
    assert connection.done == ["autocommit False", "commit"]
