"""Counting of steps by whatever settles a message: once per message and join, and in the same transaction."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from tests.contract.joins import Joins, ids_of
from tests.contract.support import OTHER, OWNER, Row, impatient, needs_lock_hints, server_now


def outcome(message: object, result: str = "ack", **more: object) -> Row:
    """A record of a settled batch."""
    return {"id": message, "result": result} | more


def test_obx_027_obx_083_ack_counts_completed_steps(joins: Joins) -> None:
    join = joins.start(4)
    made = joins.held(3, join)
    assert joins.box.ack(OWNER, made[:1]) == 1
    assert joins.counts(join) == (1, 0)
    assert joins.box.ack(OWNER, made[1:]) == 2
    assert joins.counts(join) == (3, 0)
    assert {member["status"] for member in joins.members(join)} == {"Completed"}


def test_obx_040_obx_083_fail_counts_failed_steps(joins: Joins) -> None:
    join = joins.start(4)
    made = joins.held(3, join)
    assert joins.box.fail(OWNER, made[:1]) == 1
    assert joins.counts(join) == (0, 1)
    assert joins.box.fail(OWNER, made[1:]) == 2
    assert joins.counts(join) == (0, 3)
    assert {member["status"] for member in joins.members(join)} == {"Failed"}


def test_obx_027_obx_040_several_steps_of_several_joins_in_one_batch(joins: Joins) -> None:
    one, two, three = joins.start(10), joins.start(10), joins.start(10)
    made = [
        *joins.held(4, one),
        *joins.held(3, two),
        *joins.held(2, one, two),
        *joins.held(1, one, two, three),
        *joins.held(2),
    ]
    assert joins.box.ack(OWNER, made) == 12
    assert [joins.counts(join) for join in (one, two, three)] == [(7, 0), (6, 0), (1, 0)]
    made = [*joins.held(2, one, three), *joins.held(1, two, three)]
    assert joins.box.fail(OWNER, made) == 3
    assert [joins.counts(join) for join in (one, two, three)] == [(7, 2), (6, 1), (1, 3)]


def test_obx_028_obx_041_counters_move_with_the_settlement_or_not_at_all(joins: Joins) -> None:
    join = joins.start(4)
    made = joins.held(3, join)
    joins.wait(join)
    with joins.box.db.session() as session:
        inside = joins.on(session)
        inside.box.ack(OWNER, made[:1])
        inside.box.fail(OWNER, made[1:2])
        assert inside.counts(join) == (1, 1)
        assert joins.counts(join) == (0, 0)
        session.rollback()
    assert joins.counts(join) == (0, 0)
    with joins.box.db.session() as session:
        inside = joins.on(session)
        inside.box.settle(OWNER, [outcome(made[0]), outcome(made[1], "fail", error="e")], claim_batch=5)
        session.rollback()
    assert joins.counts(join) == (0, 0)
    with joins.box.db.session() as session:
        joins.on(session).box.ack(OWNER, made)
        session.commit()
    assert joins.counts(join) == (3, 0)


def test_obx_028_the_completing_ack_that_is_rolled_back_wakes_nobody(joins: Joins) -> None:
    join = joins.start()
    waiting = joins.wait(join, on_complete_topic="good")
    made = joins.held(1, join)
    with joins.box.db.session() as session:
        inside = joins.on(session)
        assert inside.box.ack(OWNER, made) == 1
        assert inside.woken() == [waiting.id], "the transaction itself sees its join complete"
        session.rollback()
    joins.box.db.advance(5)
    assert joins.woken() == []
    assert joins.resolve(join)["status"] == "Pending"
    joins.box.ack(OWNER, made)
    assert joins.woken() == [waiting.id]


def test_obx_083_settle_counts_both_kinds(joins: Joins) -> None:
    join, other = joins.start(9), joins.start(9)
    made = joins.held(6, join) + joins.held(2, join, other)
    joins.box.settle(
        OWNER,
        [
            outcome(made[0]),
            outcome(made[1], "fail", error="e"),
            outcome(made[2], "abandon"),
            outcome(made[3], "release"),
            outcome(made[4]),
            outcome(made[6]),
            outcome(made[7], "fail", error="f"),
        ],
    )
    assert joins.counts(join) == (3, 2)
    assert joins.counts(other) == (1, 1)


def test_contract_settle_counts_the_first_record_of_a_step(joins: Joins) -> None:
    join = joins.start(3)
    made = joins.held(3, join)
    records = [
        outcome(made[0]),
        outcome(made[0], "fail", error="e"),
        outcome(made[1], "fail", error="e"),
        outcome(made[1]),
        outcome(made[2], "release"),
        outcome(made[2]),
    ]
    joins.box.settle(OWNER, records)
    assert joins.counts(join) == (1, 1)


def test_contract_a_settle_of_acks_alone_counts(joins: Joins) -> None:
    join = joins.start(3)
    made = joins.held(3, join)
    joins.box.settle(OWNER, [outcome(message) for message in made])
    assert joins.counts(join) == (3, 0)


def test_contract_foreign_unknown_and_repeated_ids_do_not_count(joins: Joins) -> None:
    box, join = joins.box, joins.start(9)
    mine = joins.held(2, join)
    foreign = joins.held(2, join, owner=OTHER)
    unclaimed = ids_of(joins.steps(1, join))
    batch = [*mine[:1], *foreign, *unclaimed, *mine[:1], 10**15, -1]
    assert box.ack(OWNER, batch) == 1
    assert joins.counts(join) == (1, 0)
    assert box.fail(OWNER, [*foreign, *mine, *mine, *unclaimed]) == 1
    assert joins.counts(join) == (1, 1)
    box.settle(OWNER, [outcome(message) for message in (*foreign, *mine, *unclaimed)])
    assert box.ack(OWNER, mine) == 0
    assert joins.counts(join) == (1, 1)
    assert box.ack(OTHER, foreign) == 2
    assert joins.counts(join) == (3, 1)


def test_contract_giving_back_does_not_count(joins: Joins) -> None:
    box, join = joins.box, joins.start(4)
    made = joins.held(4, join)
    box.abandon(OWNER, made[:1], delay_seconds=1)
    box.release(OWNER, made[1:2])
    box.extend(OWNER, made[2:3], 20)
    box.db.advance(40)
    assert box.reap() == 2
    assert joins.counts(join) == (0, 0)
    taken = box.take(OTHER)
    assert sorted(taken) == made
    assert box.ack(OWNER, made) == 0
    assert joins.counts(join) == (0, 0)
    assert box.ack(OTHER, taken) == 4
    assert joins.counts(join) == (4, 0)


def test_contract_a_step_that_expires_in_a_claim_counts_as_failed(joins: Joins) -> None:
    box, join = joins.box, joins.start(6)
    soon = server_now(box.db) + timedelta(seconds=100)
    joins.steps(1, join, expires_at=soon)
    joins.steps(1, join, expires_at=soon, priority=4)
    joins.steps(1, join, expires_at=soon, group_id="g")
    kept = joins.steps(1, join, group_id="g")
    joins.steps(1, join, expires_at=soon, due_at=soon + timedelta(seconds=10))
    waiting = joins.wait(join)
    box.db.advance(200)
    assert box.take(topics=["step"]) + box.take(topics=["step"]) == ids_of(kept)
    box.db.advance(1)
    assert box.take(OTHER) == []
    assert joins.counts(join) == (0, 4)
    box.ack(OWNER, ids_of(kept))
    assert joins.counts(join) == (1, 4)
    last = joins.steps(1, join, expires_at=soon)
    woken = box.take(OTHER) or box.take(OTHER)
    assert woken == [waiting.id], "the claim that meets the last one wakes whoever waits"
    assert joins.counts(join) == (1, 5)
    assert box.status(last[0].id) == "Expired"


def test_contract_a_step_that_expired_while_it_was_held_counts_once_it_is_given_back(joins: Joins) -> None:
    box, join = joins.box, joins.start(2)
    soon = server_now(box.db) + timedelta(seconds=100)
    made = joins.held(2, join, expires_at=soon)
    box.extend(OWNER, made, 200)
    box.db.advance(150)
    assert joins.counts(join) == (0, 0)
    box.release(OWNER, made[:1])
    assert box.take(OTHER) == []
    assert joins.counts(join) == (0, 1)
    box.db.advance(100)
    assert box.reap() == 1
    assert box.take(OTHER) == []
    assert joins.counts(join) == (0, 2)


def test_contract_reaps_giving_up_counts_as_failed(joins: Joins) -> None:
    box, join = joins.box, joins.start(3)
    box.configure("max_attempts", "1")
    joins.held(2, join)
    waiting = joins.wait(join)
    box.db.advance(40)
    assert box.reap() == 2
    assert joins.counts(join) == (0, 2)
    (last,) = joins.held(1, join)
    box.db.advance(40)
    assert waiting.id in box.take(OTHER) + box.take(OTHER), "a claim that reaps counts, too, and wakes"
    assert box.status(last) == "Failed"
    assert joins.counts(join) == (0, 3)


def test_contract_a_discarded_step_stays_failed(joins: Joins) -> None:
    box, join = joins.box, joins.start(3)
    made = joins.held(2, join)
    box.fail(OWNER, made)
    assert box.affected("discard", ids=made[:1]) == 1
    assert joins.counts(join) == (0, 2)
    members = joins.members(join)
    assert [member["status"] for member in members] == ["Failed", "Failed"]
    assert not joins.completed(join, members[0]["message_id"])
    assert joins.counts(join) == (0, 2)


def test_contract_cleanup_keeps_what_was_counted(joins: Joins) -> None:
    box, join, late = joins.box, joins.start(4), joins.start(4)
    made = joins.steps(4, join, late)
    box.take(batch=4)
    box.ack(OWNER, ids_of(made[:2]))
    box.fail(OWNER, ids_of(made[2:]))
    box.db.advance(100)
    assert box.affected("cleanup", retention_seconds=50) == 2
    assert box.affected("cleanup_dead", retention_seconds=50) == 2
    assert box.count() == 0
    for each in (join, late):
        assert joins.counts(each) == (2, 2)
        statuses = [member["status"] for member in joins.members(each)]
        assert statuses == ["Completed", "Completed", "Failed", "Failed"]
        for step in made:
            assert not joins.attach(each, step)
            assert not joins.completed(each, step)
            assert not joins.failed(each, step)
        assert joins.counts(each) == (2, 2)
    joins.wait(join)
    assert joins.resolve(join)["status"] == "Failed"


def test_contract_a_step_replaced_by_a_newer_message_counts_as_failed(joins: Joins) -> None:
    box, join = joins.box, joins.start(5)
    waiting = joins.wait(join)
    steps = joins.steps(1, join, collapse_key="k")
    steps += joins.steps(1, join, collapse_key="l", group_id="g")
    steps += joins.steps(1, join, collapse_key="m", due_at=server_now(box.db) + timedelta(seconds=900))
    steps += joins.steps(1, join, collapse_key="n")
    for key in "klm":
        assert joins.box.enqueue("newer", collapse_key=key)["outcome"] == "collapsed"
    assert joins.counts(join) == (0, 3)
    box.enqueue_many(box.record("newer", collapse_key="n"))
    assert joins.counts(join) == (0, 4)
    assert [member["status"] for member in joins.members(join)] == ["Failed"] * 4
    assert not joins.completed(join, steps[0])
    assert not joins.attach(join, steps[0])
    assert joins.woken() == []
    joins.steps(1, join, collapse_key="k2")
    box.put("newer", collapse_key="k2")
    assert joins.woken() == [waiting.id]
    assert joins.counts(join) == (0, 5)


def test_contract_a_held_step_is_not_replaced_and_counts_by_its_own_end(joins: Joins) -> None:
    join = joins.start(2)
    made = joins.held(1, join, collapse_key="k")
    newer = joins.box.enqueue("newer", collapse_key="k")
    assert newer["outcome"] == "created"
    assert joins.counts(join) == (0, 0)
    joins.box.ack(OWNER, made)
    assert joins.counts(join) == (1, 0)


def test_contract_a_failed_step_that_is_replayed_and_acknowledged_has_counted_once(joins: Joins) -> None:
    box, join, other = joins.box, joins.start(3), joins.start(3)
    made = joins.held(2, join, other)
    box.fail(OWNER, made)
    assert box.affected("replay", ids=made) == 2
    assert joins.counts(join) == (0, 2)
    assert sorted(box.take()) == made
    box.ack(OWNER, made[:1])
    box.fail(OWNER, made[1:])
    for each in (join, other):
        assert joins.counts(each) == (0, 2)
        assert [member["status"] for member in joins.members(each)] == ["Failed", "Failed"]
        assert not joins.completed(each, joins.members(each)[0]["message_id"])


def test_contract_a_replayed_step_counts_for_a_join_that_did_not_know_it(joins: Joins) -> None:
    box, join = joins.box, joins.start(3)
    first, second = joins.steps(2)
    box.take()
    box.fail(OWNER, [first.id, second.id])
    assert box.affected("replay", ids=[first.id, second.id]) == 2
    assert joins.attach(join, first)
    assert joins.counts(join) == (0, 0)
    assert sorted(box.take()) == [first.id, second.id]
    box.ack(OWNER, [first.id, second.id])
    assert joins.counts(join) == (1, 0)
    assert joins.attach(join, second)
    assert joins.counts(join) == (2, 0)


@pytest.mark.parametrize("fails", [False, True])
def test_contract_steps_of_fifo_groups_count(joins: Joins, fails: bool) -> None:
    box, join = joins.box, joins.start(8)
    for group in "abab":
        joins.steps(2, join, group_id=group)
    waiting = joins.wait(join)
    taken: list[int] = []
    first = 0
    while some := box.take(batch=3, topics=["step"]):
        if fails and not taken:
            first = box.fail(OWNER, some)
        else:
            box.ack(OWNER, some)
        taken += some
    assert len(taken) == 8
    assert joins.counts(join) == (8 - first, first)
    assert joins.woken() == [waiting.id]


def test_contract_delayed_and_retried_steps_count_when_they_are_done(joins: Joins) -> None:
    box, join = joins.box, joins.start(2)
    (delayed,) = joins.steps(1, join, due_at=server_now(box.db) + timedelta(seconds=100))
    (retried,) = joins.held(1, join)
    box.abandon(OWNER, [retried], delay_seconds=50)
    assert joins.counts(join) == (0, 0)
    box.db.advance(200)
    taken = box.take()
    assert sorted(taken) == [delayed.id, retried]
    box.ack(OWNER, taken)
    assert joins.counts(join) == (2, 0)


def test_contract_hundreds_of_single_settlements_add_up(joins: Joins) -> None:
    join, other = joins.start(160), joins.start(160)
    made = joins.held(160, join, other, lease=3600)  # a slow engine takes minutes
    for n, message in enumerate(made):
        (joins.box.fail if n % 4 == 3 else joins.box.ack)(OWNER, [message])
        if n == 99:
            assert joins.box.take(topics=["nothing"]) == []
            assert joins.counts(join) == (75, 25)
    assert joins.counts(join) == (120, 40)
    waiting = joins.wait(join, fail_if_any_step_failed=False)
    assert joins.woken() == [waiting.id]
    row = joins.resolve(join)
    assert (row["status"], row["completed_steps"], row["failed_steps"]) == ("Completed", 120, 40)
    assert joins.counts(other) == (120, 40)


def test_contract_a_batch_of_a_thousand_steps_counts_at_once(joins: Joins) -> None:
    join = joins.start(300)
    box = joins.box
    rows = box.enqueue_many(*[box.record("step") for _ in range(1000)])
    for row in rows[::4]:
        joins.attach(join, row["message_id"])
    taken = box.take(batch=1000)
    assert len(taken) == 1000
    box.settle(OWNER, [outcome(message) for message in taken])
    assert joins.counts(join) == (250, 0)


def test_contract_counting_leaves_the_statistics_alone(joins: Joins) -> None:
    join = joins.start(4)
    made = joins.held(3, join)
    joins.box.ack(OWNER, made[:2])
    joins.box.fail(OWNER, made[2:])
    total = joins.box.stats()[None]
    shown = {name: total[name] for name in ("ready", "scheduled", "in_flight", "done", "dead")}
    assert shown == {"ready": 0, "scheduled": 0, "in_flight": 0, "done": 2, "dead": 1}
    assert total["oldest_ready_seconds"] is None


def test_contract_a_message_id_may_become_a_step_again_after_its_message_is_gone(joins: Joins) -> None:
    box, own = joins.box, uuid4()
    join, later = joins.start(), joins.start()
    first = joins.put(message_id=own)
    joins.attach(join, first)
    box.take()
    box.ack(OWNER, [first.id])
    box.db.advance(5000)
    assert box.affected("cleanup", retention_seconds=100) == 1
    second = joins.put(message_id=own)
    assert second.id != first.id
    assert joins.attach(later, second)
    box.take()
    box.ack(OWNER, [second.id])
    assert joins.counts(join) == (1, 0)
    assert joins.counts(later) == (1, 0)


def test_obx_028_two_open_settles_with_the_last_steps_do_not_miss_the_end(joins: Joins) -> None:
    needs_lock_hints(joins.box.db)
    for last_first in (False, True):
        join = joins.start(2)
        waiting = joins.wait(join)
        (mine,), (other,) = joins.held(1, join), joins.held(1, join, owner=OTHER)
        with joins.box.db.session() as one, joins.box.db.session() as two:
            first, second = joins.on(impatient(one)), joins.on(impatient(two))
            assert first.box.settle(OWNER, [outcome(mine)], claim_batch=5) == []
            assert second.box.settle(OTHER, [outcome(other)], claim_batch=5) == []
            for session in (two, one) if last_first else (one, two):
                session.commit()
        joins.box.db.advance(1)
        assert joins.woken() == [waiting.id]
        assert joins.resolve(join)["status"] == "Completed"
        joins.box.ack(OWNER, [waiting.id])
