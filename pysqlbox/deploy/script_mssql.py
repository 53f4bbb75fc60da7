"""The deployment as a script for sqlcmd: one transaction, each step behind a question to the catalog.

SQL Server Management Studio, without its SQLCMD mode, does not know `:on error exit`: it goes on with the
next batch after an error, when XACT_ABORT may have ended the transaction, or when a batch that could not be
compiled has left it open. So every batch undoes all if it fails, and begins by asking whether the transaction
is still there and the batch before was done; a temporary table, which goes with the transaction, says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pysqlbox.deploy.fitness import COMPATIBILITY_LEVEL
from pysqlbox.deploy.plan import has_object
from pysqlbox.deploy.render import Unit
from pysqlbox.deploy.store import LOCK_TIMEOUT_SECONDS, lock_name
from pysqlbox.deploy.store_mssql import HEAD, SESSION
from pysqlbox.names import NamedBox, quote_identifier, quote_literal

_UNIT_TABLE = "tables/schema/unit"
_STEP = "#pysqlbox_script"
_IS_RUNNING = f"@@TRANCOUNT > 0 AND OBJECT_ID(N'tempdb..{_STEP}') IS NOT NULL"
_HEAD = """\
-- Deploys pysqlbox, whole or not at all: with sqlcmd, or in Management Studio with or without SQLCMD mode.
-- What is deployed already stays as it is.
-- Whoever calls the routines needs these settings, which ODBC, OLE DB, .NET and JDBC have by themselves and
-- DB-Library has not: SET ANSI_NULLS, QUOTED_IDENTIFIER, ANSI_PADDING, ANSI_WARNINGS, ARITHABORT,
-- CONCAT_NULL_YIELDS_NULL ON; SET NUMERIC_ROUNDABORT OFF. Without them writing fails with error 1934.
:on error exit
GO
"""


def write(
    schema: str,
    boxes: Sequence[NamedBox],
    target: int,
    units: Sequence[Unit],
    *,
    allow_unfit_database: bool = False,
    place: int | None = None,
) -> str:
    """The script as text."""
    writer = _Writer(schema, boxes, target, units, allow_unfit_database=allow_unfit_database, place=place)
    return _HEAD + "".join(f"{batch.rstrip()}\nGO\n" for batch in writer.script())


class _Writer:
    def __init__(
        self,
        schema: str,
        boxes: Sequence[NamedBox],
        target: int,
        units: Sequence[Unit],
        *,
        allow_unfit_database: bool = False,
        place: int | None = None,
    ) -> None:
        self._schema = schema
        self._boxes = boxes
        self._target = target
        self._units = units
        self._place = place
        self._positions = {unit.id: position for position, unit in enumerate(units)}
        self._unit = self._name("_unit")
        self._is_any_database_fit = allow_unfit_database

    def script(self) -> Iterator[str]:
        """Every batch in its order, each guarded."""
        yield f"{SESSION.strip()}\nSET IMPLICIT_TRANSACTIONS OFF;"
        yield self._begin()
        number = 1
        for batch in self._batches():
            yield _guarded(batch, number)
            number += 1
        end = f"DROP TABLE {_STEP};\nCOMMIT TRANSACTION;"
        failed = "RAISERROR(N'nothing was deployed, the first error says why', 16, 1);"
        yield f"{_guarded(end, number, is_last=True)}\nELSE\n{failed}"

    def _batches(self) -> Iterator[str]:
        """What is done within the transaction."""
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
        if any(unit.object_name == "_set_place" for unit in self._units):
            # Also without a number: boxes that were added to a schema that has one get it.
            place = "NULL" if self._place is None else str(self._place)
            yield f"EXEC {self._name('_set_place')} @place = {place};"

    def _begin(self) -> str:
        name = quote_identifier("mssql", self._schema)
        create = _literal(f"CREATE SCHEMA {name}")
        body = (
            "BEGIN TRANSACTION;\n"
            f"CREATE TABLE {_STEP} (step int NOT NULL);\n"
            f"INSERT INTO {_STEP} (step) VALUES (1);\n"
            "DECLARE @result int;\n"
            f"EXEC @result = sys.sp_getapplock @Resource = {_literal(lock_name(self._schema))},"
            " @LockMode = N'Exclusive', @LockOwner = N'Transaction',"
            f" @LockTimeout = {LOCK_TIMEOUT_SECONDS * 1000};\n"
            "IF @result < 0 THROW 51000, N'another deployment of this schema is still running', 1;\n"
            f"{self._require_fitness()}"
            f"IF SCHEMA_ID({_literal(self._schema)}) IS NULL EXEC ({create});"
        )
        # RAISERROR, for it leaves the open transaction to whoever began it.
        open_already = "RAISERROR(N'a transaction is open: commit it or roll it back first', 16, 1);"
        return f"IF @@TRANCOUNT > 0\n{open_already}\nELSE\n{_undone_on_error(body)}"

    def _require_fitness(self) -> str:
        """The same question as migrate's; render --allow-unfit-database leaves it out."""
        if self._is_any_database_fit:
            return ""
        alter = "run ALTER DATABASE CURRENT SET"
        versioned = (
            f"READ_COMMITTED_SNAPSHOT is off: {alter} READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE"
        )
        level = f"the compatibility level is too low: {alter} COMPATIBILITY_LEVEL = {COMPATIBILITY_LEVEL}"
        database = "FROM sys.databases WHERE database_id = DB_ID() AND SERVERPROPERTY('Babelfish') IS NULL"
        return (
            f"IF EXISTS (SELECT 1 {database} AND is_read_committed_snapshot_on = 0)\n"
            f"    THROW 51000, N'{versioned}', 1;\n"
            f"IF EXISTS (SELECT 1 {database} AND compatibility_level < {COMPATIBILITY_LEVEL})\n"
            f"    THROW 51000, N'{level}', 1;\n"
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
            # The catalog speaks the database's collation, our columns their own.
            f"FROM {self._unit} AS u JOIN sys.objects AS o\n"
            f"    ON o.schema_id = SCHEMA_ID({_literal(self._schema)})"
            f" AND o.name COLLATE Latin1_General_BIN2 = u.object_name\nWHERE {stale}\n"
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


def _guarded(batch: str, number: int, *, is_last: bool = False) -> str:
    """A batch that runs if everything before it has been done and is still there."""
    check = (
        f"IF NOT EXISTS (SELECT 1 FROM {_STEP} WHERE step = {number})\n"
        "    THROW 51000, N'a batch before this one was not run', 1;\n"
    )
    done = "" if is_last else f"\nUPDATE {_STEP} SET step = {number + 1};"
    return f"IF {_IS_RUNNING}\n{_undone_on_error(f'{check}{batch.rstrip()}{done}')}"


def _undone_on_error(body: str) -> str:
    """A TRY block, after whose error nothing of the deployment is left."""
    return (
        f"BEGIN TRY\n{body}\nEND TRY\n"
        "BEGIN CATCH\nIF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;\nTHROW;\nEND CATCH;"
    )


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
