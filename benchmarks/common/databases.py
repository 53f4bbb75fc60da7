"""The server that is measured, and its databases: filled once, copied for every measurement."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from benchmarks.common.server import Server

MODULE = "pg_stat_statements"


def statistics_settings(programs: str) -> dict[str, str]:
    """Load pg_stat_statements where the server has it; it counts nothing until a database asks for it."""
    library = Path(programs).parent / "lib" / f"{MODULE}.so"
    if not library.exists():
        return {}
    return {"shared_preload_libraries": MODULE, f"{MODULE}.track": "none"}


@dataclass(frozen=True)
class Databases:
    """The databases on a server. `counts_statements`: whether it has pg_stat_statements."""

    server: Server
    counts_statements: bool

    def url(self, name: str) -> str:
        """Where a database is, in a form that all drivers understand."""
        parts = conninfo_to_dict(self.server.conninfo)
        folder, user = quote(str(parts["host"]), safe="/"), parts["user"]
        return f"postgresql://{user}@/{name}?host={folder}"

    def postmaster(self) -> int:
        """The server's process."""
        folder = self._answer("SHOW data_directory")
        return int((Path(folder) / "postmaster.pid").read_text().split()[0])

    def create(self, name: str) -> None:
        """An empty database."""
        self._execute("CREATE DATABASE {}", name)

    def drop(self, name: str) -> None:
        """Away with it."""
        self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def settle(self, name: str) -> None:
        """Vacuum and analyse what was filled, so that no worker pays for that."""
        with psycopg.connect(self.url(name), autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE)")

    @contextlib.contextmanager
    def copy(self, template: str, *, counting: bool = False) -> Iterator[str]:
        """A copy of a database for one measurement; `counting`: with statements counted."""
        name = f"{template}_run"
        self.drop(name)
        self._execute("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy", name, template)
        if counting and self.counts_statements:
            with psycopg.connect(self.url(name), autocommit=True) as connection:
                connection.execute(f"CREATE EXTENSION IF NOT EXISTS {MODULE}")
            self._execute(f"ALTER DATABASE {{}} SET {MODULE}.track = 'top'", name)
        self._execute("CHECKPOINT")
        try:
            yield self.url(name)
        finally:
            self.drop(name)

    def statements(self, url: str) -> int | None:
        """How many statements clients have run in a counting copy, these questions apart."""
        if not self.counts_statements:
            return None
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"SET {MODULE}.track = 'none'")
            row = connection.execute(
                f"SELECT coalesce(sum(s.calls), 0)::bigint FROM {MODULE} AS s WHERE s.dbid = "
                "(SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()) "
                f"AND s.query NOT LIKE '%%{MODULE}%%'"
            ).fetchone()
        return int(row[0]) if row else None

    def _answer(self, question: str) -> Any:
        with psycopg.connect(self.server.conninfo, autocommit=True) as connection:
            row = connection.execute(sql.SQL(question)).fetchone()
        return row[0] if row else None

    def _execute(self, statement: str, *names: str) -> None:
        with psycopg.connect(self.server.conninfo, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
