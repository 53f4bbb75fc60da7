"""Leases that run out: reaped, taken over, counted, and in the end dead."""

from __future__ import annotations

import pytest

from tests.contract.support import OTHER, OWNER, Box, ids, refuses
from tests.contract.test_settling import STEPS


def test_obx_043_obx_044_ibx_068_ibx_069_reap_releases_what_has_expired(box: Box) -> None:
    made = box.fill(3)
    assert box.take(OWNER, batch=2, lease=10) == made[:2]
    assert box.take(OTHER, batch=1, lease=1000) == made[2:]
    assert box.reap() == 0
    box.db.advance(20)
    assert box.reap() == 2
    rows = [box.get(message) for message in made]
    assert [row["owner_token"] for row in rows] == [None, None, OTHER]
    assert rows[0]["locked_until"] is rows[1]["locked_until"] is None
    assert [row["status"] for row in rows] == [box.waiting, box.waiting, box.leased]
    assert box.reap() == 0


def test_obx_045_ibx_070_reaped_messages_are_claimable_at_once_with_one_attempt_counted(box: Box) -> None:
    made = box.fill(2)
    box.take(lease=10)
    box.db.advance(20)
    box.reap()
    rows = box.claim(OTHER)
    assert ids(rows) == made
    assert [row["attempt"] for row in rows] == [1, 1]
    assert [row["last_error"] for row in rows] == [None, None]


def test_obx_046_ibx_071_reap_leaves_done_and_dead_alone(box: Box) -> None:
    made = box.fill(3)
    assert box.take(lease=10) == made
    box.ack(OWNER, made[:1])
    box.fail(OWNER, made[1:2])
    box.db.advance(1000)
    before = [box.get(message) for message in made[:2]]
    assert box.reap() == 1
    assert [box.get(message) for message in made[:2]] == before


def test_obx_047_ibx_072_a_claim_reaps_without_anybody_calling_reap(box: Box) -> None:
    made = box.fill(3)
    assert box.take(OWNER, lease=10) == made
    box.db.advance(20)
    assert sorted(box.take(OTHER)) == made
    assert {box.get(message)["owner_token"] for message in made} == {OTHER}


def test_obx_047_a_claim_of_other_topics_reaps_too(box: Box) -> None:
    message = box.put("a")
    box.take(lease=10)
    box.db.advance(20)
    assert box.take(OTHER, topics=["b"]) == []
    assert box.get(message)["owner_token"] is None


def test_contract_reap_takes_at_most_batch_size(box: Box) -> None:
    made = box.fill(7)
    assert box.take(lease=10) == made
    box.db.advance(20)
    assert [box.reap(3) for _ in range(4)] == [3, 3, 1, 0]


def test_contract_reap_refuses_batch_size_out_of_range(box: Box) -> None:
    for size in (0, -1, 10001, None):
        with refuses("batch_size"):
            box.affected("reap", batch_size=size)
    assert box.affected("reap") == 0


@pytest.mark.parametrize("step", STEPS)
def test_contract_a_worker_whose_lease_was_taken_over_changes_nothing(box: Box, step: str) -> None:
    message = box.put()
    assert box.take(OWNER, lease=10) == [message]
    box.db.advance(20)
    assert box.take(OTHER, lease=1000) == [message]
    held = box.get(message)
    assert STEPS[step](box, OWNER, [message]) == 0
    box.settle(OWNER, [{"id": message, "result": "ack"}])
    assert box.get(message) == held
    assert box.ack(OTHER, [message]) == 1


@pytest.mark.parametrize("step", STEPS)
def test_contract_a_worker_whose_message_was_reaped_changes_nothing(box: Box, step: str) -> None:
    message = box.put()
    assert box.take(OWNER, lease=10) == [message]
    box.db.advance(20)
    assert box.reap() == 1
    before = box.get(message)
    assert STEPS[step](box, OWNER, [message]) == 0
    assert box.get(message) == before
    assert box.take(OTHER) == [message]


@pytest.mark.parametrize("step", STEPS)
def test_contract_an_expired_lease_that_nobody_took_is_still_its_owners(box: Box, step: str) -> None:
    message = box.put()
    assert box.take(OWNER, lease=10) == [message]
    box.db.advance(20)
    assert STEPS[step](box, OWNER, [message]) == 1


def test_contract_a_message_lost_and_claimed_again_by_the_same_owner_is_its_own(box: Box) -> None:
    message = box.put()
    box.take(lease=10)
    box.db.advance(20)
    rows = box.claim(OWNER)
    assert [(row["id"], row["attempt"]) for row in rows] == [(message, 1)]
    assert box.ack(OWNER, [message]) == 1


def test_obx_058_ibx_083_reap_gives_up_what_reached_max_attempts(box: Box) -> None:
    box.configure("max_attempts", "3")
    message = box.put()
    for attempt in (1, 2, 3):
        assert box.take(lease=10) == [message]
        box.db.advance(20)
        assert box.reap() == 1
        assert box.get(message)["attempt"] == attempt
    row = box.get(message)
    assert row["status"] == box.dead
    assert "max_attempts" in row["last_error"]
    assert row["died_at"] is not None
    assert box.take() == []


def test_obx_058_ibx_083_a_claim_that_reaps_gives_up_too(box: Box) -> None:
    box.configure("max_attempts", "1")
    message = box.put()
    box.take(lease=10)
    box.db.advance(20)
    assert box.take(OTHER) == []
    assert box.status(message) == box.dead


def test_obx_058_abandoned_attempts_count_towards_max_attempts(box: Box) -> None:
    box.configure("max_attempts", "2")
    message = box.put()
    box.take()
    box.abandon(OWNER, [message], delay_seconds=1)
    box.db.advance(5)
    assert box.take(lease=10) == [message]
    box.db.advance(20)
    assert box.reap() == 1
    assert box.status(message) == box.dead


def test_obx_058_abandon_leaves_giving_up_to_the_worker(box: Box) -> None:
    box.configure("max_attempts", "1")
    message = box.put()
    for attempt in (1, 2):
        assert box.take() == [message]
        assert box.abandon(OWNER, [message], delay_seconds=1) == 1
        assert (box.status(message), box.get(message)["attempt"]) == (box.waiting, attempt)
        box.db.advance(5)


def test_obx_059_ibx_084_max_attempts_is_ten_unless_configured(box: Box) -> None:
    message = box.put()
    for attempt in range(1, 11):
        assert box.take(lease=1) == [message]
        box.db.advance(5)
        assert box.reap() == 1
        assert box.status(message) == (box.waiting if attempt < 10 else box.dead)


def test_obx_059_ibx_084_max_attempts_of_zero_never_gives_up(box: Box) -> None:
    box.configure("max_attempts", "0")
    message = box.put()
    for _ in range(12):
        assert box.take(lease=1) == [message]
        box.db.advance(5)
        assert box.reap() == 1
    assert (box.status(message), box.get(message)["attempt"]) == (box.waiting, 12)


def test_obx_055_obx_057_ibx_082_the_backoffs_base_and_cap_are_settings(box: Box) -> None:
    box.configure("backoff_base_seconds", "100")
    box.configure("backoff_cap_seconds", "500")
    message = box.put()
    for delay in (200, 400, 500, 500):
        assert box.take() == [message]
        box.abandon(OWNER, [message])
        box.db.advance(delay - 30)
        assert box.take() == []
        box.db.advance(60)
    assert box.take() == [message]


def test_obx_055_release_and_reap_know_no_backoff(box: Box) -> None:
    made = box.fill(2)
    box.configure("backoff_base_seconds", "1000")
    box.take(lease=10)
    box.release(OWNER, made[:1])
    box.db.advance(20)
    assert box.reap() == 1
    assert box.take() == made


def test_contract_a_lease_is_good_until_its_very_end(box: Box) -> None:
    message = box.put()
    (row,) = box.claim(lease_seconds=3600)
    box.db.advance(3590)
    assert box.reap() == 0
    box.db.advance(11)
    assert box.reap() == 1
    assert box.get(message)["locked_until"] is None
    assert row["attempt"] == 0
