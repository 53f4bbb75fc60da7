"""Settlements of which only the commit is missing, and what others conclude meanwhile."""

from __future__ import annotations

import pytest

from tests.concurrency.invariants import check
from tests.contract.support import OTHER, OWNER, Box
from tests.support.database import Database

pytestmark = pytest.mark.dialect("postgres")


def test_a_group_that_was_settled_in_an_open_transaction_goes_on(db: Database) -> None:
    """A visible lease does not say that its settlement is yet to come: it may have found the group empty."""
    box = Box("outbox", "outbox", db, db)
    first = box.put(group_id="g")
    assert box.take(OWNER, batch=1) == [first]
    with db.session() as settling:
        assert box.on(settling).ack(OWNER, [first]) == 1
        second = box.put(group_id="g")
        for _ in range(4):
            assert box.take(OTHER) == []
            db.advance(1)
        settling.commit()
    db.advance(1)
    assert [message for _ in range(3) for message in box.take(OTHER)] == [second]
    box.ack(OTHER, [second])
    check(db, "outbox", drained=True)


def test_a_last_step_beside_an_open_join_wait_makes_the_join_end(db: Database) -> None:
    """Neither transaction sees the other: one has the last step, the other who waits for it."""
    box = Box("outbox", "outbox", db, db)
    join_id = db.value("join_start", tenant_id="t", expected_steps=2)
    steps = [box.enqueue("step") for _ in range(2)]
    for step in steps:
        db.call("join_attach", join_id=join_id, message_id=step["message_id"])
    ids = box.take(OWNER, lease=600)
    assert box.ack(OWNER, ids[:1]) == 1
    with db.session() as waiting, db.session() as settling:
        waiting.call("join_wait", join_id=join_id, on_complete_topic="done")
        assert box.on(settling).ack(OWNER, ids[1:]) == 1
        assert box.on(settling).take(OWNER) == []
        waiting.commit()
        assert box.take(OTHER) == []
        settling.commit()
    db.advance(1)
    assert [row["topic"] for row in box.claim(OTHER)] == ["join.wait"]
