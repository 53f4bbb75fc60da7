"""Connecting and calling routines; the one place that knows a dialect's driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

from pysqlbox.drivers.url import Target, parse_url
from pysqlbox.errors import PysqlboxError
from pysqlbox.extras import needed_for
from pysqlbox.names import Dialect

__all__ = ["Driver", "Row", "Target", "Values", "connect", "driver_for", "parse_url"]

Row = dict[str, object]
Values = tuple[Any, ...]


class Driver(Protocol):
    """What both driver modules offer."""

    def connect(
        self, target: Target, *, autocommit: bool = False, connect_timeout: int = 10, reused: bool = False
    ) -> Any:
        """Open a connection, or raise DatabaseUnavailable, AccessDenied or DriverMissing."""

    def call(self, connection: Any, schema: str, routine: str, arguments: Mapping[str, object]) -> list[Row]:
        """Run one routine with named arguments; never commits or rolls back."""

    def fetch(
        self, connection: Any, schema: str, routine: str, arguments: Mapping[str, object]
    ) -> list[Values]:
        """The same, with each row as a tuple in the order of the routine's columns."""

    def is_connection(self, value: object) -> bool:
        """Whether a value is a connection that call and fetch take."""

    def is_conflict(self, error: BaseException | None) -> bool:
        """Whether an exception says that the server undid the transaction for the sake of another one."""

    def is_lost(self, connection: Any, error: BaseException | None) -> bool:
        """Whether a connection cannot be used any more."""

    def is_alive(self, connection: Any, idle_seconds: float) -> bool:
        """Whether an idle connection still works, asking the server only where needed."""

    def reset(self, connection: Any) -> bool:
        """Bring a connection back to autocommit without a transaction; false if it is of no more use."""

    def begin_transaction(self, connection: Any, target: Target) -> None:
        """Begin a transaction that is not its user's to end."""

    def end_transaction(
        self,
        connection: Any,
        target: Target,
        schema: str,
        routine: str,
        arguments: Mapping[str, object],
        affected: int,
    ) -> int:
        """Run a routine, and commit if it has affected so many, else nothing; how many it has affected."""

    def undo_transaction(self, connection: Any) -> None:
        """Roll back what is not committed."""

    def has_failed(self, connection: Any) -> bool:
        """Whether an error has ended the transaction, so that its commit would only roll it back."""

    def has_routine(self, connection: Any, schema: str, routine: str) -> bool:
        """Whether a schema has a routine of this name."""

    def boxes(self, connection: Any, schema: str) -> list[str]:
        """The names of the boxes that a schema has routines for."""

    def database_error(self) -> type[Exception]:
        """The base class of the driver's exceptions."""

    def map_error(self, error: Exception, target: Target | None = None) -> PysqlboxError:
        """Turn a driver's exception into ours, by its code and never by its text."""


def driver_for(dialect: Dialect) -> Driver:
    """The driver module of a dialect, imported only now."""
    if dialect == "postgres":
        with needed_for("PostgreSQL", "binary"):
            from pysqlbox.drivers import postgres

        return cast(Driver, postgres)
    from pysqlbox.drivers import mssql

    return cast(Driver, mssql)


def connect(url: str | Target, *, autocommit: bool = False, connect_timeout: int = 10) -> Any:
    """Open a psycopg or pyodbc connection to a URL."""
    target = parse_url(url) if isinstance(url, str) else url
    return driver_for(target.dialect).connect(target, autocommit=autocommit, connect_timeout=connect_timeout)
