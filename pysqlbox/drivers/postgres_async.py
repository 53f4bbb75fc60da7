"""PostgreSQL through psycopg 3 for asynchronous callers, and on their asyncpg connections."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from pysqlbox.drivers import Target, Values
from pysqlbox.drivers.postgres import (
    ADAPTERS,
    BOX_NAMES,
    HAS_ROUTINE,
    NOT_PREPARED,
    adapted,
    has_input,
    map_error,
    own_settings,
    query_text,
    settings_of,
)

Connection = psycopg.AsyncConnection[Any]


class _Cursor(psycopg.AsyncCursor[tuple[Any, ...]]):
    """A cursor with adapters of its own: those of the connection may be the caller's."""

    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS


class _Reused(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection of our own; on a caller's nothing is ever prepared."""


async def connect(target: Target, *, connect_timeout: int = 10) -> Connection:
    """Open a connection in autocommit that prepares the calls that come again."""
    try:
        return await _Reused.connect(
            target.dsn,
            autocommit=True,
            prepare_threshold=2,
            connect_timeout=connect_timeout,
            **own_settings(target),
        )
    except psycopg.Error as error:
        raise map_error(error, target) from error


async def fetch(connection: Any, schema: str, routine: str, arguments: Mapping[str, object]) -> list[Values]:
    """Run one routine with named arguments and answer its rows; never commits or rolls back."""
    if not isinstance(connection, psycopg.AsyncConnection):
        from pysqlbox.drivers import asyncpg_calls

        return await asyncpg_calls.fetch(connection, schema, routine, arguments)
    text = query_text(schema, routine, tuple(arguments))
    values = [adapted(name, value) for name, value in arguments.items()]
    prepare = None if type(connection) is _Reused and connection.autocommit else False
    try:
        async with _Cursor(connection, row_factory=tuple_row) as cursor:
            try:
                await cursor.execute(text, values, prepare=prepare)
            except psycopg.Error as error:
                # Outside of a transaction, so that what was refused as not prepared can be sent as it is.
                if prepare is False or error.sqlstate not in NOT_PREPARED:
                    raise
                connection.prepare_threshold = None
                await cursor.execute(text, values, prepare=False)
            return await cursor.fetchall()
    except (psycopg.Error, psycopg.Warning, UnicodeEncodeError) as error:
        raise map_error(error) from error


async def has_routine(connection: Any, schema: str, routine: str) -> bool:
    """Whether a schema has a routine of this name."""
    if not isinstance(connection, psycopg.AsyncConnection):
        from pysqlbox.drivers import asyncpg_calls

        return await asyncpg_calls.has_routine(connection, schema, routine)
    try:
        async with _Cursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(HAS_ROUTINE, (schema, routine), prepare=False)
            row = await cursor.fetchone()
            return row is not None and bool(row[0])
    except psycopg.Error as error:
        raise map_error(error) from error


async def boxes(connection: Connection, schema: str) -> list[str]:
    """The names of the boxes that a schema has routines for."""
    try:
        async with _Cursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(BOX_NAMES, (schema,), prepare=False)
            return [str(row[0]) for row in await cursor.fetchall()]
    except psycopg.Error as error:
        raise map_error(error) from error


def is_connection(value: object) -> bool:
    """Whether a value is a connection that fetch takes: psycopg's asynchronous one, or asyncpg's."""
    if isinstance(value, psycopg.AsyncConnection):
        return True
    asyncpg: Any = sys.modules.get("asyncpg")
    return asyncpg is not None and isinstance(value, asyncpg.Connection)


async def is_alive(connection: Connection, idle_seconds: float) -> bool:  # noqa: ARG001  # pyodbc's needs it
    """Whether an idle connection still works, asking the server only if it has said something."""
    if connection.closed:
        return False
    if not has_input(connection.pgconn.socket):
        return True
    try:
        async with _Cursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute("SELECT 1", prepare=False)
    except psycopg.Error:
        return False
    return True


async def reset(connection: Connection) -> bool:
    """Bring a connection back to how connect left it; false if it is of no more use."""
    if connection.pgconn.pipeline_status:  # its user has not left it: nobody knows what is still to come
        return False
    try:
        if connection.pgconn.transaction_status != TransactionStatus.IDLE:
            await connection.rollback()
        if not connection.autocommit:
            await connection.set_autocommit(True)
        for name in settings_of(connection):
            await getattr(connection, f"set_{name}")(None)
    except psycopg.Error:
        return False
    connection.row_factory, connection.cursor_factory = tuple_row, psycopg.AsyncCursor
    return not connection.closed


async def begin(connection: Connection) -> None:
    """Leave autocommit."""
    await connection.set_autocommit(False)


async def commit(connection: Connection) -> None:
    """Commit."""
    await connection.commit()


async def rollback(connection: Connection) -> None:
    """Roll back."""
    await connection.rollback()


def close(connection: Connection) -> None:
    """Close a connection of ours; AsyncConnection.close waits for nothing either."""
    connection.pgconn.finish()


def shut_down() -> None:
    """There is nothing to let go of."""
