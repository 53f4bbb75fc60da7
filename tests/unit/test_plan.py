"""What is handled together, and in which order."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pysqlbox.worker.plan import plan
from tests.unit.standins import Parts, message


def planned(parts: Parts, *messages: Any) -> tuple[list[list[int]], bool]:
    """The ids of each assignment, and whether there were groups."""
    found, grouped = plan(parts.box, list(messages), time.monotonic())
    return [[each.id for each in assignment.held()] for assignment in found], grouped


def batching(*topics: str) -> Parts:
    """Handlers that take lists."""
    parts = Parts()
    for topic in topics:
        parts.handler(topic, lambda _messages: None, batch=True)
    return parts


def test_slow_ones_are_each_by_itself() -> None:
    parts = Parts()
    parts.box.note_cost(1.0)
    assert planned(parts, message(1), message(2)) == ([[1], [2]], False)


def test_quick_ones_are_together() -> None:
    """But none waits for another."""
    parts = Parts()
    parts.box.note_cost(1e-6)
    found, _ = plan(parts.box, [message(1), message(2)], time.monotonic())
    assert [(len(each.held()), each.loose) for each in found] == [(2, True)]
    (alone,), _ = plan(parts.box, [message(1)], time.monotonic())
    assert not alone.loose


def test_where_there_are_coroutines_each_is_by_itself() -> None:
    """They run side by side however quick they are."""
    parts = Parts()

    async def handle(_message: Any) -> None:
        """Never runs."""

    parts.handler("t", handle)
    parts.box.note_cost(1e-6)
    assert planned(parts, message(1), message(2)) == ([[1], [2]], False)


def test_a_groups_messages_are_in_order_in_one() -> None:
    """Also where all are quick, and where another's lie between them."""
    parts = Parts()
    parts.box.note_cost(1e-6)
    claimed = [message(1, group_id="g"), message(2), message(3, group_id="g"), message(4, group_id="h")]
    assert planned(parts, *claimed) == ([[1, 3], [2], [4]], True)
    found, _ = plan(parts.box, claimed, time.monotonic())
    assert not any(each.loose for each in found)


def test_a_batch_is_all_of_its_topic() -> None:
    parts = batching("a", "b")
    parts.handler("single", lambda _message: None)
    claimed = [message(1, "a"), message(2, "single"), message(3, "b"), message(4, "a"), message(5, "none")]
    assert planned(parts, *claimed) == ([[1, 4], [2], [3], [5]], False)
    found, _ = plan(parts.box, claimed, time.monotonic())
    assert [each._together for each in found] == [True, False, True, False]


def test_a_group_of_one_batch_handler_joins_its_batch() -> None:
    parts = batching("a")
    claimed = [message(1, "a"), message(2, "a", group_id="g"), message(3, "a"), message(4, "a", group_id="g")]
    assert planned(parts, *claimed) == ([[1, 2, 4, 3]], True)


@pytest.mark.parametrize("other", ["b", "single", "none"])
def test_a_group_of_several_topics_joins_no_batch(other: str) -> None:
    """Its second message waits for the first one's result."""
    parts = batching("a", "b")
    parts.handler("single", lambda _message: None)
    claimed = [message(1, "a"), message(2, "a", group_id="g"), message(3, other, group_id="g")]
    assert planned(parts, *claimed) == ([[1], [2, 3]], True)
