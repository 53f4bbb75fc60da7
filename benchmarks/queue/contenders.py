"""Who is measured: each contender opens a session on a connection and does one step of its loop at a time."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]
Step = Callable[[], int]
"""One step of the loop; answers how many messages it moved, 0 if there are none, -1 for other work."""

LEASE_SECONDS = 30
"""The default; nothing here holds a lease for so long."""

PAYLOAD = "x" * 200

COLUMNS = (
    "id, message_id, topic, payload, correlation_id, group_id, priority, headers, attempt, created_at, "
    "due_at, expires_at, last_error"
)


def id_array(rows: Iterable[tuple[Any, ...]]) -> str:
    """The ids of claimed rows as the text of a bigint[]: the same parameter for every contender."""
    return "{" + ",".join([str(row[0]) for row in rows]) + "}"


@dataclass(frozen=True)
class Contender(ABC):
    """One way to do the work. `conninfo`: the database it does it in."""

    name: str
    conninfo: str

    def connect(self) -> Any:
        """A connection in autocommit; every contender gets the planner settings that suit it best."""
        options = "-c plan_cache_mode=force_generic_plan -c jit=off"
        return psycopg.connect(self.conninfo, autocommit=True, options=options)

    def backend(self, connection: Any) -> int | None:
        """The server's process behind it, if there is one."""
        process: int = connection.info.backend_pid
        return process

    @abstractmethod
    def session(self, connection: Any) -> Step:
        """Prepare what the loop needs and answer its step."""


@dataclass(frozen=True)
class ClaimAck(Contender):
    """Through the routines, two calls a batch: claim, then ack. `topics`: claims are limited to these."""

    box: str
    batch: int = 50
    topics: tuple[str, ...] = ()

    def session(self, connection: Connection) -> Step:
        """Claim, fetch, ack."""
        cursor = connection.cursor(binary=True)
        owner = uuid.uuid4()
        claim = f"SELECT * FROM {self.box}_claim(%s, {LEASE_SECONDS}, {self.batch}{_limit(self.topics)})"
        ack = f"SELECT * FROM {self.box}_ack(%s, %s::bigint[])"

        def step() -> int:
            rows = cursor.execute(claim, [owner], prepare=True).fetchall()
            if rows:
                cursor.execute(ack, [owner, id_array(rows)], prepare=True).fetchall()
            return len(rows)

        return step


@dataclass(frozen=True)
class Settle(Contender):
    """Through the routines, one call a batch: settle what is held and claim the next; `topics` as above."""

    box: str
    batch: int = 50
    topics: tuple[str, ...] = ()

    def session(self, connection: Connection) -> Step:
        """Settle the batch of the step before, claim the next."""
        cursor = connection.cursor(binary=True)
        owner = uuid.uuid4()
        settle = (
            f"SELECT * FROM {self.box}_settle(%s, %s::jsonb, {self.batch}, {LEASE_SECONDS}"
            f"{_limit(self.topics)})"
        )
        held: list[tuple[Any, ...]] = []

        def step() -> int:
            nonlocal held
            ids = ",".join([str(row[0]) for row in held])
            outcomes = f'[{{"ids":[{ids}],"result":"ack"}}]' if held else "[]"
            held = cursor.execute(settle, [owner, outcomes], prepare=True).fetchall()
            return len(held)

        return step


def _limit(topics: tuple[str, ...]) -> str:
    """The last argument of a claim that is limited to topics, whose names need no quoting."""
    return f", '{{{','.join(topics)}}}'::text[]" if topics else ""


@dataclass(frozen=True)
class BareLog(Contender):
    """Layout L in two plain statements, with a low mark that the client keeps."""

    batch: int = 50

    def session(self, connection: Connection) -> Step:
        """Claim from where the last claim began: nothing is ever retried, so nothing comes back below it."""
        cursor = connection.cursor(binary=True)
        owner = uuid.uuid4()
        low = 0
        columns = ", ".join(f"m.{name}" for name in COLUMNS.split(", "))
        claim = f"""
            WITH gone AS (
                DELETE FROM bare_log.ready AS r
                WHERE r.ctid = ANY (ARRAY(
                    SELECT c.ctid FROM bare_log.ready AS c WHERE c.ticket >= %s
                    ORDER BY c.ticket LIMIT {self.batch} FOR UPDATE SKIP LOCKED
                ))
                RETURNING r.ticket, r.id
            ),
            leased AS (
                INSERT INTO bare_log.lease (id, owner_token, locked_until)
                SELECT gone.id, %s, now() + interval '{LEASE_SECONDS} seconds' FROM gone
            )
            SELECT {columns}, now() + interval '{LEASE_SECONDS} seconds'
            FROM gone INNER JOIN bare_log.message AS m ON m.id = gone.id
            ORDER BY gone.ticket"""
        ack = """
            WITH gone AS (
                DELETE FROM bare_log.lease AS l WHERE l.id = ANY (%s::bigint[]) AND l.owner_token = %s
                RETURNING l.id
            )
            INSERT INTO bare_log.done (id, processed_at, processed_by) SELECT gone.id, now(), %s FROM gone"""

        def step() -> int:
            nonlocal low
            rows = cursor.execute(claim, [low, owner], prepare=True).fetchall()
            if rows:
                low = rows[0][0]
                cursor.execute(ack, [id_array(rows), owner, owner], prepare=True)
            return len(rows)

        return step


@dataclass(frozen=True)
class StatusColumn(Contender):
    """One table whose status claim and ack update. `extra`: one more condition of the claim's."""

    batch: int = 50
    extra: str = ""

    def session(self, connection: Connection) -> Step:
        """Claim, fetch, ack."""
        cursor = connection.cursor(binary=True)
        owner = uuid.uuid4()
        claim = f"""
            WITH claimed AS (
                UPDATE status_column.message AS m
                SET status = 1, owner_token = %s, locked_until = now() + interval '{LEASE_SECONDS} seconds'
                WHERE m.id = ANY (ARRAY(
                    SELECT c.id FROM status_column.message AS c WHERE c.status = 0{self.extra}
                    ORDER BY c.priority DESC, c.id LIMIT {self.batch} FOR UPDATE SKIP LOCKED
                ))
                RETURNING {COLUMNS}, locked_until
            )
            SELECT {COLUMNS}, locked_until FROM claimed ORDER BY priority DESC, id"""
        ack = """
            UPDATE status_column.message
            SET status = 2, processed_at = now(), processed_by = %s, owner_token = NULL, locked_until = NULL
            WHERE id = ANY (%s::bigint[]) AND owner_token = %s AND status = 1"""

        def step() -> int:
            rows = cursor.execute(claim, [owner], prepare=True).fetchall()
            if rows:
                cursor.execute(ack, [owner, id_array(rows), owner], prepare=True)
            return len(rows)

        return step
