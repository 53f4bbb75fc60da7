"""Low marks: too high they hide nothing from figures, nothing for long from claims; a busy box moves them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.concurrency.invariants import check
from tests.concurrency.sessions import sessions, tick
from tests.contract.support import server_now
from tests.interleavings import places
from tests.interleavings.support import OTHER, OWNER, THIRD, Box, box_of, works
from tests.support.database import Database, Session

pytestmark = pytest.mark.dialect("postgres")

SOON = 600
"""Claims of a busy box within which it has mended itself."""
AHEAD = 60
"""Seconds by which the clock had been ahead."""
ROUNDS = 300


def _steady(db: Database, name: str = "outbox") -> None:
    """How long until the marks are looked after depends neither on chance nor on what earlier tests left."""
    db.sql("SELECT setseed(0.25)")
    db.sql(places.shrink_text(db, name))


def _restored(db: Database, box: str) -> None:
    """The marks as a dump has them that was taken under load: its sequences are younger than its rows."""
    last = places.last_ticket(db, box)
    for name in places.marks(db, box):
        if name in places.TICKET_MARKS:
            places.set_mark(db, box, name, last + 1)
        else:
            places.set_mark(db, box, name, places.microseconds(db))


def _wild(db: Database, box: str) -> None:
    """Marks far beyond everything, also of what is yet to come."""
    for name in places.marks(db, box):
        places.set_mark(db, box, name, 4_000_000_000_000_000)


def _everywhere(db: Database, box: Box) -> list[int]:
    """Messages in each place that a mark guards, or may guard one day, all claimable or soon reaped."""
    made = [box.put("log"), box.put("above", priority=3), box.put("below", priority=-3)]
    made += [box.put("grouped", group_id="g"), box.put("run")]
    made.append(box.put("later", due_at=server_now(db) + timedelta(seconds=5)))
    leased = box.put("leased", priority=9)
    assert box.take(OTHER, batch=1, lease=5) == [leased]
    db.advance(20)
    return sorted([*made, leased])


def below(box: Box) -> int:
    """The message that claims of one rightly never reach while the log has something for them."""
    return places.number(box.db, f"SELECT id AS n FROM {{schema}}.{box.name}_message WHERE priority = -3")


@pytest.mark.parametrize("name", ["outbox", "inbox"])
@pytest.mark.parametrize("marks", [_restored, _wild], ids=["restored", "wild"])
def test_figures_do_not_read_through_marks(
    db: Database, name: str, marks: Callable[[Database, str], None]
) -> None:
    """Finding 7: stats count every message that is there, wherever the marks are."""
    box = box_of(db, name)
    box.made_done(3)
    _everywhere(db, box)
    before = box.stats()
    marks(db, name)
    after = box.stats()
    kept = ("ready", "scheduled", "in_flight", "done", "dead")
    assert {topic: [row[column] for column in kept] for topic, row in after.items()} == {
        topic: [row[column] for column in kept] for topic, row in before.items()
    }
    assert after[None]["ready"] + after[None]["scheduled"] + after[None]["in_flight"] == 7
    assert after["log"]["oldest_ready_seconds"] >= 20


@pytest.mark.parametrize("name", ["outbox", "inbox"])
def test_a_busy_box_finds_what_a_restored_dump_hides(db: Database, name: str) -> None:
    """Finding 7: messages below the marks are handed out although no claim ever finds the box empty."""
    box = box_of(db, name)
    _steady(db, name)
    box.made_done(3)
    hidden = _everywhere(db, box)
    _restored(db, name)
    box.fill(3, topic="busy")
    works(
        box, SOON, lambda: all(box.status(message) == "Done" for message in hidden if message != below(box))
    )
    check(db, name)


def test_a_busy_box_of_topics_finds_what_a_restored_dump_hides(db: Database) -> None:
    """The same where every claim is limited to topics."""
    box = box_of(db, "outbox")
    _steady(db)
    hidden = _everywhere(db, box)
    _restored(db, "outbox")
    topics = ["log", "above", "below", "grouped", "run", "later", "leased", "busy"]
    for _ in range(SOON):
        box.put("busy")
        box.ack(THIRD, box.take(THIRD, batch=2, topics=topics))
    assert [box.status(message) for message in hidden] == ["Done"] * len(hidden)
    check(db, "outbox")


def test_a_busy_box_that_settles_and_claims_in_one_call_finds_what_is_hidden(db: Database) -> None:
    """The same for a worker whose every round trip is a settle."""
    box = box_of(db, "outbox")
    _steady(db)
    hidden = _everywhere(db, box)
    _restored(db, "outbox")
    held: list[int] = []
    for _ in range(SOON):
        box.put("busy")
        outcomes = [{"ids": held, "result": "ack"}] if held else []
        held = [row["id"] for row in box.settle(THIRD, outcomes, claim_batch=2)]
    box.ack(THIRD, held)
    assert [box.status(message) for message in hidden] == ["Done"] * len(hidden)
    check(db, "outbox")


def test_a_box_whose_marks_are_beyond_everything_comes_back(db: Database) -> None:
    """No claim finds anything, neither the old nor the new; within a bounded number of claims they do."""
    box = box_of(db, "outbox")
    _steady(db)
    hidden = _everywhere(db, box)
    _wild(db, "outbox")
    works(
        box, SOON, lambda: all(box.status(message) == "Done" for message in hidden if message != below(box))
    )
    db.call("outbox_reap", batch_size=100)
    check(db, "outbox")


def _set_back(db: Database, box: Box) -> None:
    """A box that was in use while the clock was ahead, and the clock put right."""
    db.advance(AHEAD)
    for _ in range(5):
        box.put("busy")
        box.ack(THIRD, box.take(THIRD))
        tick(db, box.name)
    db.advance(-AHEAD)


def test_a_lease_that_began_after_the_clock_was_set_back_is_reaped(db: Database) -> None:
    """Finding 7: a crashed worker's lease ends below a mark that is in the future."""
    box = box_of(db, "outbox")
    _steady(db)
    _set_back(db, box)
    crashed = box.put("crashed")
    assert box.take(OWNER, lease=5) == [crashed]
    db.advance(10)
    works(box, SOON, lambda: box.status(crashed) == "Done")
    check(db, "outbox")


def test_a_group_held_since_before_the_clock_was_set_back_goes_on(db: Database) -> None:
    """The same for a group, all of which waits behind the crashed worker's lease."""
    box = box_of(db, "outbox")
    _steady(db)
    _set_back(db, box)
    made = box.fill(3, group_id="g")
    assert box.take(OWNER, lease=5, batch=1) == made[:1]
    db.advance(10)
    works(box, SOON, lambda: all(box.status(message) == "Done" for message in made))
    check(db, "outbox")


def test_a_delay_that_began_after_the_clock_was_set_back_ends(db: Database) -> None:
    """A delayed message falls due below a mark that is in the future."""
    box = box_of(db, "outbox")
    _steady(db)
    _set_back(db, box)
    later = box.put("later", due_at=server_now(db) + timedelta(seconds=5))
    retried = box.put("retried")
    assert box.take(OWNER) == [retried]
    assert box.abandon(OWNER, [retried], delay_seconds=5) == 1
    db.advance(10)
    works(box, SOON, lambda: all(box.status(message) == "Done" for message in (later, retried)))
    check(db, "outbox")


def test_a_join_completed_after_the_clock_was_set_back_ends(db: Database) -> None:
    """The probe of a join's last step falls below a mark that is in the future."""
    box = box_of(db, "outbox")
    _steady(db)
    _set_back(db, box)
    step = box.enqueue()
    join = db.value("join_start", tenant_id="t", expected_steps=1)
    assert db.value("join_attach", join_id=join, message_id=step["message_id"])
    wait = int(str(db.one("join_wait", join_id=join)["id"]))
    assert box.take(OWNER) == [step["id"]]
    assert box.ack(OWNER, [step["id"]]) == 1
    works(box, SOON, lambda: box.status(wait) == "Done")
    check(db, "outbox")


def _acks_and_claims(box: Box, session: Session, held: list[int]) -> list[int]:
    box.on(session).ack(OWNER, held)
    return box.on(session).take(OWNER, batch=3)


def _settles(box: Box, session: Session, held: list[int]) -> list[int]:
    rows = box.on(session).settle(OWNER, [{"ids": held, "result": "ack"}] if held else [], claim_batch=3)
    return [int(row["id"]) for row in rows]


def _fails_and_claims(box: Box, session: Session, held: list[int]) -> list[int]:
    box.on(session).fail(OWNER, held)
    return box.on(session).take(OWNER, batch=3)


def _enqueues_and_claims(box: Box, session: Session, held: list[int]) -> list[int]:
    box.on(session).ack(OWNER, held)
    box.on(session).put("follow up", due_at=server_now(box.db) + timedelta(days=1))
    return box.on(session).take(OWNER, batch=3)


@pytest.mark.parametrize(
    "step",
    [_acks_and_claims, _settles, _fails_and_claims, _enqueues_and_claims],
    ids=["ack", "settle", "fail", "enqueue"],
)
def test_a_worker_that_settles_and_claims_in_one_transaction_moves_the_marks(
    db: Database, step: Callable[[Box, Session, list[int]], list[int]]
) -> None:
    """Finding 11: BEGIN; ack; claim; COMMIT, again and again, leaves few dead tickets behind the mark."""
    box = box_of(db, "outbox")
    box.fill(3)
    held: list[int] = []
    with sessions(db, 1) as (worker,):
        worker.sql("SELECT setseed(0.25)")
        worker.commit()
        for _ in range(ROUNDS):
            box.fill(3)
            held = step(box, worker, held)
            worker.commit()
            assert len(held) == 3
    used = places.last_ticket(db, "outbox")
    assert places.skipped_by_marks(db, "outbox") < used // 2, "the mark has not moved"
    check(db, "outbox")
