"""Settle with records that name several messages at once: `ids` in place of `id`."""

from __future__ import annotations

from datetime import timedelta

from pysqlbox.errors import InvalidArgument
from tests.contract.support import OTHER, OWNER, Box, Row, ids, server_now


def outcome(messages: object, result: object = "ack", **more: object) -> Row:
    """A record of several messages."""
    return {"ids": messages, "result": result} | more


def test_contract_a_record_may_name_several_messages(box: Box) -> None:
    made = box.fill(10)
    assert box.take() == made
    before = server_now(box.db)
    rows = box.settle(
        OWNER,
        [
            outcome(made[:3]),
            outcome(made[3:5], "fail", error="never"),
            outcome(made[5:7], "abandon", error="later", delay_seconds=500),
            outcome(made[7:9], "release"),
            {"id": made[9], "result": "ack"},
        ],
        claim_batch=10,
    )
    assert ids(rows) == made[7:9]
    waiting = [box.waiting] * 2
    held = [box.leased] * 2
    shown = [box.status(message) for message in made]
    assert shown == ["Done"] * 3 + [box.dead] * 2 + waiting + held + ["Done"]
    for message in made[5:7]:
        row = box.get(message)
        assert (row["last_error"], row["attempt"]) == ("later", 1)
        assert row["due_at"] - before >= timedelta(seconds=499)
    assert [box.get(message)["last_error"] for message in made[3:5]] == ["never"] * 2


def test_contract_the_first_record_of_an_id_counts_whichever_way_it_is_named(box: Box) -> None:
    made = box.fill(4)
    box.take()
    box.settle(
        OWNER,
        [
            outcome([made[0], made[1], made[0]]),
            {"id": made[1], "result": "release"},
            {"id": made[2], "result": "release"},
            outcome([made[2], made[3]], "fail", error="e"),
            outcome([made[3], made[0]]),
        ],
    )
    assert [box.status(message) for message in made] == ["Done", "Done", box.waiting, box.dead]


def test_contract_ids_that_the_worker_does_not_hold_are_passed_over(box: Box) -> None:
    made = box.fill(3)
    assert box.take(OWNER, batch=1) == made[:1]
    assert box.take(OTHER, batch=1) == made[1:2]
    box.settle(OWNER, [outcome([*made, 10**15, -1, 0])])
    assert [box.status(message) for message in made] == ["Done", box.leased, box.waiting]


def test_contract_a_record_of_no_ids_does_nothing(box: Box) -> None:
    made = box.fill(2)
    box.take()
    assert box.settle(OWNER, [outcome([]), outcome(made[:1]), outcome([], "fail", error="e")]) == []
    assert [box.status(message) for message in made] == ["Done", box.leased]


def test_contract_malformed_ids_are_refused_and_nothing_is_settled(box: Box) -> None:
    made = box.fill(2)
    box.take()
    bad: list[Row] = [
        outcome("x"),
        outcome(str(made[1])),
        outcome({"id": made[1]}),
        outcome([made[1], None]),
        outcome([made[1], "x"]),
        outcome([made[1], 1.5]),
        outcome([made[1], 10**20]),
        outcome([[made[1]]]),
        outcome([made[1]], None),
        outcome([made[1]], "done"),
        outcome([made[1]], "fail"),
        outcome([made[1]], "abandon", delay_seconds=0),
        outcome([], "done"),
        outcome(None),
        outcome([made[1]], id=made[1]),
    ]
    for record in bad:
        accepted = True
        try:
            box.settle(OWNER, [outcome(made[:1]), record], claim_batch=5)
        except InvalidArgument:
            accepted = False
        assert not accepted, record
        assert [box.status(message) for message in made] == [box.leased] * 2, record


def test_contract_ids_of_groups_move_their_groups_on(box: Box) -> None:
    made = [box.put(group_id=group) for group in "aabb"]
    assert [box.take(batch=1), box.take(batch=1)] == [[made[0]], [made[2]]]
    rows = box.settle(OWNER, [outcome([made[2], made[0]])], claim_batch=2)
    assert sorted(ids(rows)) == [made[1], made[3]]


def test_contract_one_record_takes_five_thousand_ids(box: Box) -> None:
    made = box.fill(5000)
    assert box.take(batch=10000) == made
    box.settle(OWNER, [outcome(made[:4000]), outcome(made[4000:], "release")])
    rows = box.db.sql(f"SELECT status, count(*) AS n FROM {{schema}}.{box.name}_messages GROUP BY status")
    assert {row["status"]: row["n"] for row in rows} == {"Done": 4000, box.waiting: 1000}
