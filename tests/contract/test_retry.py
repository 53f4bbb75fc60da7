"""Retry: abandon, with the decision when to give up made in the database. And releases that wait."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contract.joins import Joins
from tests.contract.support import (
    HOSTILE,
    OTHER,
    OWNER,
    Box,
    check_books,
    ids,
    refuses,
    server_now,
    unreadable,
)

MARGIN = timedelta(milliseconds=20)
"""How far the server's clock, asked before and after a call, may be from what the call saw."""
WAYS = ("retry", "settle")
each_way = pytest.mark.parametrize("way", WAYS)


def again(box: Box, way: str, some: list[int], **more: object) -> None:
    """Retries messages, by themselves or within a settle."""
    if way == "settle":
        if "last_error" in more:
            more["error"] = more.pop("last_error")
        assert box.settle(OWNER, [{"ids": some, "result": "retry"} | more]) == []
    else:
        assert box.retry(OWNER, some, **more)[0] == len(some)


@each_way
def test_contract_retry_counts_an_attempt_and_waits_for_its_delay(box: Box, way: str) -> None:
    message = box.put()
    box.take()
    before = server_now(box.db)
    again(box, way, [message], last_error="not yet", delay_seconds=90.5)
    after = server_now(box.db)
    row = box.get(message)
    assert (row["status"], row["attempt"], row["last_error"]) == (box.waiting, 1, "not yet")
    assert row["owner_token"] is row["locked_until"] is row["died_at"] is None
    assert before - MARGIN <= row["due_at"] - timedelta(seconds=90.5) <= after + MARGIN
    box.db.advance(80)
    assert box.take() == []
    box.db.advance(20)
    assert box.take() == [message]


@each_way
def test_obx_055_obx_056_ibx_080_a_retry_without_a_delay_takes_the_boxs_backoff(box: Box, way: str) -> None:
    box.configure("backoff_base_seconds", "3")
    message = box.put()
    box.take()
    before = server_now(box.db)
    again(box, way, [message], delay_seconds=None)
    after = server_now(box.db)
    assert before - MARGIN <= box.get(message)["due_at"] - timedelta(seconds=6) <= after + MARGIN


@each_way
def test_obx_058_ibx_083_retry_gives_up_at_the_boxs_max_attempts(box: Box, way: str) -> None:
    box.configure("max_attempts", "3")
    message = box.put()
    for attempt in (1, 2):
        assert box.take() == [message]
        again(box, way, [message], last_error=f"failure {attempt}", delay_seconds=1)
        assert (box.status(message), box.get(message)["attempt"]) == (box.waiting, attempt)
        box.db.advance(5)
    assert box.take() == [message]
    due = box.get(message)["due_at"]
    before = server_now(box.db)
    again(box, way, [message], last_error="the last", delay_seconds=1)
    row = box.get(message)
    assert (row["status"], row["attempt"], row["last_error"]) == (box.dead, 3, "the last")
    assert row["due_at"] == due
    assert before - MARGIN <= row["died_at"] - timedelta(seconds=10) <= server_now(box.db) + MARGIN
    box.db.advance(10**5)
    assert box.take() == []
    assert ids(box.call("dead_letters", limit=10)) == [message]
    assert box.affected("replay", ids=[message]) == 1
    assert box.take() == [message]


@each_way
def test_contract_retry_takes_a_limit_of_its_own(box: Box, way: str) -> None:
    box.configure("max_attempts", "1")
    made = box.fill(4)
    box.take()
    again(box, way, made[:1], max_attempts=2)
    again(box, way, made[1:2], max_attempts=0)
    again(box, way, made[2:3], max_attempts=1)
    again(box, way, made[3:], max_attempts=None)
    waiting = box.waiting
    assert [box.status(message) for message in made] == [waiting, waiting, box.dead, box.dead]
    assert [box.get(message)["attempt"] for message in made] == [1] * 4


def test_contract_no_limit_is_no_limit(box: Box) -> None:
    box.configure("max_attempts", "0")
    message = box.put()
    for _ in range(12):
        assert box.take() == [message]
        assert box.retry(OWNER, [message], delay_seconds=0.001) == (1, 0)
        box.db.advance(1)
    assert box.get(message)["attempt"] == 12


def test_contract_a_lower_limit_ends_what_was_tried_more_often(box: Box) -> None:
    message = box.put()
    for _ in range(5):
        box.take()
        box.retry(OWNER, [message], delay_seconds=0.001)
        box.db.advance(1)
    box.take()
    assert box.retry(OWNER, [message], max_attempts=3) == (1, 1)
    assert (box.status(message), box.get(message)["attempt"]) == (box.dead, 6)


def test_contract_retry_answers_how_many_it_found_and_how_many_died(box: Box) -> None:
    young = box.fill(3)
    assert box.take(batch=3) == young
    old = box.fill(2)
    assert box.take(batch=3) == old
    box.retry(OWNER, old, delay_seconds=0.001)
    box.db.advance(1)
    assert box.take() == old
    assert box.retry(OWNER, [*young, *old, 10**15, -1], max_attempts=2) == (5, 2)
    assert [box.status(message) for message in (*young, *old)] == [box.waiting] * 3 + [box.dead] * 2
    assert box.retry(OWNER, [*young, *old]) == (0, 0)
    check_books(box)


def test_ibx_057_a_retry_without_an_error_keeps_the_one_before(box: Box) -> None:
    message = box.put()
    for error in ("first", "", None):
        assert box.take() == [message]
        box.retry(OWNER, [message], last_error=error, delay_seconds=1)
        assert box.get(message)["last_error"] == "first"
        box.db.advance(5)
    assert box.take() == [message]
    assert box.retry(OWNER, [message], max_attempts=1) == (1, 1)
    assert box.get(message)["last_error"] == "first"


@each_way
def test_contract_retry_records_any_text_and_cuts_it(box: Box, way: str) -> None:
    texts = [*HOSTILE, "x" * 20000]
    made = box.fill(len(texts))
    assert box.take(batch=100) == made
    for number, (message, text) in enumerate(zip(made, texts, strict=True)):
        again(box, way, [message], last_error=text, max_attempts=number % 2)
        expected = text if len(text) <= 16384 else text[:16374] + " ... [cut]"
        assert box.get(message)["last_error"] == expected


@each_way
def test_contract_a_group_goes_on_behind_a_head_that_died_and_waits_for_one_that_did_not(
    box: Box, way: str
) -> None:
    first = box.fill(3, group_id="a")
    second = box.fill(3, group_id="b")
    assert sorted([*box.take(batch=1), *box.take(batch=1)]) == [first[0], second[0]]
    again(box, way, [first[0]], max_attempts=1)
    again(box, way, [second[0]], delay_seconds=50)
    assert box.take(OTHER, lease=10000) == first[1:]
    box.db.advance(60)
    assert box.take() == second


@each_way
def test_contract_one_call_may_end_and_keep_members_of_one_group(box: Box, way: str) -> None:
    made = box.fill(4, group_id="g")
    assert box.take(batch=1) == made[:1]
    again(box, way, made[:1], delay_seconds=1)
    box.db.advance(5)
    assert box.take(batch=3) == made[:3]
    again(box, way, made[:3], max_attempts=2, delay_seconds=7)
    assert [box.status(message) for message in made[:3]] == [box.dead, box.waiting, box.waiting]
    assert box.take() == []
    box.db.advance(10)
    assert box.take() == made[1:]


@each_way
def test_contract_steps_that_die_count_once_for_their_joins(joins: Joins, way: str) -> None:
    box = joins.box
    join = joins.start(3)
    made = [joins.put() for _ in range(3)]
    for message in made:
        joins.attach(join, message)
    held = box.take(batch=3)
    again(box, way, held[:1], delay_seconds=1)
    again(box, way, held[1:], max_attempts=1)
    found = joins.get(join)
    assert (found["completed_steps"], found["failed_steps"]) == (0, 2)
    again_held = box.affected("replay", ids=held[1:])
    assert again_held == 2
    box.db.advance(5)
    assert sorted(box.take()) == sorted(held)
    again(box, way, held, max_attempts=1)
    assert joins.get(join)["failed_steps"] == 3


def test_contract_retry_refuses_what_it_cannot_take(box: Box) -> None:
    message = box.put()
    box.take()
    for delay in (0, -1, -0.001, 1000000001):
        with refuses("delay_seconds"):
            box.retry(OWNER, [message], delay_seconds=delay)
    for limit in (-1, -(2**31)):
        with refuses("max_attempts"):
            box.retry(OWNER, [message], max_attempts=limit)
    for name, value in [("delay_seconds", text) for text in ("NaN", "soon", "Infinity", "")] + [
        ("max_attempts", other) for other in (2**31, "many")
    ]:
        with unreadable(box.db):
            box.retry(OWNER, [message], **{name: value})
    assert (box.get(message)["attempt"], box.status(message)) == (0, box.leased)


@each_way
def test_obx_091_ibx_102_a_retry_is_undone_with_its_transaction(box: Box, way: str) -> None:
    made = box.fill(2, group_id="g")
    assert box.take() == made
    with box.db.session() as session:
        again(box.on(session), way, made[:1], max_attempts=1)
        again(box.on(session), way, made[1:])
        session.rollback()
    assert [box.get(message)["attempt"] for message in made] == [0, 0]
    assert box.ack(OWNER, made) == 2


def test_contract_settle_mixes_retries_of_different_limits_and_delays(box: Box) -> None:
    made = box.fill(8)
    assert box.take() == made
    before = server_now(box.db)
    rows = box.settle(
        OWNER,
        [
            {"ids": made[:2], "result": "retry", "max_attempts": 1, "error": "one"},
            {"id": made[2], "result": "retry", "max_attempts": 5, "delay_seconds": 300, "error": "two"},
            {"id": made[3], "result": "retry", "max_attempts": 5, "delay_seconds": 600, "error": "two"},
            {"ids": [made[0], made[4]], "result": "release", "delay_seconds": 900, "error": "not kept"},
            {"ids": [made[5]], "result": "release", "delay_seconds": 0},
            {"id": made[6], "result": "ack"},
            {"id": made[7], "result": "abandon", "max_attempts": 1},
        ],
        claim_batch=10,
    )
    assert ids(rows) == [made[5]]
    found = [box.get(message) for message in made]
    waiting, dead = box.waiting, box.dead
    expected = [dead, dead, waiting, waiting, waiting, box.leased, "Done", waiting]
    assert [row["status"] for row in found] == expected
    assert [row["attempt"] for row in found] == [1, 1, 1, 1, 0, 0, 0, 1]
    assert [row["last_error"] for row in found] == ["one", "one", "two", "two", None, None, None, None]
    for place, seconds in ((2, 300), (3, 600), (4, 900)):
        waits = found[place]["due_at"] - before
        assert timedelta(seconds=seconds) - MARGIN <= waits <= timedelta(seconds=seconds + 30)
    check_books(box)


def test_contract_settle_retries_five_thousand(box: Box) -> None:
    made = box.fill(5000)
    assert box.take(batch=10000) == made
    box.settle(
        OWNER,
        [{"ids": made[::2], "result": "retry", "max_attempts": 1}, {"ids": made[1::2], "result": "retry"}],
    )
    rows = box.db.sql(f"SELECT status, count(*) AS n FROM {{schema}}.{box.name}_messages GROUP BY status")
    assert {row["status"]: row["n"] for row in rows} == {box.dead: 2500, box.waiting: 2500}


@each_way
def test_contract_release_may_wait(box: Box, way: str) -> None:
    made = box.fill(3)
    box.take()
    before = server_now(box.db)
    if way == "settle":
        box.settle(
            OWNER,
            [
                {"id": made[0], "result": "release", "delay_seconds": 100.25},
                {"ids": made[1:], "result": "release", "delay_seconds": 0},
            ],
        )
    else:
        assert box.release(OWNER, made[:1], delay_seconds=100.25) == 1
        assert box.release(OWNER, made[1:], delay_seconds=0) == 2
    after = server_now(box.db)
    row = box.get(made[0])
    assert (row["attempt"], row["status"], row["last_error"]) == (0, box.waiting, None)
    assert before - MARGIN <= row["due_at"] - timedelta(seconds=100.25) <= after + MARGIN
    assert box.take(OTHER, lease=10000) == made[1:]
    box.db.advance(110)
    assert box.take(OTHER) == made[:1]


@each_way
def test_contract_a_group_waits_for_the_delay_of_its_released_head(box: Box, way: str) -> None:
    made = box.fill(4, group_id="g")
    assert box.take(batch=2) == made[:2]
    free = box.put(group_id="free")
    if way == "settle":
        box.settle(OWNER, [{"ids": made[:2], "result": "release", "delay_seconds": 30}])
    else:
        assert box.release(OWNER, made[:2], delay_seconds=30) == 2
    assert box.take(OTHER, lease=10000) == [free]
    box.db.advance(40)
    assert box.take(OTHER) == made


def test_contract_release_refuses_a_delay_out_of_range(box: Box) -> None:
    message = box.put()
    box.take()
    for delay in (-1, -0.001, 1000000001):
        with refuses("delay_seconds"):
            box.release(OWNER, [message], delay_seconds=delay)
    for text in ("NaN", "soon", "Infinity", ""):
        with unreadable(box.db):
            box.release(OWNER, [message], delay_seconds=text)
    assert box.status(message) == box.leased
    assert box.release(OWNER, [message], delay_seconds=None) == 1
    assert box.take(OTHER) == [message]


def test_ibx_045_a_release_with_a_delay_leaves_foreign_ones_alone(box: Box) -> None:
    mine, foreign, waiting = box.put(), box.put(), box.put()
    assert [box.take(OWNER, batch=1), box.take(OTHER, batch=1)] == [[mine], [foreign]]
    before = [box.get(foreign), box.get(waiting)]
    assert box.release(OWNER, [mine, foreign, waiting, 10**15], delay_seconds=5) == 1
    assert [box.get(foreign), box.get(waiting)] == before


@each_way
def test_contract_what_was_reaped_is_not_retried(box: Box, way: str) -> None:
    message = box.put()
    box.take(lease=1)
    box.db.advance(5)
    assert box.reap() == 1
    if way == "settle":
        box.settle(OWNER, [{"id": message, "result": "retry", "max_attempts": 1}])
    else:
        assert box.retry(OWNER, [message], max_attempts=1) == (0, 0)
    assert (box.status(message), box.get(message)["attempt"]) == (box.waiting, 1)
