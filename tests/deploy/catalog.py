"""What a catalog says of a schema, comparable between schemas and databases."""

from __future__ import annotations

from pysqlbox.deploy.names import quote_identifier
from pysqlbox.drivers import parse_url
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
_MSSQL = """
    SELECT 'column' AS kind, o.name AS name, CAST(c.name AS varchar(200)) + ' ' + CAST(t.name AS varchar(200))
        + ' ' + CAST(c.max_length AS varchar(10)) + ' ' + CAST(c.is_nullable AS varchar(10)) AS text
    FROM sys.columns AS c JOIN sys.objects AS o ON o.object_id = c.object_id
    JOIN sys.types AS t ON t.user_type_id = c.user_type_id WHERE o.schema_id = {ns}
    UNION ALL SELECT 'object', o.name, o.type FROM sys.objects AS o WHERE o.schema_id = {ns}
    UNION ALL SELECT 'index', o.name, i.type_desc FROM sys.indexes AS i
    JOIN sys.objects AS o ON o.object_id = i.object_id WHERE o.schema_id = {ns}
    UNION ALL SELECT 'module', o.name, m.definition FROM sys.sql_modules AS m
    JOIN sys.objects AS o ON o.object_id = m.object_id WHERE o.schema_id = {ns}
"""


def catalog(url: str, schema: str) -> list[tuple[str, str, str]]:
    """Every column, constraint, index, routine and view, with the schema's name taken out."""
    dialect = parse_url(url).dialect
    literal = "'" + schema.replace("'", "''") + "'"
    if dialect == "postgres":
        query = _POSTGRES.replace("{ns}", f"(SELECT oid FROM pg_namespace WHERE nspname = {literal})")
    else:
        query = _MSSQL.replace("{ns}", f"SCHEMA_ID({literal})")
    rows = []
    for row in execute_once(url, query):
        text = str(row["text"])
        for written in (quote_identifier(dialect, schema), schema):
            text = text.replace(f"{written}.", "")
        # Babelfish keeps the statement that made a module: a later one says ALTER.
        rows.append((str(row["kind"]), str(row["name"]), text.replace("ALTER PROCEDURE", "CREATE PROCEDURE")))
    return sorted(rows)
