"""Arguments and results, the same in both dialects."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from pysqlbox.drivers.values import from_database, is_list, is_records, to_json, to_utc
from pysqlbox.errors import InvalidArgument

WHEN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=2)))


def test_times_are_aware_and_utc() -> None:
    """Going in and coming out; a naive one means nobody's clock."""
    assert to_utc("due_at", WHEN).isoformat() == "2026-01-02T01:04:05.678901+00:00"
    assert from_database(datetime(2026, 1, 2)) == datetime(2026, 1, 2, tzinfo=UTC)
    assert from_database(WHEN) == WHEN
    with pytest.raises(InvalidArgument, match="due_at: must be an aware datetime"):
        to_utc("due_at", datetime(2026, 1, 2))
    for edge, hours in ((datetime.min, 1), (datetime.max, -1)):
        with pytest.raises(InvalidArgument, match="due_at: must be of the years 1 to 9999 in UTC"):
            to_utc("due_at", edge.replace(tzinfo=timezone(timedelta(hours=hours))))


def test_json() -> None:
    """What JSON has no word for is written as text."""
    identity = uuid.UUID(int=1)
    text = to_json("messages", [{"a": identity, "b": WHEN, "c": Decimal("1.5"), "d": b"\x00\xff", "e": "é"}])
    assert text == (
        '[{"a": "00000000-0000-0000-0000-000000000001", "b": "2026-01-02T01:04:05.678901+00:00",'
        ' "c": "1.5", "d": "00ff", "e": "é"}]'
    )
    for value in (float("nan"), object(), {1, 2}):
        with pytest.raises(InvalidArgument, match="messages: must hold only"):
            to_json("messages", [{"a": value}])


def test_kinds() -> None:
    """Records, lists, and what is neither."""
    assert is_records("x", [{}])
    assert is_records("x", {})
    assert not is_records("ids", [1])
    assert is_records("messages", [])
    assert is_list((1, 2))
    assert not is_list("ab")
    assert not is_list(b"ab")
    assert from_database(bytearray(b"a")) == b"a"
