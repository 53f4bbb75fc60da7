"""Attaching many messages to a join in one call."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from pysqlbox.errors import DatabaseUnavailable, InvalidArgument, InvalidState, NotFound, PysqlboxError
from tests.contract.joins import Joins, Step
from tests.contract.support import OWNER, ids, impatient, is_babelfish, refuses, server_now

PATIENCE = 60


def test_contract_many_messages_become_steps_in_one_call(joins: Joins) -> None:
    join = joins.start(300)
    steps = joins.steps(300)
    assert joins.attach_many(join, steps[:100]) == 100
    assert joins.attach_many(join, steps[50:]) == 200
    assert joins.attach_many(join, steps) == 0
    members = joins.members(join)
    assert [row["id"] for row in members] == [step.id for step in steps]
    assert {row["status"] for row in members} == {"Pending"}
    assert joins.box.take(batch=500) == [step.id for step in steps]


def test_contract_attached_in_the_transaction_that_enqueues_them(joins: Joins) -> None:
    box = joins.box
    join = joins.start(None)
    with box.db.session() as session:
        inside = joins.on(session)
        rows = inside.box.enqueue_many(*[inside.box.record(n=1) for _ in range(300)])
        made = [Step(row["id"], row["message_id"]) for row in rows]
        late = inside.put(due_at=server_now(box.db) + timedelta(seconds=60))
        grouped, above = inside.put(group_id="g"), inside.put(priority=4)
        assert inside.attach_many(join, [*made, late, grouped, above]) == 303
        waiting = inside.wait(join)
        session.commit()
    assert joins.get(join)["expected_steps"] == 303
    taken = box.take(batch=1000)
    assert set(taken) == {*(step.id for step in made), grouped.id, above.id}
    assert box.ack(OWNER, taken) == 302
    assert joins.woken() == []
    box.db.advance(100)
    assert box.take() == [late.id]
    assert box.ack(OWNER, [late.id]) == 1
    assert joins.counts(join) == (303, 0)
    assert joins.woken() == [waiting.id]


def test_contract_messages_that_are_over_count_at_once(joins: Joins) -> None:
    box = joins.box
    steps = joins.steps(6)
    assert len(box.take()) == 6
    made = [step.id for step in steps]
    box.ack(OWNER, made[:2])
    box.fail(OWNER, made[2:3])
    box.cancel(made[3:4])
    join = joins.start(6)
    waiting = joins.wait(join)
    assert joins.attach_many(join, steps) == 6
    assert joins.counts(join) == (2, 2)
    assert joins.attach_many(join, steps) == 0
    assert joins.counts(join) == (2, 2)
    assert box.ack(OWNER, made[4:]) == 2
    assert joins.counts(join) == (4, 2)
    assert joins.woken() == [waiting.id]


def test_contract_when_all_are_over_already_the_join_is_complete(joins: Joins) -> None:
    box = joins.box
    steps = joins.steps(3)
    assert box.ack(OWNER, box.take()) == 3
    join = joins.start(3)
    waiting = joins.wait(join)
    assert joins.attach_many(join, steps) == 3
    assert joins.woken() == [waiting.id]
    assert joins.resolve(join)["status"] == "Completed"


def test_contract_repeated_messages_count_once(joins: Joins) -> None:
    join = joins.start(2)
    first, second = joins.steps(2)
    assert joins.attach_many(join, [first, second, first, first, second]) == 2
    assert len(joins.members(join)) == 2


def test_contract_messages_of_every_place_are_held_and_counted(joins: Joins) -> None:
    box = joins.box
    leased, grouped = joins.put(), joins.put(group_id="g")
    assert box.take() == [leased.id, grouped.id]
    behind, back, above = joins.put(group_id="g"), joins.put("back"), joins.put(priority=7)
    late = joins.put(due_at=server_now(box.db) + timedelta(seconds=60))
    assert box.take(topics=["back"]) == [back.id]
    assert box.release(OWNER, [back.id]) == 1
    given = joins.put(message_id=uuid4())
    steps = [leased, grouped, behind, back, above, late, given]
    join = joins.start(7)
    assert joins.attach_many(join, steps[::-1]) == 7
    assert box.ack(OWNER, [leased.id, grouped.id]) == 2
    box.db.advance(100)
    assert sorted(box.take()) == sorted(step.id for step in steps[2:])
    assert box.ack(OWNER, [step.id for step in steps[2:]]) == 5
    assert joins.counts(join) == (7, 0)


def test_contract_more_than_expected_attaches_nothing(joins: Joins) -> None:
    join = joins.start(3)
    steps = joins.steps(4)
    assert joins.attach_many(join, steps[:2]) == 2
    with pytest.raises(InvalidState):
        joins.attach_many(join, steps[2:])
    assert len(joins.members(join)) == 2
    assert joins.attach_many(join, steps[1:3]) == 1, "one of them was attached before"
    assert joins.attach_many(join, steps[:3]) == 0


def test_contract_one_unknown_message_attaches_nothing(joins: Joins) -> None:
    join = joins.start(3)
    steps = joins.steps(2)
    with pytest.raises(NotFound):
        joins.attach_many(join, [*steps, uuid4()])
    assert joins.members(join) == []
    with pytest.raises(NotFound):
        joins.attach_many(uuid4(), steps)


def test_contract_a_finished_join_takes_no_more_but_knows_its_steps(joins: Joins) -> None:
    join = joins.start(2)
    steps = joins.steps(2)
    assert joins.attach_many(join, steps[:1]) == 1
    joins.cancel(join)
    with pytest.raises(InvalidState):
        joins.attach_many(join, steps)
    assert joins.attach_many(join, steps[:1]) == 0
    assert joins.attach_many(join, []) == 0


def test_contract_attach_many_refuses_nulls(joins: Joins) -> None:
    join = joins.start(2)
    (step,) = joins.steps(1)
    with refuses("message_ids"):
        joins.attach_many(join, None)
    with refuses("join_id"):
        joins.attach_many(None, [step])
    with refuses("message_ids"):
        joins.box.caller.call("join_attach_many", join_id=join, message_ids=[step.message_id, None])
    assert joins.members(join) == []


@pytest.mark.dialect("mssql")
def test_contract_attach_many_refuses_what_is_no_array_of_uuids(joins: Joins) -> None:
    join = joins.start(2)
    (step,) = joins.steps(1)
    good = str(step.message_id)
    wrong = ("", "{}", "x", good, f'["{good}x"]', f'["{good} "]', '["x"]', "[1]", "[null]", f'[["{good}"]]')
    for text in wrong:
        with pytest.raises(InvalidArgument):
            joins.box.caller.call("join_attach_many", join_id=join, message_ids=text)
    assert joins.members(join) == []


def test_contract_attach_many_that_is_rolled_back_never_was(joins: Joins) -> None:
    join = joins.start(2)
    steps = joins.steps(2)
    with joins.box.db.session() as session:
        assert joins.on(session).attach_many(join, steps) == 2
        session.rollback()
    assert joins.members(join) == []
    assert joins.box.ack(OWNER, joins.box.take()) == 2
    assert joins.counts(join) == (0, 0)


def test_contract_attach_many_and_a_settlement_count_each_step_once(joins: Joins) -> None:
    """Whoever comes first: the settlement waits for the attach, or the attach finds what was settled."""
    box = joins.box
    join, other = joins.start(4), joins.start(4)
    steps = joins.steps(4)
    assert len(box.take()) == 4
    made = [step.id for step in steps]
    with box.db.session() as attaching, box.db.session() as settling, ThreadPoolExecutor(1) as pool:
        assert joins.on(attaching).attach_many(join, steps) == 4
        future = pool.submit(_acked, settling, joins, made[:2])
        attaching.commit()
        assert future.result(PATIENCE) == 2
    assert joins.counts(join) == (2, 0)
    with box.db.session() as attaching, box.db.session() as settling, ThreadPoolExecutor(1) as pool:
        assert box.on(settling).ack(OWNER, made[2:]) == 2
        waiting = pool.submit(_attached_many, attaching, joins, other, steps)
        settling.commit()
        assert waiting.result(PATIENCE) == 4
    assert joins.counts(join) == (4, 0)
    assert joins.counts(other) == (4, 0)


def test_contract_attach_many_cancel_and_ack_meet_without_deadlock(joins: Joins) -> None:
    box = joins.box
    for turn in range(3 if is_babelfish(box.db) else 10):
        join = joins.start(6)
        steps = [joins.put(group_id=group) for group in (None, "b", None, "a", None, "b")]
        made = [step.id for step in steps]
        held = box.take(batch=1 + turn % 4)
        with ThreadPoolExecutor(3) as pool, box.db.session() as one, box.db.session() as two:
            attached = pool.submit(_attached_many, one, joins, join, steps[::-1])
            cancelled = pool.submit(_cancelled, two, joins, made)
            over = box.ack(OWNER, held) + cancelled.result(PATIENCE)
            assert attached.result(PATIENCE) == 6
        assert over == 6
        assert sum(joins.counts(join)) == 6


def test_contract_ten_thousand_are_one_statements_work(joins: Joins) -> None:
    count = 400 if is_babelfish(joins.box.db) else 10_000
    join = joins.start(None)
    rows = joins.box.enqueue_many(*[joins.box.record() for _ in range(count)])
    made = [row["message_id"] for row in rows]
    assert joins.attach_many(join, made[: count // 2]) == count // 2
    assert joins.attach_many(join, made) == count - count // 2
    joins.wait(join)
    assert joins.get(join)["expected_steps"] == count
    assert joins.box.cancel(ids(rows)) == count
    assert joins.counts(join) == (0, count)


@pytest.mark.dialect("postgres")
def test_contract_an_open_attach_many_keeps_claims_away_from_its_steps(joins: Joins) -> None:
    box = joins.box
    join = joins.start(2)
    steps = joins.steps(3)
    with box.db.session() as session:
        assert joins.on(session).attach_many(join, steps[:2]) == 2
        with box.db.session() as other:
            assert box.on(impatient(other)).take() == [steps[2].id]
            other.rollback()
        session.commit()
    assert box.take() == [step.id for step in steps]


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("place", ["ready", "run", "delayed", "member", "leased"])
def test_contract_a_cancel_under_an_older_snapshot_does_not_miss_a_step(
    joins: Joins, level: str, place: str
) -> None:
    box = joins.box
    if place == "run":
        row = box.enqueue_many(*[box.record() for _ in range(300)])[7]
        step = Step(row["id"], row["message_id"])
    else:
        due = server_now(box.db) + timedelta(seconds=600) if place == "delayed" else None
        step = joins.put(group_id="g" if place == "member" else None, due_at=due)
    if place == "leased":
        assert box.take() == [step.id]
    join = joins.start(1)
    with box.db.session() as session:
        session.sql(f"SET TRANSACTION ISOLATION LEVEL {level}")
        assert joins.on(session).counts(join) == (0, 0)
        assert joins.attach_many(join, [step]) == 1
        with pytest.raises(PysqlboxError):
            box.on(session).cancel([step.id])
        session.rollback()
    with box.db.session() as session:
        session.sql(f"SET TRANSACTION ISOLATION LEVEL {level}")
        assert box.on(session).cancel([step.id]) == 1
        session.commit()
    assert joins.counts(join) == (0, 1)


def _attached_many(session: Any, joins: Joins, join: UUID, steps: list[Step]) -> int:
    answer = joins.on(session).attach_many(join, steps)
    session.commit()
    return answer


def _acked(session: Any, joins: Joins, held: list[int]) -> int:
    answer = joins.box.on(session).ack(OWNER, held)
    session.commit()
    return answer


def _cancelled(session: Any, joins: Joins, made: list[int]) -> int:
    answer = joins.box.on(session).cancel(made)
    session.commit()
    return answer


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_contract_an_attach_under_an_older_snapshot_is_to_be_tried_again(joins: Joins, level: str) -> None:
    """It is a serialization failure, which drivers repeat, not a duplicate, which they take for a fault."""
    join, steps = joins.start(4), joins.steps(4)
    for count in (1, 2):
        with joins.box.db.session() as session:
            session.sql(f"SET TRANSACTION ISOLATION LEVEL {level}")
            session.sql("SELECT count(*) AS n FROM {schema}.outbox_joins")
            attached = len(joins.members(join))
            assert joins.attach(join, steps[attached])
            late = joins.on(session)
            attach = (
                partial(late.attach, join, steps[2])
                if count == 1
                else partial(late.attach_many, join, steps[2:])
            )
            with pytest.raises(DatabaseUnavailable) as caught:
                attach()
            assert getattr(caught.value.__cause__, "sqlstate", None) == "40001"
            session.rollback()
    assert joins.attach_many(join, steps) == 2
