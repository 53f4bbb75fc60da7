"""The engines a test may run on: what there is, what there is not and why, and one started engine.

Nothing is started on import: an engine starts when the first test asks for it and stops with the session.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache

from pysqlbox.drivers.url import parse_url, with_database
from pysqlbox.errors import PysqlboxError
from pysqlbox.names import Dialect
from tests.support import containers, local_postgres
from tests.support.database import execute_once, server_version

MSSQL_VARIABLE = "PYSQLBOX_TEST_MSSQL"
_DATABASE = re.compile(r"pysqlbox_test_(\d{12})_[0-9a-f]{8}")
_STALE = timedelta(hours=6)
_PATIENCE = 20.0
_QUERY_TIMEOUT = 300


@dataclass(frozen=True, slots=True)
class EngineKind:
    """An engine that this machine has, or lacks for a reason."""

    id: str
    dialect: Dialect
    missing: str | None
    start: Callable[[], AbstractContextManager[str]]
    """Starts the server; yields the URL of a database from which others can be created."""
    container: bool = False
    """Whether it is an image, one of several versions of what the other engines are."""
    is_versioned: bool = True
    """Whether reads of the deployment's database see versions instead of waiting for writers."""


@cache
def engine_kinds() -> dict[str, EngineKind]:
    """Every engine by its id, in the order tests run on them."""
    kinds = [_embedded(), *_system(), _named_mssql(), *_containers()]
    return {kind.id: kind for kind in kinds}


def _embedded() -> EngineKind:
    missing = None if local_postgres.embedded_installed() else "the extra pysqlbox[embedded] is not installed"
    return EngineKind("pg18", "postgres", missing, local_postgres.embedded_server)


def _system() -> list[EngineKind]:
    versions = local_postgres.system_versions()
    if not versions:
        reason = f"no PostgreSQL {local_postgres.OLDEST} or newer in {local_postgres.SYSTEM_ROOT}"
        return [EngineKind("pg15", "postgres", reason, _never)]
    return [
        # The embedded server has the id pg18.
        EngineKind(
            "pg18-system" if version == 18 else f"pg{version}", "postgres", None, _system_start(version)
        )
        for version in versions
    ]


def _system_start(version: int) -> Callable[[], AbstractContextManager[str]]:
    return lambda: local_postgres.system_server(local_postgres.system_versions()[version])


def _named_mssql() -> EngineKind:
    url = os.environ.get(MSSQL_VARIABLE)
    if not url:
        return EngineKind("mssql", "mssql", f"{MSSQL_VARIABLE} names no T-SQL engine", _never)
    if importlib.util.find_spec("pyodbc") is None:
        return EngineKind("mssql", "mssql", "the extra pysqlbox[mssql] is not installed", _never)
    return EngineKind("mssql", "mssql", None, lambda: contextlib.nullcontext(_patient(url)))


def _patient(url: str) -> str:
    """The URL or ODBC string with a query timeout that a busy machine keeps, unless it names one."""
    if parse_url(url).query_timeout is not None or "odbc_connect=" in url:
        return url
    if "://" not in url.partition("=")[0]:
        return f"{url.rstrip('; ')};QueryTimeout={_QUERY_TIMEOUT}"
    return f"{url}{'&' if '?' in url else '?'}query_timeout={_QUERY_TIMEOUT}"


def _containers() -> list[EngineKind]:
    missing = containers.missing()
    return [
        EngineKind(
            image.id,
            image.dialect,
            missing or image.missing(),
            image.start,
            container=True,
            is_versioned=image.is_versioned,
        )
        for image in containers.IMAGES
    ]


def _never() -> AbstractContextManager[str]:
    raise LookupError("this engine is not here")


@dataclass(slots=True)
class Engine:
    """A running engine, with the databases that a test session makes on it."""

    id: str
    dialect: Dialect
    url: str
    version: str
    is_versioned: bool = True
    _databases: list[str] = field(default_factory=list)

    @property
    def is_sql_server(self) -> bool:
        """Whether it is the real one, which has isolation levels and lock hints, and not Babelfish."""
        return self.dialect == "mssql" and not self.version.startswith("Babelfish")

    def create_database(self, *, is_versioned: bool = True) -> str:
        """A new, empty database; answers its name."""
        name = f"pysqlbox_test_{datetime.now(UTC):%Y%m%d%H%M}_{secrets.token_hex(4)}"
        self.execute(f"CREATE DATABASE {name}")
        if self.is_sql_server:
            setting = "ON" if is_versioned else "OFF"
            self.execute(f"ALTER DATABASE {name} SET READ_COMMITTED_SNAPSHOT {setting}")
            self.execute(f"ALTER DATABASE {name} SET ALLOW_SNAPSHOT_ISOLATION ON")
        self._databases.append(name)
        return name

    def drop_database(self, name: str) -> None:
        """Drops a database, whoever is still connected to it."""
        if self.dialect == "postgres":
            self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        elif self.is_sql_server:
            self.execute(
                f"IF DB_ID('{name}') IS NOT NULL BEGIN ALTER DATABASE {name} SET SINGLE_USER WITH ROLLBACK"
                f" IMMEDIATE; DROP DATABASE {name}; END;"
            )
        else:
            self._drop_on_babelfish(name)
        if name in self._databases:
            self._databases.remove(name)

    def _drop_on_babelfish(self, name: str) -> None:
        """A session that was just closed may take a while to end there, and cannot be told to."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                self.execute(f"DROP DATABASE IF EXISTS {name}")
            except PysqlboxError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
            else:
                return

    def database_url(self, name: str) -> str:
        """The URL of another database of this engine."""
        return with_database(self.url, name)

    def execute(self, statement: str) -> None:
        """Runs one statement outside any transaction, on the engine's own database."""
        execute_once(self.url, statement)

    def close(self) -> None:
        """Drops the databases that are left."""
        for name in list(self._databases):
            self.drop_database(name)


@contextlib.contextmanager
def started(kind: EngineKind) -> Iterator[Engine]:
    """The engine, running until the end of the block."""
    with kind.start() as url:
        engine = Engine(kind.id, kind.dialect, url, server_version(url), kind.is_versioned)
        if kind.id == "mssql":
            _drop_stale_databases(engine)
        try:
            yield engine
        finally:
            engine.close()


def _drop_stale_databases(engine: Engine) -> None:
    """Removes what a killed run left on a server that outlives it."""
    for row in execute_once(engine.url, "SELECT name FROM sys.databases"):
        match = _DATABASE.fullmatch(str(row["name"]))
        if (
            match
            and datetime.now(UTC) - datetime.strptime(match[1], "%Y%m%d%H%M").replace(tzinfo=UTC) > _STALE
        ):
            engine.drop_database(match[0])
