"""Steps of joins: attaching messages in whatever state, and reporting them by hand."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from pysqlbox.errors import InvalidState, NotFound
from tests.contract.joins import Joins, Step, ids_of
from tests.contract.support import OTHER, OWNER, server_now


def test_obx_077_attach_makes_a_message_a_step(joins: Joins) -> None:
    join, step = joins.start(2), joins.put()
    assert joins.attach(join, step)
    (member,) = joins.members(join)
    assert (member["message_id"], member["id"], member["status"]) == (step.message_id, step.id, "Pending")
    assert joins.counts(join) == (0, 0)
    assert joins.box.take() == [step.id]


def test_obx_078_attach_is_idempotent(joins: Joins) -> None:
    join, step = joins.start(1), joins.put()
    assert [joins.attach(join, step) for _ in range(3)] == [True, False, False]
    assert len(joins.members(join)) == 1
    joins.box.take()
    joins.box.ack(OWNER, [step.id])
    assert not joins.attach(join, step)
    assert joins.counts(join) == (1, 0)


def test_obx_078_attach_again_is_no_error_once_the_join_is_finished(joins: Joins) -> None:
    join = joins.start()
    (step,) = joins.steps(1, join)
    joins.wait(join)
    joins.box.take()
    joins.box.ack(OWNER, [step.id])
    assert joins.resolve(join)["status"] == "Completed"
    assert not joins.attach(join, step)
    cancelled = joins.start()
    (step,) = joins.steps(1, cancelled)
    joins.cancel(cancelled)
    assert not joins.attach(cancelled, step)


def test_obx_090_a_message_may_be_a_step_of_several_joins(joins: Joins) -> None:
    made = [joins.start(n + 1, f"tenant {n}") for n in range(4)]
    done, failed = joins.held(1, *made[:3]), joins.held(1, *made[1:])
    joins.box.ack(OWNER, done)
    joins.box.fail(OWNER, failed)
    assert [joins.counts(join) for join in made] == [(1, 0), (1, 1), (1, 1), (0, 1)]


def test_contract_attach_refuses_unknown_messages(joins: Joins) -> None:
    join = joins.start()
    with pytest.raises(NotFound):
        joins.attach(join, uuid4())
    assert joins.members(join) == []
    assert joins.attach(join, joins.put())


def test_contract_attach_refuses_more_than_the_expected_steps(joins: Joins) -> None:
    join = joins.start(2)
    made = joins.steps(2, join)
    spare = joins.put()
    with pytest.raises(InvalidState):
        joins.attach(join, spare)
    assert [joins.attach(join, step) for step in made] == [False, False]
    assert len(joins.members(join)) == 2
    assert joins.attach(joins.start(), spare)


@pytest.mark.parametrize("how", ["Completed", "Failed", "Cancelled"])
def test_contract_attach_refuses_a_join_that_is_finished(joins: Joins, how: str) -> None:
    join = joins.start(2)
    joins.wait(join)
    if how == "Cancelled":
        joins.cancel(join)
    else:
        joins.finish(join, failing=how == "Failed")
    assert joins.get(join)["status"] == how
    before = joins.get(join)
    with pytest.raises(InvalidState):
        joins.attach(join, joins.put())
    assert joins.get(join) == before


def test_contract_a_message_settled_before_it_is_attached_counts_at_once(joins: Joins) -> None:
    box = joins.box
    done, failed, expired = joins.put("step"), joins.put("step"), joins.put("step")
    box.take(batch=3)
    box.ack(OWNER, [done.id])
    box.fail(OWNER, [failed.id])
    box.release(OWNER, [expired.id])
    expiring = joins.put(expires_at=server_now(box.db) - timedelta(seconds=1))
    assert box.take() == [expired.id]
    assert box.status(expiring.id) == "Expired"
    join = joins.start(4)
    assert joins.attach(join, done)
    assert joins.counts(join) == (1, 0)
    assert joins.attach(join, failed)
    assert joins.attach(join, expiring)
    assert joins.counts(join) == (1, 2)
    assert [joins.attach(join, step) for step in (done, failed, expiring)] == [False] * 3
    assert joins.counts(join) == (1, 2)
    statuses = {member["id"]: member["status"] for member in joins.members(join)}
    assert statuses == {done.id: "Completed", failed.id: "Failed", expiring.id: "Failed"}


def test_contract_attach_of_the_last_settled_step_completes_the_join(joins: Joins) -> None:
    join = joins.start(2)
    waiting = joins.wait(join, on_complete_topic="good")
    steps = [joins.put(), joins.put()]
    joins.box.take()
    joins.box.ack(OWNER, ids_of(steps))
    joins.attach(join, steps[0])
    assert joins.woken() == []
    joins.attach(join, steps[1])
    assert joins.woken() == [waiting.id]
    assert joins.resolve(join)["status"] == "Completed"


def test_contract_messages_in_every_place_can_be_attached_and_count_later(joins: Joins) -> None:
    box = joins.box
    soon = server_now(box.db) + timedelta(seconds=100)
    steps = [
        joins.put(priority=3),
        joins.put(priority=-3),
        joins.put(due_at=soon),
        joins.put(group_id="g"),
        joins.put(group_id="g"),
        joins.put(group_id="later", due_at=soon),
        joins.put(dedup_key="d", collapse_key="c"),
        joins.put(message_id=uuid4()),
    ]
    held, retried = joins.put("held"), joins.put("held")
    assert box.take(topics=["held"], lease=1000) == [held.id, retried.id]
    box.abandon(OWNER, [retried.id], delay_seconds=50)
    steps += [held, retried]
    join = joins.start(len(steps))
    assert all(joins.attach(join, step) for step in steps)
    assert joins.counts(join) == (0, 0)
    assert box.ack(OWNER, [held.id]) == 1
    box.db.advance(200)
    taken: list[int] = []
    while some := box.take(OTHER):
        assert box.ack(OTHER, some) == len(some)
        taken += some
    assert sorted(taken) == sorted(set(ids_of(steps)) - {held.id})
    assert joins.counts(join) == (len(steps), 0)


def test_contract_attach_does_not_change_what_a_claim_answers(joins: Joins) -> None:
    plain = [joins.put(priority=n % 3, group_id="g" if n % 2 else None) for n in range(6)]
    with joins.box.db.session() as session:
        before = joins.on(session).box.take(batch=6)
        session.rollback()
    join = joins.start(6)
    for step in plain:
        joins.attach(join, step)
    assert joins.box.take(batch=6) == before
    assert joins.box.stats()[None]["in_flight"] == len(before)


def test_contract_attach_is_undone_with_the_callers_transaction(joins: Joins) -> None:
    join = joins.start(2)
    pending, done = joins.put(), joins.put()
    joins.box.take()
    joins.box.ack(OWNER, [done.id])
    before = joins.get(join)
    with joins.box.db.session() as session:
        inside = joins.on(session)
        assert inside.attach(join, pending)
        assert inside.attach(join, done)
        assert inside.counts(join) == (1, 0)
        session.rollback()
    assert joins.members(join) == []
    assert joins.get(join) == before
    joins.box.ack(OWNER, [pending.id])
    assert joins.counts(join) == (0, 0)
    assert joins.attach(join, pending)
    assert joins.counts(join) == (1, 0)


def test_contract_enqueue_attach_and_wait_in_one_transaction(joins: Joins) -> None:
    with joins.box.db.session() as session:
        inside = joins.on(session)
        join = inside.start(2)
        steps = inside.steps(2, join)
        waiting = inside.wait(join, on_complete_topic="good")
        assert joins.box.take() == []
        session.commit()
    assert sorted(joins.box.take()) == ids_of(steps)
    joins.box.ack(OWNER, ids_of(steps))
    assert joins.woken() == [waiting.id]


def test_obx_079_report_completed_counts_a_step(joins: Joins) -> None:
    join = joins.start(3)
    steps = joins.steps(3, join)
    assert joins.completed(join, steps[0])
    assert joins.counts(join) == (1, 0)
    assert joins.completed(join, steps[1])
    assert joins.counts(join) == (2, 0)
    statuses = [member["status"] for member in joins.members(join)]
    assert statuses == ["Completed", "Completed", "Pending"]


def test_obx_081_report_failed_counts_a_step(joins: Joins) -> None:
    join = joins.start(3)
    steps = joins.steps(3, join)
    assert joins.failed(join, steps[0])
    assert joins.failed(join, steps[2])
    assert joins.counts(join) == (0, 2)
    assert [member["status"] for member in joins.members(join)] == ["Failed", "Pending", "Failed"]


def test_obx_080_obx_082_a_step_counts_once_however_it_is_reported(joins: Joins) -> None:
    join = joins.start(4)
    first, second = joins.steps(2, join)
    assert [joins.completed(join, first), joins.completed(join, first), joins.failed(join, first)] == [
        True,
        False,
        False,
    ]
    assert [joins.failed(join, second), joins.failed(join, second), joins.completed(join, second)] == [
        True,
        False,
        False,
    ]
    assert joins.counts(join) == (1, 1)


def test_obx_080_obx_082_a_report_after_the_settlement_does_not_count(joins: Joins) -> None:
    join = joins.start(4)
    made = joins.steps(2, join)
    joins.box.take()
    joins.box.ack(OWNER, ids_of(made[:1]))
    joins.box.fail(OWNER, ids_of(made[1:]))
    for step in made:
        assert not joins.completed(join, step)
        assert not joins.failed(join, step)
    assert joins.counts(join) == (1, 1)


def test_obx_080_obx_082_a_settlement_after_the_report_does_not_count(joins: Joins) -> None:
    join, other = joins.start(4), joins.start(4)
    made = joins.steps(4, join, other)
    joins.box.take()
    for step in made[:2]:
        assert joins.completed(join, step)
    for step in made[2:]:
        assert joins.failed(join, step)
    joins.box.ack(OWNER, [made[0].id, made[2].id])
    joins.box.fail(OWNER, [made[1].id, made[3].id])
    assert joins.counts(join) == (2, 2)
    assert joins.counts(other) == (2, 2), "the report was to one join only"
    statuses = [member["status"] for member in joins.members(join)]
    assert statuses == ["Completed", "Completed", "Failed", "Failed"]
    assert [member["status"] for member in joins.members(other)] == ["Completed", "Failed"] * 2


def test_contract_a_report_needs_a_step_of_the_join(joins: Joins) -> None:
    join, other = joins.start(2), joins.start(2)
    (step,) = joins.steps(1, other)
    for message in (step, joins.put(), Step(0, uuid4())):
        for report in (joins.completed, joins.failed):
            with pytest.raises(NotFound):
                report(join, message)
    assert joins.counts(join) == (0, 0)
    assert joins.counts(other) == (0, 0)


def test_contract_the_last_report_completes_the_join(joins: Joins) -> None:
    join = joins.start(2)
    steps = joins.steps(2, join)
    waiting = joins.wait(join, on_complete_topic="good")
    joins.completed(join, steps[0])
    assert joins.woken() == []
    joins.completed(join, steps[1])
    assert joins.woken() == [waiting.id]
    row = joins.resolve(join)
    assert (row["status"], row["completed_steps"]) == ("Completed", 2)
    assert sorted(joins.box.take(topics=["step"])) == ids_of(steps), "reporting does not settle the messages"


def test_contract_a_report_is_undone_with_the_callers_transaction(joins: Joins) -> None:
    join = joins.start(2)
    steps = joins.steps(2, join)
    joins.wait(join)
    with joins.box.db.session() as session:
        inside = joins.on(session)
        assert inside.completed(join, steps[0])
        assert inside.failed(join, steps[1])
        assert inside.counts(join) == (1, 1)
        session.rollback()
    assert joins.counts(join) == (0, 0)
    assert joins.woken() == []
    assert joins.failed(join, steps[0])
    assert joins.completed(join, steps[1])
    assert joins.counts(join) == (1, 1)


def test_contract_a_report_on_a_finished_join_counts_nothing_more(joins: Joins) -> None:
    join = joins.start()
    (step,) = joins.steps(1, join)
    joins.wait(join)
    joins.completed(join, step)
    joins.resolve(join)
    before = joins.get(join)
    assert not joins.completed(join, step)
    assert not joins.failed(join, step)
    assert joins.get(join) == before


@pytest.mark.dialect("postgres")
def test_many_steps_attached_in_one_transaction_leave_no_versions_of_the_join(joins: Joins) -> None:
    """Each version of its row would have to be walked over by the next attach."""
    join = joins.start(30)
    place = 'SELECT ctid::text AS place FROM {schema}."join"'
    with joins.box.db.session() as session:
        before = session.sql(place)
        for _ in range(30):
            sent = joins.box.on(session).enqueue()
            session.call("join_attach", join_id=join, message_id=sent["message_id"])
        assert session.sql(place) == before
        session.commit()
    assert len(joins.members(join)) == 30
