"""PostgreSQL through psycopg 3."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, cast

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.numeric import Int8
from psycopg.types.string import TextLoader

from pysqlbox.drivers.url import Target
from pysqlbox.drivers.values import from_database, is_list, is_records, to_json, to_utc
from pysqlbox.errors import (
    AccessDenied,
    DatabaseUnavailable,
    InvalidArgument,
    InvalidState,
    NotFound,
    PysqlboxError,
    SchemaMismatch,
)

Connection = psycopg.Connection[Any]

_OURS = {"PB001": InvalidArgument, "PB002": NotFound, "PB003": InvalidState}
_MISSING = {"3F000", "42883", "42P01", "42703", "42704"}
_TRANSIENT = {"40001", "40P01", "55P03", "57P01", "57P02", "57P03", "57P05", "53300", "57014", "25P03"}


def connect(target: Target, *, autocommit: bool = False, connect_timeout: int = 10) -> Connection:
    """Open a connection that is also safe behind a transaction-mode pooler (no prepared statements)."""
    try:
        return psycopg.connect(
            target.dsn,
            autocommit=autocommit,
            prepare_threshold=None,
            connect_timeout=connect_timeout,
            application_name="pysqlbox",
        )
    except psycopg.Error as error:
        raise map_error(error, target) from error


def call(
    connection: Connection, schema: str, routine: str, arguments: Mapping[str, object]
) -> list[dict[str, object]]:
    """Run one routine with named arguments; never commits or rolls back."""
    named = sql.SQL(", ").join(
        sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder()) for name in arguments
    )
    query = sql.SQL("SELECT * FROM {}({})").format(sql.Identifier(schema, routine), named)
    values = [_adapt(name, value) for name, value in arguments.items()]
    try:
        with connection.cursor(row_factory=dict_row) as cursor:
            cursor.adapters.register_loader("jsonb", TextLoader)
            cursor.adapters.register_loader("json", TextLoader)
            cursor.execute(query, values)
            return [{key: from_database(value) for key, value in row.items()} for row in cursor]
    except (psycopg.Error, psycopg.Warning) as error:
        raise map_error(error) from error


def run_script(connection: Connection, text: str) -> None:
    """Send a text of any number of statements as it stands."""
    with connection.cursor() as cursor:
        cursor.execute(text.encode())  # bytes: the text is a whole script, not a query to compose
        while cursor.nextset():
            pass


def database_error() -> type[Exception]:
    """The base class of psycopg's exceptions."""
    return psycopg.Error


def map_error(error: Exception, target: Target | None = None) -> PysqlboxError:
    """Turn a psycopg exception into ours, by its SQLSTATE; without a target it came from a routine."""
    code = getattr(error, "sqlstate", None)
    diagnostic = getattr(error, "diag", None)
    primary = diagnostic.message_primary if diagnostic else None
    message = primary or str(error).strip() or type(error).__name__
    if target is not None:
        message = target.redact(message)
    where = f"{target}: " if target is not None else ""
    if code in _OURS:
        return _OURS[code](message)
    if code in _MISSING and target is None:
        return SchemaMismatch(f"{message}; run pysqlbox migrate")
    if code == "42501" or (code or "").startswith("28"):
        return AccessDenied(f"{where}{message}")
    if isinstance(error, psycopg.DataError) and target is None:
        return InvalidArgument(f"an argument is malformed or out of range (SQLSTATE {code or 'none'})")
    if code in _TRANSIENT or (code or "").startswith("08") or code == "3D000":
        return DatabaseUnavailable(f"{where}{message}")
    if code is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        if isinstance(error, psycopg.OperationalError) and "authentication failed" in message:
            return AccessDenied(f"{where}{_one_line(message)}")
        return DatabaseUnavailable(f"{where}{_one_line(message)}")
    if code is None and isinstance(error, psycopg.ProgrammingError) and target is not None:
        return InvalidArgument(f"url: {_one_line(message)}")
    return PysqlboxError(f"{where}{message} (SQLSTATE {code or 'none'})")


def _one_line(message: str) -> str:
    return " ".join(message.split())


def _adapt(name: str, value: object) -> object:
    """Numbers go untyped, so that the routine's own parameter types decide; sets go as bigint[] or jsonb."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        return str(value)
    if isinstance(value, datetime):
        return to_utc(name, value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if is_records(name, value):
        return to_json(name, value)
    if is_list(value):
        return [_adapt_item(name, item) for item in cast(Sequence[object], value)]
    if isinstance(value, str | bytes | uuid.UUID):
        return str(value) if isinstance(value, str) else value
    raise InvalidArgument(f"{name}: values of type {type(value).__name__} are not supported")


def _adapt_item(name: str, item: object) -> object:
    if isinstance(item, int) and not isinstance(item, bool):
        if not -(2**63) <= item < 2**63:
            raise InvalidArgument(f"{name}: must hold numbers that fit bigint")
        return Int8(item)
    if item is None or isinstance(item, str):
        return item
    raise InvalidArgument(f"{name}: must be a list of int or of str")
