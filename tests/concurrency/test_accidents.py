"""Accidents: workers that are killed, a server that crashes, low marks that are wrong."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psycopg
import pytest

from pysqlbox.errors import PysqlboxError
from tests.concurrency import crashing
from tests.concurrency.invariants import check, drain
from tests.concurrency.scenarios_claims import STEPS, outbox
from tests.concurrency.sessions import sessions, tick
from tests.contract.support import OTHER, OWNER, Box, ids
from tests.support.database import Database
from tests.support.deployed import deploy

_WORKER = """
import sys, time, uuid
from pysqlbox.drivers import connect, driver_for
connection = connect(sys.argv[1])
owner = uuid.UUID(sys.argv[2])
rows = driver_for(sys.argv[4]).call(connection, sys.argv[3], "outbox_claim",
                                    {"owner_token": owner, "lease_seconds": 30, "batch_size": 3})
if sys.argv[5] == "committed":
    connection.commit()
print(len(rows), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["committed", "uncommitted"])
def test_a_killed_worker_loses_nothing(db: Database, how: str) -> None:
    """A worker process is killed between claim and settle, or before its claim is committed."""
    box = outbox(db)
    made = [*box.fill(2), box.put(group_id="g")]
    behind = box.put(group_id="g")
    arguments = [db.url, str(OWNER), db.schema, db.dialect, how]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", _WORKER, *arguments], stdout=subprocess.PIPE, text=True, cwd=root
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline().strip() == "3"
        worker.kill()
    if how == "committed":
        assert box.take(OTHER) == []
        db.advance(31)
    found: list[int] = []
    until = time.monotonic() + 10  # the server notices the broken connection when it gets to it
    while len(found) < 4 and time.monotonic() < until:
        found += box.take(OTHER)
    assert sorted(found) == [*made, behind]
    assert {box.shown(message)["attempt"] for message in made} == {1 if how == "committed" else 0}
    check(db, "outbox")


def _on_held(box: Box, step: str, held: list[int]) -> object:
    return STEPS[step](box, held)


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize("step", ["enqueue", "claim", "reap", *STEPS])
def test_a_backend_that_ends_in_a_transaction_leaves_no_trace(db: Database, step: str) -> None:
    """The server ends a session in the middle of a transaction: all is as before it."""
    box = outbox(db)
    made = [*box.fill(2, group_id="g"), box.put()]
    assert box.take(lease=5) == made
    waiting = box.put()
    if step == "reap":
        db.advance(10)
    before = db.sql("SELECT * FROM {schema}.outbox_messages ORDER BY id")
    steps: dict[str, Callable[[Box], object]] = {
        "enqueue": lambda inside: inside.put(group_id="g"),
        "claim": lambda inside: inside.take(OTHER),
        "reap": lambda inside: inside.reap(),
    }
    with sessions(db, 1) as (session,):
        inside = box.on(session)
        (steps[step] if step in steps else partial(_on_held, step=step, held=made))(inside)
        pid = session.sql("SELECT pg_backend_pid() AS pid")[0]["pid"]
        db.sql("SELECT pg_terminate_backend(%s, 5000)", pid)
        with pytest.raises(PysqlboxError):
            session.sql("SELECT 1 AS one")
    assert db.sql("SELECT * FROM {schema}.outbox_messages ORDER BY id") == before
    check(db, "outbox")
    assert sorted(drain(db, "outbox")) == [*made, waiting]


@pytest.mark.dialect("postgres")
def test_marks_that_are_too_low_only_cost_time(db: Database) -> None:
    """Low marks at zero, and a noted xid of another cluster: nothing is lost, and the marks move again."""
    box = outbox(db)
    made = box.fill(5)
    assert box.take(batch=2) == made[:2]
    assert box.ack(OWNER, made[:2]) == 2
    for mark in ("low_ticket", "low_due", "low_lease", "low_tally"):
        db.sql(f"SELECT setval('{{schema}}._outbox_{mark}', 0)")
    db.sql("SELECT setval('{schema}._outbox_tick_xid', 4000000000000000)")
    assert box.take(batch=1) == made[2:3]
    tick(db, "outbox", 3)
    low = db.sql("SELECT last_value AS low FROM {schema}._outbox_low_ticket")[0]["low"]
    assert low == made[3]
    check(db, "outbox")
    assert sorted(drain(db, "outbox")) == made[2:]


@pytest.mark.parametrize("version", crashing.versions() or ["none"])
def test_a_server_crash_loses_nothing_committed(version: str) -> None:
    """The server is stopped at once in the middle of traffic, and started again on what is on its disk."""
    if version == "none":
        pytest.skip("no PostgreSQL here whose server programs can be started apart")
    with crashing.server(version) as server:
        deploy(server.url)
        db = Database("postgres", "infra", server.url, version)
        box = outbox(db)
        box.put()  # the connection behind `db` is there before the traffic
        made: list[int] = []
        acked: list[int] = []
        over = threading.Event()

        def produce() -> None:
            with db.session() as session:
                for turn in range(100_000):
                    rows = box.on(session).enqueue_many(*(box.record(group_id=f"g{turn % 5}"), box.record()))
                    session.commit()
                    made.extend(ids(rows))

        def work(owner: object) -> None:
            with db.session() as session:
                while not over.is_set():
                    taken = ids(box.on(session).claim(owner, batch_size=20, lease_seconds=5))
                    session.commit()
                    box.on(session).ack(owner, taken)
                    session.commit()
                    acked.extend(taken)

        def until_it_breaks(call: Callable[[], None]) -> None:
            try:
                call()
            except (PysqlboxError, psycopg.Error):  # a commit's own error is the driver's
                over.set()

        threads = [
            threading.Thread(target=until_it_breaks, args=(call,))
            for call in (produce, produce, lambda: work(OWNER), lambda: work(OTHER))
        ]
        for thread in threads:
            thread.start()
        time.sleep(1.5)
        server.crash()
        for thread in threads:
            thread.join(20)
        db.close()
        server.start()
        assert len(acked) > 20
        status = {
            row["id"]: row["status"] for row in db.sql("SELECT id, status FROM {schema}.outbox_messages")
        }
        assert set(made) <= set(status), "committed and lost"
        assert {status[message] for message in acked} == {"Done"}, "acknowledged and not done"
        check(db, "outbox")
        again = drain(db, "outbox")
        assert not set(again) & set(acked), "acknowledged and handed out again"
        assert set(made) <= set(acked) | set(again) | {i for i, each in status.items() if each == "Done"}
        db.close()
