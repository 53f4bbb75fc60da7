"""The clock of the database is set back and ahead: by hand, or by a failover to another server."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from tests.concurrency.invariants import check
from tests.concurrency.sessions import tick
from tests.contract.support import KINDS, Box
from tests.faults.busy import claims_until
from tests.faults.figures import Figures
from tests.faults.load import BOXES, Load, move_marks
from tests.faults.servers import SECONDS, Server
from tests.faults.verdict import conclude, database
from tests.support.database import Database

STEP = 60
CRASHED = UUID("cccccccc-cccc-4ccc-8ccc-cccccccccccc")
START = 600
"""Seconds by which the test clock is ahead at first, since it cannot go behind the server's."""


@pytest.mark.every_version
def test_the_clock_jumps_under_load(running: Server, record: Callable[[Figures], None]) -> None:
    """Back and ahead by a minute, several times: nobody loses or doubles anything."""
    steps = (-STEP, STEP, -STEP, -STEP, 3 * STEP, -STEP)
    with database(running) as db:
        db.advance(START)
        with Load(running.url) as load:
            for step in steps:
                load.hold(50, SECONDS / len(steps))
                move_marks(running, load)
                db.advance(step)
            load.hold(50)
    figures = Figures("clock set back and ahead", running.known.id, faults=len(steps))
    record(conclude(running, load, figures))


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("step", [-STEP, STEP])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_busy_box_mends_itself_after_a_clock_step(running: Server, box: str, step: int, when: str) -> None:
    """Leases of a crashed worker and delayed messages come back, in a box whose claims are never empty.

    when: whether the worker crashed, and the messages were delayed, before or after the step
    """
    with database(running) as db:
        db.advance(START)
        queue = Box(box, KINDS[box], db, db)
        queue.put(payload="other")
        tick(db, box, 3)
        if when == "after":
            db.advance(step)
        wanted = crash_and_delay(queue)
        if when == "before":
            tick(db, box, 3)
            db.advance(step)
        db.advance(max(3, 3 - step) if when == "before" else 3)  # every lease and delay is over now
        missing, claims, came = claims_until(db, box, wanted)
        assert not missing, f"{sorted(missing)} did not come in {claims} busy claims"
        assert len(came) == len(wanted), "handed out twice"
        check(db, box)


def crash_and_delay(queue: Box) -> set[str]:
    """Claims some under a short lease and never settles them, gives back and delays some; their payloads."""
    names = {"leased", "leased in a group", "given back"}
    queue.put(payload="leased")
    queue.put(payload="leased in a group", group_id="g")
    queue.put(payload="given back")
    rows = queue.claim(CRASHED, lease_seconds=2, batch_size=10)
    others = [row["id"] for row in rows if row["payload"] == "other"]
    assert queue.ack(CRASHED, others) == len(others)
    back = [row["id"] for row in rows if row["payload"] == "given back"]
    assert queue.abandon(CRASHED, back, delay_seconds=1) == 1
    assert {row["payload"] for row in rows} == names | {"other"}
    later = database_now(queue.db)
    queue.enqueue(payload="delayed", due_at=later)
    queue.enqueue(payload="delayed in a group", group_id="h", due_at=later)
    return names | {"delayed", "delayed in a group"}


def database_now(db: Database) -> object:
    """A second from now by the schema's own clock."""
    return db.sql("SELECT {schema}._now() + interval '1 second' AS later")[0]["later"]
