"""The worker's connection to PostgreSQL: prepared statements, binary results, loaders registered once."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import psycopg
from psycopg import sql
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format

from pysqlbox.drivers import Target, postgres
from pysqlbox.errors import PysqlboxError
from pysqlbox.worker.database import Calls
from pysqlbox.worker.fast_messages import fast_messages
from pysqlbox.worker.outcomes import Outcomes

if TYPE_CHECKING:
    from pysqlbox.boxes import AnyBox

__all__ = ["PostgresConnection"]

#: The answers of a pooler that does not carry prepared statements along, and after routines have changed.
_NOT_PREPARED = {"26000", "42P05", "0A000"}

#: The tables of boxes whose statistics tell of work and of schedules, by name, one by one: a join would read
#: the whole catalog, which is large where boxes are many.
TABLES = """
    SELECT b.position::int4, t.name, to_regclass(format('%%I.%%I', b.schema, b.name || '_' || t.name))::oid
    FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS b (schema, name, position)
    CROSS JOIN (
        VALUES ('ready'), ('scheduled'), ('group_member'), ('lease'), ('paused'), ('schedules')
    ) AS t (name)
"""
#: What comes into boxes, and topics that are handed out again; and what was done to schedules. Statistics are
#: for everybody to read.
WRITTEN = """
    SELECT
        t.position,
        coalesce(sum(CASE t.name
            WHEN 'paused' THEN pg_stat_get_tuples_deleted(t.oid)
            ELSE pg_stat_get_tuples_inserted(t.oid)
        END) FILTER (WHERE t.name <> 'schedules'), 0)::bigint,
        coalesce(sum(
            pg_stat_get_tuples_inserted(t.oid) + pg_stat_get_tuples_updated(t.oid)
            + pg_stat_get_tuples_deleted(t.oid)
        ) FILTER (WHERE t.name = 'schedules'), 0)::bigint
    FROM unnest(%s::int4[], %s::text[], %s::oid[]) AS t (position, name, oid)
    GROUP BY t.position
"""
#: Every message that comes into a box, or back, has drawn a number, and whoever has drawn one holds a lock
#: until his transaction ends. That shows at once, whatever statistics tell, to who may read the sequence.
SEQUENCES = """
    SELECT b.position::int4, s.oid
    FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS b (schema, name, position)
    CROSS JOIN LATERAL (
        SELECT to_regclass(format('%%I.%%I', b.schema, '_' || b.name || '_ids'))::oid AS oid
    ) AS s
    WHERE has_sequence_privilege(s.oid, 'USAGE, SELECT')
        AND current_setting('server_version_num')::int4 >= 150000
        AND current_setting('track_counts') = 'on'
"""
DRAWN = """
    SELECT s.oid, coalesce(pg_sequence_last_value(s.oid), 0)
    FROM unnest(%s::oid[]) AS s (oid)
    WHERE has_sequence_privilege(s.oid, 'USAGE, SELECT')
"""
DRAWING = """
    SELECT DISTINCT l.relation
    FROM pg_locks AS l
    WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.pid IS DISTINCT FROM pg_backend_pid()
        AND l.relation = ANY (%s::oid[])
        AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
"""
#: A name has 63 bytes at most.
ADD_TO_NAME = """
    SELECT set_config(
        'application_name', left(current_setting('application_name'), 63 - length(%s)) || %s::text, false
    )
"""
#: How many sequences are read in one statement, which locks them all until it ends.
SEQUENCES_AT_ONCE = 100
#: A table of a box: which box, which table, and its oid. Of sequences: by oid which box.
#: The columns are as the server reads them: they are thousands, and made once for many questions.
Tables = tuple[list[str], str, str, str]
Sequences = dict[int, str]


class _HeadersLoader(Loader):
    """jsonb as Python values: only headers have that type, and few messages have headers."""

    format = Format.BINARY

    def load(self, data: Buffer) -> object:
        return json.loads(bytes(data[1:]))  # the first byte is the version of the format


def _array(values: Iterable[object]) -> str:
    """Numbers, or names without anything that would have to be quoted, as an array is written."""
    return "{" + ",".join(map(str, values)) + "}"


class PostgresConnection:
    """One connection with its prepared statements; opened when first used, and again when it was lost."""

    def __init__(self, target: Target, schema: str, calls: Calls) -> None:
        self.calls = calls
        self.schema = schema
        self._target = target
        self._connection: psycopg.Connection[Any] | None = None
        self._cursor: psycopg.Cursor[Any] | None = None
        self._queries: dict[tuple[str, str], tuple[sql.Composed, sql.Composed]] = {}
        self._prepare = True

    def settle(
        self,
        box: AnyBox,
        owner: uuid.UUID,
        outcomes: Outcomes,
        claim: int,
        lease_seconds: int,
        topics: Sequence[str] | None,
    ) -> list[Any]:
        """Settle and claim in one round trip; the claimed messages."""
        key = box.deployment.schema, box.name
        claim_query, settle_query = self._queries.get(key) or self._compose(*key)
        wanted = None if topics is None else list(topics)
        if outcomes:
            rows = self._run(settle_query, (owner, outcomes.as_json(), claim, lease_seconds, wanted))
        elif claim:
            rows = self._run(claim_query, (owner, lease_seconds, claim, wanted))
        else:
            return []
        return fast_messages(box.message_type, rows)

    def call(self, routine: str, arguments: Mapping[str, object]) -> list[dict[str, object]]:
        """Any other routine, by the driver's ordinary call."""
        try:
            with self.calls.one():
                return postgres.call(self._connected(), self.schema, routine, arguments)
        except PysqlboxError:
            self.close()
            raise

    def has_routine(self, routine: str) -> bool:
        """Whether the schema has a routine of this name."""
        try:
            with self.calls.one():
                return postgres.has_routine(self._connected(), self.schema, routine)
        except PysqlboxError:
            self.close()
            raise

    @contextlib.contextmanager
    def limited_locks(self, seconds: float) -> Iterator[None]:
        """Let no call wait longer than that for somebody's lock meanwhile.

        The calls are one transaction, so that a pooler hands the limit on to nobody.
        """
        self._tell(f"BEGIN; SET LOCAL lock_timeout = {int(seconds * 1000)}")
        connection = self._connection
        try:
            yield
        finally:
            if self._connection is connection:
                self._tell("COMMIT")

    def _tell(self, text: str) -> None:
        try:
            with self.calls.one():
                self._connected().execute(text.encode(), prepare=False)
        except psycopg.Error as error:
            self.close()
            raise postgres.map_error(error) from error

    def database_name(self) -> str:
        """What the server calls the database: a pooler may have another name for it."""
        try:
            with self.calls.one():
                row = self._connected().execute("SELECT pg_catalog.current_database()").fetchone()
        except psycopg.Error as error:
            self.close()
            raise postgres.map_error(error) from error
        return str(row[0]) if row else ""

    @property
    def process(self) -> int | None:
        """The number of the server's process, while there is a connection."""
        connection = self._connection
        return None if connection is None or connection.closed else connection.info.backend_pid

    def listen(self, text: str, heard: Callable[[psycopg.Notify], None] | None) -> psycopg.Connection[Any]:
        """Run LISTEN commands; the driver's connection. ``heard`` is told of what comes while calls go on."""
        try:
            with self.calls.one():
                connection = self._connected()
                if heard is not None:
                    connection.add_notify_handler(heard)
                connection.execute(text.encode(), prepare=False)
                return connection
        except psycopg.Error as error:
            self.close()
            raise postgres.map_error(error) from error

    def add_to_name(self, text: str) -> None:
        """Add something to the name by which the server shows the connection."""
        self._rows(ADD_TO_NAME, (text, text))

    def setting(self, box: AnyBox, name: str) -> str | None:
        """A setting of a box; None where this user may not read it."""
        query = sql.SQL("SELECT value FROM {} WHERE name = %s").format(
            postgres.quoted(box.deployment.schema, f"{box.name}_settings")
        )
        try:
            with self.calls.one():
                row = self._connected().execute(query, (name,)).fetchone()
        except psycopg.errors.InsufficientPrivilege:
            return None
        except psycopg.Error as error:
            self.close()
            raise postgres.map_error(error) from error
        return None if row is None else str(row[0])

    def tables(self, boxes: Mapping[str, tuple[str, str]]) -> Tables:
        """The tables whose statistics written() reads; ``boxes``: schema and name of each, by its key."""
        names = list(boxes.values())
        rows = self._rows(TABLES, ([schema for schema, _ in names], [name for _, name in names]))
        found = [row for row in rows if row[2] is not None]
        positions, tables, oids = (_array(row[column] for row in found) for column in range(3))
        return list(boxes), positions, tables, oids

    def written(self, tables: Tables) -> dict[str, tuple[int, int]]:
        """By box, how many rows were ever written into the tables where work may wait, and how often its
        schedules were changed, as statistics tell.
        """
        keys, *columns = tables
        return {keys[row[0] - 1]: (row[1], row[2]) for row in self._rows(WRITTEN, columns)}

    def sequences(self, boxes: Mapping[str, tuple[str, str]]) -> Sequences:
        """The sequences for drawn(): of boxes where these and statistics leave nothing untold for long."""
        keys, names = list(boxes), list(boxes.values())
        rows = self._rows(SEQUENCES, ([schema for schema, _ in names], [name for _, name in names]))
        return {row[1]: keys[row[0] - 1] for row in rows}

    def drawn(self, sequences: Sequences, lock_seconds: float) -> dict[str, int]:
        """By box, the last number that was drawn for a message, committed or not."""
        oids = list(sequences)
        parts = [oids[first : first + SEQUENCES_AT_ONCE] for first in range(0, len(oids), SEQUENCES_AT_ONCE)]
        return {
            sequences[row[0]]: row[1]
            for part in parts
            for row in self._rows_of_locked(DRAWN, _array(part), lock_seconds)
        }

    def drawing(self, sequences: Sequences, boxes: set[str], lock_seconds: float) -> set[str]:
        """Those of the boxes for which transactions have drawn numbers that have not ended yet."""
        oids = _array(oid for oid, box in sequences.items() if box in boxes)
        return {sequences[row[0]] for row in self._rows_of_locked(DRAWING, oids, lock_seconds)}

    def _rows(self, text: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        try:
            with self.calls.one():
                return self._execute(self._connected().cursor(), text.encode(), values).fetchall()
        except psycopg.Error as error:
            self.close()
            raise postgres.map_error(error) from error

    def _rows_of_locked(self, text: str, oids: str, lock_seconds: float) -> list[tuple[Any, ...]]:
        """Rows about these oids, waiting no longer than that for a lock: one text, so one transaction."""
        limit, about = f"SET LOCAL lock_timeout = {int(lock_seconds * 1000)}", text.replace("%s", f"'{oids}'")
        try:
            with self.calls.one():
                cursor = self._connected().execute(f"{limit}; {about}".encode(), prepare=False)
                cursor.nextset()
                return cursor.fetchall()
        except psycopg.Error as error:
            self.close()
            raise postgres.map_error(error) from error

    def notify(self, channel: str) -> None:
        """Notify a channel."""
        try:
            with self.calls.one():
                self._connected().execute("SELECT pg_notify(%s, '')", [channel], prepare=False)
        except psycopg.Error as error:
            self.close()
            raise postgres.map_error(error) from error

    def close(self) -> None:
        """Close the connection, if one is open."""
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    def _compose(self, schema: str, name: str) -> tuple[sql.Composed, sql.Composed]:
        def query(routine: str, casts: str) -> sql.Composed:
            return sql.SQL("SELECT * FROM {}(" + casts + ")").format(
                postgres.quoted(schema, f"{name}_{routine}")
            )

        found = (
            query("claim", "%s::uuid, %s::integer, %s::integer, %s::text[]"),
            query("settle", "%s::uuid, %s::jsonb, %s::integer, %s::integer, %s::text[]"),
        )
        self._queries[schema, name] = found
        return found

    def _run(self, query: sql.Composed, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        calls = self.calls
        calls.began_at, calls.lost = time.monotonic(), False
        try:
            self._connected()
            cursor = cast("psycopg.Cursor[Any]", self._cursor)
            return self._execute(cursor, query, values, prepare=True).fetchall()
        except psycopg.Error as error:
            calls.lost = self._connection is not None and postgres.is_lost(self._connection, error)
            self.close()
            raise postgres.map_error(error) from error
        finally:
            calls.began_at, calls.reported = 0.0, False

    def _execute(
        self,
        cursor: psycopg.Cursor[Any],
        query: bytes | sql.Composed,
        values: Sequence[object],
        *,
        prepare: bool | None = None,
    ) -> psycopg.Cursor[Any]:
        """Run a statement, outside of a transaction: one refused as not prepared is sent again as it is."""
        try:
            return cursor.execute(query, values, prepare=prepare if self._prepare else False)
        except psycopg.Error as error:
            if error.sqlstate not in _NOT_PREPARED or not self._prepare:
                raise
            self._prepare = False
            cursor.connection.prepare_threshold = None
            return cursor.execute(query, values, prepare=False)

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            connection = postgres.connect(
                self._target,
                autocommit=True,
                connect_timeout=self.calls.connect_seconds,
                overdue=self.calls.overdue,
            )
            connection.prepare_threshold = 5 if self._prepare else None
            try:
                connection.execute("SET TimeZone = 'UTC'")
            except psycopg.Error as error:
                connection.close()
                raise postgres.map_error(error) from error
            connection.adapters.register_loader("jsonb", _HeadersLoader)
            self._connection = connection
            self._cursor = connection.cursor(binary=True)
        return self._connection
