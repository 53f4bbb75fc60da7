"""FIFO groups while a mark is too high, as after a restored dump: none is forgotten or out of order."""

from __future__ import annotations

import pytest

from tests.concurrency.invariants import check, drain
from tests.contract.support import KINDS, OTHER, OWNER, Box
from tests.faults.busy import claims_until
from tests.support.database import Database

pytestmark = pytest.mark.dialect("postgres")


def raise_marks(db: Database, box: str, *marks: str) -> None:
    """Puts marks above all numbers, as sequences that are younger than their rows, in another server."""
    db.sql(f"SELECT setval('{{schema}}._{box}_home', 1)")
    db.sql("RESET ALL")
    for row in db.sql(
        "SELECT c.oid::regclass::text AS name FROM pg_class AS c WHERE c.relkind = 'S'"
        " AND c.relnamespace = '{schema}'::regnamespace AND c.relname = ANY (%s)",
        [f"_{box}_{mark}" for mark in marks],
    ):
        db.sql(f"SELECT setval('{row['name']}', (SELECT last_value + 1 FROM {{schema}}._{box}_ids))")


@pytest.mark.parametrize("box", ["outbox", "inbox"])
@pytest.mark.parametrize(
    "head", ["waiting", "acknowledged", "given back", "crashed", "crashed, and a later one"]
)
@pytest.mark.parametrize("marks", [("low_ticket", "low_grouped"), ("low_grouped",)], ids=["all", "groups"])
def test_groups_below_a_mark_come_out(db: Database, box: str, head: str, marks: tuple[str, ...]) -> None:
    """Whatever becomes of a group's head while the mark hides its members, all of them come, in order.

    marks: those that are too high; where tables are large, others may have been mended before
    """
    queue = Box(box, KINDS[box], db, db)
    names = [f"{head} {number}" for number in range(4)]
    made = [queue.put(payload=name, group_id="g") for name in names]
    if head != "waiting":
        assert queue.take(OWNER, batch=1, lease=30) == made[:1]
    raise_marks(db, box, *marks)
    if head == "acknowledged":
        assert queue.ack(OWNER, made[:1]) == 1
        names = names[1:]
    elif head == "given back":
        assert queue.abandon(OWNER, made[:1], delay_seconds=1) == 1
    elif head == "crashed, and a later one":
        # A later member must not come before those that are hidden.
        names.append("later")
        queue.put(payload="later", group_id="g")
    if head in ("crashed", "crashed, and a later one"):
        # Nobody else gets a member while the head is leased.
        assert not [row for row in queue.claim(OTHER, batch_size=10) if row["group_id"] == "g"]
        db.advance(60)
    db.advance(3)
    missing, claims, came = claims_until(db, box, set(names))
    assert not missing, f"{sorted(missing)} did not come in {claims} busy claims"
    assert came == names
    check(db, box)
    drain(db, box)
