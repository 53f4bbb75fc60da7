"""Open joins: nobody knows at the start how many steps there will be; join_wait closes them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from pysqlbox.errors import DatabaseUnavailable, InvalidState
from tests.contract.joins import Joins, follow_ups
from tests.contract.support import OTHER, OWNER, impatient

PATIENCE = 60


def opened(joins: Joins) -> UUID:
    """A join without a number."""
    return joins.start(None)


def test_contract_an_open_join_has_no_number_until_wait_closes_it(joins: Joins) -> None:
    join = opened(joins)
    assert joins.get(join)["expected_steps"] is None
    assert joins.shown(join)["expected_steps"] is None
    joins.steps(3, join)
    (row,) = joins.box.caller.call("join_list")
    assert (row["expected_steps"], row["status"]) == (None, "Pending")
    joins.wait(join)
    assert joins.get(join)["expected_steps"] == 3
    joins.wait(join)
    assert joins.get(join)["expected_steps"] == 3


def test_contract_the_number_may_be_left_out(joins: Joins) -> None:
    row = joins.box.caller.one("join_start", tenant_id="tenant")
    assert joins.get(row["join_id"])["expected_steps"] is None


def test_contract_an_open_join_completes_with_the_last_of_its_steps(joins: Joins) -> None:
    box = joins.box
    join = opened(joins)
    held = joins.held(3, join)
    waiting = joins.wait(join, on_complete_topic="all.done")
    assert box.ack(OWNER, held[:2]) == 2
    assert joins.woken() == []
    assert joins.resolve(join)["status"] == "Pending"
    assert box.ack(OWNER, held[2:]) == 1
    assert joins.woken() == [waiting.id]
    assert joins.resolve(join)["status"] == "Completed"
    assert len(follow_ups(box, "all.done")) == 1


def test_contract_an_open_join_whose_steps_are_all_over_is_complete_when_it_is_closed(joins: Joins) -> None:
    box = joins.box
    join = opened(joins)
    held = joins.held(2, join)
    assert box.ack(OWNER, held) == 2
    assert joins.resolve(join) == {
        "status": "Pending",
        "completed_steps": 2,
        "failed_steps": 0,
        "expected_steps": None,
        "enqueued_message_id": None,
    }
    assert joins.woken() == [], "the probe of the last step finds nobody waiting"
    waiting = joins.wait(join)
    assert joins.woken() == [waiting.id]
    assert joins.resolve(join)["expected_steps"] == 2


def test_contract_an_open_join_without_steps_is_complete_at_once(joins: Joins) -> None:
    join = opened(joins)
    waiting = joins.wait(join, on_complete_topic="nothing.to.do")
    assert joins.get(join)["expected_steps"] == 0
    assert joins.woken() == [waiting.id]
    answer = joins.resolve(join)
    assert (answer["status"], answer["completed_steps"], answer["expected_steps"]) == ("Completed", 0, 0)
    assert len(follow_ups(joins.box, "nothing.to.do")) == 1


def test_contract_an_open_join_fails_like_any_other(joins: Joins) -> None:
    box = joins.box
    join = opened(joins)
    held = joins.held(2, join)
    assert box.fail(OWNER, held[:1]) == 1
    joins.wait(join, on_fail_topic="failed")
    assert box.cancel(held[1:]) == 1
    assert len(joins.woken()) == 1
    assert joins.resolve(join)["status"] == "Failed"
    assert len(follow_ups(box, "failed")) == 1


def test_contract_nothing_is_attached_to_a_join_that_was_closed(joins: Joins) -> None:
    join = opened(joins)
    (step,) = joins.steps(1, join)
    joins.wait(join)
    with pytest.raises(InvalidState):
        joins.attach(join, joins.put())
    assert not joins.attach(join, step), "attached before"
    empty = opened(joins)
    joins.wait(empty)
    with pytest.raises(InvalidState):
        joins.attach(empty, step)
    assert len(joins.members(empty)) == 0


def test_contract_an_open_join_takes_steps_beyond_any_number_and_can_be_cancelled(joins: Joins) -> None:
    join = opened(joins)
    joins.steps(120, join)
    assert joins.cancel(join)
    answer = joins.resolve(join)
    assert (answer["status"], answer["expected_steps"]) == ("Cancelled", None)
    with pytest.raises(InvalidState):
        joins.wait(join)
    with pytest.raises(InvalidState):
        joins.attach(join, joins.put())


def test_contract_reports_count_in_an_open_join_too(joins: Joins) -> None:
    join = opened(joins)
    first, second = joins.steps(2, join)
    assert joins.completed(join, first)
    assert joins.failed(join, second)
    assert joins.counts(join) == (1, 1)
    joins.wait(join, fail_if_any_step_failed=False)
    assert joins.resolve(join)["status"] == "Completed"


def test_contract_closing_that_is_rolled_back_leaves_the_join_open(joins: Joins) -> None:
    join = opened(joins)
    joins.steps(1, join)
    with joins.box.db.session() as session:
        joins.on(session).wait(join)
        session.rollback()
    assert joins.get(join)["expected_steps"] is None
    joins.steps(1, join)
    joins.wait(join)
    assert joins.get(join)["expected_steps"] == 2


def test_contract_an_attach_behind_an_open_closing_finds_the_join_closed(joins: Joins) -> None:
    join = opened(joins)
    (step,) = joins.steps(1)
    with joins.box.db.session() as closing, joins.box.db.session() as late, ThreadPoolExecutor(1) as pool:
        joins.on(closing).wait(join)
        future = pool.submit(_attached, late, joins, join, step)
        closing.commit()
        with pytest.raises(InvalidState):
            future.result(PATIENCE)
    assert joins.get(join)["expected_steps"] == 0
    assert joins.members(join) == []


def test_contract_a_closing_behind_an_open_attach_counts_its_step(joins: Joins) -> None:
    join = opened(joins)
    (step,) = joins.steps(1)
    with (
        joins.box.db.session() as attaching,
        joins.box.db.session() as closing,
        ThreadPoolExecutor(1) as pool,
    ):
        assert joins.on(attaching).attach(join, step)
        future = pool.submit(_closed, closing, joins, join)
        attaching.commit()
        future.result(PATIENCE)
    assert joins.get(join)["expected_steps"] == 1
    assert joins.box.take() == [step.id]
    assert joins.box.ack(OWNER, [step.id]) == 1
    assert len(joins.woken()) == 1


@pytest.mark.parametrize("first", ["the step", "the closing"])
def test_contract_the_last_step_and_the_closing_may_be_open_together(joins: Joins, first: str) -> None:
    """Neither sees the other; whoever commits last, somebody finds the join complete."""
    box = joins.box
    join = opened(joins)
    (held,) = joins.held(1, join)
    with box.db.session() as settling, box.db.session() as closing:
        assert box.on(impatient(settling)).ack(OWNER, [held]) == 1
        waiting = joins.on(impatient(closing)).wait(join)
        order = (settling, closing) if first == "the step" else (closing, settling)
        for session in order:
            session.commit()
    box.db.advance(1)
    assert box.take(OTHER) == [waiting.id]
    assert joins.resolve(join)["status"] == "Completed"


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_contract_an_older_snapshot_does_not_close_a_join_too_early(joins: Joins, level: str) -> None:
    join = opened(joins)
    (step,) = joins.steps(1)
    with joins.box.db.session() as session:
        session.sql(f"SET TRANSACTION ISOLATION LEVEL {level}")
        session.sql("SELECT 1")
        joins.on(session).get(join)
        assert joins.attach(join, step)
        with pytest.raises(DatabaseUnavailable):
            joins.on(session).wait(join)
    with joins.box.db.session() as session:
        session.sql(f"SET TRANSACTION ISOLATION LEVEL {level}")
        joins.on(session).wait(join)
        session.commit()
    assert joins.get(join)["expected_steps"] == 1
    assert len(joins.members(join)) == 1


def _attached(session: Any, joins: Joins, join: UUID, step: object) -> bool:
    answer = joins.on(session).attach(join, step)
    session.commit()
    return answer


def _closed(session: Any, joins: Joins, join: UUID) -> None:
    joins.on(session).wait(join)
    session.commit()
