"""What a catalog says of a schema, comparable between schemas and databases."""

from __future__ import annotations

import re

from pysqlbox.drivers import parse_url
from pysqlbox.names import quote_identifier
from tests.support.database import execute_once

_POSTGRES = """
    SELECT 'column' AS kind, c.relname AS name, a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
        || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
        || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '') AS text
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = {ns} AND c.relkind IN ('r', 'v', 'S')
    UNION ALL SELECT 'constraint', conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = {ns}
    UNION ALL SELECT 'index', c.relname, pg_get_indexdef(c.oid) FROM pg_class c
    WHERE c.relnamespace = {ns} AND c.relkind = 'i'
    UNION ALL SELECT 'routine', p.proname, pg_get_functiondef(p.oid) || coalesce(p.proacl::text, '')
    FROM pg_proc p WHERE p.pronamespace = {ns}
    UNION ALL SELECT 'view', c.relname, pg_get_viewdef(c.oid) || coalesce(c.relacl::text, '') FROM pg_class c
    WHERE c.relnamespace = {ns} AND c.relkind = 'v'
    UNION ALL SELECT 'options', c.relname, coalesce(c.reloptions::text, '') FROM pg_class c
    WHERE c.relnamespace = {ns} AND c.relkind = 'r'
"""
_MSSQL = {
    "column": """SELECT o.name AS name, c.name AS column_name, t.name AS type, c.max_length, c.is_nullable
    FROM sys.columns AS c JOIN sys.objects AS o ON o.object_id = c.object_id
    JOIN sys.types AS t ON t.user_type_id = c.user_type_id WHERE o.schema_id = {ns}""",
    "object": "SELECT o.name AS name, o.type AS type FROM sys.objects AS o WHERE o.schema_id = {ns}",
    "index": """SELECT o.name AS name, i.name AS index_name, i.type_desc FROM sys.indexes AS i
    JOIN sys.objects AS o ON o.object_id = i.object_id WHERE o.schema_id = {ns}""",
    "module": """SELECT o.name AS name, m.definition FROM sys.sql_modules AS m
    JOIN sys.objects AS o ON o.object_id = m.object_id WHERE o.schema_id = {ns}""",
}


def catalog(url: str, schema: str) -> list[tuple[str, str, str]]:
    """Every column, constraint, index, routine and view, with the schema's name taken out."""
    dialect = parse_url(url).dialect
    literal = "'" + schema.replace("'", "''") + "'"
    if dialect == "postgres":
        query = _POSTGRES.replace("{ns}", f"(SELECT oid FROM pg_namespace WHERE nspname = {literal})")
        found = [(str(row["kind"]), str(row["name"]), str(row["text"])) for row in execute_once(url, query)]
    else:
        found = [
            (kind, str(row.pop("name")), " ".join(str(value).strip() for value in row.values()))
            for kind, query in _MSSQL.items()
            for row in execute_once(url, query.replace("{ns}", f"SCHEMA_ID({literal})"))
        ]
    quoted = quote_identifier(dialect, schema)
    # As a qualifier, and in texts: as a name, quoted or not, before a role, after "schema".
    texts = (
        f"{quoted}.",
        quoted,
        f"{schema}.",
        literal,
        f"'{quoted}'",
        f"'{schema}_",
        f"'schema {literal[1:]}",
    )
    own = re.compile("|".join(map(re.escape, texts)))
    return sorted(
        # Babelfish numbers the defaults and table types that it names itself.
        (kind, re.sub(r"_\d{5,}$", "", name), own.sub("", text))
        for kind, name, text in found
    )
