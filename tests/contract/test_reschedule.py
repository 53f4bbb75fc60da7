"""New due times for what waits, and when a box next wants attention."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pysqlbox.errors import InvalidArgument
from tests.contract.joins import SAFETY_NET, Joins
from tests.contract.support import OTHER, OWNER, Box, columns, ids, refuses, server_now

SOON = timedelta(seconds=60)
LATE = timedelta(hours=2)


def clock(box: Box) -> datetime:
    """The server's clock, whole seconds, since Babelfish may lose fractions of an argument."""
    return server_now(box.db).replace(microsecond=0)


def close(first: datetime, second: datetime, seconds: float = 5) -> bool:
    """Whether two times are nearly the same."""
    return abs((first - second).total_seconds()) <= seconds


def reschedule(box: Box, ids: object, due_at: object = None) -> int:
    """Gives messages a new due time."""
    return box.affected("reschedule", ids=ids, due_at=due_at)


def next_due(box: Box) -> datetime | None:
    """When the box next wants attention."""
    row = box.one("next_due")
    assert list(row) == ["due_at"]
    found = row["due_at"]
    assert found is None or isinstance(found, datetime)
    return found


def test_contract_a_delayed_message_made_due_queues_behind_what_was_claimable(box: Box) -> None:
    late = [box.put(due_at=clock(box) + LATE) for _ in range(2)]
    ready = box.put()
    assert box.take(OTHER, batch=1) == [ready]
    assert box.release(OTHER, [ready]) == 1
    assert reschedule(box, late[::-1]) == 2
    assert close(box.get(late[0])["due_at"], clock(box))
    assert box.stats()[None]["ready"] == 3
    assert box.take() == [ready, *late]


def test_contract_a_delayed_message_gets_another_delay(box: Box) -> None:
    message = box.put(due_at=clock(box) + LATE)
    due = clock(box) + SOON
    assert reschedule(box, [message], due) == 1
    assert box.get(message)["due_at"] == due
    assert box.take() == []
    box.db.advance(70)
    assert box.take() == [message]


def test_contract_a_ready_message_with_a_time_ahead_leaves_the_queue(box: Box) -> None:
    first, second = box.put(), box.put(priority=3)
    back = box.put("back")
    assert box.take(topics=["back"]) == [back]
    assert box.release(OWNER, [back]) == 1
    last = box.put()
    assert reschedule(box, [first, second, back], clock(box) + SOON) == 3
    assert box.stats()[None]["scheduled"] == 3
    assert box.take(lease=600) == [last]
    box.db.advance(70)
    assert box.take() == [second, first, back]


def test_contract_a_ready_message_made_due_now_keeps_its_place(box: Box) -> None:
    made = [box.put() for _ in range(3)]
    assert reschedule(box, made[:1]) == 1
    assert box.get(made[0])["due_at"] is None
    past = clock(box) - LATE
    assert reschedule(box, made[1:2], past) == 1
    assert box.get(made[1])["due_at"] == past
    assert box.take() == made


def test_contract_in_the_middle_of_a_run_some_wait_and_the_others_go_on(box: Box) -> None:
    made = box.made_run()
    chosen = [made[0], *made[5:9], *made[31:33], made[-1]]
    assert reschedule(box, chosen, clock(box) + SOON) == len(chosen)
    assert reschedule(box, made[40:45]) == 5, "claimable already"
    rest = [message for message in made if message not in set(chosen)]
    assert box.take(batch=1000, lease=600) == rest
    box.db.advance(70)
    assert box.take(OTHER, batch=1000) == chosen


def test_contract_what_is_leased_over_or_unknown_is_passed_over(box: Box) -> None:
    (done,) = box.made_done()
    (dead,) = box.made_dead()
    leased, grouped, cancelled = box.put(), box.put(group_id="g"), box.put("c")
    box.cancel([cancelled])
    assert box.take() == [leased, grouped]
    due = box.get(leased)["due_at"]
    for time in (None, clock(box) + SOON):
        assert reschedule(box, [done, dead, leased, grouped, cancelled, 10**15], time) == 0
    assert box.get(leased)["due_at"] == due
    assert box.ack(OWNER, [leased, grouped]) == 2
    assert [box.status(each) for each in (done, dead, cancelled)] == ["Done", box.dead, "Cancelled"]


def test_contract_repeated_ids_count_once_and_none_is_a_no_op(box: Box) -> None:
    message = box.put()
    assert reschedule(box, [message, message], clock(box) + SOON) == 1
    assert reschedule(box, []) == 0
    assert reschedule(box, [message]) == 1
    assert box.take() == [message]


def test_contract_reschedule_refuses_null_and_endless_times(box: Box) -> None:
    with refuses("ids"):
        reschedule(box, None)
    if box.db.dialect == "postgres":
        for time in ("infinity", "-infinity"):
            with refuses("due_at"):
                reschedule(box, [box.put()], time)
    else:
        with pytest.raises(InvalidArgument):
            reschedule(box, "{}")
    assert columns(box.db, f"{box.name}_reschedule", [], None) == ["affected"]


def test_contract_a_group_waits_for_the_new_time_of_its_head(box: Box) -> None:
    made = [box.put(group_id="g") for _ in range(3)]
    assert reschedule(box, made[:1], clock(box) + SOON) == 1
    assert box.take() == [], "the head waits, and the others behind it"
    assert reschedule(box, made[1:2], clock(box) + LATE) == 1
    box.db.advance(70)
    assert box.take() == made[:1]
    assert box.ack(OWNER, made[:1]) == 1
    assert box.take() == []
    assert reschedule(box, made) == 2
    assert box.take() == made[1:]


def test_contract_a_group_goes_on_when_its_head_is_made_due(box: Box) -> None:
    head = box.put(group_id="g", due_at=clock(box) + LATE)
    behind = box.put(group_id="g")
    ready = box.put()
    assert box.take(batch=1) == [ready]
    assert reschedule(box, [head, behind]) == 2
    assert box.take() == [head, behind]
    assert box.ack(OWNER, [head, behind]) == 2
    box.db.advance(LATE.total_seconds() + 5)
    assert box.take(OTHER) == [ready], "of the group nothing is left"


def test_contract_a_retried_message_can_be_made_due_and_keeps_its_attempt(box: Box) -> None:
    message = box.put()
    assert box.take() == [message]
    assert box.abandon(OWNER, [message], last_error="once more", delay_seconds=600) == 1
    assert reschedule(box, [message]) == 1
    (row,) = box.claim()
    assert (row["id"], row["attempt"], row["last_error"]) == (message, 1, "once more")


def test_contract_a_rescheduled_message_can_be_cancelled_collapsed_and_rescheduled(box: Box) -> None:
    first, second = box.put(collapse_key="k"), box.put()
    assert reschedule(box, [first, second], clock(box) + SOON) == 2
    assert box.enqueue(collapse_key="k")["outcome"] == "collapsed"
    assert reschedule(box, [second], clock(box) + LATE) == 1
    assert box.cancel([second]) == 1
    box.db.advance(2 * LATE.total_seconds())
    assert len(box.take()) == 1


def test_contract_a_reschedule_that_is_rolled_back_never_was(box: Box) -> None:
    ready, late, grouped = box.put(), box.put(due_at=clock(box) + LATE), box.put(group_id="g")
    with box.db.session() as session:
        assert reschedule(box.on(session), [ready, grouped], clock(box) + SOON) == 2
        assert reschedule(box.on(session), [late]) == 1
        session.rollback()
    assert box.take() == [ready, grouped]


def test_contract_an_open_reschedule_passes_over_what_is_being_claimed(box: Box) -> None:
    if box.db.dialect == "mssql":
        pytest.skip("Babelfish ignores lock hints; tests/sqlserver has the real engine's")
    first, head, second, behind = box.put(), box.put(group_id="g"), box.put(), box.put(group_id="h")
    with box.db.session() as session:
        assert box.on(session).take(batch=2) == [first, head]
        assert reschedule(box, [first, head, second, behind], clock(box) + SOON) == 2
        session.commit()
    assert [box.get(message)["due_at"] for message in (first, head)] == [None, None]
    assert box.take(OTHER) == []


def test_contract_a_claim_passes_over_what_is_just_being_rescheduled(box: Box) -> None:
    if box.db.dialect == "mssql":
        pytest.skip("Babelfish ignores lock hints; tests/sqlserver has the real engine's")
    ready, member, late, other = (
        box.put(),
        box.put(group_id="g"),
        box.put(due_at=clock(box) + SOON),
        box.put(),
    )
    with box.db.session() as session:
        assert reschedule(box.on(session), [ready, member, late]) == 3
        assert box.take() == [other]
        session.commit()
    box.db.advance(1)
    taken = box.take(OTHER)
    assert taken[0] == ready
    assert sorted(taken) == [ready, member, late]


def test_contract_a_parked_join_can_be_asked_early_and_still_comes_in_time(joins: Joins) -> None:
    box = joins.box
    join = joins.start(1)
    (step,) = joins.steps(1, join)
    waiting = joins.wait(join)
    assert reschedule(box, [waiting.id]) == 1
    assert set(box.take()) == {step.id, waiting.id}
    assert joins.resolve(join)["status"] == "Pending"
    assert box.release(OWNER, [waiting.id]) == 1
    assert reschedule(box, [waiting.id], clock(box) + 10 * LATE) == 1
    assert box.ack(OWNER, [step.id]) == 1
    assert box.take() == [waiting.id], "the last step wakes it wherever it is parked"


def test_contract_next_due_of_an_empty_box_is_null(every_box: Box) -> None:
    assert next_due(every_box) is None
    assert columns(every_box.db, f"{every_box.name}_next_due") == ["due_at"]


def test_contract_next_due_tells_the_earliest_due_time_or_lease_end(box: Box) -> None:
    box.put()
    assert next_due(box) is None, "what is ready does not count"
    due = clock(box) + LATE
    late = box.put("late", due_at=due)
    assert next_due(box) == due
    (row,) = box.claim(lease_seconds=600)
    assert next_due(box) == row["locked_until"]
    assert box.ack(OWNER, ids([row])) == 1
    assert next_due(box) == due
    assert reschedule(box, [late], due - SOON) == 1
    assert next_due(box) == due - SOON
    assert box.cancel([late]) == 1
    assert next_due(box) is None


def test_contract_next_due_counts_a_group_that_waits_for_its_head(box: Box) -> None:
    due = clock(box) + LATE
    box.put(group_id="g", due_at=due)
    assert next_due(box) == due
    box.put(group_id="g")
    soonest = next_due(box)
    assert soonest is not None
    assert soonest <= due
    box.db.advance(1)
    assert box.take() == [], "the group may have to be looked at once"
    assert next_due(box) == due


def test_contract_a_time_in_the_past_counts_until_somebody_has_seen_to_it(box: Box) -> None:
    due = clock(box) + SOON
    message = box.put(due_at=due)
    box.db.advance(100)
    assert next_due(box) == due
    assert box.take(lease=30) == [message]
    ends = next_due(box)
    assert ends is not None
    box.db.advance(100)
    assert next_due(box) == ends
    assert box.reap() == 1
    assert next_due(box) is None


def test_contract_what_is_due_in_a_paused_topic_counts_until_a_claim(box: Box) -> None:
    due = clock(box) + SOON
    box.put("stopped", due_at=due)
    box.affected("pause", topic="stopped")
    assert next_due(box) == due
    box.db.advance(100)
    assert box.take() == []
    assert next_due(box) is None, "it is ready now, and waits for the pause to end"


def test_contract_what_is_not_committed_does_not_count_for_next_due(box: Box) -> None:
    with box.db.session() as session:
        box.on(session).put(due_at=clock(box) + SOON)
        assert next_due(box) is None
        assert next_due(box.on(session)) is not None
        session.rollback()


def test_contract_next_due_counts_a_parked_wait_and_a_join_to_be_looked_at(joins: Joins) -> None:
    box = joins.box
    join = joins.start(1)
    (step,) = joins.steps(1, join)
    assert box.take() == [step.id]
    joins.wait(join)
    assert box.take() == [], "the join is looked at: it is not complete"
    box.db.advance(40)
    due = next_due(box)
    assert due is not None
    assert due < datetime.now(UTC) + timedelta(seconds=SAFETY_NET)
    assert box.ack(OWNER, [step.id]) == 1
    due = next_due(box)
    assert due is not None
    assert due <= server_now(box.db) + timedelta(seconds=45), "the next claim has to look at the join"
