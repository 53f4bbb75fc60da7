"""Takes a schema out of a database with all that is in it."""

from __future__ import annotations

import contextlib
from typing import Any

from pysqlbox.names import Dialect, quote_identifier

__all__ = ["drop_schema"]

_OBJECTS = """
    SELECT o.name, o.type, p.name
    FROM sys.objects AS o
        INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
        LEFT JOIN sys.objects AS p ON p.object_id = o.parent_object_id
    WHERE s.name = ?
"""
#: Whatever a schema may hold, what depends on others first.
_KINDS = {
    "F": "ALTER TABLE {schema}.{parent} DROP CONSTRAINT {name}",
    "P": "DROP PROCEDURE {schema}.{name}",
    "V": "DROP VIEW {schema}.{name}",
    "FN": "DROP FUNCTION {schema}.{name}",
    "IF": "DROP FUNCTION {schema}.{name}",
    "TF": "DROP FUNCTION {schema}.{name}",
    "U": "DROP TABLE {schema}.{name}",
    "SO": "DROP SEQUENCE {schema}.{name}",
}


def drop_schema(connection: Any, dialect: Dialect, schema: str) -> None:
    """Drop it if it is there; the connection commits at once."""
    quoted = quote_identifier(dialect, schema)
    with contextlib.closing(connection.cursor()) as cursor:
        if dialect == "postgres":
            cursor.execute(f"DROP SCHEMA IF EXISTS {quoted} CASCADE")
            return
        found = [
            [str(each or "").strip() for each in row] for row in cursor.execute(_OBJECTS, schema).fetchall()
        ]
        for kind, statement in _KINDS.items():
            for name, of_kind, parent in found:
                if of_kind == kind:
                    named = {"name": quote_identifier(dialect, name)}
                    if parent:
                        named["parent"] = quote_identifier(dialect, parent)
                    cursor.execute(statement.format(schema=quoted, **named))
        if cursor.execute("SELECT 1 FROM sys.schemas WHERE name = ?", schema).fetchone():
            cursor.execute(f"DROP SCHEMA {quoted}")
