"""Orders that the searches of tests/models found: what they would have lost has to come."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.support.database import Database

pytestmark = pytest.mark.dialect("postgres")


def test_a_member_added_while_the_last_of_its_group_is_being_settled_comes(db: Database) -> None:
    """Its ticket meets a lease whose settlement has found no member already, and is only not committed."""
    owner, other = uuid4(), uuid4()
    db.one("outbox_enqueue", topic="orders", payload="1", group_id="g")
    (first,) = db.call("outbox_claim", owner_token=owner, lease_seconds=60, batch_size=1)
    with db.session() as settling:
        settling.call("outbox_ack", owner_token=owner, ids=[first["id"]])
        second = db.one("outbox_enqueue", topic="orders", payload="2", group_id="g")
        for _ in range(2):
            assert db.call("outbox_claim", owner_token=other, lease_seconds=60, batch_size=1) == []
            db.advance(1)
        settling.commit()
    db.advance(1)
    rows = db.call("outbox_claim", owner_token=other, lease_seconds=60, batch_size=1)
    assert [row["id"] for row in rows] == [second["id"]]


def test_a_last_step_and_a_join_wait_that_do_not_see_each_other_complete_the_join(db: Database) -> None:
    """The step's transaction sees the join complete but no join.wait; the probe of that comes too early."""
    owner, other = uuid4(), uuid4()
    join_id = db.value("join_start", tenant_id="tenant", expected_steps=2)
    steps = [db.one("outbox_enqueue", topic="step", payload=str(number)) for number in range(2)]
    for step in steps:
        db.call("join_attach", join_id=join_id, message_id=step["message_id"])
    db.call("outbox_claim", owner_token=owner, lease_seconds=600, batch_size=2)
    db.call("outbox_ack", owner_token=owner, ids=[steps[0]["id"]])
    with db.session() as waiting, db.session() as settling:
        waiting.call("join_wait", join_id=join_id, on_complete_topic="done")
        settling.call("outbox_ack", owner_token=owner, ids=[steps[1]["id"]])
        assert settling.call("outbox_claim", owner_token=owner, lease_seconds=60, batch_size=1) == []
        waiting.commit()
        assert db.call("outbox_claim", owner_token=other, lease_seconds=60, batch_size=1) == []
        settling.commit()
    db.advance(1)
    rows = db.call("outbox_claim", owner_token=other, lease_seconds=60, batch_size=1)
    assert [row["topic"] for row in rows] == ["join.wait"]
