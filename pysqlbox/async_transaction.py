"""Whose transaction an awaited call joins: the driver's connection behind what a caller hands over.

Nothing here commits, rolls back, closes or configures a connection. SQLAlchemy is looked up only where the
program has imported it itself.
"""

from __future__ import annotations

import sys
from typing import Any

from pysqlbox.drivers import Target
from pysqlbox.drivers.asynchronous import AsyncDriver
from pysqlbox.errors import InvalidArgument
from pysqlbox.transaction import name_of

__all__ = ["driver_connection"]

_TAKEN = {
    "postgres": "a psycopg AsyncConnection, an asyncpg connection, or a SQLAlchemy AsyncConnection or"
    " AsyncSession on either",
    "mssql": "a pyodbc connection, such as that of transaction()",
}


async def driver_connection(driver: AsyncDriver, target: Target, connection: Any) -> Any:
    """The driver's connection behind a caller's, inside the caller's transaction."""
    if driver.is_connection(connection):
        return connection
    found = await _from_sqlalchemy(driver, connection)
    if found is not None and driver.is_connection(found):
        return found
    given = connection if found is None else found
    hint = "" if "Async" in type(given).__name__ else "; connect() takes those that block"
    raise InvalidArgument(
        f"connection: on {target.dialect} must be {_TAKEN[target.dialect]}, not {name_of(given)}{hint}"
    )


async def _from_sqlalchemy(driver: AsyncDriver, connection: Any) -> Any:
    """A session's or connection's own, with its transaction begun, as any statement would; else None."""
    asyncio: Any = sys.modules.get("sqlalchemy.ext.asyncio")
    if asyncio is None:
        return None
    if isinstance(connection, asyncio.AsyncSession | asyncio.async_scoped_session):
        connection = await connection.connection()
    if not isinstance(connection, asyncio.AsyncConnection):
        return None
    if not connection.in_transaction():
        await connection.begin()
    raw = (await connection.get_raw_connection()).driver_connection
    if driver.is_connection(raw) and hasattr(raw, "is_in_transaction") and not raw.is_in_transaction():
        # On asyncpg SQLAlchemy's transaction begins with the first statement that it sends itself.
        await connection.exec_driver_sql("SELECT 1")
    return raw
