"""FIFO groups: in order, one holder at a time, and nobody else held up."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contract.support import OTHER, OWNER, Box, server_now


def drain(box: Box, batch: int) -> list[int]:
    """Claims and acknowledges until nothing is left."""
    drained: list[int] = []
    while some := box.take(batch=batch):
        assert box.ack(OWNER, some) == len(some)
        drained += some
    return drained


@pytest.mark.parametrize("batch", [1, 2, 3, 100])
def test_contract_a_groups_messages_come_in_id_order(box: Box, batch: int) -> None:
    groups = ["a", "b", "a", None, "c", "b", "a", "a", None, "c", "b"]
    made = [(group, box.put(group_id=group)) for group in groups]
    drained = drain(box, batch)
    assert sorted(drained) == [message for _, message in made]
    for group in ("a", "b", "c"):
        members = [message for name, message in made if name == group]
        assert [message for message in drained if message in members] == members


def test_contract_one_claim_may_hand_out_several_of_a_group_in_order(box: Box) -> None:
    made = box.fill(5, group_id="g")
    assert box.take(batch=3) == made[:3]
    assert box.ack(OWNER, made[:3]) == 3
    assert box.take(batch=10) == made[3:]


def test_contract_one_worker_holds_a_group_at_a_time(box: Box) -> None:
    made = box.fill(4, group_id="g")
    assert box.take(OWNER, batch=1) == made[:1]
    assert box.take(OTHER) == []
    assert box.take(OWNER) == [], "a second claim of the same worker would overtake the first"
    assert box.ack(OWNER, made[:1]) == 1
    assert box.take(OTHER, batch=1) == made[1:2]
    assert box.take(OWNER) == []


def test_contract_a_group_stays_with_its_holder_until_the_last_is_settled(box: Box) -> None:
    made = box.fill(3, group_id="g")
    assert box.take(OWNER, batch=2) == made[:2]
    assert box.ack(OWNER, made[:1]) == 1
    assert box.take(OTHER) == []
    assert box.ack(OWNER, made[1:2]) == 1
    assert box.take(OTHER) == made[2:]


def test_contract_other_groups_and_ungrouped_ones_go_on(box: Box) -> None:
    held = box.put(group_id="held")
    assert box.take(OWNER) == [held]
    box.put(group_id="held")
    free = [box.put(group_id="free"), box.put(), box.put(group_id="third")]
    assert box.take(OTHER) == free


def test_contract_a_message_waiting_for_its_retry_blocks_its_group(box: Box) -> None:
    made = box.fill(2, group_id="g")
    assert box.take(batch=1) == made[:1]
    box.abandon(OWNER, made[:1], delay_seconds=100)
    assert box.take() == []
    box.db.advance(90)
    assert box.take(OTHER) == []
    box.db.advance(20)
    assert box.take(OTHER, batch=1) == made[:1]
    assert box.ack(OTHER, made[:1]) == 1
    assert box.take() == made[1:]


def test_contract_a_message_that_is_not_due_blocks_those_behind_it(box: Box) -> None:
    later = box.put(group_id="g", due_at=server_now(box.db) + timedelta(seconds=100))
    behind = box.put(group_id="g")
    assert box.take() == []
    box.db.advance(200)
    assert box.take() == [later, behind]


def test_contract_a_member_that_is_not_due_does_not_hold_up_those_before_it(box: Box) -> None:
    first = box.put(group_id="g")
    later = box.put(group_id="g", due_at=server_now(box.db) + timedelta(seconds=100))
    third = box.put(group_id="g")
    assert box.take() == [first]
    box.ack(OWNER, [first])
    assert box.take() == []
    box.db.advance(200)
    assert box.take() == [later, third]


def test_contract_a_dead_or_done_message_does_not_block_its_group(box: Box) -> None:
    made = box.fill(3, group_id="g")
    assert box.take(batch=1) == made[:1]
    box.fail(OWNER, made[:1])
    assert box.take(batch=1) == made[1:2]
    box.ack(OWNER, made[1:2])
    assert box.take(batch=1) == made[2:]


def test_contract_a_message_that_dies_when_reaped_does_not_block_its_group(box: Box) -> None:
    box.configure("max_attempts", "1")
    made = box.fill(2, group_id="g")
    assert box.take(OWNER, batch=1, lease=10) == made[:1]
    box.db.advance(20)
    assert box.reap() == 1
    assert box.status(made[0]) == box.dead
    assert box.take(OTHER) == made[1:]


def test_contract_released_members_come_again_first(box: Box) -> None:
    made = box.fill(4, group_id="g")
    assert box.take(batch=2) == made[:2]
    assert box.release(OWNER, made[:2]) == 2
    assert drain(box, 3) == made


def test_contract_a_lost_group_goes_to_another_worker_in_order(box: Box) -> None:
    made = box.fill(3, group_id="g")
    assert box.take(OWNER, batch=2, lease=10) == made[:2]
    box.db.advance(20)
    assert box.take(OTHER) == made
    assert box.ack(OWNER, made) == 0
    assert box.ack(OTHER, made) == 3


def test_contract_a_group_with_one_lease_lost_and_one_kept_stays_held(box: Box) -> None:
    made = box.fill(3, group_id="g")
    assert box.take(OWNER, batch=2, lease=10) == made[:2]
    box.extend(OWNER, made[:1], 1000)
    box.db.advance(20)
    assert box.reap() == 1
    assert box.take(OTHER) == []
    assert box.ack(OWNER, made[:1]) == 1
    assert box.take(OTHER) == made[1:]


def test_contract_a_group_that_waits_for_its_head_does_not_hold_up_what_is_due(box: Box) -> None:
    later = server_now(box.db) + timedelta(seconds=100)
    waiting = [box.put(group_id="g", due_at=later)] + [box.put(group_id="g") for _ in range(210)]
    behind = box.put(due_at=later + timedelta(seconds=1))
    box.db.advance(200)
    assert box.take(OTHER, batch=1) == waiting[:1]
    assert box.take(batch=1) == [behind]


def test_contract_groups_of_higher_priority_come_first(box: Box) -> None:
    low, ungrouped = box.fill(2, group_id="low", priority=-1), box.put()
    high = box.fill(2, group_id="high", priority=5)
    urgent = box.put(priority=7)
    assert box.take(batch=1) == [urgent]
    assert box.take(batch=1) == high[:1]
    assert box.take(OTHER, batch=2) == [ungrouped, low[0]]
    assert box.ack(OTHER, [low[0]]) == 1
    assert box.ack(OWNER, [high[0]]) == 1
    assert box.take(batch=1) == high[1:]
    assert box.take(batch=1) == low[1:]


def test_contract_a_group_stands_where_the_priority_of_its_head_puts_it(box: Box) -> None:
    low = [box.put(group_id="low", priority=-1), box.put(group_id="low", priority=9)]
    middle = box.put(priority=2)
    assert box.take(batch=1) == [middle], "the urgent one waits behind its head, and must not pull it forward"
    assert box.take(batch=1) == low[:1]
    assert box.ack(OWNER, [middle, low[0]]) == 2
    late = box.put(priority=3)
    assert box.take(batch=1) == low[1:]
    assert box.take() == [late]


def test_contract_priority_does_not_change_the_order_within_a_group(box: Box) -> None:
    made = [box.put(group_id="g", priority=priority) for priority in (0, 5, -5, 9)]
    assert drain(box, 2) == made


def test_contract_a_paused_head_blocks_its_group(box: Box) -> None:
    first, second = box.put("a", group_id="g"), box.put("b", group_id="g")
    other = box.put("b")
    box.affected("pause", topic="a")
    assert box.take() == [other]
    box.affected("resume", topic="a")
    assert box.take() == [first, second]


def test_contract_a_head_of_another_topic_blocks_its_group(box: Box) -> None:
    first, second = box.put("a", group_id="g"), box.put("b", group_id="g")
    assert box.take(topics=["b"]) == []
    assert box.take(topics=["a"]) == [first]
    box.ack(OWNER, [first])
    assert box.take(topics=["a"]) == []
    assert box.take(topics=["b"]) == [second]


def test_contract_a_group_may_be_used_again_after_it_was_empty(box: Box) -> None:
    for _ in range(4):
        made = box.fill(2, group_id="g")
        assert box.take() == made
        late = box.put(group_id="g")
        assert box.take(OTHER) == []
        assert box.ack(OWNER, made) == 2
        assert box.take() == [late]
        assert box.ack(OWNER, [late]) == 1
    assert box.take() == []


def test_contract_a_message_enqueued_into_a_held_group_waits_its_turn(box: Box) -> None:
    first = box.put(group_id="g")
    assert box.take() == [first]
    second = box.put(group_id="g")
    urgent = box.put(group_id="g", priority=100)
    assert box.take(OTHER) == []
    box.fail(OWNER, [first])
    assert drain(box, 1) == [second, urgent]


def test_contract_a_replayed_member_takes_its_place_by_id(box: Box) -> None:
    made = box.fill(3, group_id="g")
    assert box.take(batch=1) == made[:1]
    box.fail(OWNER, made[:1])
    assert box.affected("replay", ids=made[:1]) == 1
    assert drain(box, 10) == made


def test_contract_a_collapsed_member_leaves_its_group_in_order(box: Box) -> None:
    first = box.put(group_id="g")
    gone = box.put(group_id="g", collapse_key="k")
    third = box.put(group_id="g")
    fourth = box.enqueue(group_id="g", collapse_key="k")
    assert fourth["outcome"] == "collapsed"
    assert drain(box, 10) == [first, third, fourth["id"]]
    assert gone not in (first, third)


def test_contract_a_collapsed_head_does_not_strand_its_group(box: Box) -> None:
    box.put(group_id="g", collapse_key="k")
    second = box.put(group_id="g")
    third = box.put(group_id="other", collapse_key="k")
    assert sorted(drain(box, 1)) == [second, third]


def test_contract_many_groups_in_one_batch(box: Box) -> None:
    made = [box.record(group_id=f"g{n % 300}", payload=str(n)) for n in range(900)]
    rows = box.enqueue_many(*made)
    order = {row["id"]: n for n, row in enumerate(rows)}
    drained: list[int] = []
    for _ in range(20):
        some = box.take(batch=400)
        assert box.ack(OWNER, some) == len(some)
        drained += some
        box.db.advance(1)  # a claim enters a bounded number of new groups; the others come a little later
    assert sorted(drained) == sorted(order)
    for group in range(300):
        members = [order[message] for message in drained if order[message] % 300 == group]
        assert members == sorted(members)


def test_contract_a_hot_group_drains_in_order_beside_many_others(box: Box) -> None:
    hot = box.fill(300, group_id="hot")
    others = [box.put(group_id=f"g{n}") for n in range(5)]
    drained = drain(box, 40)
    assert [message for message in drained if message in set(hot)] == hot
    assert sorted(drained) == hot + others


def test_contract_settling_one_group_leaves_the_hold_on_another(box: Box) -> None:
    made = [box.put(group_id=group) for group in "abab"]
    assert box.take(OWNER, batch=2) == made[:2]
    assert box.ack(OWNER, made[:1]) == 1
    assert box.take(OTHER) == [made[2]]
    assert box.abandon(OWNER, made[1:2], delay_seconds=10) == 1
    assert box.take(OTHER) == []
    box.db.advance(20)
    assert box.take(OTHER) == [made[1], made[3]]
