"""The deployment as a script for psql: one transaction, each step behind a question to the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pysqlbox.deploy.declarations import declarations
from pysqlbox.deploy.plan import has_object
from pysqlbox.deploy.render import Unit
from pysqlbox.deploy.store import LOCK_TIMEOUT_SECONDS, lock_key
from pysqlbox.deploy.store_postgres import NAMED, NODE_LOCAL, OBJECTS, RESOLVE, fill
from pysqlbox.deploy.waiting import LOCK_SECONDS
from pysqlbox.names import NamedBox, quote_identifier, quote_literal

_UNIT_TABLE = "tables/schema/unit"

#: Drops what was deployed, the last first, and notes its grants for _RESTORE; both inside DO.
_CLEAR = f"""DO $pysqlbox$
DECLARE
    target text;
BEGIN
    PERFORM set_config('pysqlbox.grants', coalesce(nullif(current_setting('pysqlbox.grants', true), ''), (
        SELECT coalesce(
            jsonb_agg(DISTINCT jsonb_build_array(o.name, a.privilege_type, a.is_grantable, r.rolname)), '[]')
        FROM ({NAMED}) AS o
        CROSS JOIN LATERAL aclexplode(o.acl) AS a
        LEFT JOIN pg_roles AS r ON r.oid = a.grantee
        WHERE o.object IN (SELECT unnest(u.objects) FROM {{unit}} AS u)
    )::text), true);
    FOR target IN
        SELECT o.target
        FROM {{unit}} AS u
        CROSS JOIN LATERAL unnest(u.objects) AS e (object)
        INNER JOIN ({NAMED}) AS o ON o.object = e.object
        ORDER BY u.position DESC
    LOOP
        EXECUTE 'DROP ' || target;
    END LOOP;
END;
$pysqlbox$;
"""

_RESTORE = f"""DO $pysqlbox$
DECLARE
    held record;
BEGIN
    FOR held IN
        WITH grants AS (
            SELECT g ->> 0 AS name, g ->> 1 AS privilege, (g ->> 2)::boolean AS grantable, g ->> 3 AS role
            FROM jsonb_array_elements(
                coalesce(nullif(current_setting('pysqlbox.grants', true), ''), '[]')::jsonb
            ) AS e (g)
        ), objects AS (
            SELECT o.name, regexp_replace(o.target, '^VIEW ', 'TABLE ') AS target
            FROM ({NAMED}) AS o
            WHERE o.object IN (SELECT unnest(u.objects) FROM {{unit}} AS u)
        )
        SELECT DISTINCT 1 AS step, format('REVOKE ALL ON %s FROM PUBLIC', o.target) AS command
        FROM objects AS o JOIN grants AS g USING (name)
        UNION ALL
        SELECT 2, format('GRANT %s ON %s TO %s%s', g.privilege, o.target,
            coalesce(quote_ident(g.role), 'PUBLIC'),
            CASE WHEN g.grantable THEN ' WITH GRANT OPTION' ELSE '' END)
        FROM objects AS o JOIN grants AS g USING (name)
        ORDER BY step
    LOOP
        EXECUTE held.command;
    END LOOP;
END;
$pysqlbox$;
"""

#: Ends the script before it would replace what others made; what was deployed has been dropped by then.
_STRANGERS = f"""DO $pysqlbox$
DECLARE
    stranger text;
BEGIN
    SELECT string_agg(o.object, ', ') INTO stranger
    FROM ({RESOLVE}) AS o;
    IF stranger IS NOT NULL THEN
        RAISE EXCEPTION 'the schema has objects that pysqlbox would create and did not make:'
            ' %; rename or drop them', stranger;
    END IF;
END;
$pysqlbox$;
"""


def write(
    schema: str, boxes: Sequence[NamedBox], target: int, units: Sequence[Unit], *, place: int | None = None
) -> str:
    """The script as text."""
    return "\n".join(_Writer(schema, boxes, target, units, place).parts()) + "\n"


class _Writer:
    def __init__(
        self, schema: str, boxes: Sequence[NamedBox], target: int, units: Sequence[Unit], place: int | None
    ) -> None:
        self._schema = schema
        self._boxes = boxes
        self._target = target
        self._units = units
        self._place = place
        self._positions = {unit.id: position for position, unit in enumerate(units)}
        self._unit = self._name("_unit")
        self._oid = f"(SELECT oid FROM pg_namespace WHERE nspname = {_literal(schema)})"

    def parts(self) -> Iterator[str]:
        """Every part in its order."""
        yield self._head()
        tables = [unit for unit in self._units if unit.kind == "versioned"]
        first = next(unit for unit in tables if unit.id == _UNIT_TABLE)
        exists = (
            f"SELECT 1 FROM pg_tables WHERE schemaname = {_literal(self._schema)} AND tablename = '_unit'"
        )
        yield self._when(f"NOT EXISTS ({exists})", first.text + self._insert(first))
        pending = ", ".join(f"({_literal(unit.id)})" for unit in tables if unit.version > 1)
        if pending:
            question = (
                f"SELECT 1 FROM (VALUES {pending}) AS s (id) WHERE s.id NOT IN (SELECT id FROM {self._unit})"
            )
            forget = f"UPDATE {self._unit} SET text_hash = '' WHERE id NOT LIKE 'tables/%';\n"
            yield self._when(f"EXISTS ({question})", self._fill(_CLEAR) + forget)
        for unit in tables:
            if unit is not first:
                yield self._when(self._is_missing(unit), unit.text + self._insert(unit))
            if unit.id == "tables/schema/version":
                yield self._refuse()
        yield self._state()
        yield self._routines()
        yield from self._set_place()
        yield "COMMIT;"

    def _head(self) -> str:
        name = _literal(self._schema)
        return "\n".join(
            [
                "-- Deploys pysqlbox; run it with psql. What is deployed already stays as it is.",
                "\\set ON_ERROR_STOP on",
                "BEGIN;",
                "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;",
                "SET LOCAL search_path = pg_catalog;",
                "SET LOCAL client_min_messages = warning;",
                "SET LOCAL statement_timeout = 0;",
                "SET LOCAL standard_conforming_strings = on;",
                f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s';",
                "DO $pysqlbox$ BEGIN",
                f"    PERFORM {NODE_LOCAL};",
                f"    PERFORM pg_advisory_xact_lock({lock_key(self._schema)});",
                "END; $pysqlbox$;",
                "-- Whoever waits for a table makes everybody wait behind it: rather end, and be run again.",
                f"SET LOCAL lock_timeout = '{LOCK_SECONDS * 1000:.0f}ms';",
                self._when(
                    f"NOT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = {name})",
                    f"CREATE SCHEMA {quote_identifier('postgres', self._schema)};\n",
                ),
            ]
        )

    def _refuse(self) -> str:
        """A newer schema, or boxes that the script was not rendered with."""
        newer = f"this schema is newer than version {self._target}, the last that this script knows"
        names = ", ".join(_literal(box.name) for box in self._boxes)
        other = "the schema has a box that this script lacks, render it with --box: %"
        box = f"(SELECT min(name || ':' || kind) FROM {self._name('_box')} WHERE name NOT IN ({names}))"
        return (
            "DO $pysqlbox$\nBEGIN\n"
            f"    IF (SELECT max(version) FROM {self._name('_version')}) > {self._target} THEN\n"
            f"        RAISE EXCEPTION '{newer}';\n    END IF;\n"
            f"    IF {box} IS NOT NULL THEN\n        RAISE EXCEPTION '{other}', {box};\n    END IF;\n"
            "END;\n$pysqlbox$;\n"
        )

    def _state(self) -> str:
        boxes = ", ".join(f"({_literal(box.name)}, {_literal(box.kind)})" for box in self._boxes)
        versions = ", ".join(f"({version})" for version in range(1, self._target + 1))
        return (
            f"INSERT INTO {self._name('_box')} (name, kind) VALUES {boxes} ON CONFLICT DO NOTHING;\n"
            f"INSERT INTO {self._name('_version')} (version) VALUES {versions} ON CONFLICT DO NOTHING;\n"
        )

    def _routines(self) -> str:
        """All of them or none: what a routine's signature was, a script cannot know."""
        routines = [unit for unit in self._units if unit.kind == "repeatable"]
        shipped = ",\n    ".join(f"({_literal(unit.id)}, '{unit.hash}')" for unit in routines)
        objects = self._fill(OBJECTS)
        replaceable = "u.id NOT LIKE 'tables/%' AND u.id NOT LIKE 'roles/%'"
        question = (
            f"EXISTS (WITH shipped (id, text_hash) AS (VALUES\n    {shipped}\n), object AS ({objects})\n"
            f"SELECT 1 FROM shipped AS s LEFT JOIN {self._unit} AS u USING (id)"
            " LEFT JOIN object AS o ON o.name = u.object_name\n"
            "WHERE u.id IS NULL OR u.text_hash <> s.text_hash"
            " OR (u.catalog_hash IS NOT NULL AND u.catalog_hash IS DISTINCT FROM o.hash)\n"
            f"UNION ALL SELECT 1 FROM {self._unit} AS u"
            f" WHERE {replaceable} AND NOT EXISTS (SELECT 1 FROM shipped AS s WHERE s.id = u.id))"
        )
        targets = [each.target for unit in routines for each in declarations(unit)]
        strangers = fill(_STRANGERS, targets=_texts(targets))
        body = [self._fill(_CLEAR), strangers, f"DELETE FROM {self._unit} AS u WHERE {replaceable};\n"]
        body += [unit.text + self._insert(unit) for unit in routines if unit.folder != "roles"]
        body.append(self._fill(_RESTORE))
        body += [unit.text + self._insert(unit) for unit in routines if unit.folder == "roles"]
        body.append(
            f"UPDATE {self._unit} AS u SET catalog_hash = o.hash FROM ({objects}) AS o"
            " WHERE o.name = u.object_name;\n"
        )
        return self._when(question, "\n".join(body))

    def _set_place(self) -> Iterator[str]:
        """Also without a number: boxes that were added to a schema that has one get it."""
        if any(unit.object_name == "_set_place" for unit in self._units):
            place = "NULL" if self._place is None else str(self._place)
            yield f"DO $pysqlbox$ BEGIN\n    PERFORM {self._name('_set_place')}({place});\nEND; $pysqlbox$;"

    def _insert(self, unit: Unit) -> str:
        name = _literal(unit.object_name) if has_object(unit) else "NULL"
        made = [each.target for each in declarations(unit)]
        resolved = fill(RESOLVE, targets=_texts(made))
        objects = f"(SELECT array_agg(o.object) FROM ({resolved}) AS o)" if made else "DEFAULT"
        return (
            f"\n;INSERT INTO {self._unit} (id, position, object_name, text_hash, objects)"
            f" VALUES ({_literal(unit.id)}, {self._positions[unit.id]}, {name}, '{unit.hash}', {objects})"
            " ON CONFLICT (id) DO UPDATE SET text_hash = excluded.text_hash, position = excluded.position,"
            " objects = excluded.objects;\n"
        )

    def _is_missing(self, unit: Unit) -> str:
        return f"NOT EXISTS (SELECT 1 FROM {self._unit} WHERE id = {_literal(unit.id)})"

    def _fill(self, template: str) -> str:
        return fill(template, oid=self._oid, unit=self._unit)

    def _name(self, name: str) -> str:
        return f"{quote_identifier('postgres', self._schema)}.{quote_identifier('postgres', name)}"

    @staticmethod
    def _when(question: str, body: str) -> str:
        return f"SELECT {question} AS pysqlbox_todo \\gset\n\\if :pysqlbox_todo\n{body}\\endif\n"


def _texts(items: Sequence[str]) -> str:
    """An array as an expression."""
    return f"ARRAY[{', '.join(_literal(item) for item in items)}]::text[]"


def _literal(text: str) -> str:
    return quote_literal("postgres", text)
