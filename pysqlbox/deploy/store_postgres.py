"""The catalog and the deployment's state in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import psycopg
from psycopg import errors, sql
from psycopg.rows import tuple_row

from pysqlbox.deploy.names import Box, Dialect, Kind
from pysqlbox.deploy.render import Unit
from pysqlbox.deploy.store import LOCK_TIMEOUT_SECONDS, NotReplaceable, Record, lock_key
from pysqlbox.drivers import postgres
from pysqlbox.errors import DatabaseUnavailable

#: Every routine and view of a schema with a hash over its definitions. Definitions depend on search_path.
OBJECTS = """
    SELECT name,
        sha256(convert_to(string_agg(definition, chr(10) ORDER BY definition COLLATE "C"), 'UTF8')) AS hash
    FROM (
        SELECT p.proname AS name, pg_get_functiondef(p.oid) AS definition
        FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname = {schema} AND p.prokind IN ('f', 'p')
        UNION ALL
        SELECT c.relname, pg_get_viewdef(c.oid)
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = {schema} AND c.relkind = 'v'
    ) AS object
    GROUP BY name
"""

#: Routines and views by name, with what DROP and GRANT call them.
_NAMED = """
    SELECT p.oid::text, p.ctid::text, p.proname AS name,
        CASE p.prokind WHEN 'p' THEN 'PROCEDURE ' ELSE 'FUNCTION ' END || p.oid::regprocedure AS target
    FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
    WHERE n.nspname = %(schema)s AND p.proname = ANY (%(names)s::text[]) AND p.prokind IN ('f', 'p')
    UNION ALL
    SELECT c.oid::text, 'view', c.relname, 'VIEW ' || c.oid::regclass
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = ANY (%(names)s::text[]) AND c.relkind = 'v'
"""

#: Who may do what on the objects named; none for an object that has the defaults. A null grantee is PUBLIC.
_GRANTS = """
    SELECT p.proname, a.privilege_type, a.is_grantable, r.rolname
    FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
    CROSS JOIN LATERAL aclexplode(p.proacl) AS a LEFT JOIN pg_roles AS r ON r.oid = a.grantee
    WHERE n.nspname = %(schema)s AND p.proname = ANY (%(names)s::text[])
    UNION
    SELECT c.relname, a.privilege_type, a.is_grantable, r.rolname
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL aclexplode(c.relacl) AS a LEFT JOIN pg_roles AS r ON r.oid = a.grantee
    WHERE n.nspname = %(schema)s AND c.relname = ANY (%(names)s::text[]) AND c.relkind = 'v'
"""

#: CREATE OR REPLACE cannot do it: another result or parameter names, other columns, something depends on it.
_REFUSALS = (
    errors.InvalidFunctionDefinition,
    errors.InvalidTableDefinition,
    errors.DependentObjectsStillExist,
)


class PostgresStore:
    """State and catalog of one schema, inside the transaction that is open on the connection."""

    dialect: Dialect = "postgres"

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self.connection = connection
        self.schema = schema
        self._grants: list[tuple[str, str, bool, str | None]] = []

    def begin(self) -> None:
        """Pin what could differ from session to session; all of it ends with the transaction."""
        self._execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        for setting in (
            "search_path = pg_catalog",
            "client_min_messages = warning",
            "statement_timeout = 0",
            "standard_conforming_strings = on",
            "check_function_bodies = on",
        ):
            self._execute(f"SET LOCAL {setting}")

    def lock(self) -> None:
        """An advisory lock of the transaction: safe behind a transaction-mode pooler, gone after a crash."""
        self._execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
        try:
            self._execute("SELECT pg_advisory_xact_lock(%s::bigint)", [lock_key(self.schema)])
        except errors.LockNotAvailable as error:
            raise DatabaseUnavailable(
                f"another deployment of this schema is still running after {LOCK_TIMEOUT_SECONDS} seconds"
            ) from error

    def schema_exists(self) -> bool:
        """Whether the schema is there."""
        return bool(self._execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [self.schema]))

    def create_schema(self) -> None:
        """Create the schema."""
        self._execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.schema)))

    def has_state(self) -> bool:
        """Whether this schema was deployed by pysqlbox."""
        query = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = '_unit'"
        return bool(self._execute(query, [self.schema]))

    def version(self) -> int:
        """The highest version of the tables, 0 for none."""
        return cast(
            int, self._execute(self._on("_version", "SELECT coalesce(max(version), 0) FROM {}"))[0][0]
        )

    def boxes(self) -> list[Box]:
        """The boxes this schema was deployed with."""
        rows = self._execute(self._on("_box", "SELECT name, kind FROM {} ORDER BY name"))
        return [Box(name, cast(Kind, kind)) for name, kind in rows]

    def records(self) -> list[Record]:
        """The deployed units in the order of their deployment."""
        query = "SELECT id, position, object_name, text_hash, catalog_hash FROM {} ORDER BY position, id"
        return [Record(*row) for row in self._execute(self._on("_unit", query))]

    def objects(self) -> dict[str, bytes]:
        """The routines and views the catalog holds, each with a hash of its definition."""
        query = sql.SQL(OBJECTS).format(schema=sql.Literal(self.schema))
        return {name: bytes(digest) for name, digest in self._execute(query)}

    def run(self, unit: Unit) -> None:
        """Execute a unit as it stands."""
        postgres.run_script(self.connection, unit.text)

    def create(self, units: Sequence[Unit], stale: Sequence[str]) -> None:
        """Replace in place, which keeps running calls and grants; drop the stale, and older signatures."""
        names = [unit.object_name for unit in units if unit.object_name]
        self._execute("SAVEPOINT before_create")
        try:
            before = {row[:2]: row[3] for row in self._named(names) if row[1] != "view"}
            for unit in units:
                self.run(unit)
            after = {row[:2] for row in self._named(names)}
            self._drop([target for version, target in before.items() if version in after])
            self._drop([row[3] for row in self._named(stale)])
        except _REFUSALS as error:
            self._execute("ROLLBACK TO SAVEPOINT before_create")
            raise NotReplaceable(error.diag.message_primary) from error
        self._execute("RELEASE SAVEPOINT before_create")
        self._restore_grants(names)

    def clear(self, names: Sequence[str]) -> None:
        """Drop the routines and views named, the last first, and remember who may use them."""
        values: Mapping[str, object] = {"schema": self.schema, "names": list(names)}
        self._grants += [
            cast("tuple[str, str, bool, str | None]", row) for row in self._execute(_GRANTS, values)
        ]
        targets: dict[str, list[str]] = {}
        for row in self._named(names):
            targets.setdefault(row[2], []).append(row[3])
        self._drop([target for name in reversed(names) for target in targets.pop(name, [])])

    def clear_for_tables(self, names: Sequence[str]) -> None:
        """Views hold on to the columns of their tables, and routines may to the views."""
        self.clear(names)

    def add_version(self, version: int) -> None:
        """Record a version of the tables."""
        query = "INSERT INTO {} (version) VALUES (%s) ON CONFLICT DO NOTHING"
        self._execute(self._on("_version", query), [version])

    def add_boxes(self, boxes: Iterable[Box]) -> None:
        """Record boxes."""
        query = self._on("_box", "INSERT INTO {} (name, kind) VALUES (%s, %s) ON CONFLICT DO NOTHING")
        for box in boxes:
            self._execute(query, [box.name, box.kind])

    def save(self, records: Iterable[Record]) -> None:
        """Record units, in place of earlier records of them."""
        rows = list(records)
        query = self._on(
            "_unit",
            "INSERT INTO {} (id, position, object_name, text_hash, catalog_hash)"
            " SELECT * FROM unnest(%s::text[], %s::integer[], %s::text[], %s::text[], %s::bytea[])"
            " ON CONFLICT (id) DO UPDATE SET position = excluded.position,"
            " object_name = excluded.object_name, text_hash = excluded.text_hash,"
            " catalog_hash = excluded.catalog_hash, applied_at = clock_timestamp()",
        )
        fields = ("id", "position", "object_name", "text_hash", "catalog_hash")
        self._execute(query, [[getattr(row, name) for row in rows] for name in fields])

    def forget(self, ids: Iterable[str]) -> None:
        """Remove records."""
        self._execute(self._on("_unit", "DELETE FROM {} WHERE id = ANY (%s::text[])"), [list(ids)])

    def _restore_grants(self, names: Sequence[str]) -> None:
        """Give objects that were dropped their users again; where none is remembered, the defaults hold."""
        created: dict[str, list[str]] = {}
        for row in self._named(names):
            created.setdefault(row[2], []).append(row[3].replace("VIEW ", "TABLE ", 1))
        for target in {target for name, *_ in self._grants for target in created.get(name, [])}:
            self._execute(f"REVOKE ALL ON {target} FROM PUBLIC")
        for name, privilege, grantable, role in self._grants:
            grantee = sql.Identifier(role) if role is not None else sql.SQL("PUBLIC")
            option = sql.SQL(" WITH GRANT OPTION" if grantable else "")
            for target in created.get(name, []):
                grant = sql.SQL("GRANT {} ON {} TO {}{}")
                self._execute(grant.format(_raw(privilege), _raw(target), grantee, option))
        self._grants = [row for row in self._grants if row[0] not in created]

    def _named(self, names: Sequence[str]) -> list[tuple[str, str, str, str]]:
        values = {"schema": self.schema, "names": list(names)}
        return [cast("tuple[str, str, str, str]", row) for row in self._execute(_NAMED, values)]

    def _drop(self, targets: Iterable[str]) -> None:
        for target in targets:
            self._execute(_raw(f"DROP {target}"))

    def _on(self, table: str, query: str) -> sql.Composed:
        return _raw(query).format(sql.Identifier(self.schema, table))

    def _execute(self, query: str | sql.SQL | sql.Composed, values: Any = None) -> list[tuple[Any, ...]]:
        with self.connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(_raw(query) if isinstance(query, str) else query, values)
            return cursor.fetchall() if cursor.description else []


def _raw(text: str) -> sql.SQL:
    """Text that this module wrote, or that the catalog quoted."""
    return sql.SQL(text)
