"""What monitoring is told of every box, in one call."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pysqlbox.errors import InvalidArgument
from tests.contract.support import HOSTILE, KINDS, OWNER, Box, Row, columns, server_now
from tests.support.database import Database

COLUMNS = [
    "box", "topic", "ready", "scheduled", "in_flight", "done", "dead", "given_up", "expired_leases",
    "oldest_ready_seconds", "oldest_dead_seconds", "blocked_groups", "longest_blocked_seconds",
    "upkeep_seconds", "reap_seconds",
]  # fmt: skip
DAY = 86400
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
        ):
            assert row[name] is None
        assert row["upkeep_seconds"] == pytest.approx(row["reap_seconds"], abs=1), "since it was made"


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


def test_contract_metrics_tell_when_somebody_cleaned_up_and_took_back_leases(every_box: Box) -> None:
    """Whoever calls, worker, cron or a DBA: the routines themselves leave the mark, whatever they found."""
    db = every_box.db
    db.advance(500)
    every_box.affected("cleanup", retention_seconds=DAY)
    db.advance(300)
    row = metrics(every_box)[None]
    assert 300 <= row["upkeep_seconds"] < 360
    assert row["reap_seconds"] >= 800, "never: since the box was made"
    every_box.reap()
    db.advance(100)
    row = metrics(every_box)[None]
    assert 400 <= row["upkeep_seconds"] < 460
    assert 100 <= row["reap_seconds"] < 160
    others = [other for other in db.call("metrics") if other["box"] != every_box.name]
    assert len(others) == 3
    assert all(float(str(other["upkeep_seconds"])) >= 900 for other in others)


def test_contract_metrics_tell_of_no_upkeep_that_was_refused(box: Box) -> None:
    box.db.advance(500)
    with pytest.raises(InvalidArgument):
        box.call("cleanup", retention_seconds=-1)
    with pytest.raises(InvalidArgument):
        box.call("reap", batch_size=0)
    row = metrics(box)[None]
    assert min(row["upkeep_seconds"], row["reap_seconds"]) >= 500


def test_contract_upkeep_waits_for_nobody_elses_upkeep(box: Box) -> None:
    """Two at once: the mark is the other's then, and whoever comes second does not wait for it."""
    box.db.advance(500)
    with box.db.session() as other:
        assert other.value(f"{box.name}_cleanup", retention_seconds=DAY) == 0
        assert other.value(f"{box.name}_reap") == 0
        assert box.affected("cleanup", retention_seconds=DAY) == 0
        assert box.reap() == 0
        other.commit()
    row = metrics(box)[None]
    assert max(row["upkeep_seconds"], row["reap_seconds"]) < 60


def test_contract_metrics_take_any_topic(box: Box) -> None:
    for topic in HOSTILE:
        box.put(topic)
    assert metrics(box).keys() == {*HOSTILE, None}
