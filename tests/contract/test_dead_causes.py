"""Dead letters by topic and cause: one fault is one row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.contract.causes import CAUSES, cause_of, random_errors
from tests.contract.support import HOSTILE, OWNER, Box, Row, by_position, columns, ids, refuses, server_now

COLUMNS = ["topic", "cause", "messages", "oldest_died_at", "newest_died_at", "sample_id"]


def causes(box: Box, **filters: Any) -> list[Row]:
    """The rows of the routine."""
    rows = box.call("dead_causes", **filters)
    assert all(list(row) == COLUMNS for row in rows)
    return rows


def die(box: Box, error: str, topic: str = "t") -> int:
    """A message that died of this."""
    message = box.put(topic)
    assert box.take() == [message]
    assert box.fail(OWNER, [message], error) == 1
    return message


def causes_of(box: Box, errors: Sequence[str]) -> dict[str, str]:
    """The cause of each error."""
    made = ids(box.enqueue_many(*[box.record(f"t{number}") for number in range(len(errors))]))
    assert sorted(box.take(batch=1000)) == made
    outcomes = [
        {"id": message, "result": "fail", "error": error} for message, error in zip(made, errors, strict=True)
    ]
    box.settle(OWNER, outcomes)
    found = {row["topic"]: row["cause"] for row in causes(box, limit=1000)}
    return {error: found[f"t{number}"] for number, error in enumerate(errors)}


def test_contract_an_error_becomes_the_same_cause_in_both_dialects(outbox: Box) -> None:
    got = causes_of(outbox, list(CAUSES))
    assert {error: cause for error, cause in got.items() if cause != CAUSES[error]} == {}
    assert {error: cause_of(error) for error in CAUSES} == CAUSES, "so does the model"


def test_contract_any_error_becomes_the_cause_that_the_rules_say(outbox: Box) -> None:
    got = causes_of(outbox, random_errors(400))
    wrong = {
        error: (cause, cause_of(error))
        for error, cause in got.items()
        if cause != (cause_of(error) or outbox.dead)
    }
    assert wrong == {}


def test_contract_one_fault_is_one_row_with_its_count_and_times(box: Box) -> None:
    first = die(box, f"order 1 of {uuid4()} at 0xdead0001 not found\n1")
    box.db.advance(100)
    middle = die(box, f"order 234 of {uuid4()} at 0x7f not found\n2")
    other = die(box, "it failed")
    elsewhere = die(box, "order 5 of 6 at 7 not found", topic="u")
    rows = causes(box)
    assert [(row["topic"], row["cause"], row["messages"]) for row in rows] == [
        ("t", "order # of # at # not found", 2),
        ("u", "order # of # at # not found", 1),
        ("t", "it failed", 1),
    ]
    assert [row["sample_id"] for row in rows] == [middle, elsewhere, other]
    assert rows[0]["oldest_died_at"] == box.get(first)["died_at"]
    assert rows[0]["newest_died_at"] == box.get(middle)["died_at"]
    assert causes(box, limit=1) == rows[:1]
    assert box.affected("discard", ids=[first, middle]) == 2
    assert causes(box) == rows[1:]


def test_contract_a_reason_is_a_cause_and_so_is_a_status_without_one(box: Box) -> None:
    made = [box.put() for _ in range(4)]
    assert box.cancel(made[:2], "order 5 withdrawn") == 2
    assert box.cancel(made[2:3]) == 1
    assert box.take() == made[3:]
    assert box.retry(OWNER, made[3:], max_attempts=1) == (1, 1)
    found = {row["cause"]: row["messages"] for row in causes(box)}
    assert found == {"order # withdrawn": 2, "Cancelled": 1, box.dead: 1}


def test_contract_an_expired_message_has_its_status_or_its_last_error(box: Box) -> None:
    soon = server_now(box.db) + timedelta(seconds=50)
    tried = box.put(expires_at=soon)
    assert box.take() == [tried]
    assert box.abandon(OWNER, [tried], last_error="busy 5", delay_seconds=1) == 1
    box.put(expires_at=soon)
    box.db.advance(100)
    assert box.take() == []
    assert {row["cause"] for row in causes(box)} == {"Expired", "busy #"}


def test_contract_a_dead_message_without_topic_is_counted_too(inbox: Box) -> None:
    for number in range(2):
        inbox.one("already_processed", message_id=f"m{number}", source="s", hash=None)
        assert inbox.affected("mark_dead", message_id=f"m{number}", source="s") == 1
    (row,) = causes(inbox)
    assert (row["topic"], row["cause"], row["messages"]) == (None, "Dead", 2)


def test_contract_causes_of_hostile_errors_and_topics_never_fail(box: Box) -> None:
    for number, text in enumerate(HOSTILE):
        die(box, text, topic=text)
        die(box, HOSTILE[-number - 1] * 90, topic=text)
    rows = causes(box)
    assert {row["topic"] for row in rows} == set(HOSTILE)
    assert sum(row["messages"] for row in rows) == 2 * len(HOSTILE)
    assert all(len(row["cause"]) <= 200 for row in rows)


def test_contract_the_last_five_thousand_are_read_and_a_row_says_that_there_are_more(outbox: Box) -> None:
    old = [die(outbox, "old"), die(outbox, "older")]
    outbox.db.advance(100)
    made: list[int] = []
    for _ in range(2):
        outbox.call("enqueue_payloads", topic="t", payloads=["p"] * 2_500)
        made = outbox.take(batch=10_000)
        assert outbox.fail(OWNER, made, "new") == 2_500
    (row, marker) = causes(outbox)
    assert (row["cause"], row["messages"]) == ("new", 5_000)
    assert {name for name in COLUMNS if marker[name] is not None} == {"cause", "newest_died_at"}
    assert marker["cause"] == "older ones, not looked at"
    assert marker["newest_died_at"] == outbox.get(old[1])["died_at"]
    assert causes(outbox, limit=1) == [row, marker], "whatever the limit"
    assert outbox.affected("discard", ids=made[:2]) == 2
    assert [(row["cause"], row["messages"]) for row in causes(outbox)] == [
        ("new", 4_998),
        ("older", 1),
        ("old", 1),
    ]


def test_contract_dead_causes_refuse_bad_arguments(box: Box) -> None:
    for limit in (0, -1, 10_001, 2**31 - 1, None):
        with refuses("limit"):
            causes(box, limit=limit)
    assert causes(box) == []


def test_contract_dead_causes_have_their_shape(every_box: Box) -> None:
    assert columns(every_box.db, f"{every_box.name}_dead_causes", 5) == COLUMNS
    every_box.made_dead()
    assert len(by_position(every_box.db, f"{every_box.name}_dead_causes", 1)) == 1


@pytest.mark.dialect("postgres")
def test_contract_a_session_where_backslashes_escape_reads_the_same(outbox: Box) -> None:
    """Old programs switch standard_conforming_strings off; that must not change a routine's text."""
    made = [die(outbox, error) for error in (r"C:\data\1 is not there", "order 5 not found")]
    with outbox.db.session() as session:
        old = outbox.on(session)
        session.sql("SET standard_conforming_strings = off")
        session.sql("SET escape_string_warning = off")
        assert {row["cause"] for row in causes(old)} == {"<path> is not there", "order # not found"}
        assert ids(old.call("dead_letter_causes")) == made
        there = {(row["check"], row["subject"], row["level"]) for row in session.call("doctor")}
    assert there == {(row["check"], row["subject"], row["level"]) for row in outbox.db.call("doctor")}
