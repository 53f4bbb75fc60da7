"""The end of a join: the message that waits for it, its resolution, the follow-up that is enqueued once."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import uuid4

import pytest

from pysqlbox.errors import InvalidState
from tests.contract.joins import SAFETY_NET, WAIT, Joins, follow_ups, joins_of
from tests.contract.support import HOSTILE, LONG, OTHER, OWNER, TOO_LONG, headers_of, ids, refuses


def test_contract_wait_enqueues_a_message_that_tells_its_join(joins: Joins) -> None:
    join = joins.start(2)
    waiting = joins.wait(join)
    row = joins.box.get(waiting.id)
    assert (row["message_id"], row["topic"]) == (waiting.message_id, WAIT)
    assert json.loads(row["payload"]) == {"join_id": str(join)}
    assert (row["group_id"], row["attempt"], row["expires_at"]) == (None, 0, None)
    assert headers_of(row) is None


def test_obx_084_the_waiting_message_comes_with_the_last_step_and_not_before(joins: Joins) -> None:
    join = joins.start(3)
    waiting = joins.wait(join)
    made = joins.held(3, join)
    assert joins.box.take() == []
    joins.box.ack(OWNER, made[:1])
    assert joins.box.take() == []
    joins.box.fail(OWNER, made[1:2])
    assert joins.box.take() == []
    joins.box.ack(OWNER, made[2:])
    (row,) = joins.box.claim()
    assert (row["id"], joins_of([row]), row["due_at"]) == (waiting.id, [join], None)
    assert joins.resolve(join)["status"] == "Failed"


def test_contract_the_waiting_message_comes_in_the_same_settle_as_the_last_step(joins: Joins) -> None:
    join = joins.start(3)
    waiting = joins.wait(join)
    made = joins.held(3, join)
    joins.box.ack(OWNER, made[:1])
    records = [{"id": made[1], "result": "ack"}, {"id": made[2], "result": "fail", "error": "e"}]
    assert ids(joins.box.settle(OWNER, records, claim_batch=5)) == [waiting.id]


def test_contract_the_waiting_message_comes_to_whoever_serves_its_topic(joins: Joins) -> None:
    join = joins.start()
    waiting = joins.wait(join)
    made = joins.held(1, join)
    others = [joins.put("other").id for _ in range(3)]
    joins.box.ack(OWNER, made)
    assert joins.box.take(topics=["other"], batch=1) == others[:1]
    assert sorted(joins.box.take()) == sorted([waiting.id, *others[1:]])


def test_obx_085_a_join_that_is_not_complete_waits_on(joins: Joins) -> None:
    box = joins.box
    join = joins.start(2)
    waiting = joins.wait(join, on_complete_topic="good")
    made = joins.held(2, join)
    box.extend(OWNER, made, 80000)
    box.db.advance(SAFETY_NET + 1)
    assert joins.woken() == [waiting.id], "the safety net"
    before = joins.get(join)
    row = joins.resolve(join)
    assert row == {
        "status": "Pending",
        "completed_steps": 0,
        "failed_steps": 0,
        "expected_steps": 2,
        "enqueued_message_id": None,
    }
    assert joins.get(join) == before
    assert box.abandon(OWNER, [waiting.id], delay_seconds=10000) == 1
    assert box.take() == []
    box.ack(OWNER, made)
    assert joins.woken() == [waiting.id], "the retry does not delay it"
    assert joins.resolve(join)["status"] == "Completed"
    assert len(follow_ups(box, "good")) == 1


def test_contract_a_waiting_message_held_while_the_last_step_ends_comes_again(joins: Joins) -> None:
    box = joins.box
    join = joins.start()
    waiting = joins.wait(join)
    made = joins.held(1, join)
    box.extend(OWNER, made, 80000)
    box.db.advance(SAFETY_NET + 1)
    assert joins.woken(OTHER) == [waiting.id]
    assert joins.resolve(join)["status"] == "Pending"
    box.ack(OWNER, made)
    assert box.take() == []
    box.db.advance(1)
    assert box.take() == []
    assert box.abandon(OTHER, [waiting.id], delay_seconds=5000) == 1
    box.db.advance(1)
    assert joins.woken() == [waiting.id]
    assert joins.resolve(join)["status"] == "Completed"


def test_contract_a_waiting_message_settled_while_the_join_completes_is_left_done(joins: Joins) -> None:
    box = joins.box
    join = joins.start()
    waiting = joins.wait(join)
    made = joins.held(1, join)
    box.extend(OWNER, made, 80000)
    box.db.advance(SAFETY_NET + 1)
    assert joins.woken(OTHER) == [waiting.id]
    box.ack(OWNER, made)
    assert box.take() == []
    assert joins.resolve(join)["status"] == "Completed"
    assert box.ack(OTHER, [waiting.id]) == 1
    for _ in range(3):
        box.db.advance(1)
        assert box.take() == []
    assert box.status(waiting.id) == "Done"


def test_contract_wait_on_a_complete_join_is_due_at_once(joins: Joins) -> None:
    join = joins.start(2)
    made = joins.held(2, join)
    joins.box.ack(OWNER, made)
    waiting = joins.wait(join, on_complete_topic="good")
    assert joins.woken() == [waiting.id]
    assert joins.resolve(join)["status"] == "Completed"


def test_contract_a_second_wait_replaces_the_options_and_keeps_the_message(joins: Joins) -> None:
    join = joins.start()
    first = joins.wait(join, on_complete_topic="a")
    second = joins.wait(join, on_complete_topic="b", on_complete_payload="second")
    assert second == first
    made = joins.held(1, join)
    joins.box.ack(OWNER, made)
    assert joins.woken() == [first.id]
    assert joins.wait(join, on_complete_topic="c", on_complete_payload="third") == first, "it is held"
    joins.resolve(join)
    (row,) = follow_ups(joins.box, "a", "b", "c")
    assert (row["topic"], row["payload"]) == ("c", "third")


def test_contract_a_wait_after_the_first_message_is_gone_enqueues_another(joins: Joins) -> None:
    box = joins.box
    join = joins.start()
    first = joins.wait(join)
    box.db.advance(SAFETY_NET + 1)
    assert joins.woken() == [first.id]
    assert joins.resolve(join)["status"] == "Pending"
    box.ack(OWNER, [first.id])
    second = joins.wait(join)
    assert second.id != first.id
    box.db.advance(SAFETY_NET + 1)
    assert joins.woken() == [second.id]
    box.fail(OWNER, [second.id])
    third = joins.wait(join)
    assert third.id not in (first.id, second.id)
    box.ack(OWNER, joins.held(1, join))
    assert joins.woken() == [third.id]


@pytest.mark.parametrize("how", ["Completed", "Failed", "Cancelled"])
def test_contract_wait_on_a_finished_join_is_refused(joins: Joins, how: str) -> None:
    join = joins.start()
    joins.wait(join)
    if how == "Cancelled":
        joins.cancel(join)
    else:
        joins.finish(join, failing=how == "Failed")
    count = joins.box.count()
    with pytest.raises(InvalidState):
        joins.wait(join)
    assert (joins.get(join)["status"], joins.box.count()) == (how, count)


def test_contract_wait_refuses_bad_arguments(joins: Joins) -> None:
    join = joins.start()
    for name in ("on_complete_topic", "on_fail_topic"):
        for value in ("", *TOO_LONG):
            with refuses(name):
                joins.wait(join, **{name: value})
    with refuses("fail_if_any_step_failed"):
        joins.wait(join, fail_if_any_step_failed=None)
    assert joins.box.count() == 0


def test_obx_086_a_failed_step_fails_the_join_if_asked_to(joins: Joins) -> None:
    for flag, failing, status in (
        (True, 0, "Completed"),
        (True, 1, "Failed"),
        (False, 0, "Completed"),
        (False, 1, "Completed"),
        (False, 2, "Completed"),
    ):
        join = joins.start(2)
        joins.wait(join, fail_if_any_step_failed=flag)
        row = joins.finish(join, failing=failing)
        assert row["status"] == status, (flag, failing)
        assert (row["completed_steps"], row["failed_steps"]) == (2 - failing, failing)
        assert joins.get(join)["status"] == status


def test_obx_087_success_enqueues_the_completion_message(joins: Joins) -> None:
    for text in (*HOSTILE, "", "p" * 1_000_000):
        join = joins.start()
        joins.wait(
            join,
            on_complete_topic="good",
            on_complete_payload=text,
            on_fail_topic="bad",
            on_fail_payload="not this",
        )
        row = joins.finish(join)
        (message,) = follow_ups(joins.box, "good", "bad")
        assert (message["topic"], message["payload"]) == ("good", text)
        assert message["message_id"] == row["enqueued_message_id"]
        assert (message["attempt"], message["due_at"], message["group_id"]) == (0, None, None)


def test_obx_088_failure_enqueues_the_failure_message(joins: Joins) -> None:
    for text in HOSTILE:
        join = joins.start(2)
        joins.wait(join, on_complete_topic="good", on_fail_topic="bad", on_fail_payload=text)
        row = joins.finish(join, failing=1)
        (message,) = follow_ups(joins.box, "good", "bad")
        assert (row["status"], message["topic"], message["payload"]) == ("Failed", "bad", text)
        assert message["message_id"] == row["enqueued_message_id"]


def test_contract_topics_of_follow_ups_follow_the_rules_of_enqueue(joins: Joins) -> None:
    for topic in (*HOSTILE, LONG, "🐘" * 127):
        for failing, name in ((0, "on_complete_topic"), (1, "on_fail_topic")):
            join = joins.start()
            joins.wait(join, **{name: topic})
            joins.finish(join, failing=failing)
            (message,) = follow_ups(joins.box, topic)
            assert (message["topic"], message["payload"]) == (topic, ""), "a null payload is an empty one"


def test_contract_without_a_topic_nothing_is_enqueued(joins: Joins) -> None:
    for failing, more in (
        (0, {"on_fail_topic": "bad", "on_fail_payload": "p"}),
        (1, {"on_complete_topic": "good", "on_complete_payload": "p"}),
        (0, {"on_complete_payload": "p"}),
    ):
        join = joins.start()
        joins.wait(join, **more)
        before = joins.box.count()
        row = joins.finish(join, failing=failing)
        assert row["enqueued_message_id"] is None
        assert joins.box.count() == before + 1, "the step alone"
        assert joins.resolve(join) == row


def test_contract_resolve_without_a_wait_finishes_the_join(joins: Joins) -> None:
    good, bad = joins.start(), joins.start()
    assert joins.finish(good)["status"] == "Completed"
    assert joins.finish(bad, failing=1)["status"] == "Failed"
    assert joins.box.take() == []


def test_contract_resolve_enqueues_once_and_answers_the_same_again(joins: Joins) -> None:
    join = joins.start()
    joins.wait(join, on_complete_topic="good", on_complete_payload="p")
    first = joins.finish(join)
    assert [joins.resolve(join) for _ in range(3)] == [first] * 3
    (message,) = follow_ups(joins.box, "good")
    assert message["message_id"] == first["enqueued_message_id"]
    joins.box.ack(OWNER, [message["id"]])
    assert joins.resolve(join) == first
    assert follow_ups(joins.box, "good") == []


def test_contract_resolve_does_not_need_the_waiting_message(joins: Joins) -> None:
    join = joins.start()
    waiting = joins.wait(join, on_complete_topic="good")
    row = joins.finish(join)
    assert row["status"] == "Completed"
    taken = joins.box.take()
    late = joins.box.take()
    assert sorted(taken + late)[0] == waiting.id
    assert len(taken + late) == 2
    assert joins.resolve(join) == row
    assert joins.box.ack(OWNER, taken + late) == 2
    assert joins.box.take() == []


def test_contract_resolve_is_undone_with_the_callers_transaction(joins: Joins) -> None:
    join = joins.start()
    joins.wait(join, on_complete_topic="good")
    joins.box.ack(OWNER, joins.held(1, join))
    before = joins.get(join)
    with joins.box.db.session() as session:
        inside = joins.on(session)
        row = inside.resolve(join)
        assert (row["status"], len(follow_ups(inside.box, "good"))) == ("Completed", 1)
        session.rollback()
    assert joins.get(join) == before
    assert follow_ups(joins.box, "good") == []
    with joins.box.db.session() as session:
        again = joins.on(session).resolve(join)
        session.commit()
    assert again["enqueued_message_id"] != row["enqueued_message_id"]
    (message,) = follow_ups(joins.box, "good")
    assert message["message_id"] == again["enqueued_message_id"]


def test_contract_wait_is_undone_with_the_callers_transaction(joins: Joins) -> None:
    join = joins.start()
    kept = joins.start()
    first = joins.wait(kept, on_complete_topic="kept")
    with joins.box.db.session() as session:
        inside = joins.on(session)
        inside.wait(join, on_complete_topic="lost")
        assert inside.wait(kept, on_complete_topic="lost") == first
        session.rollback()
    assert joins.box.count() == 1
    for each in (join, kept):
        joins.finish(each)
    assert [row["topic"] for row in follow_ups(joins.box, "kept", "lost")] == ["kept"]


def test_contract_handling_of_the_wait_commits_or_vanishes_as_one(joins: Joins) -> None:
    join = joins.start()
    waiting = joins.wait(join, on_complete_topic="good")
    joins.box.ack(OWNER, joins.held(1, join))
    for commits in (False, True):
        with joins.box.db.session() as session:
            inside = joins.on(session)
            assert inside.woken() == [waiting.id]
            assert inside.resolve(join)["status"] == "Completed"
            assert inside.box.ack(OWNER, [waiting.id]) == 1
            (session.commit if commits else session.rollback)()
    assert len(follow_ups(joins.box, "good")) == 1
    assert joins.box.take() == []


def test_contract_a_waiting_message_may_be_a_step_of_an_outer_join(joins: Joins) -> None:
    box = joins.box
    outer, inner = joins.start(2), joins.start(2)
    outer_wait = joins.wait(outer, on_complete_topic="outer done")
    inner_wait = joins.wait(inner, on_complete_topic="inner done")
    assert joins.attach(outer, inner_wait)
    made = joins.held(2, inner)
    (own,) = joins.held(1, outer)
    box.ack(OWNER, [own, made[0]])
    assert joins.woken() == []
    box.ack(OWNER, made[1:])
    assert joins.woken() == [inner_wait.id]
    assert joins.counts(outer) == (1, 0)
    assert joins.resolve(inner)["status"] == "Completed"
    box.ack(OWNER, [inner_wait.id])
    assert joins.counts(outer) == (2, 0)
    assert joins.woken() == [outer_wait.id]
    assert joins.resolve(outer)["status"] == "Completed"
    assert len(follow_ups(box, "inner done", "outer done")) == 2


def test_contract_a_follow_up_may_become_a_step_of_another_join(joins: Joins) -> None:
    outer, inner = joins.start(), joins.start()
    outer_wait = joins.wait(outer)
    joins.wait(inner, on_complete_topic="next")
    joins.box.ack(OWNER, joins.held(1, inner))
    with joins.box.db.session() as session:
        inside = joins.on(session)
        assert inside.attach(outer, inside.resolve(inner)["enqueued_message_id"])
        session.commit()
    (message,) = follow_ups(joins.box, "next")
    assert joins.counts(outer) == (0, 0)
    joins.box.ack(OWNER, [message["id"]])
    assert joins.counts(outer) == (1, 0)
    assert outer_wait.id in joins.woken()


def test_contract_one_ack_completes_several_joins_and_wakes_each(joins: Joins) -> None:
    made = [joins.start() for _ in range(20)]
    waiting = [joins.wait(join).id for join in made]
    held = joins.held(1, *made)
    joins.box.ack(OWNER, held)
    rows = joins.box.claim(topics=[WAIT], batch_size=100)
    assert sorted(ids(rows)) == waiting
    assert sorted(joins_of(rows)) == sorted(made)


def test_contract_a_waiting_message_that_is_lost_comes_back(joins: Joins) -> None:
    join = joins.start()
    waiting = joins.wait(join)
    joins.box.ack(OWNER, joins.held(1, join))
    assert joins.woken() == [waiting.id]
    joins.box.db.advance(60)
    assert joins.woken(OTHER) == [waiting.id]
    assert joins.resolve(join)["status"] == "Completed"


def test_contract_an_idle_join_costs_claims_nothing_to_see(joins: Joins) -> None:
    box = joins.box
    join = joins.start(2)
    waiting = joins.wait(join)
    assert (box.stats()[None]["ready"], box.stats()[None]["scheduled"]) == (0, 1)
    due = box.get(waiting.id)["due_at"]
    assert timedelta(seconds=3500) < due - joins.get(join)["created_at"] <= timedelta(seconds=3700)
    box.ack(OWNER, joins.held(1, join))
    for _ in range(3):
        assert box.take() == []
        box.db.advance(1)
    assert (box.stats()[None]["ready"], box.stats()[None]["scheduled"]) == (0, 1)


def test_contract_cleanup_removes_joins_that_finished_before_the_retention(joins: Joins) -> None:
    box = joins.box
    pending, done, failed, cancelled = (joins.start(2) for _ in range(4))
    for join in (pending, done, failed):
        joins.wait(join)
    joins.finish(done)
    joins.finish(failed, failing=1)
    joins.steps(1, cancelled)
    joins.cancel(cancelled)
    box.take(batch=20, lease=5000)
    box.db.advance(100)
    young = joins.start()
    joins.finish(young)
    box.affected("cleanup", retention_seconds=5000)
    assert len(joins.listed()) == 5
    before = box.affected("cleanup", retention_seconds=50, batch_size=1000)
    assert before == 3, "the messages that were acknowledged; joins go uncounted"
    assert joins.listed() == [pending, young]
    for join in (done, failed, cancelled):
        assert joins.members(join) == []
    assert len(joins.members(young)) == 1


def test_contract_cleanup_of_joins_is_bounded_and_never_touches_pending_ones(joins: Joins) -> None:
    box = joins.box
    pending = joins.start(2)
    made = joins.held(1, pending)
    box.ack(OWNER, made)
    for _ in range(5):
        joins.cancel(joins.start())
    box.db.advance(100)
    box.affected("cleanup", retention_seconds=50, batch_size=2)
    assert len(joins.listed()) == 4
    for _ in range(3):
        box.affected("cleanup", retention_seconds=50, batch_size=2)
    assert joins.listed() == [pending]
    assert joins.counts(pending) == (1, 0)
    assert box.count() == 0


def test_contract_steps_of_a_cleaned_up_join_are_plain_messages(joins: Joins) -> None:
    join = joins.start(2)
    made = joins.held(2, join)
    joins.cancel(join)
    joins.box.extend(OWNER, made, 5000)
    joins.box.db.advance(100)
    joins.box.affected("cleanup", retention_seconds=50)
    assert joins.listed() == []
    assert joins.box.ack(OWNER, made[:1]) == 1
    assert joins.box.fail(OWNER, made[1:]) == 1
    assert joins.box.take() == []


def test_contract_a_wait_for_other_ids_than_its_own_is_left_alone(joins: Joins) -> None:
    """Anybody may enqueue the topic join.wait; only the message that join_wait made belongs to the join."""
    join = joins.start()
    waiting = joins.wait(join)
    forged = joins.put(WAIT, payload=json.dumps({"join_id": str(uuid4())}))
    assert joins.woken() == [forged.id]
    joins.box.ack(OWNER, [forged.id])
    joins.box.ack(OWNER, joins.held(1, join))
    assert waiting.id in joins.box.take()
