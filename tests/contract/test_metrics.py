"""What monitoring is told of every box, in one call."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contract.support import HOSTILE, KINDS, OWNER, Box, Row, columns, server_now
from tests.support.database import Database

COLUMNS = [
    "box", "topic", "ready", "scheduled", "in_flight", "done", "dead", "given_up", "expired_leases",
    "oldest_ready_seconds", "oldest_dead_seconds", "blocked_groups", "longest_blocked_seconds",
    "upkeep_seconds",
]  # fmt: skip
COUNTS = ("ready", "scheduled", "in_flight", "done", "dead")


def metrics(box: Box) -> dict[str | None, Row]:
    """The rows of one box by topic; its total is under None."""
    rows = box.caller.call("metrics")
    assert all(list(row) == COLUMNS for row in rows)
    return {row["topic"]: row for row in rows if row["box"] == box.name}


def test_contract_metrics_answer_every_box_and_a_total_of_each(db: Database) -> None:
    rows = db.call("metrics")
    assert [row["box"] for row in rows] == sorted(KINDS)
    assert columns(db, "metrics") == COLUMNS
    for row in rows:
        assert row["topic"] is None
        assert [row[name] for name in (*COUNTS, "given_up", "expired_leases", "blocked_groups")] == [0] * 8
        for name in (
            "oldest_ready_seconds",
            "oldest_dead_seconds",
            "longest_blocked_seconds",
            "upkeep_seconds",
        ):
            assert row[name] is None


def test_contract_metrics_count_what_stats_count(box: Box) -> None:
    box.made_done(2, topic="a")
    box.made_dead(1, topic="b")
    box.put("a", delay_seconds=600)
    box.put("c", group_id="g")
    assert len(box.take(batch=1)) == 1
    box.put("a")
    box.db.advance(30)
    stats, found = box.stats(), metrics(box)
    assert found.keys() == stats.keys() == {"a", "b", "c", None}
    for topic, row in found.items():
        assert {name: row[name] for name in COUNTS} == {name: stats[topic][name] for name in COUNTS}
        assert row["oldest_ready_seconds"] == pytest.approx(stats[topic]["oldest_ready_seconds"], abs=20)
    assert found["a"]["oldest_ready_seconds"] >= 30
    assert found[None]["oldest_ready_seconds"] == found["a"]["oldest_ready_seconds"]


def test_contract_metrics_tell_dead_letters_from_what_expired_or_was_cancelled(box: Box) -> None:
    box.made_dead(2, topic="a")
    box.db.advance(100)
    box.made_dead(1, topic="b")
    assert box.cancel([box.put("a")]) == 1
    box.put("b", expires_at=server_now(box.db) + timedelta(seconds=130))
    box.db.advance(40)
    assert box.take() == []
    found = metrics(box)
    assert [(found[topic]["dead"], found[topic]["given_up"]) for topic in ("a", "b", None)] == [
        (3, 2),
        (2, 1),
        (5, 3),
    ]
    assert 140 <= found["a"]["oldest_dead_seconds"] == found[None]["oldest_dead_seconds"]
    assert 40 <= found["b"]["oldest_dead_seconds"] < 140


def test_contract_metrics_count_leases_that_have_run_out(box: Box) -> None:
    box.put("a")
    box.put("b")
    assert len(box.take(lease=10)) == 2
    assert metrics(box)[None]["expired_leases"] == 0
    box.db.advance(11)
    found = metrics(box)
    assert [found[topic]["expired_leases"] for topic in ("a", "b", None)] == [1, 1, 2]
    assert found["a"]["blocked_groups"] is None, "only of the whole box"
    assert box.reap() == 2
    assert metrics(box)[None]["expired_leases"] == 0


def test_contract_metrics_count_groups_that_their_head_holds_up(box: Box) -> None:
    for name in ("delayed", "paused", "free", "alone"):
        box.put(name, group_id=name)
    for name in ("delayed", "paused", "free"):
        box.put("behind", group_id=name)
    assert metrics(box)[None]["blocked_groups"] == 0, "they wait for a worker only"
    heads = box.claim(batch_size=10, topics=["delayed"])
    assert box.release(OWNER, [row["id"] for row in heads], delay_seconds=6000) == len(heads)
    box.affected("pause", topic="paused")
    box.db.advance(60)
    row = metrics(box)[None]
    assert row["blocked_groups"] == 2
    assert 60 <= row["longest_blocked_seconds"] < 120
    box.affected("pause", topic=None)
    assert metrics(box)[None]["blocked_groups"] == 3
    box.affected("resume", topic=None)
    box.affected("resume", topic="paused")
    assert metrics(box)[None]["blocked_groups"] == 1


def test_contract_metrics_tell_when_workers_cleaned_up(box: Box) -> None:
    key = f"pysqlbox:cleanup:{box.name}"
    box.db.call("ledger_try_begin", key=key, owner="w", lease_seconds=10, handler="caretaker")
    box.db.advance(500)
    assert 500 <= metrics(box)[None]["upkeep_seconds"] < 560
    others = [row for row in box.db.call("metrics") if row["box"] != box.name]
    assert all(row["upkeep_seconds"] is None for row in others)


def test_contract_metrics_take_any_topic(box: Box) -> None:
    for topic in HOSTILE:
        box.put(topic)
    assert metrics(box).keys() == {*HOSTILE, None}
