"""Races of claims, leases and the low marks, each played step by step on open transactions.

Each function fails if the guard that it is about is missing; `test_planted_bugs` removes the guards.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from pysqlbox.errors import PysqlboxError
from tests.concurrency.invariants import check, drain
from tests.concurrency.sessions import Background, hasty, patient, sessions, tick
from tests.contract.joins import Joins
from tests.contract.support import OTHER, OWNER, Box, ids, json_text, server_now
from tests.support.database import Database, Session

Step = Callable[[Box, list[int]], object]

STEPS: dict[str, Step] = {
    "ack": lambda box, held: box.ack(OWNER, held),
    "abandon": lambda box, held: box.abandon(OWNER, held),
    "retry": lambda box, held: box.retry(OWNER, held, max_attempts=1)[0],
    "release": lambda box, held: box.release(OWNER, held),
    "fail": lambda box, held: box.fail(OWNER, held),
    "settle": lambda box, held: len(
        box.settle(OWNER, [{"id": held[0], "result": "release"}, {"id": held[1], "result": "ack"}])
    ),
    "extend": lambda box, held: len(box.extend(OWNER, held)),
}
"""What an owner may do with its leases; each answers how many it touched."""


def outbox(db: Database) -> Box:
    """The box that most scenarios play on."""
    return Box("outbox", "outbox", db, db)


def inbox(db: Database) -> Box:
    """The box that scenarios with natural keys play on."""
    return Box("inbox", "inbox", db, db)


def claims_share_without_waiting(db: Database) -> None:
    """Claims in open transactions get different messages, and none waits for another."""
    box = outbox(db)
    made = box.fill(9)
    with sessions(db, 3) as open_ones:
        taken = [
            box.on(hasty(session)).take(OWNER if place else OTHER, batch=3)
            for place, session in enumerate(open_ones)
        ]
        assert taken == [made[0:3], made[3:6], made[6:9]]
        for session in open_ones:
            session.commit()
    check(db, "outbox")
    assert box.take() == []


def topic_claims_share_without_waiting(db: Database) -> None:
    """The same for claims limited to topics, which look further when what they found is being taken."""
    box = outbox(db)
    made = box.fill(90, topic="mine")
    with sessions(db, 3) as open_ones:
        taken = [box.on(hasty(s)).take(OWNER, batch=30, topics=["mine", "other"]) for s in open_ones]
        assert taken == [made[0:30], made[30:60], made[60:90]]
        for session in open_ones:
            session.commit()
    check(db, "outbox")


def a_topic_claim_turns_back_to_what_lay_beyond_its_reach(db: Database) -> None:
    """All within reach is held, another topic's row comes first and has expired."""
    box = outbox(db)
    made = box.fill(60, topic="mine")
    box.put("other", expires_at=server_now(db) + timedelta(seconds=10))
    db.advance(20)
    with sessions(db, 1) as (holder,):
        assert box.on(holder).take(OWNER, batch=50) == made[:50]
        assert box.take(OTHER, batch=1, topics=["mine", "other"]) == made[50:51]
        holder.commit()
    check(db, "outbox")


def a_rolled_back_claim_loses_nothing(db: Database) -> None:
    """What a claim took comes back if its transaction does not commit."""
    box = outbox(db)
    made = box.fill(3)
    with sessions(db, 1) as (session,):
        assert box.on(session).take() == made
        session.rollback()
    check(db, "outbox")
    assert box.take() == made


def the_mark_does_not_trust_a_claim_that_may_roll_back(db: Database) -> None:
    """A tick after a claim in one transaction: what the claim took comes back, the mark stays before it."""
    box = outbox(db)
    made = box.fill(3)
    _work(inbox(db), 1)
    tick(db, "outbox", 1)
    with sessions(db, 1) as (session,):
        assert box.on(session).take() == made
        db.advance(1)
        session.sql("SELECT {schema}._outbox_tick()")
        session.rollback()
    check(db, "outbox")
    assert box.take() == made


def due_messages_are_promoted_once(db: Database) -> None:
    """Claims that promote due messages at the same time do not wait, and each message comes once."""
    box = outbox(db)
    due = server_now(db) + timedelta(seconds=50)
    made = box.fill(200, due_at=due)
    db.advance(100)
    with sessions(db, 2) as open_ones:
        taken = [box.on(hasty(session)).take(OWNER, batch=100) for session in open_ones]
        for session in open_ones:
            session.commit()
    assert sorted(taken[0] + taken[1]) == made
    check(db, "outbox")


def takeover(db: Database, step: str) -> None:
    """An owner whose lease was reaped and claimed by another touches nothing any more."""
    box = outbox(db)
    made = box.fill(2)
    assert box.take(OWNER, lease=5) == made
    db.advance(10)
    assert box.take(OTHER, lease=60) == made
    before = [box.shown(message) for message in made]
    assert STEPS[step](box, made) == 0
    assert [box.shown(message) for message in made] == before
    check(db, "outbox")
    assert box.ack(OTHER, made) == 2
    check(db, "outbox")


def takeover_ack(db: Database) -> None:
    """`takeover` by an ack."""
    takeover(db, "ack")


def takeover_abandon(db: Database) -> None:
    """`takeover` by an abandon."""
    takeover(db, "abandon")


def takeover_retry(db: Database) -> None:
    """`takeover` by a retry that would be the last."""
    takeover(db, "retry")


def takeover_release(db: Database) -> None:
    """`takeover` by a release."""
    takeover(db, "release")


def takeover_fail(db: Database) -> None:
    """`takeover` by a fail."""
    takeover(db, "fail")


def takeover_extend(db: Database) -> None:
    """`takeover` by an extend."""
    takeover(db, "extend")


def takeover_settle(db: Database) -> None:
    """`takeover` by a settle."""
    takeover(db, "settle")


def a_reap_and_an_ack_do_not_both_win(db: Database) -> None:
    """A late ack whose transaction is open: a reap passes its lease over; if the ack commits, it is done."""
    box = outbox(db)
    made = box.fill(2)
    assert box.take(OWNER, lease=5) == made
    db.advance(10)
    with sessions(db, 2) as (late, reaper):
        assert box.on(late).ack(OWNER, made) == 2
        assert box.on(hasty(reaper)).reap() == 0
        reaper.commit()
        late.commit()
    assert [box.status(message) for message in made] == ["Done", "Done"]
    assert box.take() == []
    check(db, "outbox")


def a_reap_and_a_retry_do_not_both_win(db: Database) -> None:
    """Each would count an attempt: whoever takes the lease first counts it, the other one nothing."""
    box = outbox(db)
    made = box.fill(2)
    assert box.take(OWNER, lease=5) == made
    db.advance(10)
    with sessions(db, 2) as (late, reaper):
        assert box.on(late).retry(OWNER, made[:1], max_attempts=1) == (1, 1)
        assert box.on(reaper).reap() == 1
        waiting = Background(
            db, patient(late), lambda session: box.on(session).retry(OWNER, made, max_attempts=1)
        )
        assert waiting.is_blocked()
        reaper.commit()
        assert waiting.result() == (0, 0)
        late.commit()
    assert [box.get(message)["attempt"] for message in made] == [1, 1]
    assert [box.status(message) for message in made] == ["Failed", "Ready"]
    check(db, "outbox")


def two_settles_retry_once(db: Database) -> None:
    """A settle that is sent again while the first is still open: one attempt, one failed step."""
    box = outbox(db)
    joins = Joins(box)
    steps = [box.enqueue(group_id="g") for _ in range(3)]
    made = ids(steps)
    join = joins.start(3)
    for step in steps:
        assert joins.attach(join, step["message_id"])
    assert box.take(OWNER, batch=2) == made[:2]
    outcomes = [{"id": made[0], "result": "retry", "max_attempts": 1}, {"id": made[1], "result": "retry"}]
    with sessions(db, 2) as (first, second):
        assert box.on(first).settle(OWNER, outcomes) == []
        waiting = Background(db, patient(second), lambda session: box.on(session).settle(OWNER, outcomes))
        assert waiting.is_blocked()
        first.commit()
        assert waiting.result() == []
        second.commit()
    assert [box.get(message)["attempt"] for message in made] == [1, 1, 0]
    assert joins.get(join)["failed_steps"] == 1
    check(db, "outbox")
    db.advance(10)
    assert box.take(OTHER) == made[1:]


def an_extend_and_a_reap_do_not_both_win(db: Database) -> None:
    """A lease being prolonged at the last moment is passed over by a reap."""
    box = outbox(db)
    made = box.fill(1)
    assert box.take(OWNER, lease=5) == made
    db.advance(10)
    with sessions(db, 2) as (owner, reaper):
        assert ids(box.on(owner).extend(OWNER, made, 60)) == made
        assert box.on(hasty(reaper)).reap() == 0
        reaper.commit()
        owner.commit()
    assert box.reap() == 0
    assert box.ack(OWNER, made) == 1


def the_first_ticket_of_all_is_found(db: Database) -> None:
    """Ticks of a box that has never had a message: its first one must not be below the mark."""
    tick(db, "outbox", 4)
    box = outbox(db)
    first = box.put()
    check(db, "outbox")
    assert box.take() == [first]


def the_mark_stays_behind_an_open_producer(db: Database) -> None:
    """A producer's transaction stays open while others come and go and the low marks move."""
    box = outbox(db)
    with sessions(db, 1) as (producer,):
        held = box.on(producer).put()
        for _ in range(3):
            assert held not in _work(box, 3)
            tick(db, "outbox")
        producer.commit()
    check(db, "outbox")
    assert box.take() == [held]


def the_mark_stays_behind_a_producer_that_came_after_the_note(db: Database) -> None:
    """The tick notes a ticket; a producer of a later one is open while what comes after it is visible."""
    box = outbox(db)
    _work(box, 1)
    tick(db, "outbox", 1)
    with sessions(db, 1) as (producer,):
        held = box.on(producer).put()
        later = box.put()
        tick(db, "outbox", 1)
        producer.commit()
    check(db, "outbox")
    assert box.take() == [held, later]


def the_mark_stays_behind_a_ticket_drawn_before_the_insert(db: Database) -> None:
    """A producer is held up between its ticket and its insert: only its xid shows that it is there."""
    box = outbox(db)
    _work(box, 1)
    with sessions(db, 2) as (locker, producer):
        locker.sql("LOCK TABLE {schema}.outbox_message IN SHARE ROW EXCLUSIVE MODE")
        waiting = Background(db, producer, lambda session: box.on(session).put())
        assert waiting.is_blocked()
        tick(db, "outbox", 4)
        locker.rollback()
        held = waiting.result()
        producer.commit()
    check(db, "outbox")
    assert box.take() == [held]


def the_mark_stays_behind_a_batch_drawn_before_the_insert(db: Database) -> None:
    """The same for enqueue_many, held up before the first key that it writes."""
    box = outbox(db)
    _work(box, 1)
    with sessions(db, 2) as (locker, producer):
        locker.sql("LOCK TABLE {schema}.outbox_dedup IN SHARE ROW EXCLUSIVE MODE")
        records = [box.record(dedup_key=f"k{n}") for n in range(3)]
        waiting = Background(db, producer, lambda session: box.on(session).enqueue_many(*records))
        assert waiting.is_blocked()
        tick(db, "outbox", 4)
        locker.rollback()
        held = ids(waiting.result())
        producer.commit()
    check(db, "outbox")
    assert box.take() == held


def the_mark_of_due_times_stays_behind_an_open_producer(db: Database) -> None:
    """A delayed message is committed late, and its time has come before the mark of due times moved on."""
    box = outbox(db)
    now = server_now(db)
    tick(db, "outbox", 1)
    with sessions(db, 1) as (producer,):
        held = box.on(producer).put(due_at=now + timedelta(seconds=20))
        box.put(due_at=now + timedelta(seconds=1000))
        db.advance(30)
        tick(db, "outbox", 1)
        tick(db, "outbox", 2)
        producer.commit()
    check(db, "outbox")
    assert box.take() == [held]


def a_seen_message_enqueued_late_is_found(db: Database) -> None:
    """A message seen long ago has an old id; enqueued now, it must be found behind the low mark."""
    box = inbox(db)
    box.one("already_processed", message_id="old", source="s")
    _work(box, 5)
    tick(db, "inbox", 4)
    box.enqueue(source="s", message_id="old")
    check(db, "inbox")
    assert len(box.take()) == 1


def rolled_back_producers_leave_nothing(db: Database) -> None:
    """Rolled-back producers between committed ones: exactly the committed messages come."""
    box = outbox(db)
    committed = []
    with sessions(db, 3) as producers:
        for turn in range(12):
            session = producers[turn % 3]
            made = [box.on(session).put(group_id="g" if turn % 2 else None) for _ in range(2)]
            tick(db, "outbox", 1)
            if turn % 3:
                session.rollback()
            else:
                session.commit()
                committed += made
    tick(db, "outbox", 3)
    check(db, "outbox")
    assert sorted(drain(db, "outbox")) == committed


def a_mark_too_high_is_mended(db: Database) -> None:
    """After a restore the low marks may be too high: a reap, or enough empty claims, mends them."""
    for mend in ("reap", "claims"):
        box = outbox(db)
        made = box.fill(2)
        leased = box.put(priority=1)
        later = box.put(due_at=server_now(db) + timedelta(seconds=db_offset(db) + 20))
        assert box.take(OTHER, batch=1, lease=10) == [leased]
        db.advance(60)
        for mark in ("low_sure", "low_ticket", "low_above", "low_tally"):
            db.sql(f"SELECT setval('{{schema}}._outbox_{mark}', nextval('{{schema}}._outbox_ids'))")
        for mark in ("low_due", "low_lease"):
            db.sql(
                f"SELECT setval('{{schema}}._outbox_{mark}',"
                " (extract(epoch FROM {schema}._now()) * 1000000)::bigint)"
            )
        # A table that earlier tests made large takes several patrols.
        for _ in range(20 if mend == "reap" else 0):
            box.reap()
        found: list[int] = []
        for _ in range(1 if mend == "reap" else 3000):
            found += box.take()
            if len(found) == 4:
                break
        assert sorted(found) == sorted([*made, leased, later]), mend
        assert box.ack(OWNER, found) == 4
        check(db, "outbox")


def db_offset(db: Database) -> float:
    """How far the schema's clock is ahead of the server's."""
    return float(str(db.sql("SELECT last_value / 1000.0 AS s FROM {schema}._clock")[0]["s"]))


def a_message_cleaned_up_while_it_is_sent_again_is_new(db: Database) -> None:
    """A batch has met a done message's key when a cleanup deletes it: it is taken in as a new one."""
    box = inbox(db)
    made = [box.put(source="s", message_id=name) for name in "ab"]
    assert box.take() == made
    assert box.ack(OWNER, made[1:]) == 1
    records = [box.record(source="s", message_id=name) for name in "ab"]
    with sessions(db, 2) as (locker, producer):
        locker.sql("SELECT 1 AS one FROM {schema}.inbox_message WHERE id = %s FOR UPDATE", made[0])
        waiting = Background(db, producer, lambda session: box.on(session).enqueue_many(*records))
        assert waiting.is_blocked()
        assert box.affected("cleanup", retention_seconds=0) == 1
        locker.rollback()
        rows = waiting.result()
        producer.commit()
    assert [row["outcome"] for row in rows] == ["updated", "created"]
    check(db, "inbox")
    assert box.take() == ids(rows)[1:]


def replay_and_discard_do_not_both_win(db: Database) -> None:
    """Of a replay and a discard of one message the first to commit wins, and the other finds nothing."""
    box = outbox(db)
    (dead,) = box.made_dead()
    with sessions(db, 2) as (operator, other):
        assert box.on(operator).affected("replay", ids=[dead]) == 1
        waiting = Background(db, other, lambda session: box.on(session).affected("discard", ids=[dead]))
        assert waiting.is_blocked()
        operator.commit()
        assert waiting.result() == 0
        other.commit()
    check(db, "outbox")
    assert box.take() == [dead]


def replay_twice_is_replay_once(db: Database) -> None:
    """Two replays of one message: it comes back once."""
    box = outbox(db)
    dead = box.made_dead(2)

    def replay(session: Session) -> object:
        try:
            return box.on(session).affected("replay", ids=dead)
        except PysqlboxError as error:
            return type(error).__name__

    with sessions(db, 2) as (operator, other):
        assert box.on(operator).affected("replay", ids=dead) == 2
        waiting = Background(db, other, replay)
        assert waiting.is_blocked()
        operator.commit()
        assert waiting.result() == "InvalidState"
        other.rollback()
    check(db, "outbox")
    assert box.take() == dead


def cleanups_share_without_waiting(db: Database) -> None:
    """Two cleanups at once delete each message once, so the counts of done ones stay right."""
    box = outbox(db)
    for _ in range(6):
        box.made_done()
    with sessions(db, 2) as (one, other):
        first = box.on(one).affected("cleanup", retention_seconds=0, batch_size=3)
        second = box.on(hasty(other)).affected("cleanup", retention_seconds=0, batch_size=10)
        assert (first, second) == (3, 3)
        one.commit()
        other.rollback()
    assert box.count() == 3
    assert box.stats()[None]["done"] == 3
    check(db, "outbox")


def a_cleanup_does_not_wait_for_a_collapse(db: Database) -> None:
    """A cleanup of what an open enqueue is collapsing waits for nobody, whichever way that ends."""
    box = outbox(db)
    for ending in ("commit", "rollback"):
        box.made_done(collapse_key="c")
        with sessions(db, 2) as (sending, cleaning):
            assert box.on(sending).enqueue(collapse_key="c")["outcome"] == "created"
            assert box.on(hasty(cleaning)).affected("cleanup", retention_seconds=0, batch_size=10) == 1
            cleaning.commit()
            getattr(sending, ending)()
        check(db, "outbox")
        assert box.enqueue(collapse_key="c")["outcome"] == ("collapsed" if ending == "commit" else "created")
        (last,) = box.take()
        assert box.ack(OWNER, [last]) == 1
        assert drain(db, "outbox") == []
        assert box.affected("cleanup", retention_seconds=0, batch_size=10) == 1


def settle_is_all_or_nothing(db: Database) -> None:
    """A settle that is rolled back leaves its batch leased."""
    box = outbox(db)
    made = box.fill(3)
    assert box.take() == made
    with sessions(db, 1) as (session,):
        outcomes = json_text([{"id": message, "result": "ack"} for message in made])
        session.call("outbox_settle", owner_token=OWNER, outcomes=outcomes, claim_batch=5)
        session.rollback()
    assert box.ack(OWNER, made) == 3
    check(db, "outbox")


def _work(box: Box, count: int) -> list[int]:
    made = box.fill(count)
    taken = box.take(batch=count)
    assert taken == made
    assert box.ack(OWNER, taken) == count
    return taken


SCENARIOS: tuple[Callable[[Database], None], ...] = (
    claims_share_without_waiting,
    topic_claims_share_without_waiting,
    a_topic_claim_turns_back_to_what_lay_beyond_its_reach,
    a_rolled_back_claim_loses_nothing,
    the_mark_does_not_trust_a_claim_that_may_roll_back,
    due_messages_are_promoted_once,
    takeover_settle,
    a_reap_and_an_ack_do_not_both_win,
    a_reap_and_a_retry_do_not_both_win,
    two_settles_retry_once,
    an_extend_and_a_reap_do_not_both_win,
    the_first_ticket_of_all_is_found,
    the_mark_stays_behind_an_open_producer,
    the_mark_stays_behind_a_producer_that_came_after_the_note,
    the_mark_stays_behind_a_ticket_drawn_before_the_insert,
    the_mark_stays_behind_a_batch_drawn_before_the_insert,
    the_mark_of_due_times_stays_behind_an_open_producer,
    a_seen_message_enqueued_late_is_found,
    rolled_back_producers_leave_nothing,
    a_mark_too_high_is_mended,
    a_message_cleaned_up_while_it_is_sent_again_is_new,
    replay_and_discard_do_not_both_win,
    replay_twice_is_replay_once,
    cleanups_share_without_waiting,
    a_cleanup_does_not_wait_for_a_collapse,
    settle_is_all_or_nothing,
)
