"""A claim returns, whatever others have open and however much of what it meets cannot be handed out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.concurrency.invariants import check
from tests.concurrency.sessions import sessions
from tests.contract.support import server_now
from tests.interleavings import places
from tests.interleavings.support import OTHER, OWNER, box_of, delivered, impatient
from tests.support.database import Database, Session

pytestmark = pytest.mark.dialect("postgres")

MANY = 20_000
"""So many that whoever goes through all of them in one call is seen, by what it leaves behind."""

Holder = Callable[[Database, Session, int], object]


def _collapses(db: Database, session: Session, _: int) -> object:
    return box_of(db, "outbox").on(session).put(group_id="g", collapse_key="k")


def _collapses_from_outside(db: Database, session: Session, _: int) -> object:
    return box_of(db, "outbox").on(session).put(collapse_key="k")


def _attaches(db: Database, session: Session, head: int) -> object:
    shown = box_of(db, "outbox").shown(head)
    join = db.value("join_start", tenant_id="t", expected_steps=2)
    return session.value("join_attach", join_id=join, message_id=shown["message_id"])


def _marks(db: Database, session: Session, head: int) -> object:
    shown = box_of(db, "inbox").shown(head)
    return session.value("inbox_mark_processed", message_id=shown["message_id"], source="s")


def _marks_dead(db: Database, session: Session, head: int) -> object:
    shown = box_of(db, "inbox").shown(head)
    return session.value("inbox_mark_dead", message_id=shown["message_id"], source="s")


def _renews(db: Database, session: Session, head: int) -> object:
    box = box_of(db, "inbox")
    shown = box.shown(head)
    return box.on(session).enqueue("other", message_id=shown["message_id"])


HOLDERS: dict[str, tuple[str, Holder]] = {
    "collapsing": ("outbox", _collapses),
    "collapsing_from_outside_the_group": ("outbox", _collapses_from_outside),
    "attaching": ("outbox", _attaches),
    "marking": ("inbox", _marks),
    "marking_dead": ("inbox", _marks_dead),
    "renewing": ("inbox", _renews),
}
"""Open transactions that hold the head of a group, each with the box it works on."""


@pytest.mark.parametrize("lane", [0, 5, -5], ids=["log", "above", "below"])
@pytest.mark.parametrize("topics", [None, ["t", "other"]], ids=["all_topics", "by_topic"])
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_claim_returns_while_the_head_of_a_group_is_held(
    db: Database, holder: str, topics: list[str] | None, lane: int
) -> None:
    """Finding 2: the group's ticket comes back under a new number; the claim must not meet it for ever."""
    name, hold = HOLDERS[holder]
    box = box_of(db, name)
    head = box.put(group_id="g", collapse_key="k", priority=lane)
    behind = box.put(group_id="g", priority=lane)
    plain = [box.put(priority=lane) for _ in range(49)]
    with sessions(db, 2) as (stranger, worker):
        hold(db, stranger, head)
        impatient(worker)
        found: list[int] = []
        # The first claim has room for exactly what is there, the group's ticket too; the last meets it alone.
        for batch in (50, 50, 1, 1):
            found += box.on(worker).take(OWNER, batch=batch, topics=topics)
            worker.commit()
        assert found == plain, "messages beside the group were not handed out"
        stranger.rollback()
    check(db, name)
    assert delivered(box, OTHER) == [head, behind]


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_group_whose_head_was_held_goes_on(db: Database, holder: str) -> None:
    """What the stranger commits is what counts: nothing of the group is lost or comes twice."""
    name, hold = HOLDERS[holder]
    box = box_of(db, name)
    head = box.put(group_id="g", collapse_key="k")
    behind = box.put(group_id="g")
    with sessions(db, 2) as (stranger, worker):
        hold(db, stranger, head)
        assert box.on(impatient(worker)).take(OWNER, batch=1) == []
        worker.commit()
        stranger.commit()
    check(db, name)
    found = delivered(box, OTHER)
    assert behind in found
    assert (head in found) == (holder in ("attaching", "renewing"))
    assert len(found) == len(set(found))
    check(db, name)


def test_claims_of_one_batch_for_many_held_groups_return(db: Database) -> None:
    """Thirty groups whose heads an open producer collapses: the plain messages behind them are handed out."""
    box = box_of(db, "outbox")
    for n in range(30):
        box.put(group_id=f"g{n}", collapse_key=f"k{n}")
    plain = box.fill(5)
    with sessions(db, 2) as (stranger, worker):
        for n in range(30):
            box.on(stranger).put(group_id=f"g{n}", collapse_key=f"k{n}")
        impatient(worker)
        found: list[int] = []
        for _ in range(20):
            found += box.on(worker).take(OWNER, batch=1)
            worker.commit()
        assert found == plain
        stranger.commit()
    check(db, "outbox")
    assert len(delivered(box, OTHER, batch=100)) == 30


def _bounded(db: Database, left: Callable[[], int], wanted: Callable[[], bool]) -> None:
    """A claim of one goes through some of what it cannot hand out, at most half; later ones go on."""
    box = box_of(db, "outbox")
    before = left()
    with sessions(db, 1) as (worker,):
        impatient(worker, 60)
        box.on(worker).take(OWNER, batch=1)
        worker.commit()
        after = left()
        assert after < before, "a claim has done nothing"
        assert after > before // 2, f"a claim of one went through {before - after} of {before}"
        for _ in range(MANY):
            if wanted():
                break
            box.on(worker).take(OWNER, batch=1)
            worker.commit()
            assert wanted() or left() < after, "claims do not go on where the last one stopped"
            after = left()
    assert wanted()


def _expired(db: Database, **more: object) -> None:
    """Very many messages that have expired, and a good one behind them."""
    box = box_of(db, "outbox")
    expires_at = server_now(db) + timedelta(seconds=100)
    for _ in range(MANY // 10_000):
        box.fill(10_000, expires_at=expires_at, **more)
    db.advance(1000)
    places.analyze(db, "outbox")
    last = box.put(**{key: value for key, value in more.items() if key != "due_at"})
    _bounded(
        db,
        lambda: MANY - places.dead(db, "outbox"),
        lambda: box.status(last) == "InProgress",
    )
    check(db, "outbox")


def test_a_claim_buries_a_bounded_number_of_expired_messages(db: Database) -> None:
    """Finding 5, in the log."""
    _expired(db)


def test_a_claim_buries_a_bounded_number_above_the_log(db: Database) -> None:
    """Under another priority."""
    _expired(db, priority=7)


def test_a_claim_buries_a_bounded_number_of_one_group(db: Database) -> None:
    """Members of one group."""
    _expired(db, group_id="g")


def test_a_claim_drops_a_bounded_number_of_tickets(db: Database) -> None:
    """Tickets of groups that have ended."""
    box = box_of(db, "outbox")
    places.add_surplus_tickets(db, "outbox", MANY)
    last = box.put()
    _bounded(db, lambda: places.group_tickets(db, "outbox"), lambda: box.status(last) == "InProgress")
    check(db, "outbox")


def test_a_claim_looks_at_a_bounded_number_of_probes(db: Database) -> None:
    """Probes of joins that many settlements have left."""
    box = box_of(db, "outbox")
    join = db.value("join_start", tenant_id="t", expected_steps=2)
    places.add_probes(db, join, MANY)
    last = box.put()
    with sessions(db, 1) as (worker,):
        impatient(worker, 60)
        assert box.on(worker).take(OWNER, batch=1) == [last]
        worker.commit()
    assert places.probes(db) > MANY // 2, "a claim of one went through more than half of the probes"
    check(db, "outbox")
