"""What a test holds in its hands: a deployed schema, and sessions on connections of their own.

Both dialects answer alike: routines by name and named arguments, rows as dicts, errors as `pysqlbox.errors`.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pysqlbox.drivers import Row, connect, driver_for, parse_url
from pysqlbox.drivers.values import from_database
from pysqlbox.names import Dialect, quote_identifier
from tests.support.columns import expected_columns

# What FreeTDS hears for a rollback where an error has ended the transaction.
NO_TRANSACTION = "(3903)"


@dataclass(slots=True)
class Session:
    """One connection with an open transaction, which ends when the test says so."""

    dialect: Dialect
    schema: str
    connection: Any

    def call(self, routine: str, /, **arguments: object) -> list[Row]:
        """Runs a routine and answers its rows, whose columns must be those that its header names."""
        rows = driver_for(self.dialect).call(self.connection, self.schema, routine, arguments)
        expected = expected_columns(self.dialect, routine)
        if rows and expected is not None:
            assert list(rows[0]) == expected, f"{routine} answers other columns than its header says"
        return rows

    def one(self, routine: str, /, **arguments: object) -> Row:
        """The one row that the routine answers."""
        rows = self.call(routine, **arguments)
        assert len(rows) == 1, f"{routine} answers {len(rows)} rows, not one"
        return rows[0]

    def value(self, routine: str, /, **arguments: object) -> Any:
        """The one column of the one row that the routine answers."""
        row = self.one(routine, **arguments)
        assert len(row) == 1, f"{routine} answers {len(row)} columns, not one"
        return next(iter(row.values()))

    def sql(self, text: str, *parameters: object) -> list[Row]:
        """Runs SQL as it stands; `{schema}` is the quoted schema and `%s` a parameter, in both dialects."""
        return run_sql(self.connection, self.dialect, self._in_schema(text), parameters)

    def commit(self) -> None:
        """Makes what the session did so far last."""
        self.connection.commit()

    def rollback(self) -> None:
        """Undoes what the session did since its last commit, unless an error of T-SQL did."""
        try:
            self.connection.rollback()
        except driver_for(self.dialect).database_error() as error:
            if NO_TRANSACTION not in str(error):
                raise

    def _in_schema(self, text: str) -> str:
        return text.replace("{schema}", quote_identifier(self.dialect, self.schema))


@dataclass(slots=True)
class Database:
    """A deployed schema in its first state, the test's own meanwhile; every call commits at once."""

    dialect: Dialect
    schema: str
    url: str
    engine_id: str
    _session: Session | None = field(default=None, repr=False)
    _clock_offset: float = 0

    def call(self, routine: str, /, **arguments: object) -> list[Row]:
        """Runs a routine in a transaction of its own and answers its rows."""
        return self._autocommit().call(routine, **arguments)

    def one(self, routine: str, /, **arguments: object) -> Row:
        """The one row that the routine answers."""
        return self._autocommit().one(routine, **arguments)

    def value(self, routine: str, /, **arguments: object) -> Any:
        """The one column of the one row that the routine answers."""
        return self._autocommit().value(routine, **arguments)

    def sql(self, text: str, *parameters: object) -> list[Row]:
        """Runs SQL as it stands; `{schema}` is the quoted schema and `%s` a parameter, in both dialects."""
        return self._autocommit().sql(text, *parameters)

    def advance(self, seconds: float) -> None:
        """Moves the clock of the schema on."""
        self._clock_offset += seconds
        self.call("_set_clock", offset_seconds=self._clock_offset)

    @contextlib.contextmanager
    def session(self) -> Iterator[Session]:
        """A session on a connection of its own; what it has not committed by the end is undone."""
        connection = connect(self.url)
        try:
            yield Session(self.dialect, self.schema, connection)
        finally:
            with contextlib.suppress(*_driver_errors(self.dialect)):  # a test may have cut the connection
                connection.rollback()
            connection.close()

    def connection(self) -> Any:
        """The connection behind `call`, opened anew if a test has closed or lost it."""
        return self._autocommit().connection

    def forget(self) -> None:
        """Forgets what the last test did to the clock."""
        self._clock_offset = 0

    def close(self) -> None:
        """Closes the connection behind `call`."""
        if self._session is not None:
            self._session.connection.close()
            self._session = None

    def _autocommit(self) -> Session:
        if self._session is None or self._session.connection.closed:
            self._session = Session(self.dialect, self.schema, connect(self.url, autocommit=True))
        return self._session


def run_sql(connection: Any, dialect: Dialect, text: str, parameters: tuple[object, ...] = ()) -> list[Row]:
    """Runs SQL to its end, so that no error is left behind a result; answers the first result's rows."""
    errors = _driver_errors(dialect)
    with contextlib.closing(connection.cursor()) as cursor:
        try:
            if dialect == "mssql":
                cursor.execute(text.replace("%s", "?") if parameters else text, *parameters)
            else:
                cursor.execute(text, parameters or None)
            rows: list[Row] | None = None
            while True:
                if rows is None and cursor.description is not None:
                    names = [column[0] for column in cursor.description]
                    rows = [
                        dict(zip(names, map(from_database, row), strict=True)) for row in cursor.fetchall()
                    ]
                if not cursor.nextset():
                    return rows or []
        except errors as error:
            raise driver_for(dialect).map_error(error) from error


def execute_once(url: str, text: str, parameters: tuple[object, ...] = ()) -> list[Row]:
    """Runs SQL outside any transaction, on a connection that is closed at once."""
    connection = connect(url, autocommit=True)
    try:
        return run_sql(connection, parse_url(url).dialect, text, parameters)
    finally:
        connection.close()


def _driver_errors(dialect: Dialect) -> tuple[type[Exception], ...]:
    driver: Any = importlib.import_module("psycopg" if dialect == "postgres" else "pyodbc")
    return (driver.Error,)


def server_version(url: str) -> str:
    """The server's name and version, short enough for the closing lines."""
    postgres = parse_url(url).dialect == "postgres"
    statement = "SELECT version() AS version" if postgres else "SELECT @@VERSION AS version"
    text = str(execute_once(url, statement)[0]["version"])
    return _short_version(text)


def _short_version(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines[0].startswith("Babelfish"):
        postgres, _, babelfish = lines[-1].rpartition(" (")
        return f"{babelfish.rstrip(')')} on {postgres.partition(' on ')[0]}"
    return lines[0].partition(" on ")[0].partition(" (Debian")[0]
