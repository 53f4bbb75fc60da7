"""Puts a schema back to what it was when deployed: deploying again takes a second, this a few milliseconds.

A table that was empty is emptied, children first; one that had rows (settings, the registry of boxes) gets
those rows back where they have changed. PostgreSQL's sequences are set back too; in T-SQL they run on, so no
test may count on a certain id. Copying a template database instead took 45 ms a test, this takes 14: most of
the difference is for caches that each new database fills anew.
"""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import Any

from pysqlbox.drivers import Row
from pysqlbox.names import Dialect, quote_identifier
from tests.support.database import run_sql

_TABLES: dict[Dialect, str] = {
    "postgres": "SELECT tablename AS name FROM pg_tables WHERE schemaname = %s ORDER BY tablename",
    "mssql": """
        SELECT t.name AS name
        FROM sys.tables AS t INNER JOIN sys.schemas AS s ON s.schema_id = t.schema_id
        WHERE s.name = %s
        ORDER BY t.name
        """,
}
_REFERENCES: dict[Dialect, str] = {
    "postgres": """
        SELECT child.relname AS child, parent.relname AS parent
        FROM pg_constraint AS f
            INNER JOIN pg_class AS child ON child.oid = f.conrelid
            INNER JOIN pg_class AS parent ON parent.oid = f.confrelid
            INNER JOIN pg_namespace AS s ON s.oid = f.connamespace
        WHERE s.nspname = %s AND f.contype = 'f'
        """,
    "mssql": """
        SELECT child.name AS child, parent.name AS parent
        FROM sys.foreign_keys AS f
            INNER JOIN sys.tables AS child ON child.object_id = f.parent_object_id
            INNER JOIN sys.tables AS parent ON parent.object_id = f.referenced_object_id
            INNER JOIN sys.schemas AS s ON s.schema_id = child.schema_id
        WHERE s.name = %s
        """,
}
_SEQUENCES = "SELECT sequencename AS name FROM pg_sequences WHERE schemaname = %s ORDER BY sequencename"
_LET_GO: dict[Dialect, str] = {
    # What a test left open would block the deletes; what it has set for its session would reach the next.
    "postgres": """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend';
        SELECT pg_advisory_unlock_all();
        RESET ALL;
        """,
    "mssql": "SET NOCOUNT ON;\nSET LOCK_TIMEOUT 10000;\n",
}


class Emptier:
    """Remembers the rows of a freshly deployed schema and restores them."""

    def __init__(self, connection: Any, dialect: Dialect, schema: str) -> None:
        """Reads the tables, their references and their first rows; the connection commits at once."""
        self._dialect: Dialect = dialect
        self._schema = schema
        tables = [str(row["name"]) for row in run_sql(connection, dialect, _TABLES[dialect], (schema,))]
        children: dict[str, set[str]] = {table: set() for table in tables}
        for row in run_sql(connection, dialect, _REFERENCES[dialect], (schema,)):
            if row["child"] != row["parent"]:
                children[str(row["parent"])].add(str(row["child"]))
        self._order = list(TopologicalSorter(children).static_order())
        self._first_rows = {table: rows for table in tables if (rows := self._rows(connection, table))}
        empty = [table for table in self._order if table not in self._first_rows]
        deletes = "".join(f"DELETE FROM {self._quoted(table)};\n" for table in empty)
        self._reset = _LET_GO[dialect] + deletes + self._sequences(connection)

    def restore(self, connection: Any) -> None:
        """Puts everything back."""
        run_sql(connection, self._dialect, self._reset)
        kept = [table for table in self._order if table in self._first_rows]
        changed = [table for table in kept if self._changed(connection, table)]
        for table in changed:
            run_sql(connection, self._dialect, f"DELETE FROM {self._quoted(table)}")
        for table in reversed(changed):
            for row in self._first_rows[table]:
                columns = ", ".join(quote_identifier(self._dialect, column) for column in row)
                marks = ", ".join("%s" for _ in row)
                statement = f"INSERT INTO {self._quoted(table)} ({columns}) VALUES ({marks})"
                run_sql(connection, self._dialect, statement, tuple(row.values()))

    def _sequences(self, connection: Any) -> str:
        """The statements that set PostgreSQL's sequences back."""
        if self._dialect == "mssql":
            return ""
        statements = []
        for row in run_sql(connection, self._dialect, _SEQUENCES, (self._schema,)):
            quoted = self._quoted(str(row["name"]))
            (state,) = run_sql(connection, self._dialect, f"SELECT last_value, is_called FROM {quoted}")
            literal = quoted.replace("'", "''")
            statements.append(f"SELECT setval('{literal}', {state['last_value']}, {state['is_called']});\n")
        return "".join(statements)

    def _changed(self, connection: Any, table: str) -> bool:
        return _in_order(self._rows(connection, table)) != _in_order(self._first_rows[table])

    def _rows(self, connection: Any, table: str) -> list[Row]:
        return run_sql(connection, self._dialect, f"SELECT * FROM {self._quoted(table)}")

    def _quoted(self, name: str) -> str:
        return f"{quote_identifier(self._dialect, self._schema)}.{quote_identifier(self._dialect, name)}"


def _in_order(rows: list[Row]) -> list[str]:
    return sorted(map(repr, rows))
