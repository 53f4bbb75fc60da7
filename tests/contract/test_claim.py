"""Handing out: which messages, in which order, to whom and for how long."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pysqlbox.errors import InvalidArgument, InvalidState
from tests.contract.support import (
    NIL,
    OTHER,
    OWNER,
    Box,
    ids,
    needs_isolation_levels,
    refuses,
    server_now,
    unreadable,
)


def test_obx_011_ibx_030_claim_takes_up_to_batch_size_and_leaves_the_rest(box: Box) -> None:
    made = box.fill(7)
    assert box.take(OWNER, batch=3) == made[:3]
    assert box.take(OTHER, batch=3) == made[3:6]
    assert box.take(OWNER, batch=3) == made[6:]
    assert box.take(OWNER, batch=3) == []


def test_obx_012_ibx_032_claim_skips_what_is_not_due(box: Box) -> None:
    now = server_now(box.db)
    later = box.put(due_at=now + timedelta(seconds=100))
    much_later = box.put(due_at=now + timedelta(seconds=200))
    due = box.put(due_at=now - timedelta(seconds=1))
    assert box.take() == [due]
    box.db.advance(150)
    assert later in box.take()
    assert box.status(much_later) == box.waiting


def test_obx_013_ibx_033_claim_skips_what_somebody_holds(box: Box) -> None:
    made = box.fill(3)
    assert box.take(OWNER, lease=100) == made
    assert box.take(OTHER) == []
    assert box.take(OWNER) == [], "not even what the same worker holds"
    box.db.advance(90)
    assert box.take(OTHER) == []


def test_obx_013_ibx_033_claim_hands_out_again_what_a_worker_lost(box: Box) -> None:
    made = box.fill(3)
    assert box.take(OWNER, lease=100) == made
    box.db.advance(101)
    rows = box.claim(OTHER)
    assert sorted(ids(rows)) == made
    assert {row["attempt"] for row in rows} == {1}


def test_obx_014_ibx_034_claim_sets_locked_until_to_now_plus_lease_seconds(box: Box) -> None:
    message = box.put()
    before = server_now(box.db)
    (row,) = box.claim(lease_seconds=77)
    after = server_now(box.db)
    margin = timedelta(milliseconds=5)
    assert before - margin <= row["locked_until"] - timedelta(seconds=77) <= after + margin
    assert box.get(message)["locked_until"] == row["locked_until"]


def test_obx_015_ibx_035_claim_sets_the_owner(box: Box) -> None:
    first, second = box.put(), box.put()
    assert box.take(OWNER, batch=1) == [first]
    assert box.take(OTHER, batch=1) == [second]
    assert [box.get(message)["owner_token"] for message in (first, second)] == [OWNER, OTHER]
    assert box.status(first) == box.leased


def test_obx_016_ibx_036_claim_answers_the_ids_of_what_it_leased(box: Box) -> None:
    box.fill(4)
    answered = box.take(batch=3)
    query = f"SELECT id FROM {{schema}}.{box.name}_messages WHERE owner_token IS NOT NULL ORDER BY id"
    held = box.db.sql(query)
    assert ids(held) == answered


def test_obx_017_ibx_037_claim_of_an_empty_box_answers_no_rows(box: Box) -> None:
    assert box.claim() == []
    box.made_done()
    box.made_dead()
    assert box.claim() == []


def test_obx_018_obx_019_ibx_038_claim_skips_done_and_dead(box: Box) -> None:
    box.made_done(2)
    box.made_dead(2)
    box.made_done(1, group_id="g")
    box.made_dead(1, group_id="g")
    box.db.advance(10**6)
    assert box.take() == []
    fresh = box.put()
    assert box.take() == [fresh]


def test_obx_020_ibx_039_claim_never_exceeds_batch_size(box: Box) -> None:
    made = box.fill(30) + box.fill(30, group_id="g") + box.fill(5, priority=3)
    seen: list[int] = []
    for size in (1, 2, 7, 40, 3, 5, 1, 40, 40):
        taken = box.take(batch=size)
        assert len(taken) <= size
        assert box.ack(OWNER, taken) == len(taken)
        seen += taken
    assert sorted(seen) == sorted(made)


def test_ibx_031_claim_skips_what_was_only_seen(inbox: Box) -> None:
    inbox.call("already_processed", message_id="m", source="s", hash=None)
    inbox.affected("mark_processing", message_id="m", source="s")
    assert inbox.take() == []
    assert inbox.count() == 1


def test_ibx_040_claim_refuses_lease_seconds_out_of_range(box: Box) -> None:
    box.put()
    for value in (0, -1, 86401, None):
        with refuses("lease_seconds"):
            box.claim(lease_seconds=value)
    assert len(box.take(lease=86400)) == 1


def test_ibx_041_claim_refuses_batch_size_out_of_range(box: Box) -> None:
    message = box.put()
    for value in (0, -1, 10001, None):
        with refuses("batch_size"):
            box.claim(batch_size=value)
    assert box.take(batch=10000) == [message]


def test_ibx_043_ibx_130_claim_refuses_a_null_or_nil_owner(box: Box) -> None:
    message = box.put()
    for value in (None, NIL):
        with refuses("owner_token"):
            box.claim(value)
    assert box.status(message) == box.waiting
    assert box.get(message)["owner_token"] is None


def test_contract_claim_refuses_a_malformed_owner(box: Box) -> None:
    message = box.put()
    with unreadable(box.db):
        box.claim("no uuid")
    assert box.status(message) == box.waiting


def test_ibx_042_claim_waits_for_the_next_attempt_time(box: Box) -> None:
    message = box.put()
    box.take()
    box.abandon(OWNER, [message], delay_seconds=50)
    assert box.take() == []
    box.db.advance(45)
    assert box.take() == []
    box.db.advance(10)
    assert box.take() == [message]


def test_contract_claim_order_is_priority_then_enqueue_order(box: Box) -> None:
    priorities = [0, 5, -5, 0, 32767, 5, -32768, 1]
    made = [box.put(priority=priority) for priority in priorities]
    expected = sorted(made, key=lambda message: (-priorities[made.index(message)], message))
    assert box.take(batch=3) + box.take(OTHER, batch=2) + box.take(batch=10) == expected


def test_contract_a_released_message_queues_behind_what_was_claimable(box: Box) -> None:
    made = box.fill(4)
    assert box.take(batch=2) == made[:2]
    assert box.release(OWNER, made[:2]) == 2
    late = box.put()
    assert box.take() == [*made[2:], *made[:2], late]


def test_contract_a_retried_message_queues_behind_what_was_claimable(box: Box) -> None:
    made = box.fill(3)
    assert box.take(batch=1) == made[:1]
    box.abandon(OWNER, made[:1], delay_seconds=5)
    box.db.advance(10)
    assert box.take() == [*made[1:], made[0]]


def test_contract_a_reaped_message_queues_behind_what_was_claimable(box: Box) -> None:
    made = box.fill(3)
    assert box.take(batch=1, lease=10) == made[:1]
    box.db.advance(20)
    assert box.reap() == 1
    assert box.take() == [*made[1:], made[0]]


def test_contract_a_delayed_message_queues_behind_what_was_claimable(box: Box) -> None:
    delayed = box.put(due_at=server_now(box.db) + timedelta(seconds=100))
    made = box.fill(2)
    box.db.advance(200)
    assert box.take() == [*made, delayed]


def test_contract_a_replayed_message_queues_behind_what_was_claimable(box: Box) -> None:
    (dead,) = box.made_dead()
    made = box.fill(2)
    assert box.affected("replay", ids=[dead]) == 1
    assert box.take() == [*made, dead]


def test_contract_returning_messages_keep_their_priority(box: Box) -> None:
    high, low = box.put(priority=2), box.put(priority=-2)
    normal = box.put()
    assert box.take() == [high, normal, low]
    assert box.release(OWNER, [low, normal, high]) == 3
    assert box.take() == [high, normal, low]
    box.abandon(OWNER, [low, normal, high], delay_seconds=1)
    box.db.advance(5)
    assert box.take() == [high, normal, low]


def test_contract_delayed_messages_come_in_the_order_of_their_due_times(box: Box) -> None:
    now = server_now(box.db)
    made = [box.put(due_at=now + timedelta(seconds=seconds)) for seconds in (300, 100, 200)]
    box.db.advance(400)
    assert box.take() == [made[1], made[2], made[0]]


def test_contract_claim_limited_to_topics(box: Box) -> None:
    put = {topic: box.fill(2, topic=topic) for topic in ("a", "b", "c")}
    assert box.take(topics=["a", "c"], batch=3) == [*put["a"], put["c"][0]]
    assert box.take(topics=["nobody"]) == []
    assert box.take(topics=["b", "b", "nobody"]) == put["b"]
    assert box.take() == put["c"][1:]


def test_contract_claim_limited_to_topics_keeps_the_claim_order_over_them(box: Box) -> None:
    topics = ["a", "b", "x", "a", "b", "a", "x", "b"]
    made = [box.put(topic) for topic in topics]
    urgent = box.put("b", priority=1)
    expected = [urgent, *(message for topic, message in zip(topics, made, strict=True) if topic != "x")]
    assert box.take(topics=["b", "a"], batch=20) == expected


def test_contract_claim_of_an_empty_set_of_topics_takes_nothing(box: Box) -> None:
    message = box.put()
    assert box.take(topics=[]) == []
    assert box.take(topics=None) == [message]


def test_contract_claim_finds_a_topic_behind_many_foreign_ones(box: Box) -> None:
    box.fill(500, topic="foreign")
    wanted = box.fill(3, topic="wanted")
    assert box.take(topics=["wanted"]) == wanted


def test_contract_claim_refuses_a_malformed_set_of_topics(box: Box) -> None:
    message = box.put("[")
    for text in ("[", "x", '{"a"', '["a"'):
        with pytest.raises(InvalidArgument):
            box.claim(topics=text)
    assert box.take(topics=["["]) == [message]


def test_contract_claim_takes_hundreds_that_came_due_and_hundreds_that_were_lost(box: Box) -> None:
    now = server_now(box.db)
    later = box.fill(250, due_at=now + timedelta(seconds=50))
    assert box.take() == []
    box.db.advance(100)
    assert box.take(batch=400, lease=10) == later
    box.db.advance(20)
    found: set[int] = set()
    for _ in range(4):
        found.update(box.take(OTHER, batch=400, lease=1000))
    assert sorted(found) == later


def test_contract_claim_takes_a_large_batch_whole(box: Box) -> None:
    made = box.fill(2500)
    assert box.take(batch=10000) == made


def test_obx_092_ibx_103_claim_refuses_an_isolation_level_that_would_mislead_it(box: Box) -> None:
    """SQL Server's claim is never misled: it changes over to READ COMMITTED for itself."""
    needs_isolation_levels(box.db)
    message = box.put()
    with box.db.session() as session:
        session.sql("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        if box.db.dialect == "mssql":
            assert box.on(session).take() == [message]
        else:
            with pytest.raises(InvalidState):
                box.on(session).claim()
        session.rollback()
    assert box.take() == [message]


def test_contract_last_error_attempt_and_due_time_come_with_the_next_claim(box: Box) -> None:
    message = box.put()
    box.take()
    box.abandon(OWNER, [message], last_error="boom ü", delay_seconds=3)
    box.db.advance(5)
    (row,) = box.claim()
    assert (row["id"], row["attempt"], row["last_error"]) == (message, 1, "boom ü")
    assert row["due_at"] is not None
