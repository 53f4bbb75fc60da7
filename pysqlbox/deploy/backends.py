"""yoyo backends: SQL Server for the stock ``yoyo`` command, and both dialects inside our own transaction.

yoyo's own tables live in the deployed schema, so that a role that owns nothing else can deploy.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
from yoyo import exceptions, internalmigrations
from yoyo.backends.base import DatabaseBackend
from yoyo.backends.core.postgresql import PostgresqlPsycopgBackend
from yoyo.utils import change_param_style

from pysqlbox.deploy.store import LOCK_TIMEOUT_SECONDS, Store, lock_name
from pysqlbox.drivers import Target, mssql, parse_url
from pysqlbox.drivers.url import WRAPPED, wrap_odbc
from pysqlbox.names import Dialect, quote_identifier

MIGRATION_TABLE = "_yoyo_migration"

#: Stands for the schema until yoyo has put its parameters in, whose signs a name may hold: a non-character.
_SCHEMA = "\ufdd2"


class _OwnSchema(DatabaseBackend):  # type: ignore[misc]  # yoyo has no type information
    """yoyo's bookkeeping in one schema, without its lock row and its trial tables."""

    dialect: Dialect
    schema: str

    def quote_identifier(self, name: str) -> str:
        """Quote a name; those of yoyo's tables get the schema."""
        quoted = quote_identifier(self.dialect, name)
        if name in (self.migration_table, self.log_table, self.version_table):
            return f"{_SCHEMA}.{quoted}"
        return quoted

    def execute(self, sql: str, params: Any = None) -> Any:
        """Execute a statement with named parameters; what looks like one in the schema's name is none."""
        text, values = change_param_style(self.driver.paramstyle, sql, params)
        name = quote_identifier(self.dialect, self.schema)
        if self.dialect == "postgres":
            name = name.replace("%", "%%")
        cursor = self.cursor()
        cursor.execute(text.replace(_SCHEMA, name), values)
        return cursor

    def init_database(self) -> None:
        """Nothing: DDL is transactional in both dialects, and the lock is no table."""

    def list_tables(self, **_: object) -> list[str]:
        """The tables of the schema."""
        query = "SELECT table_name FROM information_schema.tables WHERE table_schema = :schema"
        return [row[0] for row in self.execute(query, {"schema": self.schema}).fetchall()]

    def mark_one(self, migration: Any, log: bool = True) -> None:
        """Mark a migration applied, unless another deployer was faster."""
        if not self.is_applied(migration):
            super().mark_one(migration, log=log)

    def get_log_data(self, migration: Any = None, operation: str = "apply") -> dict[str, object]:
        """Who did it; a container may have no such user, and a name server may be slow."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = "?"
        return {
            "id": str(uuid.uuid4()),
            "migration_id": migration.id if migration else None,
            "migration_hash": migration.hash if migration else None,
            "username": user,
            "hostname": socket.gethostname(),
            "created_at_utc": datetime.now(UTC).replace(tzinfo=None),
            "operation": operation,
        }


class _Joined(_OwnSchema):
    """Works inside a transaction that is open already; what yoyo calls transactions are savepoints."""

    def __init__(self, store: Store, error: type[Exception]) -> None:
        self.uri = None
        self.schema = store.schema
        self.migration_table = MIGRATION_TABLE
        self.DatabaseError = error
        self._connection = store.connection
        self._in_transaction = True
        self.has_transactional_ddl = True
        self._internal_schema_updated = False
        exceptions.register(error)

    def copy(self) -> _Joined:
        """The same: a second connection would be outside the transaction."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the connection open: it is the deployment's."""

    @contextlib.contextmanager
    def lock(self, timeout: float = 10) -> Iterator[None]:  # noqa: ARG002 - yoyo's signature
        """Nothing: the deployment holds the application lock."""
        yield

    def ensure_internal_schema_updated(self) -> None:
        """Create yoyo's tables, inside the transaction."""
        if not self._internal_schema_updated and internalmigrations.needs_upgrading(self):
            internalmigrations.upgrade(self)
        self._internal_schema_updated = True


class _Tsql(_OwnSchema):
    """T-SQL's words for savepoints and for a column that holds a time."""

    driver_module = "pyodbc"
    dialect: Dialect = "mssql"

    def execute(self, text: str, params: Any = None) -> Any:
        """Execute; TIMESTAMP would be a row version there."""
        if text.lstrip().upper().startswith("CREATE TABLE"):
            text = text.replace(" TIMESTAMP", " DATETIME2")
        return super().execute(text, params)

    def savepoint(self, name: str) -> None:
        """Begin a savepoint."""
        self.execute(f"SAVE TRANSACTION {self.quote_identifier(name)}")

    def savepoint_release(self, name: str) -> None:
        """T-SQL has no release: a savepoint ends with its transaction."""

    def savepoint_rollback(self, name: str) -> None:
        """Undo what was done since the savepoint, unless the error has ended the whole transaction."""
        self.execute(f"IF XACT_STATE() = 1 ROLLBACK TRANSACTION {self.quote_identifier(name)}")


class JoinedPostgres(_Joined, PostgresqlPsycopgBackend):  # type: ignore[misc]  # yoyo has no type information
    """PostgreSQL, inside the deployment's transaction."""

    dialect: Dialect = "postgres"

    def __init__(self, store: Store) -> None:
        super().__init__(store, psycopg.DatabaseError)


class JoinedMssql(_Tsql, _Joined):
    """SQL Server, inside the deployment's transaction."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, mssql.database_error())

    def savepoint_rollback(self, name: str) -> None:
        """Nothing: an error ends the deployment, which rolls back its transaction, if the error has not."""


class MssqlBackend(_Tsql):
    """SQL Server for the stock command: ``yoyo apply --database mssql://… migrations``."""

    def __init__(self, dburi: Any, migration_table: str) -> None:
        self.schema = dburi.args.get("schema") or os.environ.get("PYSQLBOX_SCHEMA") or "infra"
        self._is_locked = False
        super().__init__(dburi, migration_table)

    def connect(self, dburi: Any) -> Any:
        """Connect, with transactions in our hands; the schema is needed before yoyo's tables."""
        connection = mssql.connect(self._target(dburi))
        connection.timeout = 0  # a migration may take its time
        return connection

    @staticmethod
    def _target(dburi: Any) -> Target:
        """The URL without what only yoyo's backend reads."""
        arguments = {key: value for key, value in dburi.args.items() if key != "schema"}
        if set(arguments) == {WRAPPED}:  # yoyo writes a URL without a host with too few slashes
            return parse_url(wrap_odbc(arguments[WRAPPED]))
        return parse_url(dburi._replace(args=arguments).uri)

    def init_database(self) -> None:
        """Create the schema, which is to hold yoyo's tables too."""
        from pysqlbox.deploy.store_mssql import MssqlStore

        store = MssqlStore(self.connection, self.schema)
        store.begin()
        if not store.schema_exists():
            store.create_schema()
        self.connection.commit()

    def begin(self) -> None:
        """Nothing to send: a connection without autocommit begins by itself."""
        self.connection.commit()
        self._in_transaction = True

    @contextlib.contextmanager
    def lock(self, timeout: float = LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
        """An application lock of a session of its own, so that a crash lets go of it."""
        if self._is_locked:
            yield
            return
        holder = mssql.connect(self._target(self.uri), autocommit=True)
        holder.timeout = 0  # the lock's own timeout counts
        try:
            rows = mssql.query(
                holder,
                "DECLARE @result int;"
                " EXEC @result = sys.sp_getapplock @Resource = ?, @LockMode = N'Exclusive',"
                " @LockOwner = N'Session', @LockTimeout = ?; SELECT @result AS result;",
                f"yoyo {lock_name(self.schema)}",
                int(timeout * 1000),
            )
            if rows[0][0] < 0:
                raise exceptions.LockTimeout("another deployment of this schema is running")
            self._is_locked = True
            yield
        finally:
            self._is_locked = False
            holder.close()

    def break_lock(self) -> None:
        """Nothing: the lock ends with its session."""


def joined_backend(store: Store) -> DatabaseBackend:
    """The backend that works inside the store's transaction."""
    return JoinedPostgres(store) if store.dialect == "postgres" else JoinedMssql(store)
