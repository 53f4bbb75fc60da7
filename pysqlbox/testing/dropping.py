"""Takes a schema out of a database with all that is in it."""

from __future__ import annotations

import contextlib
from typing import Any

from pysqlbox.names import Dialect, quote_identifier

__all__ = ["drop_schema"]

_OBJECTS = """
    SELECT o.name, p.name
    FROM sys.objects AS o
        INNER JOIN sys.schemas AS s ON s.schema_id = o.schema_id
        LEFT JOIN sys.objects AS p ON p.object_id = o.parent_object_id
    WHERE s.name = ? AND RTRIM(o.type) = ?
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
        for kind, statement in _KINDS.items():
            # Asked for each kind anew: with a table goes the sequence of its identity.
            for name, parent in cursor.execute(_OBJECTS, schema, kind).fetchall():
                named = {"name": quote_identifier(dialect, str(name))}
                if parent is not None:
                    named["parent"] = quote_identifier(dialect, str(parent))
                cursor.execute(statement.format(schema=quoted, **named))
        if cursor.execute("SELECT 1 FROM sys.schemas WHERE name = ?", schema).fetchone():
            cursor.execute(f"DROP SCHEMA {quoted}")
