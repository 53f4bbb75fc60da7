"""Puts a schema back to what it was when deployed: deploying again takes a second, this a few milliseconds.

A table that was empty is emptied, children first; one that had rows (settings, the registry of boxes) gets
those rows back where they have changed. PostgreSQL's sequences are set back too; in T-SQL they run on, so no
test may count on a certain id.
"""

from __future__ import annotations

import contextlib
from graphlib import TopologicalSorter
from typing import Any

from pysqlbox.drivers import Row, driver_for
from pysqlbox.drivers.values import from_database
from pysqlbox.names import Dialect, quote_identifier

__all__ = ["Emptier"]

_TABLES: dict[Dialect, str] = {
    "postgres": "SELECT tablename AS name FROM pg_tables WHERE schemaname = %s ORDER BY tablename",
    "mssql": """
        SELECT t.name AS name
        FROM sys.tables AS t INNER JOIN sys.schemas AS s ON s.schema_id = t.schema_id
        WHERE s.name = ?
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
        WHERE s.name = ?
        """,
}
_SEQUENCES = "SELECT sequencename AS name FROM pg_sequences WHERE schemaname = %s ORDER BY sequencename"


class Emptier:
    """Remembers the rows of a freshly deployed schema and restores them."""

    def __init__(self, connection: Any, dialect: Dialect, schema: str, *, before: str = "") -> None:
        """Read the tables, their references and their first rows; the connection commits at once.

        ``before``: statements that are run before anything is deleted.
        """
        self._dialect: Dialect = dialect
        self._schema = schema
        tables = [str(row["name"]) for row in self._run(connection, _TABLES[dialect], schema)]
        children: dict[str, set[str]] = {table: set() for table in tables}
        for row in self._run(connection, _REFERENCES[dialect], schema):
            if row["child"] != row["parent"]:
                children[str(row["parent"])].add(str(row["child"]))
        self._order = list(TopologicalSorter(children).static_order())
        self._first_rows = {table: rows for table in tables if (rows := self._rows(connection, table))}
        empty = [table for table in self._order if table not in self._first_rows]
        deletes = "".join(f"DELETE FROM {self._quoted(table)};\n" for table in empty)
        self._reset = before + deletes + self._sequences(connection)

    def restore(self, connection: Any) -> None:
        """Put everything back."""
        self._run(connection, self._reset)
        kept = [table for table in self._order if table in self._first_rows]
        changed = [table for table in kept if self._changed(connection, table)]
        for table in changed:
            self._run(connection, f"DELETE FROM {self._quoted(table)}")
        mark = "%s" if self._dialect == "postgres" else "?"
        for table in reversed(changed):
            for row in self._first_rows[table]:
                columns = ", ".join(quote_identifier(self._dialect, column) for column in row)
                marks = ", ".join(mark for _ in row)
                statement = f"INSERT INTO {self._quoted(table)} ({columns}) VALUES ({marks})"
                self._run(connection, statement, *row.values())

    def _sequences(self, connection: Any) -> str:
        """The statements that set PostgreSQL's sequences back."""
        if self._dialect == "mssql":
            return ""
        statements = []
        for row in self._run(connection, _SEQUENCES, self._schema):
            quoted = self._quoted(str(row["name"]))
            (state,) = self._run(connection, f"SELECT last_value, is_called FROM {quoted}")
            literal = quoted.replace("'", "''")
            statements.append(f"SELECT setval('{literal}', {state['last_value']}, {state['is_called']});\n")
        return "".join(statements)

    def _changed(self, connection: Any, table: str) -> bool:
        return _in_order(self._rows(connection, table)) != _in_order(self._first_rows[table])

    def _rows(self, connection: Any, table: str) -> list[Row]:
        return self._run(connection, f"SELECT * FROM {self._quoted(table)}")

    def _quoted(self, name: str) -> str:
        return f"{quote_identifier(self._dialect, self._schema)}.{quote_identifier(self._dialect, name)}"

    def _run(self, connection: Any, text: str, *parameters: object) -> list[Row]:
        """Run SQL to its end, so that no error is left behind a result; the first result's rows."""
        driver = driver_for(self._dialect)
        with contextlib.closing(connection.cursor()) as cursor:
            try:
                cursor.execute(text, parameters) if parameters else cursor.execute(text)
                rows: list[Row] | None = None
                while True:
                    if rows is None and cursor.description is not None:
                        names = [column[0] for column in cursor.description]
                        rows = [
                            dict(zip(names, map(from_database, row), strict=True))
                            for row in cursor.fetchall()
                        ]
                    if not cursor.nextset():
                        return rows or []
            except driver.database_error() as error:
                raise driver.map_error(error) from error


def _in_order(rows: list[Row]) -> list[str]:
    return sorted(map(repr, rows))
