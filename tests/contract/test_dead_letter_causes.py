"""Dead letters, each with its cause: which ones a row of dead_causes stands for."""

from __future__ import annotations

from tests.contract.causes import CAUSES, random_errors
from tests.contract.support import HOSTILE, OWNER, Box, ids, refuses


def kill(box: Box, *errors: str, topic: str = "t") -> list[int]:
    """Messages that died of these."""
    made = ids(box.enqueue_many(*[box.record(topic) for _ in errors]))
    assert sorted(box.take(batch=1000)) == made
    outcomes = [
        {"id": message, "result": "fail", "error": error} for message, error in zip(made, errors, strict=True)
    ]
    box.settle(OWNER, outcomes)
    return made


def test_each_has_the_cause_that_the_overview_counts(box: Box) -> None:
    errors = [*CAUSES, *HOSTILE, *random_errors(60)]
    made = kill(box, *errors)
    counted = {row["cause"]: row["messages"] for row in box.call("dead_causes", limit=10000)}
    found = box.call("dead_letter_causes", limit=10000)
    assert [row["id"] for row in found] == made
    assert {row["topic"] for row in found} == {"t"}
    for cause, messages in counted.items():
        assert sum(row["cause"] == cause for row in found) == messages, cause
    assert {row["cause"] for row in found} == set(counted)
    known = dict(zip(made, errors, strict=True))
    for row in found:
        if known[row["id"]] in CAUSES:
            assert row["cause"] == CAUSES[known[row["id"]]]


def test_pages_follow_one_another_within_a_topic(box: Box) -> None:
    first = kill(box, *["order 1 is gone"] * 5, topic="a")
    others = kill(box, *["order 2 is gone"] * 3, topic="b")
    last = kill(box, *["order 3 is late"] * 2, topic="a")
    assert [row["id"] for row in box.call("dead_letter_causes")] == first + others + last
    seen: list[object] = []
    after = 0
    while rows := box.call("dead_letter_causes", limit=3, after_id=after, topic="a"):
        seen += [(row["id"], row["cause"]) for row in rows]
        after = rows[-1]["id"]
    assert seen == [(id, "order # is gone") for id in first] + [(id, "order # is late") for id in last]
    assert box.call("dead_letter_causes", topic="A") == []
    assert box.call("dead_letter_causes", topic="a ") == []


def test_without_an_error_it_is_the_status(box: Box) -> None:
    made = box.put()
    box.call("cancel", ids=[made])
    assert box.one("dead_letter_causes")["cause"] == "Cancelled"


def test_what_is_replayed_is_not_among_them(box: Box) -> None:
    first, second = kill(box, "a", "b")
    box.call("replay", ids=[first])
    assert [row["id"] for row in box.call("dead_letter_causes")] == [second]


def test_limits(box: Box) -> None:
    for limit in (0, 10001, None):
        with refuses("limit"):
            box.call("dead_letter_causes", limit=limit)
