"""Arguments as Python gives them, before the database sees them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from uuid import UUID

import pytest

from pysqlbox import InvalidArgument
from pysqlbox.arguments import (
    aware,
    delay,
    given,
    headers,
    id_list,
    integer,
    outcome_list,
    text_list,
    time_ordered_uuid,
    uuid_of,
    whole_seconds,
)
from pysqlbox.records import Records


class Nowhere(tzinfo):
    """A time zone that cannot say what it means."""

    def utcoffset(self, _: datetime | None) -> timedelta | None:
        return None

    def dst(self, _: datetime | None) -> timedelta | None:
        return None

    def tzname(self, _: datetime | None) -> str | None:
        return None


def test_times() -> None:
    at = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    assert aware("due_at", at) is at
    assert aware("due_at", None) is None
    for wrong in (datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=Nowhere()), "2026-01-01T00:00:00Z", 1.5):
        with pytest.raises(InvalidArgument, match="due_at: must be an aware datetime"):
            aware("due_at", wrong)


def test_lengths_of_time() -> None:
    assert delay("delay_seconds", timedelta(milliseconds=1500)) == 1.5
    assert delay("delay_seconds", 3) == 3
    assert delay("delay_seconds", None) is None
    assert whole_seconds("lease_seconds", timedelta(minutes=1)) == 60
    assert whole_seconds("lease_seconds", 30.0) == 30
    for wrong in (True, "5", float("nan"), float("inf")):
        with pytest.raises(InvalidArgument, match="delay_seconds"):
            delay("delay_seconds", wrong)  # type: ignore[arg-type]  # that is the test
    for fraction in (0.5, timedelta(milliseconds=1500)):
        with pytest.raises(InvalidArgument, match="must be whole seconds"):
            whole_seconds("lease_seconds", fraction)


def test_lists() -> None:
    assert id_list("ids", {1: "a", 2: "b"}) == [1, 2]
    assert id_list("ids", range(3)) == [0, 1, 2]
    assert id_list("ids", None) is None
    assert text_list("topics", ("a", "b")) == ["a", "b"]
    assert text_list("topics", None) is None
    for wrong in ("12", b"1", 1, ["1"], [True], [None]):
        with pytest.raises(InvalidArgument, match="ids: must be a list of ids"):
            id_list("ids", wrong)  # type: ignore[arg-type]  # that is the test
    for no_topics in ("orders", [1], [None]):
        with pytest.raises(InvalidArgument, match="topics: must be a list of topics"):
            text_list("topics", no_topics)  # type: ignore[arg-type]  # that is the test


def test_numbers_and_uuids() -> None:
    assert integer("priority", 3) == 3
    assert integer("priority", None) is None
    for wrong in (True, "3", 3.0):
        with pytest.raises(InvalidArgument, match="priority: must be a whole number"):
            integer("priority", wrong)  # type: ignore[arg-type]  # that is the test
    one = UUID(int=1)
    assert uuid_of("join_id", one) is one
    assert uuid_of("join_id", str(one)) == one
    assert uuid_of("join_id", None) is None
    for no_uuid in ("x", 1, b"x"):
        with pytest.raises(InvalidArgument, match="join_id: must be a uuid"):
            uuid_of("join_id", no_uuid)  # type: ignore[arg-type]  # that is the test


def test_headers() -> None:
    assert headers({"a": 1}) == {"a": 1}
    assert headers('{"a": 1}') == {"a": 1}
    assert headers(None) is None
    for wrong in ("{", "[1]", "null", [1]):
        with pytest.raises(InvalidArgument, match="headers"):
            headers(wrong)  # type: ignore[arg-type]  # that is the test


def test_outcomes() -> None:
    records = outcome_list([{"id": 1, "result": "abandon", "delay_seconds": timedelta(seconds=2)}])
    assert records == [{"id": 1, "result": "abandon", "delay_seconds": 2.0}]
    assert outcome_list(None) is None
    for wrong in ("x", {"id": 1}, [1]):
        with pytest.raises(InvalidArgument, match="outcomes"):
            outcome_list(wrong)  # type: ignore[arg-type]  # that is the test


def test_only_what_is_given_is_sent() -> None:
    assert given({"a": None}, {"b": None, "c": 0, "d": ""}) == {"a": None, "c": 0, "d": ""}


def test_records_are_copied() -> None:
    class Text:
        def dumps(self, value: object) -> str:
            return str(value)

    records = Records(required=("topic", "payload"), optional=("hash", "headers", "due_at"))
    original = {"topic": "t", "payload": 5, "hash": b"\x01", "headers": '{"a": 1}'}
    assert records.read([original], Text()) == [
        {"topic": "t", "payload": "5", "hash": "01", "headers": {"a": 1}}
    ]
    assert original["payload"] == 5
    assert records.read(None, Text()) is None
    with pytest.raises(InvalidArgument, match="due_at"):
        records.read([{"topic": "t", "payload": "p", "due_at": datetime(2026, 1, 1)}], Text())


def test_drawn_ids_are_in_the_order_of_time() -> None:
    before = time.time_ns() // 1_000_000
    drawn = [time_ordered_uuid() for _ in range(1000)]
    assert len(set(drawn)) == 1000
    assert {(each.version, each.variant) for each in drawn} == {(7, "specified in RFC 4122")}
    times = [each.int >> 80 for each in drawn]
    assert times == sorted(times)
    assert before <= times[0] <= times[-1] <= time.time_ns() // 1_000_000
    assert datetime.fromtimestamp(times[0] / 1000, UTC).year >= 2024
