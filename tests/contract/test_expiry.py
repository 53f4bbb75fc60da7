"""Messages that lose their worth: never handed out, dead with a status of their own, revived by a replay."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contract.support import OTHER, OWNER, Box, server_now


def test_contract_an_expired_message_is_never_handed_out(box: Box) -> None:
    expiring = box.put(expires_at=server_now(box.db) + timedelta(seconds=100))
    staying = box.put(expires_at=server_now(box.db) + timedelta(days=100))
    box.db.advance(200)
    assert box.take() == [staying]
    assert box.status(expiring) == "Expired"
    assert box.take(OTHER) == []


def test_contract_a_message_is_handed_out_until_it_expires(box: Box) -> None:
    expires = server_now(box.db) + timedelta(seconds=100)
    message = box.put(expires_at=expires)
    box.db.advance(50)
    (row,) = box.claim()
    assert (row["id"], row["expires_at"]) == (message, expires)


def test_contract_a_message_that_is_expired_from_the_start_is_kept_but_not_handed_out(box: Box) -> None:
    message = box.put(expires_at=server_now(box.db) - timedelta(seconds=1))
    assert box.take() == []
    assert box.status(message) == "Expired"


def test_contract_a_claim_fills_its_batch_past_expired_messages(box: Box) -> None:
    soon = server_now(box.db) + timedelta(seconds=100)
    expiring = box.fill(20, expires_at=soon)
    staying = box.fill(5)
    box.db.advance(200)
    assert box.take(batch=5) == staying
    assert {box.status(message) for message in expiring} == {"Expired"}


@pytest.mark.parametrize("topics", [None, ["t"], ["t", "u"]])
@pytest.mark.parametrize("group_id", [None, "g"])
@pytest.mark.parametrize("priority", [-1, 0, 1])
def test_contract_a_small_claim_passes_many_expired_messages(
    box: Box, topics: list[str] | None, group_id: str | None, priority: int
) -> None:
    soon = server_now(box.db) + timedelta(seconds=100)
    records = [
        box.record(
            topic="tu"[n % 2],
            priority=priority,
            expires_at=soon.isoformat(),
            group_id=group_id and f"{group_id}{n}",
        )
        for n in range(40)
    ]
    expiring = [int(row["id"]) for row in box.enqueue_many(*records)]
    staying = box.put("t", priority=priority, group_id=group_id)
    box.db.advance(200)
    assert box.take(batch=1, topics=topics) == [staying]
    passed = [message for message in expiring if box.status(message) == "Expired"]
    assert len(passed) == (20 if topics == ["t"] else 40)


def test_contract_expiry_before_the_due_time(box: Box) -> None:
    now = server_now(box.db)
    message = box.put(due_at=now + timedelta(seconds=200), expires_at=now + timedelta(seconds=100))
    box.db.advance(300)
    assert box.take() == []
    assert box.status(message) == "Expired"


def test_contract_expiry_while_it_is_held_lets_the_worker_finish(box: Box) -> None:
    made = box.fill(2, expires_at=server_now(box.db) + timedelta(seconds=100))
    assert box.take(lease=1000) == made
    box.db.advance(200)
    assert box.ack(OWNER, made[:1]) == 1
    assert box.status(made[0]) == "Done"
    assert box.release(OWNER, made[1:]) == 1
    assert box.take() == []
    assert box.status(made[1]) == "Expired"


def test_contract_expiry_while_waiting_for_the_retry(box: Box) -> None:
    message = box.put(expires_at=server_now(box.db) + timedelta(seconds=100))
    box.take()
    box.abandon(OWNER, [message], last_error="kept", delay_seconds=150)
    box.db.advance(200)
    assert box.take() == []
    row = box.get(message)
    assert (row["status"], row["last_error"], row["attempt"]) == ("Expired", "kept", 1)
    assert row["died_at"] is not None


def test_contract_an_expired_member_does_not_hold_up_its_group(box: Box) -> None:
    soon = server_now(box.db) + timedelta(seconds=100)
    first = box.put(group_id="g", expires_at=soon)
    second = box.put(group_id="g")
    third = box.put(group_id="g", expires_at=soon)
    fourth = box.put(group_id="g")
    box.db.advance(200)
    taken: list[int] = []
    for _ in range(4):
        some = box.take()
        box.ack(OWNER, some)
        taken += some
    assert taken == [second, fourth]
    assert [box.status(message) for message in (first, third)] == ["Expired"] * 2


def test_contract_an_expired_message_counts_as_dead_and_is_listed(box: Box) -> None:
    message = box.put("late", expires_at=server_now(box.db) + timedelta(seconds=10))
    box.db.advance(20)
    assert box.take() == []
    assert box.stats()[None]["dead"] == 1
    (row,) = box.call("dead_letters", topic="late")
    assert (row["id"], row["status"]) == (message, "Expired")


def test_contract_a_replayed_expired_message_loses_its_expiry(box: Box) -> None:
    message = box.put(expires_at=server_now(box.db) + timedelta(seconds=10))
    box.db.advance(20)
    assert box.take() == []
    assert box.affected("replay", ids=[message]) == 1
    (row,) = box.claim()
    assert (row["id"], row["expires_at"], row["attempt"]) == (message, None, 0)


def test_contract_a_claim_of_a_topic_meets_its_expired_messages(box: Box) -> None:
    soon = server_now(box.db) + timedelta(seconds=10)
    mine, other = box.put("a", expires_at=soon), box.put("b", expires_at=soon)
    box.db.advance(20)
    assert box.take(topics=["a"]) == []
    assert box.status(mine) == "Expired"
    assert box.take(topics=["b"]) == []
    assert box.status(other) == "Expired"


def test_contract_an_expired_message_with_priority(box: Box) -> None:
    soon = server_now(box.db) + timedelta(seconds=10)
    gone = [box.put(priority=priority, expires_at=soon) for priority in (3, 0, -3)]
    kept = [box.put(priority=priority) for priority in (3, 0, -3)]
    box.db.advance(20)
    assert box.take(batch=3) == kept
    assert {box.status(message) for message in gone} == {"Expired"}


def test_contract_a_lease_that_runs_out_on_an_expired_message_ends_expired(box: Box) -> None:
    message = box.put(expires_at=server_now(box.db) + timedelta(seconds=10))
    assert box.take(lease=20) == [message]
    box.db.advance(30)
    assert box.take(OTHER) == []
    assert box.status(message) == "Expired"
