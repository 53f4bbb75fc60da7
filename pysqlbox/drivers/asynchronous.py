"""What asynchronous callers need of a dialect's driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

from pysqlbox.drivers import Target, Values, driver_for
from pysqlbox.names import Dialect

__all__ = ["AsyncDriver", "async_driver_for"]


class AsyncDriver(Protocol):
    """What psycopg offers by itself, and pyodbc in threads."""

    async def connect(self, target: Target, *, connect_timeout: int = 10) -> Any:
        """Open a connection in autocommit, or raise DatabaseUnavailable, AccessDenied or DriverMissing."""

    async def fetch(
        self, connection: Any, schema: str, routine: str, arguments: Mapping[str, object]
    ) -> list[Values]:
        """Run one routine with named arguments and answer its rows; never commits or rolls back."""

    async def has_routine(self, connection: Any, schema: str, routine: str) -> bool:
        """Whether a schema has a routine of this name."""

    async def boxes(self, connection: Any, schema: str) -> list[str]:
        """The names of the boxes that a schema has routines for."""

    def is_connection(self, value: object) -> bool:
        """Whether a value is a connection that fetch takes."""

    async def is_alive(self, connection: Any, idle_seconds: float) -> bool:
        """Whether an idle connection still works, asking the server only where needed."""

    async def reset(self, connection: Any) -> bool:
        """Bring a connection back to autocommit without a transaction; false if it is of no more use."""

    async def begin(self, connection: Any) -> None:
        """Leave autocommit: the next statement begins a transaction."""

    async def commit(self, connection: Any) -> None:
        """Commit."""

    async def rollback(self, connection: Any) -> None:
        """Roll back."""

    def close(self, connection: Any) -> None:
        """Close a connection of ours, without waiting for anything."""

    def shut_down(self) -> None:
        """Let go of threads, once they have nothing to do."""


def async_driver_for(dialect: Dialect, threads: int) -> AsyncDriver:
    """The asynchronous driver of a dialect, imported only now; ``threads``: for one that blocks."""
    if dialect == "postgres":
        from pysqlbox.drivers import postgres_async

        return cast(AsyncDriver, postgres_async)
    from pysqlbox.drivers.threaded import Threaded

    return Threaded(driver_for(dialect), threads)
