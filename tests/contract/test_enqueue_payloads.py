"""Producing many messages that differ only in their payloads."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pysqlbox.errors import PysqlboxError
from tests.contract.support import (
    HOSTILE,
    OWNER,
    Box,
    Row,
    by_position,
    check_books,
    columns,
    headers_of,
    ids,
    refuses,
    server_now,
)


def put(box: Box, payloads: object, topic: object = "t", **more: object) -> list[Row]:
    """The routine's rows."""
    return box.call("enqueue_payloads", topic=topic, payloads=payloads, **more)


def test_contract_payloads_answer_one_row_each_in_their_order(outbox: Box) -> None:
    before = outbox.put()
    rows = put(outbox, [str(number) for number in range(25)])
    assert list(rows[0]) == ["ordinal", "id", "message_id"]
    assert [row["ordinal"] for row in rows] == list(range(1, 26))
    assert ids(rows) == sorted(ids(rows))
    assert len({row["message_id"] for row in rows}) == 25
    claimed = outbox.claim(batch_size=100)
    assert ids(claimed) == [before, *ids(rows)]
    assert [row["payload"] for row in claimed[1:]] == [str(number) for number in range(25)]
    assert [row["message_id"] for row in claimed[1:]] == [row["message_id"] for row in rows]
    assert outbox.ack(OWNER, ids(rows)) == 25
    check_books(outbox)


def test_contract_very_many_payloads_are_claimed_in_order_by_any_batch(outbox: Box) -> None:
    rows = put(outbox, [str(number) for number in range(700)])
    taken = [message for batch in (3, 200, 1, 496) for message in outbox.take(batch=batch)]
    assert taken == ids(rows)
    assert outbox.one("find", message_id=rows[333]["message_id"])["payload"] == "333"


def test_contract_payloads_share_every_other_argument(outbox: Box) -> None:
    expires = server_now(outbox.db) + timedelta(days=1)
    rows = put(
        outbox, ["1", "2"], "shared", correlation_id="c", priority=-3, expires_at=expires, headers={"a": [1]}
    )
    for row in rows:
        shown = outbox.get(row["id"])
        assert headers_of(shown) == {"a": [1]}
        expected = {"topic": "shared", "correlation_id": "c", "priority": -3, "expires_at": expires}
        assert {name: shown[name] for name in expected} == expected
    outbox.db.advance(100_000)
    assert outbox.take() == []
    assert {outbox.status(row["id"]) for row in rows} == {"Expired"}


def test_contract_payloads_for_later_wait_for_their_time(outbox: Box) -> None:
    rows = put(outbox, ["1", "2"], due_at=server_now(outbox.db) + timedelta(seconds=500))
    past = put(outbox, ["3"], due_at=server_now(outbox.db) - timedelta(seconds=5))
    assert outbox.take() == ids(past)
    assert outbox.ack(OWNER, ids(past)) == 1
    assert outbox.stats()[None]["scheduled"] == 2
    outbox.db.advance(600)
    assert sorted(outbox.take()) == ids(rows)


def test_contract_payloads_of_high_priority_come_first(outbox: Box) -> None:
    low, plain, high = (put(outbox, ["1", "2"], priority=priority) for priority in (-1, None, 7))
    assert outbox.take() == ids([*high, *plain, *low])


def test_contract_hostile_payloads_come_back_as_they_were(outbox: Box) -> None:
    texts = [text for text in HOSTILE if "\x00" not in text] + [
        "",
        "x" * 100_000 + "😀",
        " ",
        '["a"]',
        "null",
    ]
    rows = put(outbox, texts)
    assert [row["payload"] for row in outbox.claim(batch_size=len(rows))] == texts


def test_contract_no_payloads_is_a_no_op(outbox: Box) -> None:
    assert put(outbox, []) == []
    assert outbox.count() == 0
    assert columns(outbox.db, f"{outbox.name}_enqueue_payloads", "t", []) == ["ordinal", "id", "message_id"]


def test_contract_payloads_take_their_arguments_by_position(outbox: Box) -> None:
    rows = by_position(outbox.db, f"{outbox.name}_enqueue_payloads", "t", ["1"], "correlation")
    assert outbox.get(rows[0]["id"])["correlation_id"] == "correlation"


BAD: dict[str, tuple[str, Row]] = {
    "null payloads": ("payloads", {"payloads": None}),
    "a null among them": ("payloads", {"payloads": ["a", None]}),
    "null topic": ("topic", {"topic": None}),
    "empty topic": ("topic", {"topic": ""}),
    "long topic": ("topic", {"topic": "x" * 256}),
    "long correlation": ("correlation_id", {"correlation_id": "x" * 256}),
    "priority": ("priority", {"priority": 32768}),
    "headers array": ("headers", {"headers": "[1]"}),
}


@pytest.mark.parametrize("name", BAD)
def test_contract_payloads_are_refused_with_bad_arguments(outbox: Box, name: str) -> None:
    argument, change = BAD[name]
    with refuses(argument):
        outbox.call("enqueue_payloads", **{"topic": "t", "payloads": ["a"], **change})
    assert outbox.count() == 0


@pytest.mark.dialect("mssql")
@pytest.mark.parametrize("text", ["{}", '"a"', "1", "null", "", "[", "[1]", "[{}]", "[[]]", '{"a": ["b"]}'])
def test_contract_payloads_that_are_no_json_array_of_texts_are_refused(outbox: Box, text: str) -> None:
    with refuses("payloads"):
        outbox.call("enqueue_payloads", topic="t", payloads=text)


@pytest.mark.dialect("postgres")
def test_contract_payloads_in_two_dimensions_are_refused(outbox: Box) -> None:
    with refuses("payloads"):
        outbox.call("enqueue_payloads", topic="t", payloads=[["a"], ["b"]])


def test_contract_payloads_roll_back_with_the_transaction(outbox: Box) -> None:
    with outbox.db.session() as session:
        rows = outbox.on(session).call("enqueue_payloads", topic="t", payloads=["a", "b"])
        assert len(rows) == 2
        session.rollback()
    assert outbox.count() == 0
    with pytest.raises(PysqlboxError):
        outbox.get(rows[0]["id"])
