"""Claims beside everything that others have open: nobody waits, and nobody gets what another has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.support import OTHER, OWNER, Box, impatient


@pytest.mark.parametrize(
    "more", [{}, {"priority": 5}, {"priority": -5}, {"group_id": "own"}, {"topics": True}], ids=str
)
def test_two_open_claims_share_without_waiting(box: Box, more: dict[str, Any]) -> None:
    """Under versioned reads too: the rows are taken by locks that pass over what is locked."""
    topics = ["t"] if more.pop("topics", False) else None
    groups = more.pop("group_id", None)
    made = [box.put(**more, **({"group_id": f"g{number}"} if groups else {})) for number in range(8)]
    with box.db.session() as one, box.db.session() as two:
        first = box.on(impatient(one)).take(OWNER, batch=4, topics=topics)
        second = box.on(impatient(two)).take(OTHER, batch=10, topics=topics)
        assert len(first) == 4
        assert not set(first) & set(second)
        assert second, "a claim must get what an open one has left"
        one.commit()
        two.commit()
    rest = box.take(OTHER, batch=10)
    assert sorted([*first, *second, *rest]) == made


@pytest.mark.parametrize("step", ["ack", "abandon", "release", "fail"])
def test_a_claim_does_not_wait_for_an_open_settlement(box: Box, step: str) -> None:
    held, free = box.fill(3), box.fill(3)
    assert box.take(OWNER, batch=3) == held
    with box.db.session() as one, box.db.session() as two:
        more = {"error": "e"} if step == "fail" else {}
        assert box.on(impatient(one)).affected(step, owner_token=OWNER, ids=held, **more) == 3
        assert box.on(impatient(two)).take(OTHER, batch=10) == free
        two.commit()
        one.commit()


def test_a_claim_does_not_wait_for_an_open_producer(box: Box) -> None:
    """Neither for its plain messages nor for its member of a group that others work on."""
    first = [box.put(), box.put(group_id="g")]
    with box.db.session() as one, box.db.session() as two:
        inside = box.on(impatient(one))
        hidden = [inside.put(), inside.put(group_id="g"), inside.put(priority=1)]
        taken = box.on(impatient(two)).take(OTHER, batch=10)
        assert taken == first
        two.commit()
        one.commit()
    assert box.ack(OTHER, first) == 2
    box.db.advance(1)  # a group that could not be read at once is looked at a little later
    assert sorted(box.take(OTHER) + box.take(OTHER)) == hidden


def test_producers_of_other_keys_do_not_wait(box: Box) -> None:
    with box.db.session() as one, box.db.session() as two:
        for number, session in enumerate((one, two)):
            inside = box.on(impatient(session))
            own = "dedup_key" if box.kind == "outbox" else "message_id"
            for turn in range(20):
                key = f"{number}-{turn}"
                inside.put(collapse_key=key, group_id=key, **{own: key})
        two.commit()
        one.commit()
    assert box.count() == 40


def test_members_are_seen_as_committed_in_order(box: Box) -> None:
    """A member whose producer has just committed is not passed over for a later one."""
    for turn in range(30):
        group = f"g{turn}"
        with box.db.session() as one, box.db.session() as two:
            first = box.on(one).put(group_id=group)
            one.commit()
            second = box.on(two).put(group_id=group)
            two.commit()
        assert box.take(OWNER) == [first, second]
        assert box.ack(OWNER, [first, second]) == 2
