"""What PostgreSQL's tables have no check for, because it would cost every enqueue, the tests see."""

from __future__ import annotations

import pytest

from tests.concurrency.invariants import broken_rules, check
from tests.support.database import Database

pytestmark = pytest.mark.dialect("postgres")

READY = "what is ready is a run of messages or a group"
NEITHER = "UPDATE {schema}.outbox_ready SET id = NULL"
BOTH = "UPDATE {schema}.outbox_ready SET group_id = 'g'"
EMPTY = "UPDATE {schema}.outbox_ready SET span = 0"
UNTRIED = "UPDATE {schema}.outbox_message SET attempt = -1"


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (NEITHER, READY),
        (BOTH, READY),
        (EMPTY, READY),
        (UNTRIED, "no message was tried less than never"),
    ],
)
def test_a_state_that_cannot_be_is_seen(db: Database, damage: str, rule: str) -> None:
    db.call("outbox_enqueue", topic="t", payload="p")
    check(db, "outbox")
    db.sql(damage)
    assert rule in broken_rules(db, "outbox")
