"""Which of a driver's exceptions mean a lost connection, and which a conflict that passes."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pysqlbox import DatabaseUnavailable, InvalidState, PysqlboxError
from pysqlbox.drivers import mssql, postgres


class Open:
    """A connection that the driver believes to be open."""

    closed = False


@pytest.mark.parametrize(
    ("error", "lost", "conflict"),
    [
        (psycopg.errors.AdminShutdown(), True, False),
        (psycopg.errors.ConnectionFailure(), True, False),
        (psycopg.errors.IdleInTransactionSessionTimeout(), True, False),
        (psycopg.errors.InFailedSqlTransaction(), False, False),
        (psycopg.errors.QueryCanceled(), False, False),
        (psycopg.errors.DeadlockDetected(), False, True),
        (psycopg.errors.SerializationFailure(), False, True),
        (psycopg.errors.UniqueViolation(), False, False),
        (psycopg.OperationalError("without a code"), False, False),
        (ValueError("another's"), False, False),
        (None, False, False),
    ],
)
def test_postgres(error: Exception | None, lost: bool, conflict: bool) -> None:
    connection: Any = Open()
    assert postgres.is_lost(connection, error) is lost
    assert postgres.is_conflict(error) is conflict


def test_what_is_closed_is_lost_whatever_was_raised() -> None:
    connection: Any = Open()
    connection.closed = True
    assert postgres.is_lost(connection, None)


class Dropped(psycopg.errors.InternalError_):
    """What a server answers whose routine a deployment dropped between two steps of a call."""

    diag: Any = type("Diagnostic", (), {"message_primary": "cache lookup failed for function 16908"})()


def test_a_routine_that_was_dropped_meanwhile() -> None:
    """The call is made again: by then the new one is there. Any other internal error stays one."""
    assert postgres.is_conflict(Dropped())
    assert type(postgres.map_error(Dropped())) is DatabaseUnavailable
    assert not postgres.is_conflict(psycopg.errors.InternalError_())
    assert type(postgres.map_error(psycopg.errors.InternalError_())) is PysqlboxError


def test_a_procedure_that_was_dropped_meanwhile() -> None:
    """As Babelfish says it, which has no number of its own for it."""
    pyodbc = pytest.importorskip("pyodbc", reason="the extra pysqlbox[mssql] is not installed")
    text = "[42000] [x][y][SQL Server]cache lookup failed for function 336802 (33557097) (SQLExecDirectW)"
    error = pyodbc.ProgrammingError("42000", text)
    assert mssql.is_conflict(error)
    assert type(mssql.map_error(error)) is DatabaseUnavailable


def test_a_table_variable_that_was_lost_sight_of() -> None:
    """As Babelfish says it. The call may have committed before: only what may be made twice is made again."""
    pyodbc = pytest.importorskip("pyodbc", reason="the extra pysqlbox[mssql] is not installed")
    text = "[42000] [x][y][SQL Server]relation 471019 deleted while still in use (33557097) (SQLExecDirectW)"
    error = pyodbc.ProgrammingError("42000", text)
    connection: Any = Open()
    assert mssql.is_lost(connection, error)
    assert not mssql.is_conflict(error)
    assert type(mssql.map_error(error)) is DatabaseUnavailable
    other = pyodbc.ProgrammingError("42000", text.replace("deleted while still in use", "does not exist"))
    assert not mssql.is_lost(connection, other)


def test_a_place_without_ids() -> None:
    """As each server says it."""
    pyodbc = pytest.importorskip("pyodbc", reason="the extra pysqlbox[mssql] is not installed")
    texts = {
        "[42000] [x][y][SQL Server]The sequence object 'i' has reached its minimum or maximum value. (11728)",
        '[42000] [x][y][SQL Server]nextval: reached maximum value of sequence "i" (7) (33557097)',
    }
    errors = [mssql.map_error(pyodbc.Error("42000", text)) for text in texts]
    errors.append(postgres.map_error(psycopg.errors.SequenceGeneratorLimitExceeded("nextval: reached")))
    for error in errors:
        assert type(error) is InvalidState
        assert str(error).startswith("the ids of this deployment's place are used up: ")


@pytest.mark.parametrize(
    ("arguments", "lost", "conflict"),
    [
        (
            ("08S01", "[08S01] [FreeTDS][SQL Server]Communication link failure (0) (SQLExecDirectW)"),
            True,
            False,
        ),
        (("HY000", "[HY000] [FreeTDS][SQL Server]Unknown error (0) (SQLExecDirectW)"), True, False),
        (("HY000", "[HY000] [Microsoft][ODBC Driver 18 for SQL Server]Connection is busy (0)"), False, False),
        (("40001", "[40001] [x][y][SQL Server]was deadlocked (1205) (SQLExecDirectW)"), False, True),
        (("42000", "[42000] [x][y][SQL Server]Could not continue scan with NOLOCK (601)"), False, True),
        (("42000", "[42000] [x][y][SQL Server]Lock request time out period exceeded. (1222)"), False, True),
        (("HYT00", "[HYT00] [Microsoft][x]Query timeout expired (0) (SQLExecDirectW)"), True, False),
        (("HYT00", "[HYT00] [FreeTDS][SQL Server]Timeout expired (0) (SQLExecDirectW)"), True, False),
        (("42000", "[42000] [x][y][SQL Server]Database is not available (40613)"), True, False),
        (("23000", "[23000] [x][y][SQL Server]Violation of a key (2627)"), False, False),
        ((), False, False),
    ],
)
def test_mssql(arguments: tuple[str, ...], lost: bool, conflict: bool) -> None:
    pyodbc = pytest.importorskip("pyodbc", reason="the extra pysqlbox[mssql] is not installed")
    error = pyodbc.Error(*arguments)
    assert mssql.is_lost(Open(), error) is lost
    assert mssql.is_conflict(error) is conflict
    if lost or conflict:
        assert isinstance(mssql.map_error(error), DatabaseUnavailable)
