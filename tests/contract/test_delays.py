"""An enqueue's delay_seconds: a due time by the server's clock."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal

import pytest

from pysqlbox.errors import InvalidArgument
from tests.contract.support import Box, Row, by_position, refuses, server_now, unreadable

MARGIN = timedelta(milliseconds=20)
"""How far the server's clock, asked before and after a call, may be from what the call saw."""


@pytest.mark.parametrize("delay", [1, 90.25, Decimal("1234.5"), Decimal("0.002"), 1000000000])
@pytest.mark.parametrize(
    "more", [{}, {"group_id": "g"}, {"collapse_key": "c"}], ids=["plain", "group", "key"]
)
def test_contract_a_delay_is_a_due_time_by_the_servers_clock(box: Box, more: Row, delay: float) -> None:
    before = server_now(box.db)
    message = box.put(delay_seconds=delay, **more)
    after = server_now(box.db)
    due = box.get(message)["due_at"] - timedelta(seconds=float(delay))
    assert before - MARGIN <= due <= after + MARGIN


def test_contract_a_delayed_message_comes_after_its_delay(box: Box) -> None:
    later, soon, now = box.put(delay_seconds=100.5), box.put(delay_seconds=10), box.put()
    assert box.take(lease=10000) == [now]
    box.db.advance(20)
    assert box.take(lease=10000) == [soon]
    box.db.advance(60)
    assert box.take(lease=10000) == []
    box.db.advance(40)
    assert box.take(lease=10000) == [later]


def test_contract_a_delay_of_nothing_is_now(box: Box) -> None:
    made = [box.put(delay_seconds=0), box.put(delay_seconds=None), *box.fill(2, delay_seconds=0)]
    rows = box.claim()
    assert [row["id"] for row in rows] == made
    assert [row["due_at"] for row in rows] == [None] * 4


def test_contract_a_delay_moves_with_the_clock_that_routines_ask(box: Box) -> None:
    box.db.advance(5000)
    message = box.put(delay_seconds=50)
    (listed,) = box.enqueue_many(box.record(delay_seconds=50))
    assert box.take(lease=10000) == []
    box.db.advance(60)
    assert box.take(lease=10000) == [message, listed["id"]]


def test_contract_records_have_delays_of_their_own(box: Box) -> None:
    before = server_now(box.db)
    due = before + timedelta(seconds=700)
    records = [
        box.record(),
        box.record(delay_seconds=30),
        box.record(delay_seconds=200.25, group_id="g"),
        box.record(due_at=due),
        box.record(delay_seconds=0),
        box.record(delay_seconds=None),
        box.record(delay_seconds="40"),
        box.record(delay_seconds=1e-1),
    ]
    made = [row["id"] for row in box.enqueue_many(*records)]
    after = server_now(box.db)
    assert box.take(lease=10000)[:3] == [made[0], made[4], made[5]]
    for place, seconds in ((1, 30), (2, 200.25), (6, 40), (7, 0.1)):
        found = box.get(made[place])["due_at"] - timedelta(seconds=seconds)
        assert before - MARGIN <= found <= after + MARGIN
    assert abs(box.get(made[3])["due_at"] - due) < timedelta(milliseconds=1)
    box.db.advance(100)
    assert set(box.take(lease=10000)) >= {made[1], made[6]}
    box.db.advance(200)
    assert box.take(lease=10000) == [made[2]]


def test_contract_seconds_may_have_an_exponent_in_a_record(box: Box) -> None:
    before = server_now(box.db)
    records = json.dumps([box.record()])[:-2] + ', "delay_seconds": 1.5E2}]'
    (made,) = box.call("enqueue_many", messages=records)
    waits = box.get(made["id"])["due_at"] - before
    assert timedelta(seconds=149) < waits < timedelta(seconds=160)


def test_contract_five_hundred_records_with_delays(box: Box) -> None:
    made = [
        row["id"] for row in box.enqueue_many(*(box.record(delay_seconds=n % 5 * 100) for n in range(500)))
    ]
    assert box.take(batch=1000, lease=10000) == made[::5]
    box.db.advance(150)
    assert sorted(box.take(batch=1000, lease=10000)) == made[1::5]


def test_contract_a_delay_goes_without_due_at(box: Box) -> None:
    for delay in (0, 5):
        with refuses("delay_seconds"):
            box.enqueue(due_at=server_now(box.db), delay_seconds=delay)
        with pytest.raises(InvalidArgument):
            box.enqueue_many(box.record(), box.record(due_at=server_now(box.db), delay_seconds=delay))
    assert box.count() == 0


def test_contract_a_delay_is_from_0_to_1000000000(box: Box) -> None:
    for delay in (-1, -0.001, 1000000001, 1000000000.001):
        with refuses("delay_seconds"):
            box.enqueue(delay_seconds=delay)
        with refuses("delay_seconds"):
            box.enqueue_many(box.record(), box.record(delay_seconds=delay))
    assert box.count() == 0


def test_contract_a_delay_is_a_number(box: Box) -> None:
    for delay in ("NaN", "Infinity", "-Infinity", "soon", "", "1e400", 10**18):
        with unreadable(box.db):
            box.enqueue(delay_seconds=delay)
        with pytest.raises(InvalidArgument):
            box.enqueue_many(box.record(), box.record(delay_seconds=delay))
    with pytest.raises(InvalidArgument):
        box.enqueue_many(box.record(), box.record(delay_seconds=True))
    assert box.count() == 0


@pytest.mark.dialect("postgres")
def test_contract_every_kind_of_number_is_taken(box: Box) -> None:
    """PostgreSQL finds a function by its arguments' types."""
    arguments = "topic => 't', payload => 'p'"
    if box.kind == "inbox":
        arguments += ", source => 's', message_id => %s"
    for number, value in enumerate(
        ("5", "5.5", "'5'", "5::bigint", "5::smallint", "5::real", "5::float8", "5::numeric")
    ):
        given = (str(number),) if box.kind == "inbox" else ()
        box.db.sql(
            f"SELECT * FROM {{schema}}.{box.name}_enqueue({arguments}, delay_seconds => {value})", *given
        )
    assert box.take(lease=10000) == []
    box.db.advance(10)
    assert len(box.take(lease=10000)) == 8


def test_ibx_029_a_repeated_message_takes_its_new_delay(inbox: Box) -> None:
    record = inbox.record()
    first = inbox.enqueue(**record)
    again = inbox.enqueue(**record, delay_seconds=100)
    assert (again["id"], again["outcome"]) == (first["id"], "updated")
    assert inbox.take(lease=10000) == []
    inbox.db.advance(50)
    assert inbox.enqueue(**record, delay_seconds=0)["outcome"] == "updated"
    assert inbox.take(lease=10000) == [first["id"]]


def test_contract_a_delayed_duplicate_leaves_the_first_as_it_is(outbox: Box) -> None:
    first = outbox.enqueue(dedup_key="k")
    again = outbox.enqueue(dedup_key="k", delay_seconds=100)
    assert (again["id"], again["outcome"]) == (first["id"], "duplicate")
    assert outbox.take(lease=10000) == [first["id"]]


def test_contract_a_delay_is_the_last_argument(box: Box) -> None:
    if box.kind == "inbox":
        values: list[object] = ["t", "s", "m", "p", None, None, None, 0, None, None, None, None]
    else:
        values = ["t", "p", None, None, None, None, 0, None, None, None, None, None]
    (row,) = by_position(box.db, f"{box.name}_enqueue", *values, Decimal("50"))
    assert box.take(lease=10000) == []
    box.db.advance(60)
    assert box.take(lease=10000) == [row["id"]]
