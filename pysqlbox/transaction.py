"""Whose transaction a call joins: the driver's connection behind what a caller hands over.

Nothing here commits, rolls back, closes or configures a connection. SQLAlchemy and Django are looked up only
where the program has imported them itself.
"""

from __future__ import annotations

import sys
from typing import Any

from pysqlbox.drivers import Driver, Target
from pysqlbox.errors import InvalidArgument

__all__ = ["driver_connection", "name_of"]

_TAKEN = {
    "postgres": "a psycopg connection, a SQLAlchemy connection or session on psycopg, or a Django connection",
    "mssql": "a pyodbc connection, a SQLAlchemy connection or session on pyodbc, or a Django connection",
}


def driver_connection(driver: Driver, target: Target, connection: Any) -> Any:
    """The psycopg or pyodbc connection behind a caller's, inside the caller's transaction."""
    if driver.is_connection(connection):
        return connection
    found = _from_sqlalchemy(connection)
    if found is None:
        found = _from_django(connection)
    if found is not None and driver.is_connection(found):
        return found
    raise _refusal(target, connection if found is None else found)


def _from_sqlalchemy(connection: Any) -> Any:
    """A session's or connection's own, with its transaction begun, as any statement would; else None."""
    engine: Any = sys.modules.get("sqlalchemy.engine")
    if engine is None:
        return None
    orm: Any = sys.modules.get("sqlalchemy.orm")
    if orm is not None and isinstance(connection, orm.Session | orm.scoped_session):
        connection = connection.connection()
    if not isinstance(connection, engine.Connection):
        return None
    if not connection.in_transaction():
        connection.begin()  # else the caller's commit() would have nothing to commit
    return connection.connection.driver_connection


def _from_django(connection: Any) -> Any:
    """What a Django connection wraps, opened as Django would; else None."""
    base: Any = sys.modules.get("django.db.backends.base.base")
    utils: Any = sys.modules.get("django.utils.connection")
    if base is None or utils is None:
        return None
    if not isinstance(connection, base.BaseDatabaseWrapper | utils.ConnectionProxy):
        return None
    if not hasattr(connection, "ensure_connection"):  # a proxy of something else, a cache say
        return None
    connection.validate_thread_sharing()
    connection.validate_no_broken_transaction()
    connection.ensure_connection()
    return connection.connection


def _refusal(target: Target, connection: Any) -> InvalidArgument:
    hint = "; connect_async takes those" if _is_for_asyncio(connection) else ""
    return InvalidArgument(
        f"connection: on {target.dialect} must be {_TAKEN[target.dialect]}, not {name_of(connection)}{hint}"
    )


def _is_for_asyncio(connection: Any) -> bool:
    kind = type(connection)
    return "Async" in kind.__name__ or kind.__module__.partition(".")[0] == "asyncpg"


def name_of(connection: Any) -> str:
    """The class of what a caller handed over, as an error tells it."""
    kind = type(connection)
    return f"{kind.__module__}.{kind.__qualname__}"
