"""Races for the end of joins: nobody waits without need, no wait is forgotten, the follow-up comes once."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from tests.concurrency.invariants import check, drain
from tests.concurrency.scenarios_joins import ENDS, Call, end, joins_of_outbox
from tests.concurrency.sessions import Background, hasty, sessions, tick
from tests.contract.joins import Joins, Step
from tests.contract.support import OTHER, OWNER, ids
from tests.support.database import Database


def resolve(joins: Joins, join: UUID) -> Call:
    """Resolves, on a session that is given later."""
    return lambda session: joins.on(session).resolve(join)


def the_last_two_steps_end_at_once(db: Database) -> None:
    """Neither sees the other's step, neither waits, and yet the join is seen to be complete."""
    joins = joins_of_outbox(db)
    join = joins.start(2)
    waiting = joins.wait(join)
    made = joins.held(2, join)
    with sessions(db, 3) as (one, other, worker):
        assert joins.on(one).box.ack(OWNER, made[:1]) == 1
        assert joins.on(hasty(other)).box.ack(OWNER, made[1:]) == 1
        other.commit()
        assert joins.on(hasty(worker)).woken() == []
        worker.commit()
        one.commit()
    assert joins.woken() == [waiting.id]
    assert joins.resolve(join)["status"] == "Completed"
    check(db, "outbox")


def two_settles_with_the_last_steps(db: Database) -> None:
    """The same with the claim in the same transaction: it must not take the other's chance to see the end."""
    joins = joins_of_outbox(db)
    for last_first in (True, False):
        join = joins.start(2)
        waiting = joins.wait(join)
        made = joins.held(1, join) + joins.held(1, join, owner=OTHER)
        with sessions(db, 2) as open_ones:
            for session, owner, message in zip(open_ones, (OWNER, OTHER), made, strict=True):
                records = [{"id": message, "result": "ack"}]
                assert joins.on(hasty(session)).box.settle(owner, records, claim_batch=5) == []
            for session in reversed(open_ones) if last_first else open_ones:
                session.commit()
        db.advance(1)
        assert joins.woken() == [waiting.id]
        assert joins.resolve(join)["status"] == "Completed"
        joins.box.ack(OWNER, [waiting.id])
    check(db, "outbox")
    drain(db, "outbox")


def settlements_of_one_join_do_not_wait(db: Database) -> None:
    """Open acks, fails and settles of steps of one hot join, each with a claim, next to a look at it."""
    joins = joins_of_outbox(db)
    join = joins.start(9)
    joins.wait(join)
    made = joins.held(9, join)
    with sessions(db, 3) as open_ones:
        for place, how in enumerate(ENDS):
            mine = joins.on(hasty(open_ones[place]))
            assert end(mine, how, made[3 * place : 3 * place + 3]) == 3
            assert mine.box.take() == []
            assert joins.get(join)["completed_steps"] == 0
        for session in open_ones:
            session.commit()
    assert joins.counts(join) == (6, 3)
    db.advance(1)
    assert len(joins.woken()) == 1
    check(db, "outbox")


def a_wait_and_the_last_step_find_each_other(db: Database) -> None:
    """Neither sees the other, being open at the same time, whichever commits first."""
    joins = joins_of_outbox(db)
    for wait_first in (True, False):
        join = joins.start()
        made = joins.held(1, join)
        with sessions(db, 3) as (waiter, worker, claimer):
            waiting = joins.on(waiter).wait(join)
            assert joins.on(hasty(worker)).box.ack(OWNER, made) == 1
            (waiter if wait_first else worker).commit()
            assert joins.on(hasty(claimer)).woken() == []
            claimer.commit()
            (worker if wait_first else waiter).commit()
        db.advance(1)
        assert joins.woken() == [waiting.id], wait_first
        assert joins.box.ack(OWNER, [waiting.id]) == 1
    check(db, "outbox")


HOLDS: dict[str, Callable[[Joins, UUID, Step], object]] = {
    "attach": lambda joins, join, step: joins.attach(join, step),
    "wait": lambda joins, join, _: joins.wait(join),
    "resolve": lambda joins, join, _: joins.resolve(join),
    "cancel": lambda joins, join, _: joins.cancel(join),
}
"""What locks a join's row; all of it possible on a join that is complete."""


def claims_do_not_wait_for_a_join(db: Database) -> None:
    """While somebody holds a join claims go on, and the message that waits comes once, then or later."""
    joins = joins_of_outbox(db)
    for how, hold in HOLDS.items():
        for commits in (True, False):
            join = joins.start()
            waiting = joins.wait(join)
            (step,) = joins.steps(1, join)
            plain = joins.put("plain")
            assert joins.box.take(topics=["step"]) == [step.id]
            with sessions(db, 2) as (holder, worker):
                assert joins.box.ack(OWNER, [step.id]) == 1
                hold(joins.on(holder), join, step)
                taken = joins.on(hasty(worker)).box.take()
                taken += ids(joins.on(worker).box.settle(OWNER, [], claim_batch=5))
                worker.commit()
                (holder.commit if commits else holder.rollback)()
            assert plain.id in taken, how
            db.advance(1)
            taken += joins.box.take()
            assert sorted(taken) == sorted([plain.id, waiting.id]), (how, commits)
            assert joins.box.ack(OWNER, taken) == 2
    check(db, "outbox")
    drain(db, "outbox")


def a_last_step_that_is_committed_late_is_noticed(db: Database) -> None:
    """Claims go on and the low marks move while the settlement of the last step is open."""
    joins = joins_of_outbox(db)
    join = joins.start()
    waiting = joins.wait(join)
    held = joins.held(1, join)
    tick(db, "outbox", 1)
    with sessions(db, 1) as (worker,):
        assert joins.on(worker).box.ack(OWNER, held) == 1
        for _ in range(3):
            db.advance(30)
            assert joins.box.take() == []
            tick(db, "outbox")
        worker.commit()
    check(db, "outbox")
    assert joins.woken() == [waiting.id]


def a_waiting_message_that_is_held_is_woken_later(db: Database) -> None:
    """It is becoming a step of an outer join while the last step of its own ends."""
    joins = joins_of_outbox(db)
    outer, inner = joins.start(), joins.start()
    waiting = joins.wait(inner)
    held = joins.held(1, inner)
    with sessions(db, 2) as (attacher, worker):
        assert joins.on(attacher).attach(outer, waiting)
        assert joins.box.ack(OWNER, held) == 1
        assert joins.on(hasty(worker)).box.take() == []
        worker.commit()
        attacher.commit()
    db.advance(1)
    assert joins.woken() == [waiting.id]
    joins.box.ack(OWNER, [waiting.id])
    assert joins.counts(outer) == (1, 0)
    check(db, "outbox")
    drain(db, "outbox")


def resolve_enqueues_once(db: Database) -> None:
    """The second of two open resolves waits for the first and gets its answer, or takes its place."""
    joins = joins_of_outbox(db)
    for commits in (True, False):
        join = joins.start()
        topic = f"good {commits}"
        joins.wait(join, on_complete_topic=topic)
        joins.box.ack(OWNER, joins.held(1, join))
        with sessions(db, 2) as (one, other):
            first = joins.on(one).resolve(join)
            resolving = Background(db, other, resolve(joins, join))
            assert resolving.is_blocked()
            (one.commit if commits else one.rollback)()
            second = resolving.result()
            other.commit()
        assert (second == first) is commits
        assert second["status"] == "Completed"
        assert len(joins.box.claim(topics=[topic])) == 1
    check(db, "outbox")


def a_resolve_sees_the_step_that_it_waited_behind(db: Database) -> None:
    """A report of the last step commits while the resolve waits for the join's row."""
    joins = joins_of_outbox(db)
    join = joins.start(2)
    joins.wait(join, on_complete_topic="good")
    first, second = joins.steps(2, join)
    joins.completed(join, first)
    with sessions(db, 2) as (holder, other):
        joins.on(holder).wait(join, on_complete_topic="better")
        resolving = Background(db, other, resolve(joins, join))
        assert resolving.is_blocked()
        joins.completed(join, second)
        holder.commit()
        assert resolving.result()["status"] == "Completed"
        other.commit()
    assert len(joins.box.claim(topics=["better"])) == 1
    assert joins.box.claim(topics=["good"]) == []
    check(db, "outbox")


def a_fold_and_a_settlement_count_once(db: Database) -> None:
    """Many counted steps are folded by a claim that is open while others go on; then it commits, or not."""
    joins = joins_of_outbox(db)
    for commits in (True, False):
        join = joins.start(101)
        waiting = joins.wait(join)
        made = joins.held(101, join)
        for message in made[:90]:
            joins.box.ack(OWNER, [message])
        with sessions(db, 2) as (folder, worker):
            assert joins.on(folder).box.take() == []
            assert joins.on(folder).counts(join) == (90, 0)
            for message in made[90:95]:
                assert joins.on(hasty(worker)).box.fail(OWNER, [message]) == 1
                worker.commit()
            assert joins.on(hasty(worker)).box.take() == []
            worker.commit()
            assert joins.counts(join) == (90, 5)
            (folder.commit if commits else folder.rollback)()
        assert joins.counts(join) == (90, 5)
        joins.box.ack(OWNER, made[95:])
        db.advance(1)
        assert joins.woken() == [waiting.id]
        assert joins.counts(join) == (96, 5)
        joins.box.ack(OWNER, [waiting.id])
    check(db, "outbox")
    drain(db, "outbox")


POSTGRES_SCENARIOS: tuple[Callable[[Database], None], ...] = (
    the_last_two_steps_end_at_once,
    two_settles_with_the_last_steps,
    settlements_of_one_join_do_not_wait,
    a_wait_and_the_last_step_find_each_other,
    claims_do_not_wait_for_a_join,
    a_last_step_that_is_committed_late_is_noticed,
    a_waiting_message_that_is_held_is_woken_later,
    resolve_enqueues_once,
    a_resolve_sees_the_step_that_it_waited_behind,
    a_fold_and_a_settlement_count_once,
)
"""They wait for PostgreSQL's locks."""
