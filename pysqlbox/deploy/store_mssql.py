"""The catalog and the deployment's state in SQL Server and Babelfish."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from pysqlbox.deploy.render import Unit
from pysqlbox.deploy.store import LOCK_TIMEOUT_SECONDS, NotReplaceable, Record, lock_name
from pysqlbox.drivers import mssql
from pysqlbox.errors import DatabaseUnavailable
from pysqlbox.names import Dialect, NamedBox, quote_identifier

#: What filtered indexes and JSON need when tables and procedures are created; sqlcmd and FreeTDS differ.
SESSION = """
SET QUOTED_IDENTIFIER, ANSI_NULLS, ANSI_PADDING, ANSI_WARNINGS, ARITHABORT, CONCAT_NULL_YIELDS_NULL ON;
SET NUMERIC_ROUNDABORT OFF;
SET NOCOUNT, XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
"""

#: The words that Babelfish does not know, at the start of a routine.
HEAD = re.compile(r"^[ \t]*CREATE[ \t]+OR[ \t]+ALTER[ \t]+(?P<kind>\w+)", re.IGNORECASE | re.MULTILINE)
_DROP_KINDS = {
    "P": "PROCEDURE",
    "V": "VIEW",
    "FN": "FUNCTION",
    "IF": "FUNCTION",
    "TF": "FUNCTION",
    "TR": "TRIGGER",
}


class MssqlStore:
    """State and catalog of one schema, inside the transaction that is open on the connection."""

    dialect: Dialect = "mssql"

    def __init__(self, connection: Any, schema: str) -> None:
        self.connection = connection
        self.schema = schema
        self._found: dict[str, str] | None = None

    def begin(self) -> None:
        """Set what the created objects remember of their session; and a deployment may take its time."""
        self.connection.timeout = 0
        mssql.run_batch(self.connection, SESSION)

    def lock(self) -> None:
        """An application lock of the transaction: a crash lets go of it."""
        batch = (
            "DECLARE @result int; EXEC @result = sys.sp_getapplock @Resource = ?, @LockMode = N'Exclusive',"
            f" @LockOwner = N'Transaction', @LockTimeout = {LOCK_TIMEOUT_SECONDS * 1000};"
            " SELECT @result AS result;"
        )
        if self._execute(batch, lock_name(self.schema))[0][0] < 0:
            raise DatabaseUnavailable(
                f"another deployment of this schema is still running after {LOCK_TIMEOUT_SECONDS} seconds:"
                " wait for it, or end its session, and try again"
            )

    def session(self) -> int:
        """What the server calls this session."""
        return int(self._execute("SELECT @@SPID")[0][0])

    def limit_waits(self, seconds: float) -> None:
        """Wait for any other lock no longer than this; it ends with the connection."""
        mssql.run_batch(self.connection, f"SET LOCK_TIMEOUT {seconds * 1000:.0f};")

    def schema_exists(self) -> bool:
        """Whether the schema is there."""
        return bool(self._execute("SELECT 1 FROM sys.schemas WHERE name = ?", self.schema))

    def create_schema(self) -> None:
        """Create the schema."""
        mssql.run_batch(self.connection, f"CREATE SCHEMA {quote_identifier('mssql', self.schema)}")

    def has_state(self) -> bool:
        """Whether this schema was deployed by pysqlbox."""
        query = (
            "SELECT 1 FROM sys.tables AS t JOIN sys.schemas AS s ON s.schema_id = t.schema_id"
            " WHERE s.name = ? AND t.name = N'_unit'"
        )
        return bool(self._execute(query, self.schema))

    def version(self) -> int:
        """The highest version of the tables, 0 for none."""
        return int(self._execute(f"SELECT COALESCE(MAX(version), 0) FROM {self._table('_version')}")[0][0])

    def boxes(self) -> list[NamedBox]:
        """The boxes this schema was deployed with."""
        rows = self._execute(f"SELECT name, kind FROM {self._table('_box')} ORDER BY name")
        return [NamedBox(name, kind) for name, kind in rows]

    def records(self) -> list[Record]:
        """The deployed units in the order of their deployment."""
        columns = "id, position, object_name, text_hash, catalog_hash"
        rows = self._execute(f"SELECT {columns} FROM {self._table('_unit')} ORDER BY position, id")
        return [
            Record(identity, position, name, text, None if digest is None else bytes(digest))
            for identity, position, name, text, digest in rows
        ]

    def objects(self) -> dict[str, bytes]:
        """The routines and views the catalog holds, each with a hash of its definition."""
        query = (
            "SELECT o.name, HASHBYTES('SHA2_256', m.definition) AS hash FROM sys.sql_modules AS m"
            " JOIN sys.objects AS o ON o.object_id = m.object_id"
            " JOIN sys.schemas AS s ON s.schema_id = o.schema_id"
            " WHERE s.name = ?"
        )
        # A definition is null for whoever may not see it: then it is there, whatever it says.
        return {str(name): bytes(digest or b"") for name, digest in self._execute(query, self.schema)}

    def strangers(self, units: Sequence[Unit], known: Collection[str]) -> list[str]:
        """Routines and views of the same name: a schema has each name once."""
        return sorted({unit.object_name for unit in units} & self._kinds().keys() - set(known))

    def run(self, units: Sequence[Unit]) -> None:
        """Execute units batch by batch."""
        for unit in units:
            for batch in unit.batches:
                mssql.run_batch(
                    self.connection, self._without_or_alter(batch, unit) if self.is_babelfish else batch
                )

    def create(self, units: Sequence[Unit], stale: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Create or alter units, and drop what is stale."""
        self._found = None
        if self.is_babelfish and any(
            unit.folder.startswith("views/") and unit.object_name in self._kinds() for unit in units
        ):
            raise NotReplaceable("Babelfish cannot alter a view, nor drop one that another needs")
        self.run(units)
        created = {unit.object_name for unit in units}
        self.clear([name for name in stale if name not in created])
        return {}

    def finish(self, records: Sequence[Record], roles: Sequence[Unit]) -> None:
        """Save the records, which the roles go by, then grant, then note what the catalog now holds."""
        if roles:
            self.save(records)
            self.run(roles)
        objects = self.objects()
        self.save(replace(row, catalog_hash=objects.get(row.object_name or "")) for row in records)

    def clear(self, names: Sequence[str]) -> None:
        """Drop objects, the last first."""
        kinds = self._kinds()
        for name in reversed(names):
            if name in kinds:
                mssql.run_batch(self.connection, f"DROP {kinds.pop(name)} {self._table(name)}")

    def clear_for_tables(self, names: Sequence[str]) -> None:
        """SQL Server lets tables change below a view; Babelfish, a PostgreSQL inside, does not."""
        if self.is_babelfish:
            kinds = self._kinds()
            self.clear([name for name in names if kinds.get(name) != "PROCEDURE"])

    def place(self) -> int | None:
        """The place that this schema was given, if any."""
        place = self._execute(f"SELECT MAX(place) FROM {self._table('_place')}")[0][0]
        return None if place is None else int(place)

    def set_place(self, place: int) -> None:
        """Give the schema its place, and every box that has not got it yet."""
        mssql.run_batch(self.connection, f"EXEC {self._table('_set_place')} @place = {place:d}")

    def add_version(self, version: int) -> None:
        """Record a version of the tables."""
        table = self._table("_version")
        self._execute(
            f"INSERT INTO {table} (version)"
            f" SELECT ? WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE version = ?)",
            version,
            version,
        )

    def add_boxes(self, boxes: Iterable[NamedBox]) -> None:
        """Record boxes."""
        known = set(self.boxes())
        for box in boxes:
            if box not in known:
                self._execute(
                    f"INSERT INTO {self._table('_box')} (name, kind) VALUES (?, ?)", box.name, box.kind
                )

    def save(self, records: Iterable[Record]) -> None:
        """Record units, in place of earlier records of them."""
        rows = list(records)
        self.forget(row.id for row in rows)
        for start in range(0, len(rows), 100):
            values = ", ".join(self._values(row) for row in rows[start : start + 100])
            columns = "(id, position, object_name, text_hash, catalog_hash)"
            mssql.run_batch(self.connection, f"INSERT INTO {self._table('_unit')} {columns} VALUES {values}")

    def forget(self, ids: Iterable[str]) -> None:
        """Remove records."""
        names = list(ids)
        for start in range(0, len(names), 100):
            listed = ", ".join(f"'{name}'" for name in names[start : start + 100])
            mssql.run_batch(self.connection, f"DELETE FROM {self._table('_unit')} WHERE id IN ({listed})")

    @cached_property
    def is_babelfish(self) -> bool:
        """Whether the server is Babelfish, which has no CREATE OR ALTER."""
        return bool(self._execute("SELECT CAST(SERVERPROPERTY('Babelfish') AS int)")[0][0])

    def _without_or_alter(self, batch: str, unit: Unit) -> str:
        """CREATE, after a DROP of what is there: ALTER takes no new parameter names, and no views."""
        head = HEAD.search(batch)
        if head is None:
            return batch
        self.clear([unit.object_name])
        return f"{batch[: head.start()]}CREATE {head['kind']}{batch[head.end() :]}"

    def _kinds(self) -> dict[str, str]:
        """What DROP calls each routine and view that was there when the creation of routines began."""
        if self._found is not None:
            return self._found
        query = (
            "SELECT o.name, o.type FROM sys.objects AS o"
            " JOIN sys.schemas AS s ON s.schema_id = o.schema_id WHERE s.name = ?"
        )
        found = ((str(name), str(kind).strip()) for name, kind in self._execute(query, self.schema))
        self._found = {name: _DROP_KINDS[kind] for name, kind in found if kind in _DROP_KINDS}
        return self._found

    @staticmethod
    def _values(row: Record) -> str:
        """A record as literals; ids, names and hashes are ours and hold no quotes."""
        name = "NULL" if row.object_name is None else f"'{row.object_name}'"
        digest = "NULL" if row.catalog_hash is None else f"0x{row.catalog_hash.hex()}"
        return f"('{row.id}', {row.position}, {name}, '{row.text_hash}', {digest})"

    def _table(self, name: str) -> str:
        return f"{quote_identifier('mssql', self.schema)}.{quote_identifier('mssql', name)}"

    def _execute(self, query: str, *values: object) -> list[Any]:
        return mssql.query(self.connection, query, *values)
