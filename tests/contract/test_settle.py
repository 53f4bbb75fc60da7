"""Settle: a mixed batch and the next claim in one round trip."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pysqlbox.errors import InvalidArgument
from tests.contract.support import CLAIM_COLUMNS, NIL, OTHER, OWNER, Box, Row, ids, refuses, server_now


def outcome(message: object, result: object = "ack", **more: object) -> Row:
    """A record of a settled batch."""
    return {"id": message, "result": result} | more


def test_contract_settle_does_to_each_message_what_its_record_says(box: Box) -> None:
    made = box.fill(6)
    assert box.take() == made
    before = server_now(box.db)
    answered = box.settle(
        OWNER,
        [
            outcome(made[0]),
            outcome(made[1], "abandon", error="later", delay_seconds=500.5),
            outcome(made[2], "release"),
            outcome(made[3], "fail", error="never"),
            outcome(made[4], "abandon"),
        ],
    )
    assert answered == []
    rows = [box.get(message) for message in made]
    waiting = box.waiting
    assert [row["status"] for row in rows] == ["Done", waiting, waiting, box.dead, waiting, box.leased]
    assert [row["attempt"] for row in rows] == [0, 1, 0, 0, 1, 0]
    assert [row["last_error"] for row in rows] == [None, "later", None, "never", None, None]
    delay = rows[1]["due_at"] - before
    assert timedelta(seconds=500) <= delay <= timedelta(seconds=510)
    assert timedelta(seconds=1.5) <= rows[4]["due_at"] - before <= timedelta(seconds=12)
    assert rows[0]["processed_by"] == OWNER
    assert box.take(OTHER) == [made[2]]


def test_contract_settle_answers_the_next_claim(box: Box) -> None:
    made = box.fill(5)
    assert box.take(batch=2) == made[:2]
    before = server_now(box.db)
    rows = box.settle(OWNER, [outcome(message) for message in made[:2]], claim_batch=2, lease_seconds=99)
    assert ids(rows) == made[2:4]
    assert list(rows[0]) == CLAIM_COLUMNS[box.kind]
    assert timedelta(seconds=98) <= rows[0]["locked_until"] - before <= timedelta(seconds=110)
    assert ids(box.settle(OWNER, [], claim_batch=10)) == made[4:]
    assert box.settle(OWNER, [outcome(message) for message in made], claim_batch=10) == []
    assert [box.status(message) for message in made] == ["Done"] * 5


def test_contract_settle_can_claim_what_it_just_released(box: Box) -> None:
    message = box.put()
    box.take()
    assert ids(box.settle(OWNER, [outcome(message, "release")], claim_batch=1)) == [message]


def test_contract_settle_limits_its_claim_to_topics(box: Box) -> None:
    put = {topic: box.put(topic) for topic in ("a", "b", "c")}
    rows = box.settle(OWNER, [], claim_batch=10, lease_seconds=30, topics=["b", "c"])
    assert ids(rows) == [put["b"], put["c"]]


def test_obx_024_ibx_045_settle_passes_over_what_the_worker_does_not_hold(box: Box) -> None:
    made = box.fill(3)
    assert box.take(OWNER, batch=1) == made[:1]
    assert box.take(OTHER, batch=1) == made[1:2]
    box.settle(
        OWNER,
        [outcome(made[1], "fail", error="e"), outcome(made[2]), outcome(10**15, "release"), outcome(made[0])],
    )
    assert [box.status(message) for message in made] == ["Done", box.leased, box.waiting]


def test_contract_settle_counts_the_first_record_of_a_message(box: Box) -> None:
    made = box.fill(3)
    box.take()
    box.settle(
        OWNER,
        [
            outcome(made[0], "release"),
            outcome(made[0]),
            outcome(made[1]),
            outcome(made[1], "fail", error="x"),
            outcome(made[2], "abandon", error="1", delay_seconds=9),
            outcome(made[2], "abandon", error="2"),
        ],
    )
    assert [box.status(message) for message in made] == [box.waiting, "Done", box.waiting]
    assert box.get(made[2])["last_error"] == "1"
    assert box.get(made[2])["attempt"] == 1


def test_contract_settle_of_nothing_is_a_no_op(box: Box) -> None:
    message = box.put()
    box.take()
    assert box.settle(OWNER, []) == []
    assert box.settle(OWNER, [], claim_batch=0, lease_seconds=30, topics=None) == []
    assert box.status(message) == box.leased


def test_contract_settle_refuses_bad_records_and_settles_nothing(box: Box) -> None:
    made = box.fill(2)
    box.take()
    bad: list[Row] = [
        {"result": "ack"},
        {"id": None, "result": "ack"},
        {"id": made[1]},
        outcome(made[1], None),
        outcome(made[1], "done"),
        outcome(made[1], "ACK"),
        outcome(made[1], ""),
        outcome("x"),
        outcome(1.5),
        outcome(10**20),
        outcome(made[1], "fail"),
        outcome(made[1], "fail", error=None),
        outcome(made[1], "abandon", delay_seconds=0),
        outcome(made[1], "abandon", delay_seconds=-2),
        outcome(made[1], "abandon", delay_seconds=2000000000),
        outcome(made[1], "abandon", delay_seconds="soon"),
        outcome(made[1], "abandon", delay_seconds=""),
        outcome(made[1], "abandon", delay_seconds="NaN"),
        outcome(made[1], "abandon", delay_seconds="1e-400"),
        outcome(made[1], "retry", delay_seconds=0),
        outcome(made[1], "retry", max_attempts=-1),
        outcome(made[1], "retry", max_attempts=1.5),
        outcome(made[1], "retry", max_attempts=2**31),
        outcome(made[1], "retry", max_attempts="many"),
        outcome(made[1], "retry", max_attempts=""),
        outcome(made[1], "retry", max_attempts=True),
        outcome(made[1], "release", delay_seconds=-1),
        outcome(made[1], "release", delay_seconds=1e10),
        outcome(made[1], "release", delay_seconds=""),
        *(outcome(made[1], "retry", delay_seconds=value) for value in ([], [1], {}, {"a": 1})),
        *(outcome(made[1], "retry", max_attempts=value) for value in ([], [1], {}, {"a": 1})),
    ]
    for record in bad:
        accepted = True
        try:
            box.settle(OWNER, [outcome(made[0]), record], claim_batch=5)
        except InvalidArgument:
            accepted = False
        assert not accepted, record
        assert [box.status(message) for message in made] == [box.leased] * 2, record


def test_contract_settle_refuses_json_that_is_no_array_of_objects(box: Box) -> None:
    for text in ["{}", "1", '"x"', "null", "[1]", "[null]", '["ack"]', "[[]]"]:
        with refuses("outcomes"):
            box.settle(OWNER, text)
    assert box.count() == 0


def test_contract_settle_refuses_text_that_is_not_json(box: Box) -> None:
    for text in ["", "[", "[{]", "plain"]:
        with pytest.raises(InvalidArgument):
            box.settle(OWNER, text)
    assert box.count() == 0


def test_contract_settle_refuses_bad_arguments(box: Box) -> None:
    message = box.put()
    box.take()
    with refuses("outcomes"):
        box.settle(OWNER, None)
    for owner in (None, NIL):
        with refuses("owner_token"):
            box.settle(owner, [outcome(message)])
    for size in (-1, 10001, None):
        with refuses("claim_batch"):
            box.settle(OWNER, [outcome(message)], claim_batch=size)
    for seconds in (0, -1, 86401, None):
        with refuses("lease_seconds"):
            box.settle(OWNER, [outcome(message)], claim_batch=1, lease_seconds=seconds)
    assert box.status(message) == box.leased


def test_contract_settle_takes_five_thousand_records(box: Box) -> None:
    made = box.fill(5000)
    assert box.take(batch=10000) == made
    fates = ("ack", "release", "fail", "abandon")
    later = {"abandon": {"delay_seconds": 600}}  # longer than a busy machine takes for the rest of this test
    outcomes = [
        outcome(message, fate, error=f"e{n % 3}", **later.get(fate, {}))
        for n, message in enumerate(made)
        for fate in [fates[n % 4]]
    ]
    box.settle(OWNER, outcomes)
    rows = box.db.sql(f"SELECT status, count(*) AS n FROM {{schema}}.{box.name}_messages GROUP BY status")
    assert {row["status"]: row["n"] for row in rows} == {"Done": 1250, box.dead: 1250, box.waiting: 2500}
    assert len(box.take(OTHER, batch=5000)) == 1250


def test_obx_091_ibx_102_settle_is_undone_whole_with_its_transaction(box: Box) -> None:
    made = box.fill(4)
    assert box.take(batch=3) == made[:3]
    with box.db.session() as session:
        rows = box.on(session).settle(
            OWNER,
            [outcome(made[0]), outcome(made[1], "fail", error="e"), outcome(made[2], "release")],
            claim_batch=10,
        )
        assert ids(rows) == [made[3], made[2]]
        session.rollback()
    assert [box.get(message)["owner_token"] for message in made] == [OWNER, OWNER, OWNER, None]
    assert box.ack(OWNER, made) == 3


def test_contract_settle_moves_groups_on(box: Box) -> None:
    made = [box.put(group_id=group) for group in "aabb"]
    assert [box.take(batch=1), box.take(batch=1)] == [[made[0]], [made[2]]]
    rows = box.settle(OWNER, [outcome(made[0]), outcome(made[2], "fail", error="e")], claim_batch=2)
    assert sorted(ids(rows)) == [made[1], made[3]]


def test_contract_settle_keeps_long_errors(box: Box) -> None:
    error = 'a \\ "long" ü🐘\n' * 900
    made = [box.put(), box.put()]
    box.claim()
    records = [
        {"id": made[0], "result": "abandon", "error": error},
        {"id": made[1], "result": "fail", "error": error},
    ]
    box.settle(OWNER, records)
    assert [box.get(message)["last_error"] for message in made] == [error, error]
