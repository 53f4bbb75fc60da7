"""What one call of T-SQL does is bounded by its arguments; PostgreSQL has tests of its own."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contract.support import OWNER, Box, json_text, server_now

pytestmark = pytest.mark.dialect("mssql")

OVERDUE = 5_500


def test_a_claim_buries_a_bounded_number_and_keeps_what_it_did(outbox: Box) -> None:
    """However many have expired in front of the first message, each call comes nearer to it."""
    soon = server_now(outbox.db) + timedelta(seconds=50)
    outbox.call("enqueue_payloads", topic="t", payloads=json_text(["p"] * OVERDUE), expires_at=soon)
    behind = outbox.put()
    outbox.db.advance(100)
    assert outbox.take(batch=1) == []
    buried = outbox.stats()["t"]["dead"]
    assert 4_000 < buried < OVERDUE, "neither none, nor all of them"
    assert outbox.take(batch=1) == [behind]
    assert outbox.stats()["t"]["dead"] == OVERDUE


def test_a_claim_buries_what_has_expired_in_a_group_in_sets(outbox: Box) -> None:
    """Not one message a call."""
    soon = server_now(outbox.db) + timedelta(seconds=50)
    records = [outbox.record(group_id="g", expires_at=soon) for _ in range(300)]
    outbox.enqueue_many(*records)
    behind = outbox.put(group_id="g")
    outbox.db.advance(100)
    assert outbox.take(batch=1) == [behind]


def test_a_paused_topic_in_front_is_stepped_over(box: Box) -> None:
    """Few of its messages or many: the others come in their order, and it comes back."""
    first = [box.put(topic="paused") for _ in range(3)]
    others = [box.put(topic=f"t{n % 40}") for n in range(60)]
    assert box.affected("pause", topic="paused") == 1
    assert box.take(batch=50) == others[:50]
    assert box.affected("resume", topic="paused") == 1
    assert box.take(batch=50) == first + others[50:]


def test_a_paused_topic_in_front_of_all_is_stepped_over(outbox: Box) -> None:
    """More of its messages than a claim looks at in the order of the log."""
    outbox.call("enqueue_payloads", topic="paused", payloads=json_text(["p"] * 1_500))
    others = [outbox.put(topic=f"t{n % 7}") for n in range(20)]
    assert outbox.affected("pause", topic="paused") == 1
    assert outbox.take(batch=15) == others[:15]
    assert outbox.take(batch=15) == others[15:]


def test_a_discarded_message_leaves_no_collapse_key(box: Box) -> None:
    """Nor does one that the upkeep of dead letters removes."""
    count = f"SELECT COUNT(*) AS n FROM {{schema}}.{box.name}_collapse"
    one, other = box.put(collapse_key="a"), box.put(collapse_key="b")
    assert box.take() == [one, other]
    assert box.fail(OWNER, [one, other]) == 2
    assert box.affected("discard", ids=[one]) == 1
    assert box.db.sql(count)[0]["n"] == 1
    assert box.affected("cleanup_dead", retention_seconds=0) == 1
    assert box.db.sql(count)[0]["n"] == 0


def test_a_promotion_of_many_probes_takes_the_messages_behind_them(box: Box) -> None:
    """A burst of a group's tickets that fall due together does not hold up what is due with them."""
    later = server_now(box.db) + timedelta(seconds=100)
    head = box.put(group_id="g", due_at=later)
    members = [box.put(group_id="g") for _ in range(150)]
    behind = box.put(due_at=later)
    box.db.advance(200)
    found = box.take(batch=300)
    assert sorted(found) == sorted([head, behind, *members])
    assert [message for message in found if message != behind] == [head, *members]
