"""Contenders that put messages in: through the routines, by bare inserts, by COPY."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass

from benchmarks.queue.contenders import PAYLOAD, Connection, Contender, Step

RECORDS = 1000
"""Messages in one call or one COPY; each is a transaction of its own."""


def ordered_uuid() -> uuid.UUID:
    """A time-ordered uuid, as the routines draw them: COPY too gets a unique index that grows at one end."""
    milliseconds = time.time_ns() // 1_000_000
    tail = uuid.uuid4().bytes[6:]
    return uuid.UUID(bytes=milliseconds.to_bytes(6, "big") + tail, version=4)


@dataclass(frozen=True)
class EnqueueMany(Contender):
    """One call with many records, a thousand unless told. `more`: what these have too, by turns, as JSON."""

    box: str
    records: int = RECORDS
    payload: str = PAYLOAD
    more: tuple[str, ...] = ("{}",)

    def session(self, connection: Connection) -> Step:
        """The JSON is written beforehand; the answer, a row a record, is fetched."""
        cursor = connection.cursor(binary=True)
        turns = [{"topic": "orders", "payload": self.payload, **json.loads(each)} for each in self.more]
        records = json.dumps([turns[number % len(turns)] for number in range(self.records)])
        enqueue = f"SELECT * FROM {self.box}_enqueue_many(%s::jsonb)"

        def step() -> int:
            return len(cursor.execute(enqueue, [records], prepare=True).fetchall())

        return step


@dataclass(frozen=True)
class Copy(Contender):
    """COPY of a thousand rows, keys and times made by the client."""

    table: str
    prepared: int = 100

    def session(self, connection: Connection) -> Step:
        """The text of as many calls as `prepared` says is put together beforehand, with ids of its own."""
        cursor = connection.cursor()
        columns = "id, message_id, created_at, attempt, priority, topic, payload"
        copy = f"COPY copied.{self.table} ({columns}) FROM STDIN"
        blocks = iter([self._block(connection) for _ in range(self.prepared)])

        def step() -> int:
            block = next(blocks, None) or self._block(connection)
            with cursor.copy(copy) as into:
                into.write(block)
            return RECORDS

        return step

    @staticmethod
    def _block(connection: Connection) -> str:
        row = connection.execute("SELECT nextval('copied.ids')").fetchone()
        first = int(row[0]) if row else 0
        lines = [
            f"{n}\t{ordered_uuid()}\t2026-01-01 00:00:00+00\t0\t0\torders\t{PAYLOAD}\n"
            for n in range(first, first + RECORDS)
        ]
        return "".join(lines)


@dataclass(frozen=True)
class Enqueue(Contender):
    """One call a message."""

    box: str
    payload: str = PAYLOAD

    def session(self, connection: Connection) -> Step:
        """Autocommit: the call is the transaction."""
        cursor = connection.cursor(binary=True)
        enqueue = f"SELECT * FROM {self.box}_enqueue('orders', %s)"
        payload = self.payload

        def step() -> int:
            cursor.execute(enqueue, [payload], prepare=True).fetchall()
            return 1

        return step


@dataclass(frozen=True)
class TwoRows(Contender):
    """The bare two-row insert, message and ready, in one statement: one round trip, as the routine has."""

    def session(self, connection: Connection) -> Step:
        """Autocommit; the same answer as the routine's."""
        cursor = connection.cursor(binary=True)
        insert = """
            WITH written AS (
                INSERT INTO bare_log.message (id, message_id, created_at, attempt, priority, topic, payload)
                VALUES (nextval('bare_log.ids'), gen_random_uuid(), now(), 0, 0, 'orders', %s)
                RETURNING id, message_id
            ),
            placed AS (
                INSERT INTO bare_log.ready (ticket, id) SELECT written.id, written.id FROM written
            )
            SELECT written.id, written.message_id, 'created' FROM written"""

        def step() -> int:
            cursor.execute(insert, [PAYLOAD], prepare=True).fetchall()
            return 1

        return step
