"""Taking a message from where it waits takes that message, not whatever stands under its number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import pytest

from tests.concurrency.invariants import check
from tests.concurrency.sessions import sessions
from tests.contract.support import server_now
from tests.interleavings.support import OTHER, OWNER, Box, box_of, delivered, impatient
from tests.support.database import Database, Session

pytestmark = pytest.mark.dialect("postgres")

OTHERS = 150
"""More than one claim promotes: the group's ticket is still among what is scheduled after the first."""


@dataclass(frozen=True, slots=True)
class Delayed:
    """A group with two members whose delayed head has a ticket under its own number and due time."""

    box: Box
    head: int
    behind: int


def _delayed(db: Database, name: str) -> Delayed:
    """The head is not committed yet when the second member's producer looks, so each brings a ticket.

    Everything is due in the end, and many others before the head: the second ticket, which is ready, leads a
    claim to the head while the first still waits to be promoted.
    """
    box = box_of(db, name)
    now = server_now(db)
    with sessions(db, 1) as (producer,):
        head = box.on(producer).put(
            group_id="g", due_at=now + timedelta(seconds=100), **_key(name, "m1"), **_collapse(name)
        )
        behind = box.put(group_id="g", **_key(name, "m2"))
        producer.commit()
    box.fill(OTHERS, due_at=now + timedelta(seconds=50))
    db.advance(200)
    return Delayed(box, head, behind)


def _key(name: str, message_id: str) -> dict[str, object]:
    return {"source": "s", "message_id": message_id} if name == "inbox" else {}


def _collapse(name: str) -> dict[str, object]:
    return {"collapse_key": "k"} if name == "outbox" else {}


@contextmanager
def _claimed(group: Delayed, session: Session) -> Iterator[None]:
    """A claim that has the head, open for the time of the block."""
    taken = group.box.on(impatient(session)).take(OWNER, batch=1, lease=600)
    assert taken == [group.head], "the schedule does not lead to the head"
    yield
    session.commit()


def _ends_well(group: Delayed, gone: int) -> None:
    """The owner settles the head, unless it has been taken away, and every message comes once."""
    box = group.box
    check(box.db, box.name)
    assert box.ack(OWNER, [group.head]) == 1 - gone
    check(box.db, box.name)
    found = delivered(box, OTHER, batch=400)
    assert len(found) == len(set(found)) == OTHERS + 1
    assert group.behind in found
    assert group.head not in found
    assert box.ack(OTHER, found) == len(found), "a batch cannot be settled"
    check(box.db, box.name)


@pytest.mark.parametrize("mark", ["mark_processed", "mark_dead"])
def test_a_mark_while_the_message_is_being_claimed_takes_nothing(db: Database, mark: str) -> None:
    """Finding 3: it must not take the group's ticket for the message, and end what is being handed out."""
    group = _delayed(db, "inbox")
    with sessions(db, 2) as (worker, marker), _claimed(group, worker):
        marked = group.box.on(impatient(marker)).affected(mark, message_id="m1", source="s")
        marker.commit()
    assert marked == 0, "what is just being claimed was marked"
    _ends_well(group, 0)


@pytest.mark.parametrize("mark", ["mark_processed", "mark_dead"])
def test_a_mark_after_the_claim_takes_the_lease_and_leaves_the_group_its_ticket(
    db: Database, mark: str
) -> None:
    """The claim is committed: the owner loses the message, and the group goes on."""
    group = _delayed(db, "inbox")
    with sessions(db, 1) as (worker,), _claimed(group, worker):
        pass
    assert group.box.affected(mark, message_id="m1", source="s") == 1
    _ends_well(group, 1)


def test_a_renewal_while_the_message_is_being_claimed_leaves_the_group_its_ticket(db: Database) -> None:
    """A re-enqueue with another topic: nothing is taken, the message keeps its owner."""
    group = _delayed(db, "inbox")
    with sessions(db, 2) as (worker, producer), _claimed(group, worker):
        row = group.box.on(impatient(producer)).enqueue("other", **_key("inbox", "m1"))
        producer.commit()
    assert (row["id"], row["outcome"]) == (group.head, "updated")
    _ends_well(group, 0)


def test_a_renewal_of_a_leased_message_tells_its_lease_the_topic(db: Database) -> None:
    """The group's ticket under the message's number is not the message: the lease shows the new topic."""
    group = _delayed(db, "inbox")
    with sessions(db, 1) as (worker,), _claimed(group, worker):
        pass
    group.box.enqueue("other", **_key("inbox", "m1"))
    assert group.box.stats()["other"]["in_flight"] == 1
    _ends_well(group, 0)


def test_a_renewal_of_the_waiting_head_moves_it_once(db: Database) -> None:
    """Nobody claims: the head is a member, and its group's ticket stands under its number beside it."""
    group = _delayed(db, "inbox")
    row = group.box.enqueue("other", **_key("inbox", "m1"))
    assert (row["id"], row["outcome"]) == (group.head, "updated")
    check(db, "inbox")
    found = delivered(group.box, OTHER, batch=400)
    assert sorted(found)[:2] == [group.head, group.behind]
    assert len(found) == len(set(found)) == OTHERS + 2
    check(db, "inbox")


@pytest.mark.parametrize("name", ["outbox"])
def test_a_collapse_while_the_message_is_being_claimed_takes_nothing(db: Database, name: str) -> None:
    """The newer message replaces nobody: the older one is just being handed out."""
    group = _delayed(db, name)
    with sessions(db, 2) as (worker, producer), _claimed(group, worker):
        row = group.box.on(impatient(producer)).enqueue("t", collapse_key="k")
        producer.commit()
    assert row["outcome"] == "created"
    check(db, name)
    assert group.box.ack(OWNER, [group.head]) == 1
    found = delivered(group.box, OTHER, batch=400)
    assert len(found) == len(set(found)) == OTHERS + 2
    assert {group.behind, row["id"]} <= set(found)
    check(db, name)


@pytest.mark.parametrize("mark", ["mark_processed", "mark_dead"])
def test_a_mark_of_the_waiting_head_leaves_the_group_a_ticket(db: Database, mark: str) -> None:
    """Nobody claims: the head ends, and the member behind it is found though its own ticket is gone."""
    group = _delayed(db, "inbox")
    assert group.box.affected(mark, message_id="m1", source="s") == 1
    check(db, "inbox")
    assert group.behind in delivered(group.box, OTHER, batch=400)
    check(db, "inbox")


def test_join_wait_is_not_taken_for_a_probe_of_its_number(db: Database) -> None:
    """Whatever looks into what is scheduled by number: a join's own message, parked, comes once."""
    box = box_of(db, "outbox")
    step = box.enqueue()
    join = db.value("join_start", tenant_id="t", expected_steps=1)
    assert db.value("join_attach", join_id=join, message_id=step["message_id"])
    wait = db.one("join_wait", join_id=join)
    box.fill(OTHERS, due_at=server_now(db) + timedelta(seconds=1))
    db.advance(2)
    assert box.take(OWNER, batch=1) == [step["id"]]
    assert box.ack(OWNER, [step["id"]]) == 1
    found = delivered(box, OTHER, batch=400)
    assert found.count(int(str(wait["id"]))) == 1
    check(db, "outbox")
