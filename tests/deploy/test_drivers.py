"""Calling routines: values there and back, errors by code, never a commit."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from pysqlbox.drivers import Target, connect, driver_for, parse_url, postgres_async
from pysqlbox.errors import (
    DatabaseUnavailable,
    InvalidArgument,
    InvalidState,
    NotFound,
    PysqlboxError,
    SchemaMismatch,
)
from tests.support.database import execute_once, run_sql, server_version

ECHO = {
    "postgres": """
        CREATE FUNCTION public.echo(n bigint, t text DEFAULT NULL, ids bigint[] DEFAULT NULL,
            j jsonb DEFAULT NULL, small smallint DEFAULT 0, d numeric DEFAULT NULL,
            at timestamptz DEFAULT NULL, u uuid DEFAULT NULL, h bytea DEFAULT NULL, b boolean DEFAULT NULL)
        RETURNS TABLE (n bigint, t text, ids text, j jsonb, small smallint, d numeric, at timestamptz,
            u uuid, h bytea, b boolean)
        LANGUAGE sql AS 'SELECT n, t, ids::text, j, small, d, at, u, h, b';
        CREATE FUNCTION public.fail(code text) RETURNS TABLE (n int) LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION USING ERRCODE = code, MESSAGE = 'code: must not be ' || code; END $$;
        CREATE TABLE public.note (n int);
        CREATE FUNCTION public.write() RETURNS TABLE (n int) LANGUAGE sql
        AS 'INSERT INTO public.note VALUES (1); SELECT 1';
    """,
    "mssql": """
        CREATE PROCEDURE dbo.echo @n bigint, @t nvarchar(max) = NULL, @ids nvarchar(max) = NULL,
            @j nvarchar(max) = NULL, @small smallint = 0, @d decimal(12, 3) = NULL,
            @at datetimeoffset(6) = NULL, @u uniqueidentifier = NULL, @h varbinary(max) = NULL, @b bit = NULL
        AS
        SELECT @n AS n, @t AS t, @ids AS ids, @j AS j, @small AS small, @d AS d,
            CAST(@at AS datetime2(6)) AS at, @u AS u, @h AS h, @b AS b;
        GO
        CREATE PROCEDURE dbo.fail @code nvarchar(5) AS
        BEGIN
            SET NOCOUNT, XACT_ABORT ON;
            DECLARE @number int = CASE @code WHEN N'PB001' THEN 51001 WHEN N'PB002' THEN 51002 ELSE 51003 END;
            DECLARE @text nvarchar(100) = N'code: must not be ' + @code;
            THROW @number, @text, 1;
        END;
        GO
        CREATE TABLE dbo.note (n int);
        GO
        CREATE PROCEDURE dbo.write AS
        BEGIN SET NOCOUNT ON; INSERT INTO dbo.note VALUES (1); SELECT 1 AS n; END;
    """,
}


class Caller:
    """Calls routines on one connection."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.dialect = parse_url(url).dialect
        self.schema = "public" if self.dialect == "postgres" else "dbo"
        for batch in ECHO[self.dialect].split("GO\n") if self.dialect == "mssql" else [ECHO[self.dialect]]:
            execute_once(url, batch)

    def __call__(self, routine: str, **arguments: object) -> dict[str, object]:
        """The one row that the routine answers, on a connection of its own."""
        with contextlib.closing(connect(self.url)) as connection:
            (row,) = driver_for(self.dialect).call(connection, self.schema, routine, arguments)
            return row


@pytest.fixture
def caller(empty_url: str) -> Caller:
    """A database with routines that answer what they got."""
    return Caller(empty_url)


def test_values_come_back(caller: Caller) -> None:
    """Every type, alike in both dialects."""
    when = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    identity = uuid.uuid4()
    text = "xé😀'\"\\ \n" * 900
    row = caller(
        "echo",
        n=2**40,
        t=text,
        small=-5,
        d=Decimal("1.5"),
        at=when,
        u=identity,
        h=b"\x00\xff",
        b=True,
    )
    assert row["n"] == 2**40
    assert row["t"] == text
    assert row["small"] == -5
    assert row["d"] == Decimal("1.5")
    assert row["at"] == when
    assert row["at"].tzinfo is UTC  # type: ignore[attr-defined]  # a datetime by the line before
    assert row["u"] == identity
    assert row["h"] == b"\x00\xff"
    assert row["b"] is True


def test_nulls_and_empties(caller: Caller) -> None:
    """None is null, and empty is not."""
    row = caller("echo", n=1, t="", h=None, u=None, at=None, b=False, d=0.25)
    assert row == {
        "n": 1,
        "t": "",
        "ids": None,
        "j": None,
        "small": 0,
        "d": Decimal("0.25"),
        "at": None,
        "u": None,
        "h": None,
        "b": False,
    }


def test_sets(caller: Caller) -> None:
    """Ids as an array or JSON, records as JSON."""
    row = caller("echo", n=1, ids=[1, 2**40], j=[{"a": 1}])
    assert row["ids"] in (f"{{1,{2**40}}}", f"[1, {2**40}]")
    assert str(row["j"]) == '[{"a": 1}]'
    assert caller("echo", n=1, ids=[])["ids"] in ("{}", "[]")


@pytest.mark.parametrize(
    ("code", "error"), [("PB001", InvalidArgument), ("PB002", NotFound), ("PB003", InvalidState)]
)
def test_errors_by_code(caller: Caller, code: str, error: type[PysqlboxError]) -> None:
    """The routine's own words, the driver's exception behind them."""
    with pytest.raises(error) as caught:
        caller("fail", code=code)
    assert str(caught.value) == f"code: must not be {code}"
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    "arguments",
    [
        {"n": 1, "small": 99999},
        {"n": 1, "ids": [object()]},
        {"n": 1, "at": datetime(2026, 1, 1)},
        {"n": object()},
    ],
)
def test_malformed_arguments(caller: Caller, arguments: dict[str, object]) -> None:
    """What a parameter cannot take is an invalid argument, and its value is not repeated."""
    with pytest.raises(InvalidArgument) as caught:
        caller("echo", **arguments)
    assert "99999" not in str(caught.value)


def test_missing_routine(caller: Caller) -> None:
    """No such routine: the schema is not what it should be. Babelfish has one code for many things."""
    with pytest.raises(PysqlboxError, match="no_such_routine") as caught:
        caller("no_such_routine")
    if "Babelfish" not in server_version(caller.url):
        assert isinstance(caught.value, SchemaMismatch)
        assert "run pysqlbox migrate" in str(caught.value)


def test_a_call_never_commits(caller: Caller) -> None:
    """What a call wrote goes with the caller's rollback."""
    with contextlib.closing(connect(caller.url)) as connection:
        driver_for(caller.dialect).call(connection, caller.schema, "write", {})
        connection.rollback()
    assert execute_once(caller.url, f"SELECT n FROM {caller.schema}.note") == []


def test_unreachable_server(caller: Caller) -> None:
    """Nobody listens there."""
    target = parse_url(caller.url)
    gone = Target(
        target.dialect,
        "postgresql://me@127.0.0.1:1/d"
        if target.dialect == "postgres"
        else "SERVER=127.0.0.1,1;UID=me;PWD=secret1",
        "there",
        driver=target.driver,
    )
    with pytest.raises(DatabaseUnavailable, match="there:"):
        connect(gone, connect_timeout=3)


NAMED = {
    "postgres": "SELECT current_setting('application_name') AS name",
    "mssql": "SELECT program_name AS name FROM sys.dm_exec_sessions WHERE session_id = @@SPID",
}


def _name_of(target: Target) -> str:
    with contextlib.closing(driver_for(target.dialect).connect(target, autocommit=True)) as connection:
        return str(run_sql(connection, target.dialect, NAMED[target.dialect])[0]["name"])


def test_a_connection_has_the_name_that_it_is_given(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = parse_url(empty_url)
    assert _name_of(target) == "pysqlbox"
    if target.dialect == "mssql":
        assert _name_of(replace(target, dsn=f"{target.dsn};App=shop")) == "shop"
        return
    between = " " if "://" not in target.dsn else "&" if "?" in target.dsn else "?"
    assert _name_of(replace(target, dsn=f"{target.dsn}{between}application_name=shop")) == "shop"
    assert _name_of(replace(target, dsn=f"{target.dsn}{between}fallback_application_name=shop")) == "shop"
    monkeypatch.setenv("PGAPPNAME", "from the environment")
    assert _name_of(target) == "from the environment"


@pytest.mark.dialect("postgres")
def test_an_asynchronous_connection_has_the_name_that_it_is_given(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def name() -> str:
        connection = await postgres_async.connect(parse_url(empty_url))
        async with connection:
            row = await (await connection.execute(NAMED["postgres"])).fetchone()
            return str(row[0]) if row else ""

    assert asyncio.run(name()) == "pysqlbox"
    monkeypatch.setenv("PGAPPNAME", "from the environment")
    assert asyncio.run(name()) == "from the environment"
