"""What is made of pyodbc's connections and errors, on stand-ins for them.

This shows what is sent and what is made of the answers; not what a server does with any of it.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from pysqlbox import AccessDenied, DatabaseUnavailable, InvalidArgument, PysqlboxError
from pysqlbox.drivers import Target, mssql
from pysqlbox.drivers.url import parse_url, read_odbc
from pysqlbox.errors import DriverMissing, InvalidState, NotFound, SchemaMismatch

pyodbc = pytest.importorskip("pyodbc", reason="the extra pysqlbox[mssql] is not installed")
CUT = pyodbc.OperationalError("08S01", "[08S01] [Microsoft][ODBC Driver 18] Communication link failure (0)")
TARGET = parse_url("mssql://sa:secret@host/db")


class Raw:
    """A connection. Its answers are result sets: columns and rows, None for one without rows, or an error."""

    def __init__(self, *answers: Any) -> None:
        self.answers: deque[Any] = deque(answers)
        self.said: list[str] = []
        self.open_cursors = 0
        self.autocommit = True
        self.closed = False
        self.rollbacks = 0
        self.on_rollback: Callable[[], None] = lambda: None
        self.converter: Any = None
        self.timeout = self.maxwrite = 0
        self.driver = "libmsodbcsql-18.6.so.2.1"

    def cursor(self) -> Cursor:
        self.open_cursors += 1
        return Cursor(self)

    def rollback(self) -> None:
        self.rollbacks += 1
        self.on_rollback()

    def getinfo(self, _: int) -> str:
        return self.driver

    def get_output_converter(self, _: int) -> Any:
        return self.converter

    def add_output_converter(self, _: int, converter: Any) -> None:
        self.converter = converter

    def remove_output_converter(self, _: int) -> None:
        self.converter = None


class Cursor:
    """One that goes through the answers."""

    def __init__(self, connection: Raw) -> None:
        self._connection = connection
        self._answer: Any = None

    @property
    def description(self) -> Any:
        return None if self._answer is None else [(name,) for name in self._answer[0]]

    def setinputsizes(self, _: Any) -> None:
        """Only needed on the wire."""

    def execute(self, text: str, *_: Any) -> None:
        self._connection.said.append(text)
        self.nextset()

    def nextset(self) -> bool:
        if not self._connection.answers:
            return False
        self._answer = self._connection.answers.popleft()
        if isinstance(self._answer, Exception):
            raise self._answer
        return True

    def fetchall(self) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._answer[1]
        return rows

    def close(self) -> None:
        self._connection.open_cursors -= 1


def raw(*answers: Any) -> Any:
    """A connection with answers."""
    return Raw(*answers)


def error(code: int, state: str = "42000", text: str = "m") -> Exception:
    """A server's, by its number."""
    found: Exception = pyodbc.Error(
        state, f"[{state}] [Microsoft][SQL Server]{text} ({code}) (SQLExecDirectW)"
    )
    return found


def test_a_driver_managers_pool_keeps_no_session() -> None:
    """With its locks, after close()."""
    mssql._pyodbc.cache_clear()
    pyodbc.pooling = True
    assert mssql._pyodbc().pooling is False


def test_an_error_waits_behind_the_rows_and_only_the_first_rows_count() -> None:
    rows = (("n",), [(1,)])
    connection = raw(None, rows, (("m",), [(2,)]))
    assert mssql.call(connection, "infra", "outbox_stats", {}) == [{"n": 1}]
    assert not connection.answers
    with pytest.raises(InvalidState, match="no more"):
        mssql.fetch(raw(rows, error(51003, text="no more")), "infra", "outbox_stats", {})
    assert mssql.fetch(raw(None), "infra", "outbox_stats", {}) == []


def test_a_question_takes_the_first_rows_that_come() -> None:
    assert mssql.query(raw(None, (("n",), [(1,)])), "SELECT 1") == [(1,)]
    assert mssql.query(raw(None, None), "SET x") == []


def test_a_batch_is_read_to_its_end() -> None:
    """Where an error may wait."""
    connection = raw((("n",), [(1,)]), CUT)
    with pytest.raises(pyodbc.Error):
        mssql.run_batch(connection, "SELECT 1; THROW")
    assert connection.open_cursors == 0


def test_the_callers_converter_is_put_back() -> None:
    """Also after an error."""
    for converter in (None, str):
        connection = raw((("n",), [(1,)]), error(51001))
        connection.converter = converter
        with pytest.raises(InvalidArgument):
            mssql.fetch(connection, "infra", "outbox_stats", {})
        assert connection.converter is converter


def test_half_a_character_is_no_fault_of_the_database() -> None:
    wrong = UnicodeEncodeError("utf-16", "\ud800", 0, 1, "surrogates not allowed")
    with pytest.raises(InvalidArgument, match="half a character"):
        mssql.fetch(raw(wrong), "infra", "outbox_stats", {})


def test_uuids_come_as_bytes_as_text_or_not_at_all() -> None:
    identity = uuid.uuid4()
    for said in (identity.bytes_le, str(identity), str(identity).encode()):
        assert mssql._read_guid(said) == identity
    assert mssql._read_guid(None) is None


@pytest.mark.parametrize(
    "ask", [lambda c: mssql.has_routine(c, "infra", "r"), lambda c: mssql.boxes(c, "infra")]
)
def test_what_a_question_raises_is_ours(ask: Callable[[Any], object]) -> None:
    with pytest.raises(DatabaseUnavailable):
        ask(raw(CUT))


def test_boxes_are_those_with_a_claim_of_their_own() -> None:
    names = [("outbox_claim",), ("_outbox_claim",), ("outbox_claims",), ("mail_claim",), ("outbox_settle",)]
    assert mssql.boxes(raw((("name",), names)), "infra") == ["outbox", "mail"]


def test_an_idle_connection_is_asked_after_a_while() -> None:
    connection = raw((("alive",), [(1,)]), CUT)
    assert mssql.is_alive(connection, 1.0)
    assert connection.said == []
    assert mssql.is_alive(connection, 100.0)
    assert not mssql.is_alive(connection, 100.0)
    assert len(connection.said) == 2
    connection.closed = True
    assert not mssql.is_alive(connection, 1.0)


def test_a_connection_is_brought_back_to_how_it_was() -> None:
    connection = raw()
    assert mssql.reset(connection)
    assert connection.rollbacks == 0
    connection.autocommit = False
    assert mssql.reset(connection)
    assert (connection.rollbacks, connection.autocommit) == (1, True)


def test_a_connection_of_no_more_use_is_told() -> None:
    connection = raw()
    connection.autocommit = False

    def fails() -> None:
        raise CUT

    def closes() -> None:
        connection.closed = True

    for on_rollback in (fails, closes):
        connection.on_rollback = on_rollback
        assert not mssql.reset(connection)
    assert not mssql.reset(connection)


def test_what_is_closed_is_lost_and_what_is_not_the_drivers_is_not() -> None:
    connection = raw()
    assert not mssql.is_lost(connection, None)
    assert not mssql.is_lost(connection, ValueError("08S01"))
    assert not mssql.is_conflict(ValueError("40001", "(1205)"))
    assert not mssql.is_conflict(None)
    assert mssql.is_conflict(error(0, "40001")), "by its state, whatever its number"
    connection.closed = True
    assert mssql.is_lost(connection, None)


def test_freetds_writes_long_values_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """It hangs on the other way."""
    made = [raw(), raw()]
    made[1].driver = "libtdsodbc.so"
    left = list(made)
    monkeypatch.setattr(pyodbc, "connect", lambda *_, **__: left.pop(0))
    for _ in made:
        mssql.connect(TARGET)
    assert [each.maxwrite for each in made] == [0, 2**30]
    assert all(each.converter is mssql._read_guid for each in made)


@pytest.mark.parametrize("when", ["connecting", "setting up"])
def test_who_cannot_connect_is_told_so_without_the_password(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    refused = pyodbc.OperationalError("08001", "[08001] [Microsoft]cannot open secret (10061)")

    def connect(*_: Any, **__: Any) -> Any:
        if when == "connecting":
            raise refused
        return raw(refused)

    monkeypatch.setattr(pyodbc, "connect", connect)
    with pytest.raises(DatabaseUnavailable, match=r"cannot open \*\*\*"):
        mssql.connect(TARGET)


@pytest.mark.parametrize(
    ("raised", "routines", "connecting"),
    [
        (error(51001), InvalidArgument, InvalidArgument),
        (error(51002), NotFound, NotFound),
        (error(51003), InvalidState, InvalidState),
        (error(11728), InvalidState, InvalidState),
        (error(2812), SchemaMismatch, PysqlboxError),
        (error(229), AccessDenied, AccessDenied),
        (error(18456, "28000"), AccessDenied, AccessDenied),
        (error(0, "28000"), AccessDenied, AccessDenied),
        (error(0, "IM002"), DriverMissing, DriverMissing),
        (error(0, "01000", "Can't open lib 'x'"), DriverMissing, DriverMissing),
        (error(0, "01000", "a warning"), PysqlboxError, PysqlboxError),
        (error(1205), DatabaseUnavailable, DatabaseUnavailable),
        (error(0, "08001"), DatabaseUnavailable, DatabaseUnavailable),
        (error(0, "HYT00"), DatabaseUnavailable, DatabaseUnavailable),
        (error(0, "HYT01"), DatabaseUnavailable, DatabaseUnavailable),
        (error(0, "40001"), DatabaseUnavailable, DatabaseUnavailable),
        (error(8114), InvalidArgument, PysqlboxError),
        (error(0, "22003"), InvalidArgument, PysqlboxError),
        (error(2627, "23000"), PysqlboxError, PysqlboxError),
        (pyodbc.Error("HY000", "[HY000] [FreeTDS][SQL Server]Unknown error (0)"), DatabaseUnavailable, None),
        (pyodbc.Error("odd"), PysqlboxError, PysqlboxError),
        (pyodbc.Error(), PysqlboxError, PysqlboxError),
    ],
)
def test_each_code_has_its_error(
    raised: Exception, routines: type[Exception], connecting: type[Exception] | None
) -> None:
    """Of a procedure, and of a connection that is being made, where nobody gave an argument."""
    assert type(mssql.map_error(raised)) is routines
    assert type(mssql.map_error(raised, TARGET)) is (connecting or routines)


def test_errors_that_freetds_alone_says_so() -> None:
    """Its word for a lost connection is another driver's for anything."""
    other = pyodbc.Error("HY000", "[HY000] [Microsoft][ODBC Driver 18]Unknown error (0)")
    numbered = pyodbc.Error("HY000", "[HY000] [FreeTDS][SQL Server]Unknown error (5)")
    for found in (other, numbered):
        assert not mssql.is_lost(raw(), found)
        assert type(mssql.map_error(found)) is PysqlboxError


def test_text_that_cannot_be_stored_is_refused_by_name() -> None:
    for value in ("\0", "a\ud800", object(), {"a"}):
        with pytest.raises(InvalidArgument, match=r"^mine: "):
            mssql.fetch(raw(), "infra", "outbox_enqueue", {"mine": value})


@pytest.mark.parametrize(
    ("dsn", "driver", "expected"),
    [
        ("SERVER=h", "x", {"DRIVER": "x", "SERVER": "h"}),
        ("SERVER=h", "FreeTDS", {"DRIVER": "FreeTDS", "SERVER": "h", "PORT": "1433", "TDS_Version": "7.4"}),
        ("SERVER=h,15", "FreeTDS", {"DRIVER": "FreeTDS", "SERVER": "h", "PORT": "15", "TDS_Version": "7.4"}),
        (
            "SERVER=h;PORT=7",
            "FreeTDS",
            {"DRIVER": "FreeTDS", "SERVER": "h", "PORT": "7", "TDS_Version": "7.4"},
        ),
        ("SERVER=h;TDS_Version=7.3", "FreeTDS", {"DRIVER": "FreeTDS", "SERVER": "h", "TDS_Version": "7.3"}),
        ("DSN=shop", None, {"DSN": "shop"}),
    ],
)
def test_a_driver_is_told_where_the_server_is(dsn: str, driver: str | None, expected: dict[str, str]) -> None:
    found = read_odbc(mssql._connection_string(Target("mssql", dsn, "there", driver=driver)))
    assert {key: value for key, value in found.items() if key not in ("APP", "ClientCharset")} == expected


def test_without_any_driver_it_says_which_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mssql, "installed_drivers", list)
    mssql._default_driver.cache_clear()
    with pytest.raises(DriverMissing, match="msodbcsql18"):
        mssql._connection_string(Target("mssql", "SERVER=h", "there"))
