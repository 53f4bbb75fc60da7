"""Races for the steps of joins: each counts once, whatever settles, reports or attaches it meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from pysqlbox.errors import InvalidState, PysqlboxError
from tests.concurrency.invariants import check
from tests.concurrency.scenarios_claims import outbox
from tests.concurrency.sessions import Background, hasty, sessions
from tests.contract.joins import Joins, Step, ids_of
from tests.contract.support import OTHER, OWNER, ids, server_now
from tests.support.database import Database, Session

Call = Callable[[Session], Any]

ENDS: dict[str, tuple[int, int]] = {"ack": (1, 0), "fail": (0, 1), "settle": (1, 0)}
"""What ends a held step, and what its join then counts."""


def joins_of_outbox(db: Database) -> Joins:
    """The joins that scenarios play on."""
    return Joins(outbox(db))


def attach(joins: Joins, join: UUID, step: Step) -> Call:
    """Attaches, on a session that is given later."""
    return lambda session: joins.on(session).attach(join, step)


def end(joins: Joins, how: str, held: list[int]) -> int:
    """Ends held messages; how many they were."""
    if how == "settle":
        joins.box.settle(OWNER, [{"id": message, "result": "ack"} for message in held])
        return len(held)
    return joins.box.ack(OWNER, held) if how == "ack" else joins.box.fail(OWNER, held)


def a_batch_counts_what_it_moved(db: Database) -> None:
    """Several steps of one join in one batch, with foreign, repeated and unknown ids among them."""
    joins = joins_of_outbox(db)
    for how in ENDS:
        join, other = joins.start(9), joins.start(9)
        mine, foreign = joins.held(3, join, other), joins.held(2, join, owner=OTHER)
        unclaimed = ids_of(joins.steps(1, join, topic="later"))
        end(joins, how, [*mine, *foreign, *unclaimed, *mine, 10**15])
        completed, failed = ENDS[how]
        assert joins.counts(join) == (3 * completed, 3 * failed), how
        assert joins.counts(other) == (3 * completed, 3 * failed), how
        assert joins.box.ack(OTHER, foreign) == 2
        assert joins.counts(join) == (3 * completed + 2, 3 * failed), how
    check(db, "outbox")


def a_settled_batch_counts(db: Database) -> None:
    """Both kinds in one settle, which also hands out the message that waited for them."""
    joins = joins_of_outbox(db)
    join = joins.start(4)
    waiting = joins.wait(join)
    made = joins.held(4, join)
    records = [{"id": message, "result": "fail", "error": "e"} for message in made[:2]]
    records += [{"id": message, "result": "ack"} for message in made[2:]]
    rows = joins.box.settle(OWNER, records, claim_batch=5)
    assert joins.counts(join) == (2, 2)
    assert ids(rows) == [waiting.id]
    check(db, "outbox")


def what_settles_without_a_worker_counts(db: Database) -> None:
    """Expiry and giving up in a reap, and a newer message in a waiting one's place."""
    joins = joins_of_outbox(db)
    box = joins.box
    join = joins.start(3)
    waiting = joins.wait(join)
    box.configure("max_attempts", "1")
    joins.held(1, join)
    joins.steps(1, join, expires_at=server_now(db))
    joins.steps(1, join, collapse_key="k")
    box.put("newer", collapse_key="k")
    db.advance(60)
    assert box.reap() == 1
    taken = box.take(OTHER) + box.take(OTHER)
    assert joins.counts(join) == (0, 3)
    assert waiting.id in taken
    check(db, "outbox")


def a_replayed_step_counts_once(db: Database) -> None:
    """A failed step that comes back and is done, and one that is discarded: each has counted as failed."""
    joins = joins_of_outbox(db)
    join = joins.start(3)
    made = joins.held(2, join)
    joins.box.fail(OWNER, made)
    joins.box.affected("replay", ids=made[:1])
    joins.box.affected("discard", ids=made[1:])
    assert joins.box.take() == made[:1]
    joins.box.ack(OWNER, made[:1])
    assert joins.counts(join) == (0, 2)
    check(db, "outbox")


def a_report_counts_once(db: Database) -> None:
    """Reported, then acknowledged, and the other way round."""
    joins = joins_of_outbox(db)
    join = joins.start(4)
    first, second = joins.steps(2, join)
    joins.box.take()
    assert joins.completed(join, first)
    joins.box.ack(OWNER, [first.id, second.id])
    assert not joins.completed(join, first)
    assert not joins.failed(join, second)
    assert joins.counts(join) == (2, 0)
    check(db, "outbox")


def an_attach_holds_up_the_settlement(db: Database, how: str) -> None:
    """The attach is open: whoever settles the message waits for it, and then counts the step."""
    joins = joins_of_outbox(db)
    join = joins.start(2)
    waiting = joins.wait(join)
    steps = joins.steps(2)
    assert joins.box.take() == ids_of(steps)
    assert joins.attach(join, steps[1])
    with sessions(db, 2) as (attacher, worker):
        assert joins.on(attacher).attach(join, steps[0])
        ending = Background(db, worker, lambda session: end(joins.on(session), how, ids_of(steps)))
        assert ending.is_blocked()
        attacher.commit()
        assert ending.result() == 2
        worker.commit()
    completed, failed = ENDS[how]
    assert joins.counts(join) == (2 * completed, 2 * failed)
    assert joins.woken() == [waiting.id]
    check(db, "outbox")


def an_attach_waits_for_the_settlement(db: Database, how: str) -> None:
    """The settlement is open: the attach waits for it and then counts the step itself, if it committed."""
    joins = joins_of_outbox(db)
    for commits in (True, False):
        join = joins.start()
        waiting = joins.wait(join)
        (step,) = joins.steps(1)
        assert joins.box.take(topics=["step"]) == [step.id]
        with sessions(db, 2) as (worker, attacher):
            assert end(joins.on(worker), how, [step.id]) == 1
            attaching = Background(db, attacher, attach(joins, join, step))
            assert attaching.is_blocked()
            (worker.commit if commits else worker.rollback)()
            assert attaching.result()
            attacher.commit()
        if not commits:
            assert joins.counts(join) == (0, 0)
            assert end(joins, how, [step.id]) == 1
        assert joins.counts(join) == ENDS[how]
        assert joins.woken() == [waiting.id]
    check(db, "outbox")


def an_attach_follows_its_message(db: Database) -> None:
    """The message is claimed or given back while the attach looks for it, and is found where it went."""
    joins = joins_of_outbox(db)
    box = joins.box

    def race(step: Step, move: Callable[[Joins, int], object]) -> None:
        join = joins.start()
        with sessions(db, 3) as (mover, attacher, worker):
            assert move(joins.on(mover), step.id)
            attaching = Background(db, attacher, attach(joins, join, step))
            assert attaching.is_blocked()
            mover.commit()
            assert attaching.result()
            assert joins.on(hasty(worker)).box.take() == [], "the attach holds it where it is now"
            worker.commit()
            attacher.commit()
        db.advance(1)
        box.take()
        assert box.ack(OWNER, [step.id]) == 1
        assert joins.counts(join) == (1, 0)
        check(db, "outbox")

    for group in (None, "g"):
        (step,) = joins.steps(1, group_id=group)
        race(step, lambda seen, _: seen.box.take())
        (step,) = joins.steps(1, group_id=group)
        assert box.take() == [step.id]
        race(step, lambda seen, moving: seen.box.release(OWNER, [moving]))


def an_attach_and_a_replay_count_once(db: Database) -> None:
    """A dead message counts as failed, though its replay is open; what becomes of it later does not."""
    joins = joins_of_outbox(db)
    for replay_first in (True, False):
        join = joins.start()
        (message,) = joins.held(1)
        assert joins.box.fail(OWNER, [message]) == 1
        own = joins.box.get(message)["message_id"]
        with sessions(db, 2) as (one, other):
            for step in ("replay", "attach") if replay_first else ("attach", "replay"):
                if step == "attach":
                    assert joins.on(hasty(one)).attach(join, own)
                else:
                    assert joins.on(hasty(other)).box.affected("replay", ids=[message]) == 1
            one.commit()
            other.commit()
        assert joins.box.take() == [message]
        assert joins.box.ack(OWNER, [message]) == 1
        assert joins.counts(join) == (0, 1)
    check(db, "outbox")


def an_older_snapshot_does_not_miss_a_step(db: Database) -> None:
    """A settlement under REPEATABLE READ that cannot see the attach fails to serialize; again, it counts."""
    joins = joins_of_outbox(db)
    for how, counted in ENDS.items():
        join = joins.start()
        (step,) = joins.steps(1)
        assert joins.box.take() == [step.id]
        with sessions(db, 1) as (worker,):
            worker.sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            worker.sql("SELECT 1 AS one FROM {schema}.outbox_lease")
            assert joins.attach(join, step)
            with contextlib.suppress(PysqlboxError):
                end(joins.on(worker), how, [step.id])
                worker.commit()
            worker.rollback()
        assert joins.counts(join) == (0, 0)
        assert joins.box.get(step.id)["status"] == "InProgress"
        assert end(joins, how, [step.id]) == 1
        assert joins.counts(join) == counted
    check(db, "outbox")


def an_older_snapshot_does_not_miss_a_replaced_step(db: Database) -> None:
    """The same for an enqueue that puts a newer message in the step's place."""
    joins = joins_of_outbox(db)
    for more in ({}, {"group_id": "g"}, {"due_at": server_now(db) + timedelta(seconds=900)}):
        join = joins.start()
        (step,) = joins.steps(1, collapse_key="k", **more)
        with sessions(db, 1) as (producer,):
            producer.sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            producer.sql("SELECT 1 AS one FROM {schema}.outbox_message")
            assert joins.attach(join, step)
            with contextlib.suppress(PysqlboxError):
                joins.on(producer).box.put("newer", collapse_key="k")
                producer.commit()
        is_there = bool(db.call("outbox_find", message_id=step.message_id))
        assert joins.counts(join) == ((0, 0) if is_there else (0, 1)), more
        (member,) = joins.members(join)
        assert member["status"] == ("Pending" if is_there else "Failed"), more
    check(db, "outbox")


def claims_do_not_wait_for_an_attach(db: Database) -> None:
    """What is being attached is passed over for the moment, wherever it is; everything else goes on."""
    joins = joins_of_outbox(db)
    box = joins.box
    join = joins.start(5)
    made = [
        joins.put(),
        joins.put(priority=2),
        joins.put(group_id="g"),
        joins.put(due_at=server_now(db)),
        joins.put(due_at=server_now(db)),
    ]
    db.advance(5)
    with sessions(db, 2) as (attacher, worker):
        for step in made[:4]:
            assert joins.on(attacher).attach(join, step)
        assert joins.on(hasty(worker)).box.take() == [made[4].id]
        worker.commit()
        worker.sql("SET lock_timeout = '300ms'")
        assert joins.on(worker).box.settle(OWNER, [{"id": made[4].id, "result": "ack"}], claim_batch=5) == []
        worker.commit()
        attacher.commit()
    db.advance(5)
    taken = box.take()
    taken += box.take()
    assert sorted(taken) == ids_of(made[:4])
    box.ack(OWNER, taken)
    assert joins.counts(join) == (4, 0)
    check(db, "outbox")


def attaches_do_not_exceed_the_expected_steps(db: Database) -> None:
    """Two attach the last step at once: the second waits, and then learns that there is no room."""
    joins = joins_of_outbox(db)
    join = joins.start()
    steps = joins.steps(2)
    with sessions(db, 2) as (one, other):
        assert joins.on(one).attach(join, steps[0])
        attaching = Background(
            db, other, lambda session: _attach_or_refusal(joins.on(session), join, steps[1])
        )
        assert attaching.is_blocked()
        one.commit()
        assert attaching.result() == "refused"
        other.rollback()
    assert [member["id"] for member in joins.members(join)] == [steps[0].id]
    check(db, "outbox")


def one_message_is_attached_once(db: Database) -> None:
    """Two attach one message at once: the second waits, and then learns that it is a step already."""
    joins = joins_of_outbox(db)
    join = joins.start(2)
    (step,) = joins.steps(1)
    with sessions(db, 2) as (one, other):
        assert joins.on(one).attach(join, step)
        attaching = Background(db, other, attach(joins, join, step))
        assert attaching.is_blocked()
        one.commit()
        assert attaching.result() is False
        other.commit()
    (second,) = joins.steps(1)
    assert joins.attach(join, second), "it took one place only"
    check(db, "outbox")


def an_attach_and_a_cancel_do_not_both_win(db: Database) -> None:
    """A join that is being cancelled takes no more steps."""
    joins = joins_of_outbox(db)
    join = joins.start()
    (step,) = joins.steps(1)
    with sessions(db, 2) as (one, other):
        assert joins.on(one).cancel(join)
        attaching = Background(db, other, lambda session: _attach_or_refusal(joins.on(session), join, step))
        assert attaching.is_blocked()
        one.commit()
        assert attaching.result() == "refused"
        other.rollback()
    assert joins.members(join) == []


def _attach_or_refusal(joins: Joins, join: UUID, step: Step) -> object:
    try:
        return joins.attach(join, step)
    except InvalidState:
        return "refused"


def a_report_and_a_settlement_count_once(db: Database, how: str) -> None:
    """Whichever comes first counts, and the other waits for it and does not."""
    joins = joins_of_outbox(db)
    for report_first in (True, False):
        for commits in (True, False):
            join = joins.start(2)
            held = joins.held(1, join)
            message = joins.members(join)[0]["message_id"]

            def report(session: Session, join: UUID = join, message: UUID = message) -> bool:
                return joins.on(session).completed(join, message)

            def settle(session: Session, held: list[int] = held) -> int:
                return end(joins.on(session), how, held)

            with sessions(db, 2) as (one, other):
                first, second = (report, settle) if report_first else (settle, report)
                assert first(one)
                following = Background(db, other, second)
                assert following.is_blocked()
                (one.commit if commits else one.rollback)()
                assert following.result() == (not commits if second is report else 1)
                other.commit()
            reported = commits if report_first else not commits
            assert joins.counts(join) == ((1, 0) if reported else ENDS[how])
    check(db, "outbox")


def two_reports_count_once(db: Database) -> None:
    """Two report one step at once."""
    joins = joins_of_outbox(db)
    join = joins.start(2)
    (step,) = joins.steps(1, join)
    with sessions(db, 2) as (one, other):
        assert joins.on(one).completed(join, step)
        reporting = Background(db, other, lambda session: joins.on(session).failed(join, step))
        assert reporting.is_blocked()
        one.commit()
        assert reporting.result() is False
        other.commit()
    assert joins.counts(join) == (1, 0)
    check(db, "outbox")


def _by_end(scenario: Callable[[Database, str], None], how: str, db: Database) -> None:
    scenario(db, how)


def by_every_end(scenario: Callable[[Database, str], None]) -> list[Callable[[Database], None]]:
    """The scenario once for each way to end a step, under a name of its own."""
    made: list[Callable[[Database], None]] = []
    for how in ENDS:
        one = partial(_by_end, scenario, how)
        one.__name__ = f"{scenario.__name__}_{how}"  # type: ignore[attr-defined]  # what pytest and the list show
        made.append(one)
    return made


SCENARIOS: tuple[Callable[[Database], None], ...] = (
    a_batch_counts_what_it_moved,
    a_settled_batch_counts,
    what_settles_without_a_worker_counts,
    a_replayed_step_counts_once,
    a_report_counts_once,
)
"""On every engine."""
POSTGRES_SCENARIOS: tuple[Callable[[Database], None], ...] = (
    *by_every_end(an_attach_holds_up_the_settlement),
    *by_every_end(an_attach_waits_for_the_settlement),
    an_attach_follows_its_message,
    an_attach_and_a_replay_count_once,
    an_older_snapshot_does_not_miss_a_step,
    an_older_snapshot_does_not_miss_a_replaced_step,
    claims_do_not_wait_for_an_attach,
    attaches_do_not_exceed_the_expected_steps,
    one_message_is_attached_once,
    an_attach_and_a_cancel_do_not_both_win,
    *by_every_end(a_report_and_a_settlement_count_once),
    two_reports_count_once,
)
"""They wait for PostgreSQL's locks."""
