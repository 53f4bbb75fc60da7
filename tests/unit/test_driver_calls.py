"""What a call to SQL Server sends: one text and one set of types a routine, whatever the values."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from pysqlbox import InvalidArgument
from pysqlbox.drivers import mssql
from pysqlbox.drivers.url import parse_url

pyodbc = pytest.importorskip("pyodbc", reason="the extra pysqlbox[mssql] is not installed")
MICROSOFT, FREETDS = "libmsodbcsql-18.6.so.2.1", "libtdsodbc.so"


@dataclass
class Cursor:
    """A cursor that notes what it is told and answers one row."""

    connection: Connection
    sizes: list[Any] = field(default_factory=list)
    description: tuple[tuple[str, ...], ...] | None = (("n",),)

    def setinputsizes(self, sizes: list[Any]) -> None:
        self.sizes = list(sizes)

    def execute(self, text: str, *values: Any) -> None:
        bound = list(values[0]) if values and isinstance(values[0], list) else list(values)
        self.connection.sent.append((text, bound, self.sizes))
        if self.connection.fails is not None:
            raise self.connection.fails

    def fetchall(self) -> list[tuple[int]]:
        return [(1,)]

    def nextset(self) -> bool:
        return False

    def close(self) -> None:
        self.connection.closed_cursors += 1


@dataclass
class Connection:
    """A connection of one of the two drivers."""

    driver: str = MICROSOFT
    sent: list[tuple[str, list[Any], list[Any]]] = field(default_factory=list)
    fails: Exception | None = None
    closed_cursors: int = 0
    closed: bool = False
    autocommit: bool = True
    timeout: int = 0
    maxwrite: int = 0

    def cursor(self) -> Cursor:
        return Cursor(self)

    def getinfo(self, _: int) -> str:
        return self.driver

    def get_output_converter(self, _: int) -> None:
        return None

    def add_output_converter(self, kind: int, converter: object) -> None:
        assert (kind, callable(converter)) == (pyodbc.SQL_GUID, True)

    def remove_output_converter(self, kind: int) -> None:
        assert kind == pyodbc.SQL_GUID


def shape(driver: str = MICROSOFT, /, **arguments: object) -> tuple[str, tuple[Any, ...]]:
    """The text and the types of a call: what the server keeps a plan for."""
    connection: Any = Connection(driver)
    assert mssql.fetch(connection, "infra", "outbox_enqueue", arguments) == [(1,)]
    ((text, values, sizes),) = connection.sent
    assert len(sizes) == len(values) == text.count("?")
    assert connection.closed_cursors == 1
    return text, tuple(sizes)


VALUES: Mapping[str, tuple[object, ...]] = {
    "payload": ("", "x", "é😀" * 100_000, "'; --"),
    "priority": (0, -5, 2**40, True + 1),
    "delay_seconds": (0.5, Decimal("1.25"), 1e-7, 123456789.001, Decimal("1E+3")),
    "message_id": (uuid.UUID(int=1), uuid.uuid4()),
    "due_at": (datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)),
    "hash": (b"", b"\0\xff", bytearray(b"x" * 9000), memoryview(b"y")),
    "ids": ([], [1], list(range(10_000))),
    "flag": (True, False),
}


@pytest.mark.parametrize("name", VALUES)
def test_one_plan_whatever_the_value(name: str) -> None:
    assert len({shape(topic="t", **{name: value}) for value in VALUES[name]}) == 1


def test_one_plan_for_all_together() -> None:
    shapes = {shape(**{name: each[turn % len(each)] for name, each in VALUES.items()}) for turn in range(5)}
    ((text, sizes),) = shapes
    assert text == (
        "DECLARE @time_due_at datetimeoffset(6) = ?; EXEC [infra].[outbox_enqueue] @payload = ?,"
        " @priority = ?, @delay_seconds = ?, @message_id = ?, @due_at = @time_due_at, @hash = ?, @ids = ?,"
        " @flag = ?"
    )
    assert sizes == (
        (pyodbc.SQL_WVARCHAR, 64, 0),  # the time, which stands first
        (pyodbc.SQL_WVARCHAR, 0, 0),
        (pyodbc.SQL_BIGINT, 0, 0),
        (pyodbc.SQL_WVARCHAR, 64, 0),
        (pyodbc.SQL_WVARCHAR, 64, 0),
        (pyodbc.SQL_VARBINARY, 0, 0),
        (pyodbc.SQL_WVARCHAR, 0, 0),
        (pyodbc.SQL_BIT, 0, 0),
    )


def test_values_follow_the_marks() -> None:
    connection: Any = Connection()
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) + timedelta(microseconds=60)
    arguments = {"topic": "t", "due_at": when, "group_id": None, "expires_at": when, "priority": 3}
    mssql.fetch(connection, "infra", "outbox_enqueue", arguments)
    ((text, values, _),) = connection.sent
    iso = "2026-01-02T03:04:05.000060+00:00"
    assert values == [iso, iso, "t", 3]
    assert text.endswith(
        "@topic = ?, @due_at = @time_due_at, @group_id = NULL, @expires_at = @time_expires_at, @priority = ?"
    )


def test_freetds_has_two_plans_for_text_and_never_cuts() -> None:
    """It binds at most 4000 units of nvarchar and 8000 bytes, silently without the rest."""
    short = {shape(FREETDS, payload=text) for text in ("", "x" * 2000, "😀" * 2000)}
    long = {shape(FREETDS, payload=text) for text in ("x" * 2001, "x" * 5000, "x" * 1_000_000)}
    assert [sizes for _, sizes in short] == [((pyodbc.SQL_WVARCHAR, 4000, 0),)]
    assert [sizes for _, sizes in long] == [((pyodbc.SQL_WLONGVARCHAR, 0, 0),)]
    assert shape(FREETDS, hash=b"x" * 8000)[1] == ((pyodbc.SQL_VARBINARY, 8000, 0),)
    assert shape(FREETDS, hash=b"x" * 8001)[1] == ((pyodbc.SQL_LONGVARBINARY, 0, 0),)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Decimal("sNaN"), Decimal("1E+31"), 1e300])
def test_numbers_that_no_column_takes(value: object) -> None:
    with pytest.raises(InvalidArgument, match="delay_seconds: must be a finite number"):
        shape(delay_seconds=value)


def test_numbers_are_short_enough_to_be_bound() -> None:
    connection: Any = Connection()
    mssql.fetch(connection, "infra", "outbox_enqueue", {"delay_seconds": Decimal("1.5E-100")})
    ((_, values, _),) = connection.sent
    assert values == ["0." + "0" * 20]


@pytest.mark.parametrize("value", [2**63, object(), datetime(2026, 1, 2), {1, 2}])
def test_values_that_do_not_fit(value: object) -> None:
    with pytest.raises(InvalidArgument, match="priority"):
        shape(priority=value)


def test_names_are_checked() -> None:
    with pytest.raises(InvalidArgument, match="must be a name"):
        shape(**{"topic = 1; --": "x"})


def test_a_cursor_is_closed_after_an_error() -> None:
    connection: Any = Connection(
        fails=pyodbc.Error("40001", "[40001] [x] was deadlocked (1205) (SQLExecute)")
    )
    with pytest.raises(Exception, match="deadlocked"):
        mssql.fetch(connection, "infra", "outbox_stats", {})
    assert connection.closed_cursors == 1


def test_questions_of_its_own_have_one_plan_too() -> None:
    connection: Any = Connection()
    for name in ("outbox_enqueue", "x" * 100):
        assert mssql.has_routine(connection, "infra", name)
    ((_, sizes),) = {(text, tuple(sizes)) for text, _, sizes in connection.sent}
    assert sizes == ((pyodbc.SQL_WVARCHAR, 4000, 0),)


@pytest.mark.parametrize(
    ("url", "timeout"),
    [
        ("mssql://u:p@host/db?driver=x", 30),
        ("mssql://u:p@host/db?driver=x&query_timeout=5", 5),
        ("mssql://u:p@host/db?driver=x&Query_Timeout=0", 0),
        ("DRIVER=x;SERVER=host;QueryTimeout=7", 7),
    ],
)
def test_every_call_has_a_timeout(monkeypatch: pytest.MonkeyPatch, url: str, timeout: int) -> None:
    opened = Connection()
    asked: list[str] = []

    def connect(text: str, *, autocommit: bool, timeout: int) -> Connection:
        assert (autocommit, timeout) == (True, 3)
        asked.append(text)
        return opened

    monkeypatch.setattr(pyodbc, "connect", connect)
    mssql.connect(parse_url(url), connect_timeout=3)
    assert opened.timeout == timeout
    assert not opened.autocommit
    assert "timeout" not in asked[0].lower()
    ((settings, _, _),) = opened.sent  # what filtered indexes need, before the first transaction
    assert "ANSI_WARNINGS" in settings
    assert "NUMERIC_ROUNDABORT OFF" in settings


def test_a_target_may_say_its_own_timeout() -> None:
    target = replace(parse_url("mssql://u:p@host/db"), query_timeout=2)
    assert target.query_timeout == 2
    assert "secret" not in repr(replace(parse_url("mssql://u:secret@host/db"), query_timeout=2))
