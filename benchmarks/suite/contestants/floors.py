"""What the machine can do with less promised: no leases, no routines, no queue at all."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.queue.boxes import run_script
from benchmarks.queue.contenders import (
    COLUMNS,
    LEASE_SECONDS,
    Contender,
    StatusColumn,
    Step,
    id_array,
)
from benchmarks.suite.contestants.base import (
    Ability,
    Load,
    Route,
    SqlContestant,
    connect,
    halves,
    steps_of,
    text_of,
)
from benchmarks.suite.server import Lab

SKIP_LOCKED = Path(__file__).parent / "sql" / "skip_locked.sql"


@dataclass(frozen=True)
class Statement(Contender):
    """The same statement over and over, with one parameter; it puts in `records` messages."""

    text: str
    parameter: str
    records: int

    def session(self, connection: Any) -> Step:
        """The answer is fetched."""
        cursor = connection.cursor(binary=True)
        parameters = [self.parameter] if self.parameter else []

        def step() -> int:
            cursor.execute(self.text, parameters, prepare=True).fetchall()
            return self.records

        return step


@dataclass(frozen=True)
class CopyIn(Contender):
    """COPY of so many equal lines a transaction."""

    target: str
    line: str
    records: int

    def session(self, connection: Any) -> Step:
        """The text is put together beforehand, as other contestants' parameters are."""
        cursor = connection.cursor()
        copy = f"COPY {self.target} FROM STDIN"
        lines = f"{self.line}\n" * self.records

        def step() -> int:
            with cursor.copy(copy) as into:
                into.write(lines)
            return self.records

        return step


@dataclass(frozen=True)
class DeleteSkipLocked(Contender):
    """Take messages by deleting them, in one statement."""

    batch: int

    def session(self, connection: Any) -> Step:
        """One call a batch."""
        cursor = connection.cursor(binary=True)
        take = f"""
            DELETE FROM bare.message AS m
            WHERE m.id = ANY (ARRAY(
                SELECT c.id FROM bare.message AS c ORDER BY c.id LIMIT {self.batch} FOR UPDATE SKIP LOCKED
            ))
            RETURNING m.id, m.created_at, m.topic, m.payload"""

        def step() -> int:
            return len(cursor.execute(take, prepare=True).fetchall())

        return step


@dataclass(frozen=True)
class StatusRetry(Contender):
    """Claim; finish; give back."""

    batch: int

    def session(self, connection: Any) -> Step:
        """Three statements a batch, two where nothing is given back."""
        cursor = connection.cursor(binary=True)
        owner = uuid.uuid4()
        claim = f"""
            WITH claimed AS (
                UPDATE status_column.message AS m
                SET status = 1, owner_token = %s, locked_until = now() + interval '{LEASE_SECONDS} seconds'
                WHERE m.id = ANY (ARRAY(
                    SELECT c.id FROM status_column.message AS c WHERE c.status = 0
                    ORDER BY c.priority DESC, c.id LIMIT {self.batch} FOR UPDATE SKIP LOCKED
                ))
                RETURNING {COLUMNS}, locked_until
            )
            SELECT {COLUMNS}, locked_until FROM claimed ORDER BY priority DESC, id"""
        finish = """
            UPDATE status_column.message
            SET status = 2, processed_at = now(), processed_by = %s, owner_token = NULL, locked_until = NULL
            WHERE id = ANY (%s::bigint[]) AND owner_token = %s AND status = 1"""
        give_back = """
            UPDATE status_column.message
            SET status = 0, attempt = attempt + 1, last_error = 'not yet', owner_token = NULL,
                locked_until = NULL
            WHERE id = ANY (%s::bigint[]) AND owner_token = %s AND status = 1"""

        def step() -> int:
            rows = cursor.execute(claim, [owner], prepare=True).fetchall()
            good, again = halves(rows)
            if good:
                cursor.execute(finish, [owner, id_array(good), owner], prepare=True)
            if again:
                cursor.execute(give_back, [id_array(again), owner], prepare=True)
            return len(good) or -min(len(again), 1)

        return step


class SkipLocked(SqlContestant):
    """Messages are deleted as they are taken."""

    name = "delete skip locked"
    family = "skip_locked"
    source = "one table, DELETE … FOR UPDATE SKIP LOCKED … RETURNING: no leases, so a crash loses messages"
    keeps = "deletes messages before they are handled"
    floor = True
    can: ClassVar[frozenset[Ability]] = frozenset({"single", "bulk", "drain", "parallel"})
    remaining = "SELECT count(*) FROM bare.message"

    def prepare(self, lab: Lab) -> dict[str, str]:  # noqa: ARG002 - nothing to get
        """Nothing to install."""
        return {}

    def create(self, url: str) -> None:
        """A table."""
        with connect(url) as connection:
            connection.execute(SKIP_LOCKED.read_bytes())

    def fill(self, url: str, load: Load) -> None:
        """Plain inserts."""
        insert = (
            "INSERT INTO bare.message (topic, payload) "
            "SELECT 'orders', %s FROM generate_series(%s::bigint, %s::bigint)"
        )
        with connect(url) as connection:
            for first, last in steps_of(load):
                connection.execute(insert, [text_of(load.payload), first, last])

    def single(self, url: str, payload: int) -> Contender:
        """An insert."""
        insert = "INSERT INTO bare.message (topic, payload) VALUES ('orders', %s) RETURNING id"
        return Statement(self.name, url, insert, text_of(payload), 1)

    def bulk(self, url: str, payload: int, records: int) -> Contender:
        """An insert of an array."""
        insert = (
            "INSERT INTO bare.message (topic, payload) SELECT 'orders', p FROM unnest(%s::text[]) AS p "
            "RETURNING id"
        )
        values = "{" + ",".join([text_of(payload)] * records) + "}"
        return Statement(self.name, url, insert, values, records)

    def drain(self, url: str, batch: int) -> Contender:
        """One statement a batch."""
        return DeleteSkipLocked(self.name, url, batch)


class StatusTable(SqlContestant):
    """A status that claim and ack update."""

    name = "status column"
    family = "status_column"
    source = "one table with the same columns and indexes for what pysqlbox serves (benchmarks/queue/sql)"
    keeps = "keeps messages"
    floor = True
    can: ClassVar[frozenset[Ability]] = frozenset(
        {"single", "bulk", "drain", "parallel", "retry", "priorities", "topics", "pausing"}
    )
    remaining = "SELECT count(*) FROM status_column.message WHERE status < 2"
    _insert = (
        "INSERT INTO status_column.message (id, message_id, created_at, topic, payload) "
        "SELECT nextval('status_column.ids'), gen_random_uuid(), now(), 'orders', p "
        "FROM {} AS p RETURNING id, message_id"
    )
    _insert_by_turns = (
        "INSERT INTO status_column.message (id, message_id, created_at, topic, priority, payload) "
        "SELECT nextval('status_column.ids'), gen_random_uuid(), now(), "
        "(ARRAY[{topics}])[1 + mod(p.n, {count})], {priority}, p.payload "
        "FROM unnest(%s::text[]) WITH ORDINALITY AS p (payload, n) RETURNING id, message_id"
    )

    def prepare(self, lab: Lab) -> dict[str, str]:  # noqa: ARG002 - nothing to get
        """Nothing to install."""
        return {}

    def create(self, url: str) -> None:
        """A table with its indexes."""
        run_script(url, "status_column.sql")

    def fill(self, url: str, load: Load) -> None:
        """Plain inserts."""
        values = "(SELECT %s::text FROM generate_series(%s::bigint, %s::bigint))"
        insert = (
            self._insert.format(values).replace("AS p", "AS p (p)").removesuffix(" RETURNING id, message_id")
        )
        with connect(url) as connection:
            for first, last in steps_of(load):
                if load.route:
                    by_turns = self._by_turns(load.route, load.route.backlog_topics)
                    connection.execute(by_turns.encode(), [[text_of(load.payload)] * (last - first + 1)])
                    continue
                connection.execute(insert.encode(), [text_of(load.payload), first, last])

    def _by_turns(self, route: Route, topics: Sequence[str]) -> str:
        names = ", ".join(f"'{topic}'" for topic in topics)
        return self._insert_by_turns.format(topics=names, count=len(topics), priority=route.priority)

    def single(self, url: str, payload: int) -> Contender:
        """An insert."""
        return Statement(self.name, url, self._insert.format("CAST(%s AS text)"), text_of(payload), 1)

    def bulk(self, url: str, payload: int, records: int) -> Contender:
        """An insert of an array."""
        values = "{" + ",".join([text_of(payload)] * records) + "}"
        return Statement(self.name, url, self._insert.format("unnest(%s::text[])"), values, records)

    def drain(self, url: str, batch: int) -> Contender:
        """Two statements a batch."""
        return StatusColumn(self.name, url, batch)

    def route_bulk(self, url: str, payload: int, records: int, route: Route) -> Contender:
        """An insert of an array, with priority and topics."""
        values = "{" + ",".join([text_of(payload)] * records) + "}"
        return Statement(self.name, url, self._by_turns(route, route.topics), values, records)

    def route_drain(self, url: str, batch: int, route: Route) -> Contender:
        """Two statements a batch, the first of which says what is wanted, or what is not."""
        wanted = " OR ".join(f"c.topic = '{topic}'" for topic in route.topics) if route.asked else ""
        extra = f" AND ({wanted})" if wanted else f" AND c.topic <> '{route.others}'" if route.paused else ""
        return StatusColumn(self.name, url, batch, extra)

    def retry(self, url: str, batch: int) -> Contender:
        """Three statements a batch."""
        return StatusRetry(self.name, url, batch)


class CopyTable(SqlContestant):
    """COPY into a table with a message's columns."""

    name = "copy"
    family = "copied"
    source = "COPY into one table with a message's columns and its primary key alone (benchmarks/queue/sql)"
    keeps = "keeps messages"
    floor = True
    can: ClassVar[frozenset[Ability]] = frozenset({"bulk"})

    def prepare(self, lab: Lab) -> dict[str, str]:  # noqa: ARG002 - nothing to get
        """Nothing to install."""
        return {}

    def create(self, url: str) -> None:
        """A table with its key; the server makes ids and times."""
        run_script(url, "copy_targets.sql")
        with connect(url) as connection:
            connection.execute("CREATE SEQUENCE copied.each AS bigint CACHE 1000")
            connection.execute(
                "ALTER TABLE copied.key_only ALTER COLUMN id SET DEFAULT nextval('copied.each'), "
                "ALTER COLUMN message_id SET DEFAULT gen_random_uuid(), "
                "ALTER COLUMN created_at SET DEFAULT now(), ALTER COLUMN attempt SET DEFAULT 0, "
                "ALTER COLUMN priority SET DEFAULT 0"
            )

    def bulk(self, url: str, payload: int, records: int) -> Contender:
        """One COPY."""
        target = "copied.key_only (topic, payload)"
        return CopyIn(self.name, url, target, f"orders\t{text_of(payload)}", records)


def pause_until(moment: float) -> None:
    """Sleep until a moment of the monotonic clock."""
    time.sleep(max(0.0, moment - time.monotonic()))
