"""The deployment as a script for sqlcmd: one transaction, each step behind a question to the catalog."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pysqlbox.deploy.deployment import has_object
from pysqlbox.deploy.names import Box, quote_identifier, quote_literal
from pysqlbox.deploy.render import Unit
from pysqlbox.deploy.store import LOCK_TIMEOUT_SECONDS, lock_name
from pysqlbox.deploy.store_mssql import HEAD, SESSION

_UNIT_TABLE = "tables/schema/unit"


def write(schema: str, boxes: Sequence[Box], target: int, units: Sequence[Unit]) -> str:
    """The script as text."""
    batches = _Writer(schema, boxes, target, units).batches()
    head = (
        "-- Deploys pysqlbox; run it with sqlcmd. What is deployed already stays as it is.\n:on error exit\n"
    )
    return head + "".join(f"{batch.rstrip()}\nGO\n" for batch in batches)


class _Writer:
    def __init__(self, schema: str, boxes: Sequence[Box], target: int, units: Sequence[Unit]) -> None:
        self._schema = schema
        self._boxes = boxes
        self._target = target
        self._units = units
        self._positions = {unit.id: position for position, unit in enumerate(units)}
        self._unit = self._name("_unit")

    def batches(self) -> Iterator[str]:
        """Every batch in its order."""
        yield SESSION.strip()
        yield self._begin()
        tables = [unit for unit in self._units if unit.kind == "versioned"]
        first = next(unit for unit in tables if unit.id == _UNIT_TABLE)
        yield self._when(
            f"OBJECT_ID({_literal(self._unit)}) IS NULL", [*_execute(first), self._insert(first)]
        )
        for unit in tables:
            if unit is first:
                continue
            missing = f"NOT EXISTS (SELECT 1 FROM {self._unit} WHERE id = '{unit.id}')"
            # Changed tables: every routine is created anew.
            forget = [f"UPDATE {self._unit} SET text_hash = '' WHERE id NOT LIKE 'tables/%';"]
            yield self._when(
                missing, [*_execute(unit), self._insert(unit), *(forget if unit.version > 1 else [])]
            )
            if unit.id == "tables/schema/version":
                yield self._refuse()
        yield self._state()
        for unit in self._units:
            if unit.kind == "repeatable":
                yield self._routine(unit)
        yield self._drop_stale()
        yield "COMMIT TRANSACTION;"

    def _begin(self) -> str:
        name = quote_identifier("mssql", self._schema)
        create = _literal(f"CREATE SCHEMA {name}")
        return (
            "BEGIN TRANSACTION;\n"
            "DECLARE @result int;\n"
            f"EXEC @result = sys.sp_getapplock @Resource = {_literal(lock_name(self._schema))},"
            " @LockMode = N'Exclusive', @LockOwner = N'Transaction',"
            f" @LockTimeout = {LOCK_TIMEOUT_SECONDS * 1000};\n"
            "IF @result < 0 THROW 51000, N'another deployment of this schema is still running', 1;\n"
            f"IF SCHEMA_ID({_literal(self._schema)}) IS NULL EXEC ({create});"
        )

    def _refuse(self) -> str:
        """A newer schema, or boxes that the script was not rendered with."""
        newer = f"this schema is newer than version {self._target}, the last that this script knows"
        names = ", ".join(f"'{box.name}'" for box in self._boxes)
        other = "the schema has a box that this script lacks, render it with --box"
        return (
            f"IF (SELECT MAX(version) FROM {self._name('_version')}) > {self._target}\n"
            f"    THROW 51000, N'{newer}', 1;\n"
            f"IF EXISTS (SELECT 1 FROM {self._name('_box')} WHERE name NOT IN ({names}))\n"
            f"    THROW 51000, N'{other}', 1;"
        )

    def _state(self) -> str:
        lines = []
        for box in self._boxes:
            table = self._name("_box")
            lines.append(
                f"INSERT INTO {table} (name, kind) SELECT '{box.name}', '{box.kind}'"
                f" WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE name = '{box.name}');"
            )
        for version in range(1, self._target + 1):
            table = self._name("_version")
            lines.append(
                f"INSERT INTO {table} (version) SELECT {version}"
                f" WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE version = {version});"
            )
        return "\n".join(lines)

    def _routine(self, unit: Unit) -> str:
        statements = list(_execute(unit, self._name(unit.object_name)))
        statements += [f"DELETE FROM {self._unit} WHERE id = '{unit.id}';", self._insert(unit)]
        if unit.folder != "roles":  # roles grant on what is there, so they follow every change
            statements.append(f"UPDATE {self._unit} SET text_hash = '' WHERE id LIKE 'roles/%';")
        unchanged = f"id = '{unit.id}' AND text_hash = '{unit.hash}'"
        if has_object(unit):
            unchanged += f" AND catalog_hash = {self._catalog_hash(unit)}"
        return self._when(f"NOT EXISTS (SELECT 1 FROM {self._unit} WHERE {unchanged})", statements)

    def _insert(self, unit: Unit) -> str:
        name = f"'{unit.object_name}'" if has_object(unit) else "NULL"
        digest = self._catalog_hash(unit) if has_object(unit) else "NULL"
        return (
            f"INSERT INTO {self._unit} (id, position, object_name, text_hash, catalog_hash)"
            f" SELECT '{unit.id}', {self._positions[unit.id]}, {name}, '{unit.hash}', {digest};"
        )

    def _catalog_hash(self, unit: Unit) -> str:
        target = _literal(self._name(unit.object_name))
        return (
            "(SELECT HASHBYTES('SHA2_256', m.definition) FROM sys.sql_modules AS m"
            f" WHERE m.object_id = OBJECT_ID({target}))"
        )

    def _drop_stale(self) -> str:
        """Routines that are no longer shipped, the last first."""
        shipped = ", ".join(f"'{unit.id}'" for unit in self._units)
        stale = f"u.id NOT LIKE 'tables/%' AND u.id NOT LIKE 'roles/%'\n    AND u.id NOT IN ({shipped})"
        names = ", ".join(f"'{unit.object_name}'" for unit in self._units if has_object(unit))
        kind = "CASE o.type WHEN 'P' THEN N'PROCEDURE ' WHEN 'V' THEN N'VIEW ' ELSE N'FUNCTION ' END"
        schema = _literal(quote_identifier("mssql", self._schema) + ".")
        return (
            "DECLARE @drop nvarchar(max);\n"
            f"SELECT @drop = STRING_AGG(CAST(N'DROP ' + {kind} + {schema} + QUOTENAME(o.name) + N';'"
            " AS nvarchar(max)), N' ') WITHIN GROUP (ORDER BY u.position DESC)\n"
            f"FROM {self._unit} AS u JOIN sys.objects AS o ON o.name = u.object_name\n"
            f"    AND o.schema_id = SCHEMA_ID({_literal(self._schema)})\nWHERE {stale}\n"
            f"    AND u.object_name NOT IN ({names});\n"
            "IF @drop IS NOT NULL EXEC sys.sp_executesql @drop;\n"
            f"DELETE u FROM {self._unit} AS u WHERE {stale};"
        )

    def _name(self, name: str) -> str:
        return f"{quote_identifier('mssql', self._schema)}.{quote_identifier('mssql', name)}"

    @staticmethod
    def _when(question: str, statements: Sequence[str]) -> str:
        body = "\n".join(statements)
        return f"IF {question}\nBEGIN\n{body}\nEND;"


def _execute(unit: Unit, target: str = "") -> Iterator[str]:
    """The batches of a unit as dynamic SQL, since CREATE must be the first statement of its batch."""
    for batch in unit.batches:
        head = HEAD.search(batch)
        if head is None:
            yield f"EXEC ({_literal(batch)});"
            continue
        kind = head["kind"].upper()
        exists = f"OBJECT_ID({_literal(target)})"
        # Babelfish alters no views, and no procedure to other parameter names.
        babelfish = f"CAST(SERVERPROPERTY('Babelfish') AS int) = 1 AND {exists} IS NOT NULL"
        yield f"IF {babelfish} DROP {kind} {target};"
        variable = "@" + re.sub(r"\W", "_", unit.object_name)
        yield (
            f"DECLARE {variable} nvarchar(max) = CAST({_literal(batch[: head.start()])} AS nvarchar(max))"
            f" + CASE WHEN {exists} IS NULL THEN N'CREATE' ELSE N'ALTER' END"
            f" + CAST({_literal(f' {kind}' + batch[head.end() :])} AS nvarchar(max));\n"
            f"EXEC sys.sp_executesql {variable};"
        )


def _literal(text: str) -> str:
    return quote_literal("mssql", text)
