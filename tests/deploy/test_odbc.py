"""Each ODBC driver that this machine has, on whatever T-SQL engine there is: what is sent arrives."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from pysqlbox.drivers import Target, connect, driver_for, parse_url
from pysqlbox.drivers.mssql import installed_drivers, query
from pysqlbox.drivers.url import odbc_string, read_odbc
from pysqlbox.errors import DatabaseUnavailable, InvalidArgument
from tests.support.database import execute_once

pytestmark = pytest.mark.dialect("mssql")
KEEP = """
    CREATE PROCEDURE dbo.keep @n bigint = NULL, @small smallint = NULL, @b bit = NULL,
        @d decimal(19, 3) = NULL, @at datetimeoffset(6) = NULL, @u uniqueidentifier = NULL,
        @h varbinary(max) = NULL, @t nvarchar(max) = NULL
    AS
    BEGIN
        SET NOCOUNT ON;
        INSERT INTO dbo.kept (n, small, b, d, at, u, h, t)
        SELECT @n, @small, @b, @d, CAST(@at AS datetime2(6)), @u, @h, @t;
        SELECT COUNT(*) AS n FROM dbo.kept;
    END
    """
TABLE = (
    "CREATE TABLE dbo.kept (n bigint, small smallint, b bit, d decimal(19, 3), at datetime2(6),"
    " u uniqueidentifier, h varbinary(max), t nvarchar(max), no int IDENTITY(1, 1))"
)


def _drivers() -> list[str]:
    pytest.importorskip("pyodbc", reason="the extra pysqlbox[mssql] is not installed")
    return installed_drivers()


@pytest.fixture(params=["Microsoft", "FreeTDS"])
def target(request: pytest.FixtureRequest, empty_url: str) -> Target:
    """The empty database through one of the drivers."""
    is_freetds = request.param == "FreeTDS"
    found = [name for name in _drivers() if (name == "FreeTDS") == is_freetds]
    if not found:
        pytest.skip(f"{request.param}'s ODBC driver is not installed")
    return replace(_without_driver(parse_url(empty_url), is_freetds), driver=found[0])


def _without_driver(target: Target, is_freetds: bool) -> Target:
    """The target with the server written as the driver wants it."""
    entries = {key.upper(): value for key, value in read_odbc(target.dsn).items()}
    server, _, port = entries.pop("SERVER").partition(",")
    port = entries.pop("PORT", port) or "1433"
    for key in ("TDS_VERSION", "CLIENTCHARSET"):
        entries.pop(key, None)
    place = (
        {"SERVER": server, "PORT": port, "TDS_Version": "7.4", "ClientCharset": "UTF-8"}
        if is_freetds
        else {"SERVER": f"{server},{port}", "Encrypt": "no"}
    )
    return replace(target, dsn=odbc_string(entries | place))


@pytest.fixture
def keeper(target: Target, empty_url: str) -> Iterator[Any]:
    """A connection through the driver, to a database with a procedure that keeps what it got."""
    execute_once(empty_url, TABLE)
    execute_once(empty_url, KEEP)
    with contextlib.closing(connect(target, autocommit=True)) as connection:
        yield connection


def keep(connection: Any, **arguments: object) -> None:
    """One call of the procedure."""
    driver_for("mssql").fetch(connection, "dbo", "keep", arguments)


WHEN = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
IDENTITY = uuid.UUID("6f0c5e0c-9f5b-4d0e-8c3a-0b1f8f0b7a11")


def test_values_arrive(keeper: Any, empty_url: str) -> None:
    """Of every type; read back by the driver that the suite uses otherwise."""
    keep(
        keeper,
        n=2**62,
        small=-5,
        b=True,
        d=Decimal("-12345678.125"),
        at=WHEN,
        u=IDENTITY,
        h=b"\0\xff",
        t="ü😀'",
    )
    keep(keeper, n=-1, small=None, b=False, d=1e-3, at=None, u=None, h=b"", t="")
    keep(keeper, n=None, d=2, h=None, t=None)
    rows = execute_once(empty_url, "SELECT n, small, b, d, at, u, h, t FROM dbo.kept ORDER BY no")
    assert rows[0] == {
        "n": 2**62,
        "small": -5,
        "b": True,
        "d": Decimal("-12345678.125"),
        "at": WHEN,
        "u": IDENTITY,
        "h": b"\0\xff",
        "t": "ü😀'",
    }
    assert [rows[1][name] for name in ("n", "b", "d", "at", "h", "t")] == [
        -1,
        False,
        Decimal("0.001"),
        None,
        b"",
        "",
    ]
    assert [rows[2][name] for name in ("n", "b", "d", "h", "t")] == [None, None, Decimal(2), None, None]


@pytest.mark.parametrize("length", [1, 3999, 4000, 4001, 8000, 8001, 200_000])
def test_nothing_is_cut(keeper: Any, empty_url: str, length: int) -> None:
    """Around every length at which a driver changes the type that it sends."""
    keep(keeper, t="x" * (length - 1) + "é", h=b"y" * (length - 1) + b"z")
    keep(keeper, t="😀" * length)
    measured = (
        "SELECT DATALENGTH(t) AS length, RIGHT(t, 1) AS last, DATALENGTH(h) AS bytes,"
        " SUBSTRING(h, DATALENGTH(h), 1) AS last_byte FROM dbo.kept ORDER BY no"
    )
    first, second = execute_once(empty_url, measured)
    assert (first["last"], first["bytes"], first["last_byte"]) == ("é", length, b"z")
    assert int(str(first["length"])) >= length
    whole = "SELECT COUNT(*) AS n FROM dbo.kept WHERE t = %s"
    if length <= 8001:
        assert execute_once(empty_url, whole, ("😀" * length,)) == [{"n": 1}]
    assert int(str(second["length"])) == 4 * length


@pytest.mark.parametrize("arguments", [{"small": 99999}, {"d": Decimal("1e20")}])
def test_what_does_not_fit_is_refused(keeper: Any, arguments: dict[str, object]) -> None:
    """By the server; which number it gives Babelfish decides."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  # the next lines look closer
        keep(keeper, **arguments)
    assert isinstance(caught.value, InvalidArgument) or "overflow" in str(caught.value)
    assert "99999" not in str(caught.value)


def test_a_call_is_cut_off(target: Target, keeper: Any, empty_url: str) -> None:
    """It fails as an outage would, and its connection counts as lost: nobody knows how far it came."""
    driver = driver_for("mssql")
    keep(keeper, n=1)
    with (
        contextlib.closing(connect(empty_url)) as holder,
        contextlib.closing(connect(replace(target, query_timeout=1), autocommit=True)) as hurried,
    ):
        query(holder, "UPDATE dbo.kept SET n = 2")
        execute_once(
            empty_url,
            "CREATE PROCEDURE dbo.wait AS BEGIN SET NOCOUNT, XACT_ABORT ON;"
            " UPDATE dbo.kept SET small = 1; SELECT 1 AS n; END",
        )
        with pytest.raises(DatabaseUnavailable, match=r"(?i)timeout expired") as caught:
            driver.fetch(hurried, "dbo", "wait", {})
        assert driver.is_lost(hurried, caught.value.__cause__)
        assert not driver.is_conflict(caught.value.__cause__)
        holder.rollback()
    keep(keeper, n=3)
