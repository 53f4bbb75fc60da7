"""PgQ, the event queue of Skytools, from Debian's package, and PgQue, which is made of it in plain SQL.

Consumers finish whole batches.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from benchmarks.queue.contenders import Connection, Contender, Step
from benchmarks.suite.contestants.base import Ability, Load, SqlContestant, connect, steps_of, text_of
from benchmarks.suite.contestants.floors import Statement
from benchmarks.suite.runner import UnavailableError
from benchmarks.suite.server import Lab

PAST_TICKS = 1000
PGQUE = "PYSQLBOX_BENCH_PGQUE"
"""A checkout of PgQue, of which sql/pgque.sql is installed: no package registry has it."""


def tick(schema: str) -> str:
    """What the daemon calls."""
    return f"SELECT {schema}.ticker('work')"


def force(schema: str) -> str:
    """Let the next tick be one, however little has come."""
    return f"SELECT {schema}.force_tick('work')"


@dataclass(frozen=True)
class Batches(Contender):
    """next_batch, get_batch_events, finish_batch."""

    schema: str = "pgq"

    def session(self, connection: Any) -> Step:
        """Three calls a batch. Where there is none, a tick is asked for, else the daemon's work."""
        cursor = connection.cursor(binary=True)
        following = f"SELECT {self.schema}.next_batch('work', 'consumer')".encode()
        events_of = f"SELECT * FROM {self.schema}.get_batch_events(%s)".encode()
        finish = f"SELECT {self.schema}.finish_batch(%s)".encode()

        def next_batch() -> int | None:
            batch: int | None = cursor.execute(following, prepare=True).fetchall()[0][0]
            return batch

        def step() -> int:
            batch, empty = next_batch(), -1
            if batch is None:
                cursor.execute(force(self.schema).encode(), prepare=True).fetchall()
                cursor.execute(tick(self.schema).encode(), prepare=True).fetchall()
                batch, empty = next_batch(), 0
            if batch is None:
                return 0
            events = cursor.execute(events_of, [batch], prepare=True).fetchall()
            cursor.execute(finish, [batch], prepare=True).fetchall()
            # An older tick may have nothing before it; if a new one has, that is the end.
            return len(events) or empty

        return step


@dataclass(frozen=True)
class CopyEvents(Contender):
    """COPY into the current event table."""

    payload: str
    records: int

    def session(self, connection: Any) -> Step:
        """The table is asked for in each transaction, as it may change."""
        cursor = connection.cursor()
        lines = f"now\torder\t{self.payload}\n" * self.records

        def step() -> int:
            with connection.transaction():
                table = cursor.execute("SELECT pgq.current_event_table('work')").fetchall()[0][0]
                with cursor.copy(f"COPY {table} (ev_time, ev_type, ev_data) FROM STDIN") as into:
                    into.write(lines)
            return self.records

        return step


class Pgq(SqlContestant):
    """Events between two ticks are a batch, which a consumer finishes as a whole."""

    name = "pgq"
    family = "pgq"
    schema = "pgq"
    source = (
        "functions' headers of 3.5: insert_event; COPY into current_event_table; ticker_max_count is the "
        "batch; one consumer, as each of several would get all events"
    )
    keeps = "keeps events until its tables rotate; acknowledges batches, not messages"
    can: ClassVar[frozenset[Ability]] = frozenset({"single", "bulk", "drain"})

    def prepare(self, lab: Lab) -> dict[str, str]:
        """The server must have it."""
        with psycopg.connect(lab.databases.server.conninfo, autocommit=True) as connection:
            row = connection.execute(
                "SELECT default_version FROM pg_available_extensions WHERE name = 'pgq'"
            ).fetchone()
            version = connection.execute("SHOW server_version").fetchall()[0][0].split(".")[0]
        if not row:
            raise UnavailableError(f"the server has no extension pgq (Debian: postgresql-{version}-pgq3)")
        return {"pgq": str(row[0])}

    def _place_name(self, load: Load | None) -> str:
        # Its batches are made as the backlog is.
        name = super()._place_name(load)
        return f"{name}_{load.batch}" if load else name

    def create(self, url: str) -> None:
        """Extension, queue and consumer, and ticks of the past.

        PgQ keeps those so that their table has statistics which make it use its index; on a new queue, its
        queries slow down with every tick until autovacuum comes.
        """
        with connect(url) as connection:
            self.install(connection)
            connection.execute(f"SELECT {self.schema}.create_queue('work')".encode())
            connection.execute("SET synchronous_commit = off")
            for _ in range(PAST_TICKS):
                connection.execute(force(self.schema).encode(), prepare=True)
                connection.execute(tick(self.schema).encode(), prepare=True)
            connection.execute(f"SELECT {self.schema}.register_consumer('work', 'consumer')".encode())

    def install(self, connection: Connection) -> None:
        """Its schema."""
        connection.execute("CREATE EXTENSION pgq")

    def fill(self, url: str, load: Load) -> None:
        """A batch is put in, a tick made, and again."""
        insert = (
            f"SELECT count(*) FROM (SELECT {self.schema}.insert_event('work', 'order', %s) "
            "FROM generate_series(%s::bigint, %s::bigint)) AS inserted"
        )
        payload = text_of(load.payload)
        with connect(url) as connection:
            connection.execute(
                f"SELECT {self.schema}.set_queue_config('work', 'ticker_max_count', %s)".encode(),
                [str(load.batch)],
            )
            for first, last in steps_of(Load(load.count, max(load.payload, 8_000_000 // load.batch))):
                connection.execute(insert.encode(), [payload, first, last], prepare=True)
                connection.execute(tick(self.schema).encode(), prepare=True)

    def single(self, url: str, payload: int) -> Contender:
        """insert_event."""
        insert = "SELECT pgq.insert_event('work', 'order', %s)"
        return Statement(self.name, url, insert, text_of(payload), 1)

    def bulk(self, url: str, payload: int, records: int) -> Contender:
        """COPY."""
        return CopyEvents(self.name, url, text_of(payload), records)

    def drain(self, url: str, batch: int) -> Contender:  # noqa: ARG002 - the ticks make the batches
        """Whole batches."""
        return Batches(self.name, url, self.schema)

    def maintain(self, url: str) -> None:
        """What its daemon calls."""
        with connect(url) as connection:
            for name, argument in connection.execute(
                f"SELECT func_name, func_arg FROM {self.schema}.maint_operations()".encode()
            ).fetchall():
                if name.lower().startswith("vacuum"):
                    connection.execute(f"VACUUM {argument}".encode())
                elif argument is None:
                    connection.execute(f"SELECT {name}()".encode())
                else:
                    connection.execute(f"SELECT {name}(%s)".encode(), [argument])


class Pgque(Pgq):
    """PgQ without its extension and its daemon."""

    name = "pgque"
    family = "pgque"
    schema = "pgque"
    source = (
        "README.md, docs/latency-and-tuning.md, docs/reference.md: send of text (its fast path), send_batch; "
        "ticker_max_count is the batch; one consumer, as each of several would get all events (cooperative "
        "consumers are experimental)"
    )

    def prepare(self, lab: Lab) -> dict[str, str]:  # noqa: ARG002 - any server will do
        """A checkout must be there."""
        folder = os.environ.get(PGQUE)
        if not folder:
            raise UnavailableError(f"{PGQUE} is not set: it names a checkout of github.com/NikolayS/pgque")
        if not _script().exists():
            raise UnavailableError(f"{PGQUE} names a folder without sql/pgque.sql")
        found = [line for line in _script().read_text().splitlines() if "return '" in line and "." in line]
        return {"pgque": found[0].split("'")[1] if found else "unknown"}

    def install(self, connection: Connection) -> None:
        """Its script; roles that other databases have already are no error."""
        connection.execute(_script().read_text().encode())

    def single(self, url: str, payload: int) -> Contender:
        """send."""
        insert = "SELECT pgque.send('work', 'order', %s::text)"
        return Statement(self.name, url, insert, text_of(payload), 1)

    def bulk(self, url: str, payload: int, records: int) -> Contender:
        """send_batch."""
        payloads = "{" + ",".join([text_of(payload)] * records) + "}"
        return Statement(
            self.name, url, "SELECT pgque.send_batch('work', 'order', %s::text[])", payloads, records
        )

    def maintain(self, url: str) -> None:
        """What its scheduler calls."""
        with connect(url) as connection:
            connection.execute("SELECT pgque.maint_retry_events()")
            connection.execute("SELECT pgque.maint()")
            connection.execute("SELECT pgque.maint_rotate_tables_step2()")


def _script() -> Path:
    return Path(os.environ.get(PGQUE, "")) / "sql" / "pgque.sql"
