"""Ack, abandon, release, fail and extend: only what the worker still holds, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pysqlbox.errors import InvalidArgument
from tests.contract.support import HOSTILE, NIL, OTHER, OWNER, Box, ids, refuses, server_now, unreadable

STEPS: dict[str, Callable[[Box, Any, Any], int]] = {
    "ack": lambda box, owner, some: box.ack(owner, some),
    "abandon": lambda box, owner, some: box.abandon(owner, some),
    "retry": lambda box, owner, some: box.retry(owner, some)[0],
    "release": lambda box, owner, some: box.release(owner, some),
    "fail": lambda box, owner, some: box.fail(owner, some),
    "extend": lambda box, owner, some: len(box.extend(owner, some)),
}
"""Every call that settles or prolongs, answering how many messages it touched."""
each_step = pytest.mark.parametrize("step", STEPS)


def test_obx_021_obx_022_obx_023_ibx_044_ibx_049_ack_makes_the_message_done(box: Box) -> None:
    message = box.put()
    assert box.take() == [message]
    before = server_now(box.db)
    assert box.ack(OWNER, [message]) == 1
    row = box.get(message)
    margin = timedelta(milliseconds=5)
    assert (row["status"], row["processed_by"]) == ("Done", OWNER)
    assert before - margin <= row["processed_at"] <= server_now(box.db) + margin
    assert row["owner_token"] is row["locked_until"] is None


@each_step
def test_obx_024_obx_032_obx_038_ibx_045_ibx_054_ibx_062_foreign_ones_are_left_alone(
    box: Box, step: str
) -> None:
    message = box.put()
    assert box.take(OWNER) == [message]
    held = box.get(message)
    assert STEPS[step](box, OTHER, [message]) == 0
    assert box.get(message) == held


@each_step
def test_obx_025_obx_033_obx_039_ibx_046_ibx_055_ibx_063_unknown_ids_do_nothing(box: Box, step: str) -> None:
    message, waiting = box.put(), box.put()
    assert box.take(OWNER, batch=1) == [message]
    assert STEPS[step](box, OWNER, [10**15, message, waiting, -1, 0, 2**63 - 1]) == 1
    assert box.get(waiting)["attempt"] == 0
    assert box.status(waiting) == box.waiting


@each_step
def test_obx_025_ibx_046_repeated_ids_count_once(box: Box, step: str) -> None:
    made = box.fill(2)
    assert box.take() == made
    assert STEPS[step](box, OWNER, [made[1], made[0], made[1], made[1]]) == 2
    assert box.get(made[1])["attempt"] == int(step in ("abandon", "retry"))


@each_step
def test_ibx_048_ibx_059_ibx_066_an_empty_set_is_a_no_op(box: Box, step: str) -> None:
    message = box.put()
    box.take()
    held = box.get(message)
    assert STEPS[step](box, OWNER, []) == 0
    assert box.get(message) == held


@each_step
def test_ibx_048_ibx_059_ibx_066_a_null_set_is_refused(box: Box, step: str) -> None:
    with refuses("ids"):
        STEPS[step](box, OWNER, None)


@each_step
def test_contract_a_malformed_set_is_refused(box: Box, step: str) -> None:
    message = box.put()
    box.take()
    for malformed in ("[1,", "x", "", '["x"]', '{"a": 1}', "[1.5]", [10**20], ["x"]):
        with pytest.raises(InvalidArgument):
            STEPS[step](box, OWNER, malformed)
    assert box.status(message) == box.leased


@each_step
def test_ibx_130_a_null_or_nil_owner_is_refused(box: Box, step: str) -> None:
    message = box.put()
    box.take()
    for owner in (None, NIL):
        with refuses("owner_token"):
            STEPS[step](box, owner, [message])
        with refuses("owner_token"):
            STEPS[step](box, owner, [])
    assert box.get(message)["owner_token"] == OWNER


@each_step
def test_contract_a_message_that_was_settled_is_not_settled_again(box: Box, step: str) -> None:
    made = box.fill(5)
    assert box.take() == made
    for message, settle in zip(made, ("ack", "fail", "release", "abandon", "retry"), strict=True):
        assert STEPS[settle](box, OWNER, [message]) == 1
    before = [box.get(message) for message in made]
    assert STEPS[step](box, OWNER, made) == 0
    assert [box.get(message) for message in made] == before


def test_obx_026_ibx_047_acknowledged_messages_are_not_claimed_again(box: Box) -> None:
    made = box.fill(3)
    box.take(lease=10)
    assert box.ack(OWNER, made[:2]) == 2
    box.db.advance(1000)
    assert box.take() == [made[2]]


def test_obx_029_ibx_050_abandon_releases_the_lease(box: Box) -> None:
    message = box.put()
    box.take()
    assert box.abandon(OWNER, [message]) == 1
    row = box.get(message)
    assert row["owner_token"] is row["locked_until"] is None
    assert row["status"] == box.waiting


def test_obx_030_ibx_051_abandon_counts_an_attempt_each_time(box: Box) -> None:
    message = box.put()
    for attempt in range(1, 4):
        assert box.take() == [message]
        assert box.abandon(OWNER, [message], delay_seconds=1) == 1
        assert box.get(message)["attempt"] == attempt
        box.db.advance(5)


def test_obx_031_obx_056_ibx_052_ibx_080_ibx_081_backoff_is_two_to_the_attempt_up_to_sixty(box: Box) -> None:
    message = box.put()
    advanced = 0
    for delay in (2, 4, 8, 16, 32, 60, 60, 60):
        assert box.take() == [message]
        before = server_now(box.db)
        box.abandon(OWNER, [message], delay_seconds=None)
        after = server_now(box.db)
        margin = timedelta(milliseconds=20)
        waits = box.get(message)["due_at"] - timedelta(seconds=advanced + delay)
        assert before - margin <= waits <= after + margin
        box.db.advance(delay + 1)
        advanced += delay + 1
    assert box.get(message)["attempt"] == 8


def test_ibx_053_a_given_delay_takes_the_place_of_the_backoff(box: Box) -> None:
    message = box.put()
    box.take()
    before = server_now(box.db)
    box.abandon(OWNER, [message], delay_seconds=1234.5)
    after = server_now(box.db)
    margin = timedelta(milliseconds=20)
    assert before - margin <= box.get(message)["due_at"] - timedelta(seconds=1234.5) <= after + margin
    assert box.get(message)["attempt"] == 1


def test_contract_delay_seconds_may_be_a_fraction(box: Box) -> None:
    message = box.put()
    box.take()
    before = server_now(box.db)
    box.abandon(OWNER, [message], delay_seconds=0.25)
    delay = box.get(message)["due_at"] - before
    assert timedelta(seconds=0.2) <= delay <= timedelta(seconds=3)
    box.db.advance(1)
    assert box.take() == [message]


def test_obx_034_ibx_056_abandoned_messages_come_back_after_their_delay(box: Box) -> None:
    made = box.fill(2)
    box.take()
    box.abandon(OWNER, made[:1], delay_seconds=100)
    box.abandon(OWNER, made[1:], delay_seconds=300)
    box.db.advance(90)
    assert box.take() == []
    box.db.advance(20)
    assert box.take() == made[:1]
    box.db.advance(200)
    assert made[1] in box.take()


def test_obx_035_ibx_057_abandon_records_the_last_error(box: Box) -> None:
    message = box.put()
    for error in HOSTILE:
        assert box.take() == [message]
        box.abandon(OWNER, [message], last_error=error, delay_seconds=1)
        assert box.get(message)["last_error"] == error
        box.db.advance(5)


def test_ibx_057_a_null_or_empty_error_keeps_the_one_before(box: Box) -> None:
    message = box.put()
    for error in ("first", "", None):
        assert box.take() == [message]
        box.abandon(OWNER, [message], last_error=error, delay_seconds=1)
        assert box.get(message)["last_error"] == "first"
        box.db.advance(5)


def test_ibx_058_abandon_refuses_a_delay_that_is_not_above_zero(box: Box) -> None:
    message = box.put()
    box.take()
    for delay in (0, -1, -0.001):
        with refuses("delay_seconds"):
            box.abandon(OWNER, [message], delay_seconds=delay)
    with refuses("delay_seconds"):
        box.abandon(OWNER, [message], delay_seconds=1000000001)
    row = box.get(message)
    assert (row["attempt"], row["owner_token"]) == (0, OWNER)


def test_ibx_058_abandon_refuses_a_delay_that_is_no_number(box: Box) -> None:
    message = box.put()
    box.take()
    for delay in ("NaN", "soon", "Infinity", ""):
        with unreadable(box.db):
            box.abandon(OWNER, [message], delay_seconds=delay)
    assert box.get(message)["attempt"] == 0


def test_contract_release_hands_back_at_once_without_counting_an_attempt(box: Box) -> None:
    message = box.put()
    box.take()
    assert box.release(OWNER, [message]) == 1
    row = box.get(message)
    assert (row["attempt"], row["status"], row["last_error"]) == (0, box.waiting, None)
    assert row["owner_token"] is row["locked_until"] is None
    assert box.take(OTHER) == [message]


def test_obx_036_obx_037_ibx_060_ibx_061_ibx_065_fail_gives_the_message_up_with_its_error(box: Box) -> None:
    message = box.put()
    box.take()
    before = server_now(box.db)
    assert box.fail(OWNER, [message], "no such customer") == 1
    row = box.get(message)
    margin = timedelta(milliseconds=5)
    assert (row["status"], row["last_error"], row["attempt"]) == (box.dead, "no such customer", 0)
    assert before - margin <= row["died_at"] <= server_now(box.db) + margin
    assert row["owner_token"] is row["locked_until"] is row["processed_at"] is None


def test_obx_042_ibx_064_failed_messages_are_not_claimed_again(box: Box) -> None:
    box.made_dead(2)
    box.db.advance(10**6)
    assert box.take() == []
    assert box.reap() == 0


def test_ibx_067_fail_refuses_a_null_error_and_takes_an_empty_one(box: Box) -> None:
    made = box.fill(2)
    box.take()
    with refuses("error"):
        box.fail(OWNER, made, None)
    assert box.status(made[0]) == box.leased
    assert box.fail(OWNER, made[:1], "") == 1
    assert box.status(made[0]) == box.dead


def test_ibx_061_errors_of_any_text_are_kept(box: Box) -> None:
    texts = [*HOSTILE, "long ü " * 2000]
    made = box.fill(len(texts))
    assert box.take(batch=100) == made
    for message, text in zip(made, texts, strict=True):
        assert box.fail(OWNER, [message], text) == 1
        assert box.get(message)["last_error"] == text


def test_contract_extend_answers_what_is_still_held_and_until_when(box: Box) -> None:
    made = box.fill(3)
    assert box.take(batch=2, lease=10) == made[:2]
    before = server_now(box.db)
    rows = box.extend(OWNER, [*made, 10**15], 500)
    after = server_now(box.db)
    assert sorted(ids(rows)) == made[:2]
    margin = timedelta(milliseconds=5)
    for row in rows:
        assert before - margin <= row["locked_until"] - timedelta(seconds=500) <= after + margin
        assert box.get(row["id"])["locked_until"] == row["locked_until"]


def test_contract_extend_keeps_the_lease_beyond_its_first_end(box: Box) -> None:
    message = box.put()
    box.take(lease=10)
    box.db.advance(9)
    assert ids(box.extend(OWNER, [message], 100)) == [message]
    box.db.advance(50)
    assert box.take(OTHER) == []
    assert box.reap() == 0
    assert box.ack(OWNER, [message]) == 1


def test_contract_extend_may_shorten_a_lease(box: Box) -> None:
    message = box.put()
    box.take(lease=1000)
    assert ids(box.extend(OWNER, [message], 5)) == [message]
    box.db.advance(10)
    assert box.take(OTHER) == [message]


def test_contract_extend_refuses_lease_seconds_out_of_range(box: Box) -> None:
    message = box.put()
    box.take()
    held = box.get(message)
    for seconds in (0, -1, 86401, None):
        with refuses("lease_seconds"):
            box.extend(OWNER, [message], seconds)
    assert box.get(message) == held


def test_contract_many_ids_at_once(box: Box) -> None:
    made = box.fill(5000)
    assert box.take(batch=10000, lease=100) == made
    assert len(box.extend(OWNER, made, 200)) == 5000
    assert box.release(OWNER, made[:1000]) == 1000
    assert box.abandon(OWNER, made[1000:2000], last_error="e", delay_seconds=5) == 1000
    assert box.fail(OWNER, made[2000:3000]) == 1000
    assert box.ack(OWNER, made) == 2000
    assert {status: count for status, count in _statuses(box).items() if count} == {
        box.waiting: 2000,
        box.dead: 1000,
        "Done": 2000,
    }


def _statuses(box: Box) -> dict[str, int]:
    rows = box.db.sql(f"SELECT status, count(*) AS n FROM {{schema}}.{box.name}_messages GROUP BY status")
    return {row["status"]: row["n"] for row in rows}  # type: ignore[misc]  # Row has objects


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize("delay", ["1.5::float8", "1.5::real", "1.5", "2", "2::smallint", "'1.5'"])
def test_contract_a_delay_is_any_kind_of_number(box: Box, delay: str) -> None:
    message = box.put()
    assert box.take() == [message]
    routine = f"{{schema}}.{box.name}_abandon"
    (row,) = box.db.sql(f"SELECT affected FROM {routine}(%s, %s, 'later', {delay})", OWNER, [message])
    assert row["affected"] == 1
    assert box.take() == []
    box.db.advance(3)
    assert box.take() == [message]
