"""The databases of the scenarios: the release deployed into them, boxes filled, tables settled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.queue.contenders import PAYLOAD, Connection
from pysqlbox.deploy.migrate import migrate
from pysqlbox.drivers import Target
from pysqlbox.names import NamedBox

SCHEMA = "bench"
CANDIDATE = "candidate"
SQL = Path(__file__).parent / "sql"
STEP = 1000


def deploy(conninfo: str, boxes: Sequence[str], *, schema: str = SCHEMA, root: Path | None = None) -> None:
    """The release, or the templates under `root`, with an outbox of each name."""
    target = Target("postgres", conninfo, "the benchmark's database")
    migrate(target, schema=schema, boxes=[NamedBox(name, "outbox") for name in boxes], root=root)


def run_script(conninfo: str, name: str) -> None:
    """One of the benchmark's own SQL files."""
    with connect(conninfo) as connection:
        connection.execute((SQL / name).read_text())


def connect(conninfo: str) -> Connection:
    """A connection in autocommit for setting things up."""
    return psycopg.connect(conninfo, autocommit=True)


def fill(
    connection: Connection,
    box: str,
    count: int,
    record: str = "",
    parameters: Sequence[Any] = (),
    *,
    payload: str = PAYLOAD,
    step: int = STEP,
) -> None:
    """Enqueue `count` messages through enqueue_many, a thousand a call, the JSON made by the server.

    `record` adds to or replaces what is in each: an SQL expression of type jsonb, in which n counts from 0.
    """
    extra = f" || {record}" if record else ""
    enqueue = f"""
        SELECT count(*) FROM {box}_enqueue_many((
            SELECT jsonb_agg(jsonb_build_object('topic', 'orders', 'payload', %s::text){extra} ORDER BY n)
            FROM generate_series(%s::bigint, %s::bigint) AS n
        ))"""
    for first in range(0, count, step):
        last = min(first + step, count) - 1
        connection.execute(enqueue, [payload, *parameters, first, last], prepare=True)


def fill_bare(connection: Connection, schema: str, count: int) -> None:
    """The same messages in a bare layout."""
    columns = "id, message_id, created_at, attempt, priority, topic, payload"
    values = f"nextval('{schema}.ids'), gen_random_uuid(), now(), 0, 0, 'orders', %s"
    insert = f"INSERT INTO {schema}.message ({columns}) SELECT {values} FROM generate_series(1, %s)"
    if schema == "bare_log":
        insert = f"""
            WITH written AS ({insert} RETURNING id)
            INSERT INTO bare_log.ready (ticket, id) SELECT w.id, w.id FROM written AS w ORDER BY w.id"""
    for first in range(0, count, STEP):
        connection.execute(insert, [PAYLOAD, min(STEP, count - first)])


def settle_down(connection: Connection) -> None:
    """Vacuum and analyse everything and write it out, so that no contender pays for how it was filled."""
    connection.execute("VACUUM (ANALYZE)")
    connection.execute("CHECKPOINT")
