"""What the low marks wait for, and what not; what is left behind them is found. Played step by step.

Each function fails if the guard that it is about is missing; `test_planted_bugs` removes the guards. Where no
lock of the routine's own lets a test in between two of its statements, the planted bug waits there at `GATE`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from pysqlbox.drivers.url import with_database
from tests.concurrency.invariants import check
from tests.concurrency.scenarios_claims import inbox, outbox
from tests.concurrency.sessions import GATE, Background, hasty, patient, sessions, tick
from tests.contract.joins import Joins
from tests.contract.support import OTHER, OWNER, Box, server_now
from tests.support.database import Database, Session

MARKS = ("low_ticket", "low_sure", "low_grouped", "low_tally", "low_due", "low_done")


def _mark(db: Database, name: str) -> int:
    return int(str(db.sql(f"SELECT last_value AS n FROM {{schema}}._outbox_{name}")[0]["n"]))


def _ticks_later(db: Database, session: Session) -> None:
    """A tick of a transaction that may have written; it leaves the marks alone right after another one."""
    db.advance(1)
    session.sql("SELECT {schema}._outbox_tick()")


def _busy(box: Box) -> None:
    """Messages of all sorts come and go, and time passes."""
    for more in ({}, {"group_id": "g"}, {"due_at": server_now(box.db)}, {"priority": 1}):
        box.made_done(**more)
        box.made_done(**more)
        box.db.advance(1)
    box.affected("cleanup", retention_seconds=0)


def the_marks_pass_a_stranger_who_writes(db: Database) -> None:
    """A transaction that has written, here or in another database of the server, and stays open."""
    box = outbox(db)
    for url in (db.url, with_database(db.url, "postgres")):
        elsewhere = Database(db.dialect, db.schema, url, db.engine_id)
        with elsewhere.session() as stranger:
            stranger.sql("SELECT pg_current_xact_id()::text AS xid")
            _busy(box)
            tick(db, "outbox")
            before = {name: _mark(db, name) for name in MARKS}
            _busy(box)
            tick(db, "outbox")
            assert [name for name in MARKS if _mark(db, name) <= before[name]] == []
        check(db, "outbox")


def the_mark_passes_what_came_before_an_open_producer(db: Database) -> None:
    """A stranger is open, and a producer that began after the tick's note: the mark goes up to the note."""
    box = outbox(db)
    with sessions(db, 2) as (stranger, producer):
        stranger.sql("SELECT pg_current_xact_id()::text AS xid")
        box.made_done()
        tick(db, "outbox")
        (last,) = box.made_done()
        tick(db, "outbox", 1)
        held = box.on(producer).put()
        tick(db, "outbox", 1)
        assert last < _mark(db, "low_ticket") <= held
        assert last < _mark(db, "low_sure") <= held
        producer.commit()
    check(db, "outbox")
    assert box.take() == [held]


def the_marks_stay_behind_what_came_during_the_tick(db: Database) -> None:
    """A tick notes the last number and the time before it draws an xid: what comes between is not noted."""
    box = outbox(db)
    due = server_now(db) + timedelta(seconds=20)
    with sessions(db, 3) as (gate, ticking, producer):
        gate.sql("SELECT 1 AS one FROM pg_advisory_xact_lock(%s)", GATE)
        waiting = Background(
            db, patient(ticking), lambda session: session.sql("SELECT {schema}._outbox_tick()")
        )
        waiting.is_blocked()
        held = [box.on(producer).put(), box.on(producer).put(due_at=due)]
        held.append(box.put())
        db.advance(30)
        gate.rollback()
        waiting.result()
        ticking.commit()
        tick(db, "outbox")
        producer.commit()
    check(db, "outbox")
    assert sorted(box.take()) == held


def no_mark_trusts_what_may_be_rolled_back(db: Database) -> None:
    """A transaction takes something out of every table, ticks, and is rolled back."""
    box = outbox(db)
    box.made_done()
    made = [*box.fill(2, group_id="g"), box.put(), box.put(priority=1), box.put(priority=-1)]
    made.append(box.put(due_at=server_now(db) + timedelta(seconds=5)))
    assert box.take(OTHER, batch=1) == [made[3]]
    assert box.release(OTHER, [made[3]]) == 1
    assert box.take(OTHER, batch=2) == [made[3], made[0]]
    assert box.ack(OTHER, [made[3]]) == 1
    db.advance(10)
    tick(db, "outbox", 1)
    with sessions(db, 1) as (session,):
        mine = box.on(session)
        assert mine.ack(OTHER, [made[0]]) == 1
        assert sorted(mine.take(OWNER)) == [made[1], made[2], made[4], made[5]]
        assert session.value("outbox_cleanup", retention_seconds=0) == 3
        _ticks_later(db, session)
        session.rollback()
    check(db, "outbox")
    assert box.ack(OTHER, [made[0]]) == 1
    assert sorted(box.take(OWNER)) == [made[1], made[2], made[4], made[5]]


def the_mark_of_groups_does_not_trust_an_ack_that_may_be_rolled_back(db: Database) -> None:
    """The ack of a group's only lease, a tick, and a rollback: the mark stays before the lease."""
    box = outbox(db)
    (held,) = box.fill(1, group_id="g")
    assert box.take() == [held]
    _rolled_back(db, lambda inside: inside.ack(OWNER, [held]))
    assert box.ack(OWNER, [held]) == 1


def the_mark_of_groups_does_not_trust_a_collapse_that_may_be_rolled_back(db: Database) -> None:
    """The same for the only member of any group, which a newer message replaces."""
    box = outbox(db)
    waiting = box.put(group_id="g", collapse_key="k")
    _rolled_back(db, lambda inside: inside.put(collapse_key="k"))
    assert box.take() == [waiting]


def _rolled_back(db: Database, step: Callable[[Box], object]) -> None:
    tick(db, "outbox", 1)
    with sessions(db, 1) as (session,):
        step(outbox(db).on(session))
        _ticks_later(db, session)
        session.rollback()
    check(db, "outbox")


def the_mark_of_done_does_not_trust_a_cleanup_that_may_be_rolled_back(db: Database) -> None:
    """A cleanup whose own tick had to wait for a producer; that one is over when the next tick comes."""
    box = outbox(db)
    box.made_done()
    db.advance(10)
    with sessions(db, 2) as (producer, session):
        box.on(producer).put()
        tick(db, "outbox", 1)
        assert box.on(session).affected("cleanup", retention_seconds=0) == 1
        producer.rollback()
        _ticks_later(db, session)
        session.rollback()
    check(db, "outbox")
    assert box.affected("cleanup", retention_seconds=0) == 1


def _left_behind(db: Database, producer: Session) -> int:
    """A producer stays open until the mark of the log has gone on without it; answers its message."""
    late = outbox(db).on(producer).put()
    tick(db, "outbox")
    db.sql("SELECT count(nextval('{schema}._outbox_ids')) AS n FROM generate_series(1, 6000)")
    db.advance(2)
    tick(db, "outbox", 3)
    assert _mark(db, "low_ticket") > late
    assert _mark(db, "low_sure") <= late, "somebody is still open"
    return late


def what_comes_long_after_the_mark_has_passed_is_found(db: Database) -> None:
    """The mark has not waited for a producer; once that commits, ticks find what it brought."""
    with sessions(db, 1) as (producer,):
        late = _left_behind(db, producer)
        tick(db, "outbox", 3)
        assert _mark(db, "low_sure") <= late
        producer.commit()
    tick(db, "outbox", 4)
    check(db, "outbox")
    assert outbox(db).take() == [late]


def what_was_moved_from_behind_the_mark_may_come_back(db: Database) -> None:
    """A tick moves what came late to the tail and is rolled back: nothing is proven by that."""
    with sessions(db, 2) as (producer, session):
        late = _left_behind(db, producer)
        producer.commit()
        for _ in range(3):
            session.sql("SELECT {schema}._outbox_tick()")
            session.rollback()
            assert _mark(db, "low_sure") <= late
    tick(db, "outbox", 4)
    check(db, "outbox")
    assert outbox(db).take() == [late]


def a_replayed_member_comes_back_while_a_tick_moves_on(db: Database) -> None:
    """The mark of groups has passed a dead message; it is replayed, and a tick runs before that commits."""
    box = outbox(db)
    (dead,) = box.made_dead(group_id="g")
    box.made_done(group_id="h")
    tick(db, "outbox", 4)
    assert _mark(db, "low_grouped") > dead
    with sessions(db, 1) as (operator,):
        assert box.on(operator).affected("replay", ids=[dead]) == 1
        tick(db, "outbox", 2)
        operator.commit()
    check(db, "outbox")
    assert box.take() == [dead]


def a_replayed_member_comes_back_between_a_look_and_its_mark(db: Database) -> None:
    """The same, and the tick has looked before the replay begins, and raises the mark after it has begun."""
    box = outbox(db)
    (dead,) = box.made_dead(group_id="g")
    box.made_done(group_id="h")
    tick(db, "outbox", 4)
    with sessions(db, 3) as (gate, ticking, operator):
        gate.sql("SELECT 1 AS one FROM pg_advisory_xact_lock(%s)", GATE)
        waiting = Background(
            db, patient(ticking), lambda session: session.sql("SELECT {schema}._outbox_tick()")
        )
        waiting.is_blocked()
        assert box.on(operator).affected("replay", ids=[dead]) == 1
        gate.rollback()
        waiting.result()
        ticking.commit()
        operator.commit()
    check(db, "outbox")
    assert box.take() == [dead]


def _held_up(db: Database, locks: str, call: Callable[[Session], object]) -> object:
    """What a call answers that is held up by a lock, while time passes and the marks move on."""
    with sessions(db, 2) as (locker, session):
        locker.sql(locks)
        waiting = Background(db, patient(session), call)
        assert waiting.is_blocked()
        db.advance(100)
        tick(db, "outbox", 3)
        tick(db, "inbox", 3)
        locker.rollback()
        answer = waiting.result()
        session.commit()
    return answer


def an_abandon_held_up_is_due_after_the_mark(db: Database) -> None:
    """An abandon waits for its message; the time it has read is long over when it goes on."""
    box = outbox(db)
    made = box.fill(1)
    assert box.take(OWNER, lease=1000) == made
    locks = "SELECT 1 AS one FROM {schema}.outbox_message FOR UPDATE"
    assert _held_up(db, locks, lambda session: box.on(session).abandon(OWNER, made, delay_seconds=1)) == 1
    check(db, "outbox")
    db.advance(2)
    assert box.take() == made


def a_release_held_up_is_due_after_the_mark(db: Database) -> None:
    """A release of a message that has got another due time meanwhile waits before it places it."""
    box = inbox(db)
    made = [box.put(message_id="m", source="s")]
    assert box.take(OWNER, lease=1000) == made
    box.enqueue(message_id="m", source="s", due_at=server_now(db) + timedelta(seconds=20))
    locks = "LOCK TABLE {schema}.inbox_ready IN SHARE ROW EXCLUSIVE MODE"
    assert _held_up(db, locks, lambda session: box.on(session).release(OWNER, made)) == 1
    check(db, "inbox")
    assert box.take() == made


def an_ack_held_up_is_done_after_the_mark(db: Database) -> None:
    """An ack waits for its lease: what it writes was not done before it had it."""
    box = outbox(db)
    made = box.fill(1)
    assert box.take(OWNER, lease=1000) == made
    locks = "SELECT 1 AS one FROM {schema}.outbox_lease FOR UPDATE"
    assert _held_up(db, locks, lambda session: box.on(session).ack(OWNER, made)) == 1
    check(db, "outbox")
    assert box.affected("cleanup", retention_seconds=0) == 1


def a_step_held_up_is_counted_after_the_mark(db: Database) -> None:
    """A step fails, and waits before it is counted: the join's probe is found."""
    box = outbox(db)
    joins = Joins(box)
    step = box.enqueue()
    join = joins.start(1)
    assert joins.attach(join, step["message_id"])
    assert box.take(OWNER, lease=1000) == [step["id"]]
    locks = "LOCK TABLE {schema}.join_tally IN SHARE ROW EXCLUSIVE MODE"
    assert _held_up(db, locks, lambda session: box.on(session).fail(OWNER, [step["id"]])) == 1
    (probe,) = db.sql(
        "SELECT s.due_at >= to_timestamp(m.last_value / 1000000.0) AS found"
        " FROM {schema}._outbox_low_due AS m CROSS JOIN {schema}.outbox_scheduled AS s"
        " WHERE s.join_id IS NOT NULL"
    )
    assert probe["found"]


def _look(db: Database) -> int:
    """A claim's look for leases that have run out, without the patrol of a reap."""
    return int(str(db.sql("SELECT {schema}._outbox_reap(100) AS n")[0]["n"]))


def a_lease_that_a_look_passed_over_is_looked_at_again(db: Database) -> None:
    """It ran out, was just being settled when looks saw it, and is not settled after all."""
    box = outbox(db)
    made = box.fill(2)
    assert box.take(OWNER, lease=5) == made
    db.advance(10)
    with sessions(db, 1) as (late,):
        assert box.on(late).ack(OWNER, made) == 2
        for _ in range(3):
            assert _look(db) == 0
            db.advance(10)
        late.rollback()
    assert _look(db) == 2
    check(db, "outbox")
    assert box.take() == made


def a_lease_committed_a_little_late_is_found(db: Database) -> None:
    """The last look was a second after it ran out, and could not see it yet."""
    box = outbox(db)
    made = box.fill(1)
    assert box.take(OWNER, lease=5) == made
    db.advance(10)
    db.sql(
        "SELECT setval('{schema}._outbox_low_lease', (extract(epoch FROM locked_until) * 1000000)::bigint"
        " + 1000000) FROM {schema}.outbox_lease"
    )
    assert _look(db) == 1
    assert box.take() == made


def a_lease_of_a_group_without_a_row_is_reaped(db: Database) -> None:
    """Nobody can lock the group's row, for there is none."""
    box = outbox(db)
    made = box.fill(2, group_id="g")
    assert box.take(OWNER, lease=5, batch=1) == made[:1]
    db.sql("DELETE FROM {schema}.outbox_group")
    db.advance(10)
    assert box.reap() == 1
    check(db, "outbox")
    assert box.take(OTHER) == made


def a_cleanup_does_not_wait_for_a_producer(db: Database) -> None:
    """An open producer adds to a group that has become idle: its row stays, and a cleanup goes on."""
    box = outbox(db)
    (first,) = box.fill(1, group_id="g")
    assert box.take() == [first]
    with sessions(db, 2) as (producer, cleaning):
        added = box.on(producer).put(group_id="g")
        assert box.ack(OWNER, [first]) == 1
        assert box.on(hasty(cleaning)).affected("cleanup", retention_seconds=0) == 1
        cleaning.commit()
        producer.commit()
    check(db, "outbox")
    db.advance(1)
    assert box.take() == [added]


SCENARIOS: tuple[Callable[[Database], None], ...] = (
    the_marks_pass_a_stranger_who_writes,
    the_mark_passes_what_came_before_an_open_producer,
    the_marks_stay_behind_what_came_during_the_tick,
    no_mark_trusts_what_may_be_rolled_back,
    the_mark_of_groups_does_not_trust_an_ack_that_may_be_rolled_back,
    the_mark_of_groups_does_not_trust_a_collapse_that_may_be_rolled_back,
    the_mark_of_done_does_not_trust_a_cleanup_that_may_be_rolled_back,
    what_comes_long_after_the_mark_has_passed_is_found,
    what_was_moved_from_behind_the_mark_may_come_back,
    a_replayed_member_comes_back_while_a_tick_moves_on,
    a_replayed_member_comes_back_between_a_look_and_its_mark,
    an_abandon_held_up_is_due_after_the_mark,
    a_release_held_up_is_due_after_the_mark,
    an_ack_held_up_is_done_after_the_mark,
    a_step_held_up_is_counted_after_the_mark,
    a_lease_that_a_look_passed_over_is_looked_at_again,
    a_lease_committed_a_little_late_is_found,
    a_lease_of_a_group_without_a_row_is_reaped,
    a_cleanup_does_not_wait_for_a_producer,
)
