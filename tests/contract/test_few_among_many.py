"""A call about a few messages reads a few rows, however many others there are.

PostgreSQL keeps the plans that a session has made. Made while the tables were empty, or nearly so, every way
to a row looks as good as any other; then the tables grow, and nothing makes these plans anew until somebody
analyzes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tests.support.deployed import deploy
from tests.support.engines import Engine

pytestmark = pytest.mark.dialect("postgres")

MANY = 2000
FEW = 3
MOST_ROWS = 400
"""What a call about a few messages may read: some dozens. One that reads others reads thousands."""
OWNER, STRANGER = uuid4(), uuid4()

#: Of a box that has been busy for long: what is done, what is due one day, what was counted.
MANY_ROWS: tuple[LiteralString, ...] = tuple(
    f"INSERT INTO infra.outbox_{columns} FROM generate_series(1, 30000) AS s (n)"
    for columns in (
        "done (id, processed_at, span) SELECT 2 * n, now() - interval '1 day' + n * interval '1 second', 1",
        "scheduled (id, no, due_at, lane, topic) SELECT n, n, now() + n * interval '1 hour', 0, 't'",
        "tally (no, topic, done) SELECT n, 't', 1",
    )
)


class Reader:
    """One session, and what its calls read."""

    def __init__(self, url: str, box: str) -> None:
        """Connects; every call is a transaction."""
        self.connection = psycopg.connect(url)
        self.box = box
        self.is_inbox = box in ("inbox", "orders")
        self.read: dict[str, int] = {}
        self.part = ""

    def call(self, routine: str, *arguments: Any, key: str = "") -> list[tuple[Any, ...]]:
        """Calls a routine by position, and notes the rows that were read for it."""
        marks = sql.SQL(", ").join(sql.Placeholder() * len(arguments))
        query = sql.SQL("SELECT * FROM {}({})").format(sql.Identifier("infra", routine), marks)
        with self.connection.transaction():
            before = self._counted()
            rows = self.connection.execute(query, arguments).fetchall()
            self.read[f"{self.part}: {routine} {key}".strip()] = self._counted() - before
        return rows

    def _counted(self) -> int:
        """How many rows this session has read that it has not reported yet."""
        row = self.connection.execute(
            "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::integer"
            " FROM pg_stat_xact_user_tables WHERE schemaname = 'infra'"
        ).fetchone()
        assert row is not None
        return int(row[0])

    def on(self, step: LiteralString, *arguments: Any, key: str = "") -> list[tuple[Any, ...]]:
        """The same for a routine of the box."""
        return self.call(f"{self.box}_{step}", *arguments, key=key)

    def put(self, count: int, **more: Any) -> list[int]:
        """The ids of so many new messages; a list has each one's own value."""
        records = [
            {"topic": "t", "payload": "p"}
            | ({"source": "s", "message_id": uuid4().hex} if self.is_inbox else {})
            | {name: value[n] if isinstance(value, list) else value for name, value in more.items()}
            for n in range(count)
        ]
        return [row[1] for row in self.on("enqueue_many", json.dumps(records))]

    def claim(self, owner: object, count: int, topic: str) -> list[int]:
        """The ids of what is claimed: of a group perhaps fewer, with an old ticket of it on the way."""
        return [row[0] for row in self.on("claim", owner, 3000, count, [topic])]


def places(count: int) -> dict[str, dict[str, Any]]:
    """What makes messages wait in each of the places."""
    return {
        "in runs": {},
        "apart": {"priority": 1},
        "for a time": {"delay_seconds": 1000},
        "in a group": {"group_id": "g"},
        "in groups": {"group_id": [uuid4().hex for _ in range(count)]},
        "with keys": {"collapse_key": [uuid4().hex for _ in range(count)]},
    }


def live(reader: Reader) -> None:
    """Every call about a few messages, in each place where they may be."""
    for place, more in places(FEW).items():
        reader.part = place
        ids = reader.put(FEW, **more)
        reader.on("reschedule", ids, "2100-01-01", key="later")
        reader.on("reschedule", ids, key="now")
        reader.on("reschedule", ids, key="again")
        reader.on("cancel", ids, "no more", key="first")
        reader.on("replay", ids)
        reader.on("cancel", ids, "no more", key="replayed")
        reader.on("discard", ids)
    for group in ({}, {"group_id": "mine"}):
        for step, arguments in {
            "ack": (),
            "abandon": ("e", 1000),
            "retry": ("e", 1000, 5),
            "retry ": ("e", 1000, 1),
            "release": (1000,),
            "fail": ("e",),
        }.items():
            reader.part = f"{step}{'in a group' if group else ''}"
            ids = reader.put(FEW, topic="mine", **group)
            claimed = reader.claim(OWNER, FEW, "mine")
            reader.on("extend", OWNER, claimed, 3000)
            reader.on(step.strip(), OWNER, claimed, *arguments)
            reader.on("cancel", ids, key="after it")
    for group in ({}, {"group_id": "mine"}):
        reader.part = f"settled{'in a group' if group else ''}"
        ids = reader.put(4, topic="mine", **group)
        results = zip(("ack", "retry", "release", "fail"), reader.claim(OWNER, 4, "mine"), strict=False)
        outcomes = [{"id": each, "result": result, "error": "e"} for result, each in results]
        assert outcomes
        reader.on("settle", OWNER, json.dumps(outcomes))
        reader.on("cancel", ids)
    reader.part = "one"
    if reader.is_inbox:
        name = uuid4().hex
        for number, group_id in enumerate(("mine", "mine", None)):
            reader.on("enqueue", f"t{number}", "s", name, "p", None, None, group_id, key=f"{number}")
        reader.on("mark_processed", name, "s")
    else:
        for number, group_id in enumerate(("mine", "mine", None)):
            row = ("t", "p", None, None, None, group_id, 0, None, "mine")
            reader.on("enqueue", *row, key=f"replacing {number}")
    reader.on("get", reader.put(1)[0])
    reader.on("next_due")
    lists(reader)
    if reader.box == "outbox":
        join(reader)


def lists(reader: Reader) -> None:
    """Pages of each status, of a group and of a dead topic."""
    reader.part = "list"
    ids = reader.put(FEW, topic="listed", group_id="listed")
    waiting, leased, dead = (
        ("Processing",) * 2 + ("Dead",) if reader.is_inbox else ("Ready", "InProgress", "Failed")
    )
    for status in {waiting, leased, dead, "Done"}:
        reader.on("list", status, None, FEW, key=status)
    for status in {waiting, leased}:
        rows = reader.on("list", status, None, FEW, 0, "listed", key=f"{status} of a group")
        assert [row[0] for row in rows] == (ids if status == waiting else [])
    reader.on("fail", OWNER, reader.claim(OWNER, FEW, "listed"), "e")
    rows = reader.on("list", dead, "listed", 2 * FEW, key="dead of a topic")
    assert {row[0] for row in rows} >= set(ids[:1])
    reader.on("discard", [row[0] for row in rows])


def join(reader: Reader) -> None:
    """Steps of a join, one of which is called off."""
    reader.part = "join"
    (started,) = reader.call("join_start", "tenant", None)
    records = [{"topic": "steps", "payload": "p", "group_id": "s"} for _ in range(FEW)]
    rows = reader.on("enqueue_many", json.dumps(records))
    reader.call("join_attach_many", started[0], [row[2] for row in rows])
    reader.call("join_wait", started[0], False, "next", "p")
    reader.on("ack", OWNER, reader.claim(OWNER, 1, "steps"))
    reader.on("cancel", [row[1] for row in rows])
    reader.claim(OWNER, 1, "join.wait")
    assert reader.call("join_resolve", started[0])[0][0] == "Completed"


def crowd(reader: Reader) -> None:
    """Others in each place: waiting, leased, in groups, done, dead, steps of a join."""
    if reader.is_inbox:
        reader.put(MANY)
    else:
        reader.on("enqueue_payloads", "t", ["p"] * MANY)
    for more in places(MANY).values():
        reader.put(MANY, **more)
    for topic, group in (("a", None), ("b", [uuid4().hex for _ in range(MANY)])):
        reader.put(MANY, topic=topic, **({"group_id": group} if group else {}))
        claimed = reader.claim(STRANGER, MANY, topic)
        reader.on("ack", STRANGER, claimed[: MANY // 4])
        reader.on("fail", STRANGER, claimed[-MANY // 4 :], "e")
    if reader.box == "outbox":
        (started,) = reader.call("join_start", "tenant", None)
        rows = reader.on("enqueue_payloads", "others", ["p"] * MANY)
        reader.call("join_attach_many", started[0], [row[2] for row in rows])


@contextlib.contextmanager
def emptied(engine: Engine) -> Iterator[str]:
    """A new deployment whose tables nobody analyzes."""
    name = engine.create_database()
    try:
        url = engine.database_url(name)
        deploy(url)
        with psycopg.connect(url) as connection:
            tables = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'infra'"
            ).fetchall()
            for (table,) in tables:
                connection.execute(
                    sql.SQL("ALTER TABLE {} SET (autovacuum_enabled = off)").format(
                        sql.Identifier("infra", table)
                    )
                )
        yield url
    finally:
        engine.drop_database(name)


@pytest.mark.parametrize("analyzed", ["empty", "small"])
@pytest.mark.parametrize("box", ["outbox", "inbox"])
def test_contract_a_call_reads_what_it_is_about(engine: Engine, box: str, analyzed: str) -> None:
    """With the plans of a session that began when there was nothing, or next to nothing."""
    with emptied(engine) as url:
        reader, others = Reader(url, box), Reader(url, box)
        with contextlib.closing(reader.connection), contextlib.closing(others.connection):
            if analyzed == "small":
                live(others)
            others.connection.execute("ANALYZE")
            others.connection.commit()
            live(reader)
            crowd(others)
            reader.read.clear()
            live(reader)
            # A claim looks after the box now and then, a bounded number of pages, whoever they are of.
            read = {key: rows for key, rows in reader.read.items() if not key.endswith("_claim")}
            assert {key: rows for key, rows in read.items() if rows > MOST_ROWS} == {}


def test_looking_after_a_box_reads_a_few_pages_whatever_it_holds(engine: Engine) -> None:
    """A claim does it now and then. An index leads to these pages as well, past everything in the others."""
    most = 5000  # eight pages of each table have some 2,500 rows
    with emptied(engine) as url:
        reader = Reader(url, "outbox")
        with contextlib.closing(reader.connection):
            for text in MANY_ROWS:
                reader.connection.execute(text)
            reader.connection.execute("ANALYZE")
            reader.connection.commit()
            for turn in range(30):
                reader.call("_outbox_patrol", 8, key=str(turn))
        assert {key: rows for key, rows in reader.read.items() if rows > most} == {}
        assert sum(reader.read.values()) > 20_000, "it has read something"
