"""A group's ticket stands where its head calls for, and a group's row holds up nobody with a good lease."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import pytest

from tests.concurrency.invariants import check
from tests.concurrency.sessions import sessions
from tests.contract.support import server_now
from tests.interleavings.support import OTHER, OWNER, THIRD, Box, box_of, delivered, impatient
from tests.support.database import Database, Session

pytestmark = pytest.mark.dialect("postgres")

Step = Callable[[Box, list[int]], object]

ENDS: dict[str, Step] = {
    "ack": lambda box, held: box.ack(OWNER, held),
    "fail": lambda box, held: box.fail(OWNER, held),
    "settle": lambda box, held: box.settle(OWNER, [{"id": held[0], "result": "ack"}]),
    "settle_fail": lambda box, held: box.settle(OWNER, [{"id": held[0], "result": "fail", "error": "x"}]),
}
"""What ends the message whose group then needs its next ticket."""


def _overtaken(db: Database, session: Session, end: Step) -> int:
    """A producer of topic Q is open; a later one of topic P commits; the group is settled in between.

    Answers the message of topic Q, which is the group's head once its producer commits.
    """
    box = box_of(db, "outbox")
    first = box.put("Q", group_id="g")
    assert box.take(OWNER) == [first]
    second = box.on(session).put("Q", group_id="g")
    box.put("P", group_id="g")
    end(box, [first])
    return second


@pytest.mark.parametrize("end", ENDS)
def test_a_head_of_another_topic_than_the_paused_one_is_claimable(db: Database, end: str) -> None:
    """Finding 4: the ticket stands under the paused topic although the head has another."""
    box = box_of(db, "outbox")
    with sessions(db, 1) as (producer,):
        second = _overtaken(db, producer, ENDS[end])
        box.one("pause", topic="P")
        producer.commit()
    check(db, "outbox")
    assert delivered(box, OTHER) == [second]


@pytest.mark.parametrize("end", ENDS)
def test_a_topic_paused_before_the_settlement_does_not_hide_another_head(db: Database, end: str) -> None:
    """The same with the pause as early as in the finding."""
    box = box_of(db, "outbox")
    first = box.put("Q", group_id="g")
    assert box.take(OWNER) == [first]
    with sessions(db, 1) as (producer,):
        second = box.on(producer).put("Q", group_id="g")
        box.put("P", group_id="g")
        box.one("pause", topic="P")
        ENDS[end](box, [first])
        producer.commit()
    check(db, "outbox")
    assert delivered(box, OTHER) == [second]


@pytest.mark.parametrize("end", ENDS)
def test_a_worker_of_one_topic_gets_the_head_of_that_topic(db: Database, end: str) -> None:
    """Without a pause: the ticket stands under a topic that nobody asks for."""
    box = box_of(db, "outbox")
    with sessions(db, 1) as (producer,):
        second = _overtaken(db, producer, ENDS[end])
        producer.commit()
    check(db, "outbox")
    assert delivered(box, OTHER, topics=["Q"]) == [second]


def test_a_worker_of_one_topic_gets_the_head_after_a_reap(db: Database) -> None:
    """The settlement is a reap that lets the message die."""
    box = box_of(db, "outbox")
    box.configure("max_attempts", "1")
    first = box.put("Q", group_id="g")
    assert box.take(OWNER, lease=5) == [first]
    with sessions(db, 1) as (producer,):
        second = box.on(producer).put("Q", group_id="g")
        box.put("P", group_id="g")
        db.advance(10)
        assert box.reap() == 1
        producer.commit()
    check(db, "outbox")
    assert delivered(box, OTHER, topics=["Q"]) == [second]


@pytest.mark.parametrize("mark", ["mark_processed", "mark_dead"])
def test_a_worker_of_one_topic_gets_the_head_after_a_mark(db: Database, mark: str) -> None:
    """The settlement is a mark by the message's key."""
    box = box_of(db, "inbox")
    first = box.put("Q", group_id="g", message_id="m1")
    assert box.take(OWNER) == [first]
    with sessions(db, 1) as (producer,):
        second = box.on(producer).put("Q", group_id="g")
        box.put("P", group_id="g")
        assert box.affected(mark, message_id="m1", source="s") == 1
        producer.commit()
    check(db, "inbox")
    assert delivered(box, OTHER, topics=["Q"]) == [second]


def test_a_worker_of_one_topic_gets_the_head_after_a_collapse(db: Database) -> None:
    """The head that was collapsed away had a row for its group, which the open producer relied on."""
    box = box_of(db, "outbox")
    first = box.put("Q", group_id="g", collapse_key="k")
    assert box.take(OWNER) == [first]
    assert box.release(OWNER, [first]) == 1
    with sessions(db, 1) as (producer,):
        second = box.on(producer).put("Q", group_id="g")
        box.put("P", group_id="g")
        newer = box.put("R", collapse_key="k")
        producer.commit()
    check(db, "outbox")
    assert delivered(box, OTHER, topics=["Q"]) == [second]
    assert delivered(box, OTHER, topics=["R"]) == [newer]


def test_a_worker_of_one_topic_gets_the_head_after_a_claim_of_the_other(db: Database) -> None:
    """A claim of the higher member's topic has met the ticket while the lower member was not committed."""
    box = box_of(db, "outbox")
    first = box.put("Q", group_id="g")
    assert box.take(OWNER) == [first]
    with sessions(db, 1) as (producer,):
        second = box.on(producer).put("Q", group_id="g")
        third = box.put("P", group_id="g")
        assert box.ack(OWNER, [first]) == 1
        assert box.take(OTHER, topics=["P"]) == [third]
        producer.commit()
        assert box.release(OTHER, [third]) == 1
    check(db, "outbox")
    assert delivered(box, THIRD, topics=["Q"]) == [second]


def test_a_head_above_the_log_is_not_claimed_below_it(db: Database) -> None:
    """The priority is the head's too: an urgent head does not wait behind what is not urgent."""
    box = box_of(db, "outbox")
    first = box.put(group_id="g")
    assert box.take(OWNER) == [first]
    with sessions(db, 1) as (producer,):
        second = box.on(producer).put(group_id="g", priority=9)
        box.put(group_id="g", priority=-9)
        assert box.ack(OWNER, [first]) == 1
        producer.commit()
    box.fill(3, priority=5)
    db.advance(1)
    # The ticket may have to be met once before it stands where it should.
    found = [box.take(OTHER, batch=1) for _ in range(3)]
    assert [second] in found
    check(db, "outbox")


def test_a_group_whose_tickets_one_claim_meets_one_by_one_is_still_reaped(db: Database) -> None:
    """A claim takes the last member by one ticket and meets another: it must not end the group it holds."""
    box = box_of(db, "outbox")
    with sessions(db, 1) as (producer,):
        made = [box.on(producer).put(group_id="g") for _ in range(3)]
        producer.commit()
    for message in made[:2]:
        assert box.take(OWNER, batch=1) == [message]
        assert box.ack(OWNER, [message]) == 1
    assert box.take(OWNER, batch=2, lease=5) == made[2:]
    check(db, "outbox")
    db.advance(10)
    assert delivered(box, OTHER) == made[2:], "a crashed worker's message never comes back"
    check(db, "outbox")


@dataclass(frozen=True, slots=True)
class Held:
    """A group whose first member has an owner, a second member, and a ticket too many."""

    box: Box
    first: int
    second: int


def _with_surplus(db: Database, name: str) -> Held:
    """Two producers of a new group do not see each other, so each brings a ticket; a claim takes one."""
    box = box_of(db, name)
    more = [{"message_id": "m1"}, {"message_id": "m2"}] if name == "inbox" else [{}, {}]
    with sessions(db, 2) as (one, other):
        first = box.on(one).put(group_id="g", **more[0])
        second = box.on(other).put(group_id="g", **more[1])
        one.commit()
        other.commit()
    assert box.take(OWNER, batch=1, lease=600) == [first]
    return Held(box, first, second)


@contextmanager
def _surplus_dropped(held: Held, session: Session) -> Iterator[None]:
    """A stranger's claim that has met the ticket too many, open for the time of the block."""
    plain = held.box.put()
    assert held.box.on(impatient(session)).take(OTHER, batch=2) == [plain]
    yield
    session.commit()


SETTLEMENTS: dict[str, Step] = {
    **ENDS,
    "abandon": lambda box, held: box.abandon(OWNER, held),
    "retry": lambda box, held: box.retry(OWNER, held)[0],
    "retry_ends": lambda box, held: box.retry(OWNER, held, max_attempts=1)[0],
    "release": lambda box, held: box.release(OWNER, held),
    "release_later": lambda box, held: box.release(OWNER, held, delay_seconds=50),
    "settle_release": lambda box, held: box.settle(OWNER, [{"id": held[0], "result": "release"}]),
    "extend": lambda box, held: len(box.extend(OWNER, held, 600)),
}
"""What an owner may do while a stranger's claim is open."""


@pytest.mark.parametrize("step", SETTLEMENTS)
def test_an_owner_does_not_wait_for_a_stranger_who_dropped_a_ticket(db: Database, step: str) -> None:
    """Finding 6: the claim still holds the group's row though the group is none of its business."""
    held = _with_surplus(db, "outbox")
    with sessions(db, 2) as (stranger, owner), _surplus_dropped(held, stranger):
        assert SETTLEMENTS[step](held.box.on(impatient(owner)), [held.first]) in (1, [])
        owner.commit()
    check(db, "outbox")
    db.advance(1000)
    found = delivered(held.box, THIRD)
    assert held.second in found
    assert len(found) == len(set(found))
    check(db, "outbox")


@pytest.mark.parametrize("mark", ["mark_processed", "mark_dead"])
@pytest.mark.parametrize("message_id", ["m1", "m2"])
def test_a_mark_does_not_wait_for_a_stranger_who_dropped_a_ticket(
    db: Database, mark: str, message_id: str
) -> None:
    """The same for whoever ends a member by its key, be it leased or waiting."""
    held = _with_surplus(db, "inbox")
    with sessions(db, 2) as (stranger, marker), _surplus_dropped(held, stranger):
        assert held.box.on(impatient(marker)).affected(mark, message_id=message_id, source="s") == 1
        marker.commit()
    check(db, "inbox")
    assert held.box.ack(OWNER, [held.first]) == (1 if message_id == "m2" else 0)
    check(db, "inbox")
    assert delivered(held.box, THIRD) == ([held.second] if message_id == "m1" else [])


def test_a_reap_does_not_pass_over_what_a_stranger_dropped_a_ticket_of(db: Database) -> None:
    """A lease that has run out comes back although a claim that is open has met a ticket of its group."""
    held = _with_surplus(db, "outbox")
    with sessions(db, 1) as (stranger,), _surplus_dropped(held, stranger):
        db.advance(1000)
        assert held.box.reap() == 1
    check(db, "outbox")
    assert held.first in delivered(held.box, THIRD)


@pytest.mark.parametrize("mark", ["mark_processed", "mark_dead"])
def test_an_owner_does_not_wait_for_a_mark_of_another_member(db: Database, mark: str) -> None:
    """A receiver ends the member behind by its key and stays open; the owner of the first settles."""
    held = _with_surplus(db, "inbox")
    with sessions(db, 2) as (marker, owner):
        assert held.box.on(marker).affected(mark, message_id="m2", source="s") == 1
        assert held.box.on(impatient(owner)).ack(OWNER, [held.first]) == 1
        owner.commit()
        marker.commit()
    check(db, "inbox")
    assert delivered(held.box, THIRD) == []
    check(db, "inbox")


def test_a_mark_does_not_wait_for_a_claim_of_another_member(db: Database) -> None:
    """A worker is just claiming the head; a receiver ends the member behind it by its key."""
    box = box_of(db, "inbox")
    first = box.put(group_id="g", message_id="m1")
    box.put(group_id="g", message_id="m2")
    assert box.take(OTHER, batch=1) == [first]
    assert box.release(OTHER, [first]) == 1
    with sessions(db, 2) as (worker, marker):
        assert box.on(worker).take(OWNER, batch=1) == [first]
        assert box.on(impatient(marker)).affected("mark_processed", message_id="m2", source="s") == 1
        marker.commit()
        worker.commit()
    check(db, "inbox")
    assert box.ack(OWNER, [first]) == 1
    assert delivered(box, THIRD) == []
    check(db, "inbox")


def test_an_owner_does_not_wait_for_an_open_collapse_in_its_group(db: Database) -> None:
    """A producer has replaced a member behind the leased one and stays open."""
    box = box_of(db, "outbox")
    first = box.put(group_id="g")
    box.put(group_id="g", collapse_key="k")
    assert box.take(OWNER, batch=1) == [first]
    with sessions(db, 2) as (producer, owner):
        newer = box.on(producer).put(group_id="g", collapse_key="k")
        assert box.on(impatient(owner)).ack(OWNER, [first]) == 1
        owner.commit()
        assert delivered(box, OTHER) == []
        producer.commit()
    check(db, "outbox")
    assert delivered(box, OTHER) == [newer]
    check(db, "outbox")


@pytest.mark.parametrize("step", ["abandon", "fail", "release", "ack", "settle_release", "settle_fail"])
@pytest.mark.parametrize("group", ["g", None], ids=["grouped", "alone"])
def test_an_owner_does_not_wait_for_a_collapse_that_came_too_late(
    db: Database, step: str, group: str | None
) -> None:
    """A producer whose newer message replaces nothing, for the older one is leased, stays open."""
    box = box_of(db, "outbox")
    first = box.put(group_id=group, collapse_key="k")
    assert box.take(OWNER) == [first]
    with sessions(db, 2) as (producer, owner):
        assert box.on(producer).enqueue(group_id=group, collapse_key="k")["outcome"] == "created"
        assert SETTLEMENTS[step](box.on(impatient(owner)), [first]) in (1, [])
        owner.commit()
        producer.commit()
    check(db, "outbox")


def test_a_producer_does_not_wait_for_an_open_settlement_of_its_group(db: Database) -> None:
    """The group ends in a transaction that stays open while a member comes, delayed or not."""
    box = box_of(db, "outbox")
    first = box.put(group_id="g")
    assert box.take(OWNER) == [first]
    with sessions(db, 2) as (owner, producer):
        assert box.on(owner).ack(OWNER, [first]) == 1
        later = box.on(impatient(producer)).put(group_id="g", due_at=server_now(db) + timedelta(seconds=50))
        added = box.on(producer).put(group_id="g")
        producer.commit()
        owner.commit()
    check(db, "outbox")
    db.advance(100)
    assert delivered(box, OTHER) == [later, added]
