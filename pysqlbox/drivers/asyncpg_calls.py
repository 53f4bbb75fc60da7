"""Calls on an asyncpg connection of the caller's; imported only for one.

asyncpg binds each argument by the type that the server asks for, and a program may have registered codecs of
its own for those, for jsonb most often. So everything but numbers, bytes and truths goes as text, and is cast
where it arrives.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any

import asyncpg

from pysqlbox.drivers import Values
from pysqlbox.drivers.advice import TRY_AGAIN
from pysqlbox.drivers.postgres import HAS_ROUTINE, error_of
from pysqlbox.drivers.values import check_text, from_database, is_list, is_records, to_json, to_utc
from pysqlbox.errors import DatabaseUnavailable, InvalidArgument, InvalidState, PysqlboxError

#: How an argument is written, and where its value goes.
_TYPED, _NULL = "{}", "NULL"
_FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


async def fetch(connection: Any, schema: str, routine: str, arguments: Mapping[str, object]) -> list[Values]:
    """Run one routine with named arguments and answer its rows; never commits or rolls back."""
    bound = {name: _bind(name, value) for name, value in arguments.items()}
    text = _query(schema, routine, tuple((name, form) for name, (form, _) in bound.items()))
    values = [value for form, value in bound.values() if form != _NULL]
    rows = await _run(connection, text, values)
    return [tuple(_plain(value) for value in row) for row in rows]


async def has_routine(connection: Any, schema: str, routine: str) -> bool:
    """Whether a schema has a routine of this name."""
    text = HAS_ROUTINE.replace("%s", "$1::text", 1).replace("%s", "$2::text", 1)
    return bool((await _run(connection, text, [schema, routine]))[0][0])


async def _run(connection: Any, text: str, values: Sequence[object]) -> Any:
    try:
        return await connection.fetch(text, *values)
    except _FAILURES as error:
        raise _mapped(error, connection) from error


@cache
def _query(schema: str, routine: str, forms: tuple[tuple[str, str], ...]) -> str:
    """The text of a call, the same for all values of the same forms."""
    number = 0
    named = []
    for name, form in forms:
        if form != _NULL:
            number += 1
        named.append(f"{_quoted(name)} => {form.format(f'${number}')}")
    return f"SELECT * FROM {_quoted(schema)}.{_quoted(routine)}({', '.join(named)})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _bind(name: str, value: object) -> tuple[str, object]:
    if value is None:
        return _NULL, None
    if isinstance(value, str):
        check_text(name, value)
        return "{}::text", str.__str__(value)
    if isinstance(value, bool | int):
        return _TYPED, value
    if isinstance(value, float | Decimal):
        return "{}::text::numeric", str(value)
    if isinstance(value, datetime):
        return "{}::text::timestamptz", to_utc(name, value).isoformat()
    if isinstance(value, uuid.UUID):
        return "{}::text::uuid", str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return "{}::bytea", bytes(value)
    if is_records(name, value):
        return "{}::text::jsonb", to_json(name, value)
    if is_list(value):
        return _bind_list(name, list(value))  # type: ignore[call-overload]  # is_list: a Sequence
    raise InvalidArgument(f"{name}: must not be of type {type(value).__name__}")


def _bind_list(name: str, items: list[object]) -> tuple[str, object]:
    if any(isinstance(item, uuid.UUID) for item in items):
        if not all(item is None or isinstance(item, uuid.UUID) for item in items):
            raise InvalidArgument(f"{name}: must be a list of uuids")
        return "{}::text[]::uuid[]", [None if item is None else str(item) for item in items]
    if items and all(isinstance(item, int) and not isinstance(item, bool) for item in items):
        return "{}::bigint[]", items
    if all(item is None or isinstance(item, str) for item in items):
        for item in items:
            check_text(name, str(item))
        return ("{}::text[]" if items else _TYPED), items
    raise InvalidArgument(f"{name}: must be a list of int, of str or of uuids")


def _plain(value: Any) -> object:
    """What the other drivers would have made of a value, also where the caller's codec decodes JSON."""
    if isinstance(value, dict | list):
        return to_json("answer", value)
    return from_database(value)


def _mapped(error: Exception, connection: Any) -> PysqlboxError:
    code = getattr(error, "sqlstate", None)
    if code is not None:
        return error_of(code, str(error.args[0] if error.args else error))
    try:
        lost = isinstance(error, OSError) or connection.is_closed()
    except asyncpg.InterfaceError:
        return InvalidState(f"{error}; use it before it goes back to its pool")
    if lost:
        return DatabaseUnavailable(f"{str(error) or type(error).__name__}; {TRY_AGAIN}")
    return InvalidState(f"{error}; leave the connection to one call at a time")
