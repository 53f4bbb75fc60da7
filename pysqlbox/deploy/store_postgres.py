"""The catalog and the deployment's state in PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import psycopg
from psycopg import errors
from psycopg.rows import tuple_row

from pysqlbox.deploy.declarations import declarations
from pysqlbox.deploy.render import Unit
from pysqlbox.deploy.store import LOCK_TIMEOUT_SECONDS, NotReplaceable, Record, lock_key
from pysqlbox.drivers import postgres
from pysqlbox.errors import DatabaseUnavailable, InvalidState
from pysqlbox.names import Dialect, Kind, NamedBox, quote_identifier, quote_literal

#: The routines and views of a schema by what tells one from another: name and argument types, or only the
#: name. Types, and definitions, are written as search_path has it, so it must be pinned.
NAMED = """
    SELECT p.oid, p.proname AS name,
        (p.proname || '(' || oidvectortypes(p.proargtypes) || ')') COLLATE "C" AS object,
        CASE p.prokind WHEN 'p' THEN 'PROCEDURE ' ELSE 'FUNCTION ' END || p.oid::regprocedure AS target,
        p.proacl AS acl
    FROM pg_proc AS p
    WHERE p.pronamespace = {oid} AND p.prokind IN ('f', 'p')
    UNION ALL
    SELECT c.oid, c.relname, c.relname::text COLLATE "C", 'VIEW ' || c.oid::regclass, c.relacl
    FROM pg_class AS c
    WHERE c.relnamespace = {oid} AND c.relkind = 'v'
"""

#: The units' routines and views that the catalog holds, each name with a hash over its definitions. Hashed
#: one by one before they are joined: what is sorted stays small.
OBJECTS = """
    SELECT u.object_name AS name, sha256(string_agg(o.hash, '' ORDER BY o.object)) AS hash
    FROM {unit} AS u
    CROSS JOIN LATERAL unnest(u.objects) AS e (object)
    INNER JOIN (
        SELECT (p.proname || '(' || oidvectortypes(p.proargtypes) || ')') COLLATE "C" AS object,
            sha256(convert_to(pg_get_functiondef(p.oid), 'UTF8')) AS hash
        FROM pg_proc AS p
        WHERE p.pronamespace = {oid} AND p.prokind IN ('f', 'p')
        UNION ALL
        SELECT c.relname::text COLLATE "C", sha256(convert_to(pg_get_viewdef(c.oid), 'UTF8'))
        FROM pg_class AS c
        WHERE c.relnamespace = {oid} AND c.relkind = 'v'
    ) AS o ON o.object = e.object
    GROUP BY u.object_name
"""

#: What targets, written as in CREATE, stand for in the catalog: whatever relation a view's name has.
RESOLVE = """
    SELECT t.target, CASE
        WHEN right(t.target, 1) = ')' THEN (
            SELECT p.proname || '(' || oidvectortypes(p.proargtypes) || ')'
            FROM pg_proc AS p
            WHERE p.oid = to_regprocedure(t.target)::oid
        )
        ELSE (SELECT c.relname::text FROM pg_class AS c WHERE c.oid = to_regclass(t.target)::oid)
    END AS object
    FROM (SELECT unnest({targets}::text[])) AS t (target)
"""

#: The names among the given that belong to something else than the known routines and views.
_OTHERS = """
    SELECT p.proname
    FROM pg_proc AS p
    WHERE p.pronamespace = {oid} AND p.proname = ANY (%s::text[])
        AND (p.proname || '(' || oidvectortypes(p.proargtypes) || ')') COLLATE "C" <> ALL (%s::text[])
    UNION
    SELECT c.relname
    FROM pg_class AS c
    WHERE c.relnamespace = {oid} AND c.relname = ANY (%s::text[])
        AND c.relname::text COLLATE "C" <> ALL (%s::text[])
"""

#: Who may do what on objects; none for an object that has the defaults. A null grantee is PUBLIC.
_GRANTS = f"""
    SELECT o.name, a.privilege_type, a.is_grantable, r.rolname
    FROM ({NAMED}) AS o
    CROSS JOIN LATERAL aclexplode(o.acl) AS a
    LEFT JOIN pg_roles AS r ON r.oid = a.grantee
    WHERE o.object = ANY (%s::text[])
"""

#: About how much text goes in one round trip.
_PORTION = 200_000

#: On a node of a Citus cluster everything that is deployed stays on that node, and unknown to the others.
NODE_LOCAL = (
    "set_config('citus.enable_ddl_propagation', 'off', true)"
    " WHERE current_setting('citus.enable_ddl_propagation', true) IS NOT NULL"
)

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
        settings = (
            "statement_timeout = 0",
            "search_path = pg_catalog",
            "client_min_messages = warning",
            "standard_conforming_strings = on",
            "check_function_bodies = on",
            "jit = off",
        )
        self._run(
            "; ".join(
                [
                    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
                    *map("SET LOCAL {}".format, settings),
                    f"SELECT {NODE_LOCAL}",
                ]
            )
        )

    def lock(self) -> None:
        """An advisory lock of the transaction: safe behind a transaction-mode pooler, gone after a crash."""
        self._execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
        try:
            self._execute("SELECT pg_advisory_xact_lock(%s::bigint)", [lock_key(self.schema)])
        except errors.LockNotAvailable as error:
            raise DatabaseUnavailable(
                f"another deployment of this schema is still running after {LOCK_TIMEOUT_SECONDS} seconds:"
                " wait for it, or end its session, and try again"
            ) from error

    def session(self) -> int:
        """The server's process, which a pooler hides from the driver."""
        return int(self._execute("SELECT pg_backend_pid()")[0][0])

    def limit_waits(self, seconds: float) -> None:
        """Wait for any other lock no longer than this; it ends with the transaction."""
        self._execute(f"SET LOCAL lock_timeout = '{seconds * 1000:.0f}ms'")

    def schema_exists(self) -> bool:
        """Whether the schema is there."""
        return bool(self._execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [self.schema]))

    def create_schema(self) -> None:
        """Create the schema."""
        self._run(f"CREATE SCHEMA {quote_identifier('postgres', self.schema)}")

    def has_state(self) -> bool:
        """Whether this schema was deployed by pysqlbox."""
        query = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = '_unit'"
        return bool(self._execute(query, [self.schema]))

    def version(self) -> int:
        """The highest version of the tables, 0 for none."""
        return cast(
            int, self._execute(self._on("_version", "SELECT coalesce(max(version), 0) FROM {}"))[0][0]
        )

    def boxes(self) -> list[NamedBox]:
        """The boxes this schema was deployed with."""
        rows = self._execute(self._on("_box", "SELECT name, kind FROM {} ORDER BY name"))
        return [NamedBox(name, cast(Kind, kind)) for name, kind in rows]

    def records(self) -> list[Record]:
        """The deployed units in the order of their deployment."""
        query = (
            "SELECT id, position, object_name, text_hash, catalog_hash, objects FROM {} ORDER BY position, id"
        )
        return [
            Record(identity, position, name, text, digest, tuple(objects))
            for identity, position, name, text, digest, objects in self._execute(self._on("_unit", query))
        ]

    def objects(self) -> dict[str, bytes]:
        """The deployed routines and views that the catalog holds, each with a hash of its definition."""
        return {name: bytes(digest) for name, digest in self._execute(self._in_schema(OBJECTS))}

    def strangers(self, units: Sequence[Unit], known: Collection[str]) -> list[str]:
        """Routines of the same name and argument types, and relations of a view's name."""
        values = [[unit.object_name for unit in units], list(known)]
        names = {name for (name,) in self._execute(self._in_schema(_OTHERS), values * 2)}
        found: set[str] = set()
        for unit in units:
            if unit.object_name in names:
                found.update(self._in_place_of(unit))
        return sorted(found - set(known))

    def run(self, units: Sequence[Unit]) -> None:
        """Execute units as they stand, many in a round trip.

        Bodies are checked once for all boxes whose texts differ in the box's name only.
        """
        checked: set[bytes] = set()
        checking = True
        portion: list[str] = []
        size = 0
        for unit in units:
            if (unit.digest not in checked) != checking:
                checking = not checking
                portion.append(f"SET LOCAL check_function_bodies = {'on' if checking else 'off'}")
            checked.add(unit.digest)
            portion.append(unit.text)
            size += len(unit.pattern)
            if size > _PORTION:
                self._run("\n;\n".join(portion))
                portion, size = [], 0
        self._run("\n;\n".join([*portion, "SET LOCAL check_function_bodies = on"]))

    def create(self, units: Sequence[Unit], stale: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Replace in place, which keeps running calls and grants; drop the stale, and older signatures."""
        self._execute("SAVEPOINT before_create")
        try:
            self.run(units)
            made = self._created(units)
            self._check_made(units, made)
            created = {name for names in made.values() for name in names}
            self.clear([name for name in stale if name not in created])
        except _REFUSALS as error:
            self._execute("ROLLBACK TO SAVEPOINT before_create")
            raise NotReplaceable(error.diag.message_primary) from error
        self._execute("RELEASE SAVEPOINT before_create")
        self._restore_grants(created - set(stale))
        return made

    def finish(self, records: Sequence[Record], roles: Sequence[Unit]) -> None:
        """Save the records, which the roles go by, then grant, then note what the catalog now holds."""
        self.save(records)
        ids = [record.id for record in records]
        if roles:
            # They alter what was there before too: whose rights a routine runs with. That is no drift.
            query = (
                f"SELECT u.id FROM {{unit}} AS u INNER JOIN ({OBJECTS}) AS o ON o.name = u.object_name"
                " WHERE u.catalog_hash = o.hash"
            )
            ids += [row[0] for row in self._execute(self._in_schema(query))]
            self.run(roles)
        query = (
            "UPDATE {unit} AS u SET catalog_hash = o.hash"
            f" FROM ({OBJECTS}) AS o WHERE o.name = u.object_name"
            " AND u.catalog_hash IS DISTINCT FROM o.hash AND u.id = ANY (%s::text[])"
        )
        self._execute(self._in_schema(query), [ids])

    def clear(self, names: Sequence[str]) -> None:
        """Drop the routines and views named, the last first, and remember who may use them."""
        if not names:
            return
        found = dict(self._execute(self._listed("object, target"), [list(names)]))
        self._grants += self._execute(self._in_schema(_GRANTS), [list(names)])
        self._run("; ".join(f"DROP {found[name]}" for name in reversed(names) if name in found))

    def clear_for_tables(self, names: Sequence[str]) -> None:
        """Views hold on to the columns of their tables, and routines may to the views."""
        self.clear(names)

    def place(self) -> int | None:
        """The place that this schema was given, if any."""
        return cast(int | None, self._execute(self._on("_place", "SELECT max(place) FROM {}"))[0][0])

    def set_place(self, place: int) -> None:
        """Give the schema its place, and every box that has not got it yet."""
        self._execute(self._on("_set_place", "SELECT {}(%s::integer)"), [place])

    def add_version(self, version: int) -> None:
        """Record a version of the tables."""
        query = "INSERT INTO {} (version) VALUES (%s) ON CONFLICT DO NOTHING"
        self._execute(self._on("_version", query), [version])

    def add_boxes(self, boxes: Iterable[NamedBox]) -> None:
        """Record boxes."""
        added = list(boxes)
        query = (
            "INSERT INTO {} (name, kind) SELECT * FROM unnest(%s::text[], %s::text[]) ON CONFLICT DO NOTHING"
        )
        names, kinds = [box.name for box in added], [box.kind for box in added]
        self._execute(self._on("_box", query), [names, kinds])

    def save(self, records: Iterable[Record]) -> None:
        """Record units, in place of earlier records of them."""
        rows = list(records)
        query = self._on(
            "_unit",
            "INSERT INTO {} (id, position, object_name, text_hash, objects)"
            " SELECT r.id, r.position, r.object_name, r.text_hash, r.objects::text[]"
            " FROM unnest(%s::text[], %s::integer[], %s::text[], %s::text[], %s::text[])"
            " AS r (id, position, object_name, text_hash, objects)"
            " ON CONFLICT (id) DO UPDATE SET position = excluded.position,"
            " object_name = excluded.object_name, text_hash = excluded.text_hash,"
            " objects = excluded.objects, applied_at = clock_timestamp()",
        )
        fields = ("id", "position", "object_name", "text_hash")
        values: list[object] = [[getattr(row, name) for row in rows] for name in fields]
        self._execute(query, [*values, [_array(row.objects) for row in rows]])

    def forget(self, ids: Iterable[str]) -> None:
        """Remove records."""
        self._execute(self._on("_unit", "DELETE FROM {} WHERE id = ANY (%s::text[])"), [list(ids)])

    def _restore_grants(self, created: Collection[str]) -> None:
        """Give objects that were dropped their users again; where none is remembered, the defaults hold."""
        if not self._grants:
            return
        targets: dict[str, list[str]] = {}
        for name, target in self._execute(self._listed("name, target"), [list(created)]):
            targets.setdefault(name, []).append(target.replace("VIEW ", "TABLE ", 1))
        commands: list[str] = []
        for name, privilege, grantable, role in self._grants:
            grantee = "PUBLIC" if role is None else quote_identifier("postgres", role)
            option = " WITH GRANT OPTION" if grantable else ""
            for target in targets.get(name, []):
                commands.append(f"GRANT {privilege} ON {target} TO {grantee}{option}")
        held = sorted({target for name, *_ in self._grants for target in targets.get(name, [])})
        self._run("; ".join([*(f"REVOKE ALL ON {target} FROM PUBLIC" for target in held), *commands]))
        self._grants = [row for row in self._grants if row[0] not in targets]

    def _resolve(self, units: Sequence[Unit]) -> dict[str, list[str]]:
        """What the catalog has under the names that units create, by unit."""
        made = [(unit.id, each.target) for unit in units for each in declarations(unit)]
        found = dict(self._execute(fill(RESOLVE, targets="%s"), [[target for _, target in made]]))
        resolved: dict[str, list[str]] = {unit.id: [] for unit in units}
        for identity, target in made:
            if found[target] is not None:
                resolved[identity].append(found[target])
        return resolved

    def _created(self, units: Sequence[Unit]) -> dict[str, tuple[str, ...]]:
        """What units have just created: whatever has a name alone, or what their text says."""
        names: dict[str, list[str]] = {}
        for name, item in self._execute(self._in_schema(f"SELECT o.name, o.object FROM ({NAMED}) AS o")):
            names.setdefault(name, []).append(item)
        alone = {
            unit.id: tuple(names[unit.object_name])
            for unit in units
            if len(declarations(unit)) == 1 == len(names.get(unit.object_name, ()))
        }
        others = self._resolve([unit for unit in units if unit.id not in alone])
        return alone | {identity: tuple(found) for identity, found in others.items()}

    @staticmethod
    def _check_made(units: Sequence[Unit], made: Mapping[str, Sequence[str]]) -> None:
        """What a unit created must be found again by what its text says, or later deployments miss it."""
        for unit in units:
            if len(made[unit.id]) != len(declarations(unit)):
                raise InvalidState(f"{unit.id}: its text must create what it declares, and nothing else")

    def _in_place_of(self, unit: Unit) -> list[str]:
        """What the catalog has under a unit's names; nothing if they are of types that are not there yet."""
        self._execute("SAVEPOINT before_look")
        try:
            return self._resolve([unit])[unit.id]
        except errors.UndefinedObject:
            self._execute("ROLLBACK TO SAVEPOINT before_look")
            return []
        finally:
            self._execute("RELEASE SAVEPOINT before_look")

    def _listed(self, columns: str) -> str:
        return self._in_schema(f"SELECT {columns} FROM ({NAMED}) AS o WHERE o.object = ANY (%s::text[])")

    def _in_schema(self, query: str) -> str:
        """A query with the schema's oid and the table of units; a % in a name is no parameter."""
        literal = quote_literal("postgres", self.schema).replace("%", "%%")
        oid = f"(SELECT oid FROM pg_namespace WHERE nspname = {literal})"
        return fill(query, oid=oid, unit=self._table("_unit"))

    def _on(self, table: str, query: str) -> str:
        return query.replace("{}", self._table(table))

    def _table(self, name: str) -> str:
        quoted = f"{quote_identifier('postgres', self.schema)}.{quote_identifier('postgres', name)}"
        return quoted.replace("%", "%%")

    def _run(self, script: str) -> None:
        """Run a script of any number of statements, in which % is nothing special."""
        postgres.run_script(self.connection, script)

    def _execute(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement; with values, even none, %% stands for %."""
        with self.connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(query.encode(), values)
            return cursor.fetchall() if cursor.description else []


def fill(query: str, **values: str) -> str:
    """Put values in for their names in braces; what looks like one in a value stays as it is."""
    return re.sub(r"\{(\w+)\}", lambda found: values[found[1]], query)


def _array(items: Iterable[str]) -> str:
    """An array as text, to be one item of another."""
    return "{" + ",".join('"' + re.sub(r'(["\\\\])', r"\\\1", item) + '"' for item in items) + "}"
