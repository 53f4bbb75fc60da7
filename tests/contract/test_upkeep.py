"""Cleanup in bounded steps, pausing, statistics and settings."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contract.support import HOSTILE, OTHER, OWNER, Box, Row, refuses, server_now


def test_ibx_098_ibx_100_cleanup_removes_what_was_done_before_the_retention(box: Box) -> None:
    old = box.made_done(2)
    box.db.advance(1000)
    (young,) = box.made_done()
    assert box.affected("cleanup", retention_seconds=500, batch_size=100) == 2
    assert box.count() == 1
    assert box.status(young) == "Done"
    assert old[0] < young
    assert box.affected("cleanup", retention_seconds=0, batch_size=100) == 1
    assert box.count() == 0


def test_ibx_099_cleanup_leaves_everything_that_is_not_done(box: Box) -> None:
    (dead,) = box.made_dead()
    held, waiting = box.put(), box.put()
    delayed = box.put(due_at=server_now(box.db) + timedelta(days=900))
    grouped = box.put(group_id="g")
    assert box.take(batch=1, lease=86400) == [held]
    if box.kind == "inbox":
        box.call("already_processed", message_id="seen", source="s", hash=None)
    expired = box.put(expires_at=server_now(box.db) - timedelta(seconds=1), topic="x")
    assert box.take(OTHER, topics=["x"]) == []
    before = box.count()
    box.db.advance(10000)
    assert box.affected("cleanup", retention_seconds=0, batch_size=1000) == 0
    assert box.count() == before
    kept = [box.status(message) for message in (dead, held, waiting, delayed, grouped, expired)]
    assert kept == [box.dead, box.leased, box.waiting, box.waiting, box.waiting, "Expired"]


def test_ibx_101_cleanup_removes_at_most_batch_size(box: Box) -> None:
    box.made_done(7)
    box.db.advance(10)
    steps = [box.affected("cleanup", retention_seconds=5, batch_size=3) for _ in range(4)]
    assert steps == [3, 3, 1, 0]


def test_ibx_101_cleanup_takes_the_oldest_first(box: Box) -> None:
    first = box.made_done(3)
    box.db.advance(100)
    second = box.made_done(3)
    box.db.advance(100)
    assert box.affected("cleanup", retention_seconds=10, batch_size=3) == 3
    rows = box.db.sql(f"SELECT id FROM {{schema}}.{box.name}_messages ORDER BY id")
    assert [row["id"] for row in rows] == second
    assert first[2] < second[0]


def test_contract_cleanup_dead_removes_the_dead_before_the_retention(box: Box) -> None:
    old = box.made_dead(2)
    expired = box.put(expires_at=server_now(box.db) - timedelta(seconds=1))
    assert box.take() == []
    box.db.advance(1000)
    (young,) = box.made_dead()
    (done,) = box.made_done()
    assert box.affected("cleanup_dead", retention_seconds=500, batch_size=2) == 2
    assert box.affected("cleanup_dead", retention_seconds=500, batch_size=2) == 1
    assert box.affected("cleanup_dead", retention_seconds=500) == 0
    rows = box.db.sql(f"SELECT id FROM {{schema}}.{box.name}_messages ORDER BY id")
    assert [row["id"] for row in rows] == sorted([young, done])
    assert expired not in (young, done)
    assert old[0] < young


@pytest.mark.parametrize("step", ["cleanup", "cleanup_dead"])
def test_ibx_100_cleanup_refuses_bad_arguments(box: Box, step: str) -> None:
    for seconds in (-1, None):
        with refuses("retention_seconds"):
            box.affected(step, retention_seconds=seconds, batch_size=10)
    for size in (0, -1, 10001, None):
        with refuses("batch_size"):
            box.affected(step, retention_seconds=10, batch_size=size)
    assert box.affected(step, retention_seconds=10) == 0


def test_contract_a_key_may_be_used_again_once_its_message_was_cleaned_up(inbox: Box) -> None:
    inbox.made_done(message_id="m", source="s")
    inbox.db.advance(10)
    assert inbox.affected("cleanup", retention_seconds=5) == 1
    row = inbox.one("already_processed", message_id="m", source="s", hash=None)
    assert not row["already_processed"]


def test_contract_cleanup_removes_dedup_keys_past_their_window(outbox: Box) -> None:
    outbox.configure("dedup_window_seconds", "100")
    outbox.made_done(dedup_key="k")
    outbox.db.advance(200)
    assert outbox.affected("cleanup", retention_seconds=150, batch_size=10) == 1
    outbox.configure("dedup_window_seconds", "1000")
    assert outbox.enqueue(dedup_key="k")["outcome"] == "created"


def test_contract_cleanup_keeps_dedup_keys_within_their_window(outbox: Box) -> None:
    outbox.made_done(dedup_key="k")
    outbox.db.advance(200)
    assert outbox.affected("cleanup", retention_seconds=0, batch_size=10) == 1
    assert outbox.enqueue(dedup_key="k")["outcome"] == "duplicate"


def test_contract_pause_of_the_box_stops_handing_out_until_resumed(box: Box) -> None:
    made = box.fill(2)
    assert box.affected("pause", topic=None) == 1
    assert box.take() == []
    late = box.put(group_id="g")
    assert box.take(topics=["t"]) == []
    assert box.affected("resume", topic=None) == 1
    assert box.take() == [*made, late]


def test_contract_pause_without_a_topic_means_the_box(box: Box) -> None:
    message = box.put()
    assert box.affected("pause") == 1
    assert box.take() == []
    assert box.affected("resume") == 1
    assert box.take() == [message]


def test_contract_pause_of_a_topic_stops_that_topic_only(box: Box) -> None:
    put = {topic: box.put(topic) for topic in ("a", "A", "b")}
    assert box.affected("pause", topic="a") == 1
    assert box.take() == [put["A"], put["b"]]
    assert box.take(topics=["a"]) == []
    assert box.affected("resume", topic="a") == 1
    assert box.take(topics=["a", "b"]) == [put["a"]]


def test_contract_pause_lets_workers_finish_what_they_hold(box: Box) -> None:
    made = box.fill(3)
    assert box.take() == made
    box.affected("pause", topic=None)
    assert box.ack(OWNER, made[:1]) == 1
    assert box.release(OWNER, made[1:2]) == 1
    assert box.settle(OWNER, [{"id": made[2], "result": "ack"}], claim_batch=5) == []
    assert box.status(made[2]) == "Done"
    box.affected("resume", topic=None)
    assert box.take() == made[1:2]


def test_contract_pause_and_resume_answer_whether_something_changed(box: Box) -> None:
    assert [box.affected("pause", topic="a") for _ in range(2)] == [1, 0]
    assert [box.affected("pause", topic=None) for _ in range(2)] == [1, 0]
    assert box.affected("resume", topic="b") == 0
    assert [box.affected("resume", topic="a") for _ in range(2)] == [1, 0]
    assert [box.affected("resume", topic=None) for _ in range(2)] == [1, 0]


def test_contract_a_paused_topic_stays_paused_when_the_box_resumes(box: Box) -> None:
    first, second = box.put("a"), box.put("b")
    box.affected("pause", topic="a")
    box.affected("pause", topic=None)
    box.affected("resume", topic=None)
    assert box.take() == [second]
    box.affected("resume", topic="a")
    assert box.take() == [first]


def test_contract_pause_takes_hostile_topics_and_refuses_bad_ones(box: Box) -> None:
    for topic in HOSTILE:
        message = box.put(topic)
        assert box.affected("pause", topic=topic) == 1
        assert box.take() == []
        assert box.affected("resume", topic=topic) == 1
        assert box.take() == [message]
    for step in ("pause", "resume"):
        for bad in ("", "x" * 256):
            with refuses("topic"):
                box.affected(step, topic=bad)


def test_contract_pause_of_one_box_leaves_the_others(box: Box) -> None:
    twin = {"outbox": "mail", "mail": "outbox", "inbox": "orders", "orders": "inbox"}[box.name]
    box.db.value(f"{twin}_pause", topic=None)
    message = box.put()
    assert box.take() == [message]


def test_contract_stats_count_by_topic_and_in_total(box: Box) -> None:
    for topic in ("a", "b"):
        box.made_done(2, topic=topic)
        box.made_dead(1, topic=topic)
    now = server_now(box.db)
    held = box.fill(2, topic="a")
    assert box.take(topics=["a"]) == held
    box.fill(3, topic="b")
    box.fill(1, topic="b", group_id="g")
    box.put("a", due_at=now + timedelta(days=1))
    box.put("c", due_at=now + timedelta(days=1), group_id="later")
    stats = box.stats()
    counted = ("ready", "scheduled", "in_flight", "done", "dead")
    assert {topic: tuple(row[name] for name in counted) for topic, row in stats.items()} == {
        "a": (0, 1, 2, 2, 1),
        "b": (4, 0, 0, 2, 1),
        "c": (0, 1, 0, 0, 0),
        None: (4, 2, 2, 4, 2),
    }


def test_contract_stats_come_by_topic_with_the_total_last(box: Box) -> None:
    for topic in ("b", "a", "B"):
        box.put(topic)
    assert [row["topic"] for row in box.call("stats")] == ["B", "a", "b", None]


def test_contract_stats_of_an_empty_box_are_one_total_of_zeros(box: Box) -> None:
    (row,) = box.call("stats")
    assert (row.pop("topic"), row.pop("oldest_ready_seconds")) == (None, None)
    assert row == {"ready": 0, "scheduled": 0, "in_flight": 0, "done": 0, "dead": 0}


def test_contract_stats_tell_how_long_the_oldest_ready_one_has_waited(box: Box) -> None:
    box.put("a")
    box.db.advance(100)
    box.put("b")
    stats = box.stats()
    assert 100 <= stats["a"]["oldest_ready_seconds"] <= 130
    assert 0 <= stats["b"]["oldest_ready_seconds"] <= 30
    assert stats[None]["oldest_ready_seconds"] == pytest.approx(stats["a"]["oldest_ready_seconds"], abs=1)
    assert len(box.take()) == 2
    assert box.stats()[None]["oldest_ready_seconds"] is None


def test_contract_stats_count_what_comes_due(box: Box) -> None:
    box.put(due_at=server_now(box.db) + timedelta(seconds=100))
    assert (box.stats()[None]["ready"], box.stats()[None]["scheduled"]) == (0, 1)
    box.db.advance(200)
    assert box.stats()[None]["ready"] + box.stats()[None]["scheduled"] == 1
    assert len(box.take()) == 1
    assert (box.stats()[None]["scheduled"], box.stats()[None]["in_flight"]) == (0, 1)


def test_contract_stats_forget_what_is_cleaned_up_and_discarded(box: Box) -> None:
    box.made_done(3)
    dead = box.made_dead(2)
    box.db.advance(10)
    box.affected("cleanup", retention_seconds=5)
    box.affected("discard", ids=dead[:1])
    total = box.stats()[None]
    assert (total["done"], total["dead"]) == (0, 1)
    box.affected("cleanup_dead", retention_seconds=5)
    assert box.stats()[None]["dead"] == 0


def test_contract_stats_follow_replays_and_marks(inbox: Box) -> None:
    (dead,) = inbox.made_dead()
    inbox.affected("replay", ids=[dead])
    assert (inbox.stats()[None]["ready"], inbox.stats()[None]["dead"]) == (1, 0)
    inbox.put(message_id="m", source="s")
    inbox.affected("mark_processed", message_id="m", source="s")
    assert (inbox.stats()[None]["ready"], inbox.stats()[None]["done"]) == (1, 1)


DEFAULTS = {
    "backoff_base_seconds": 1,
    "backoff_cap_seconds": 60,
    "dedup_window_seconds": 3600,
    "max_attempts": 10,
}


def test_contract_the_settings_table_has_one_row_a_key(box: Box) -> None:
    rows = box.db.sql(f"SELECT name, value FROM {{schema}}.{box.name}_settings ORDER BY name")
    settings: Row = {str(row["name"]): row["value"] for row in rows}
    assert settings.pop("notify") == "on"
    assert {name: float(value) for name, value in settings.items()} == DEFAULTS


def test_contract_configure_changes_one_setting_of_one_box(box: Box) -> None:
    row = box.configure("max_attempts", "5")
    assert row == {"name": "max_attempts", "value": "5"}
    for name in ("outbox", "inbox", "orders", "mail"):
        (stored,) = box.db.sql(f"SELECT value FROM {{schema}}.{name}_settings WHERE name = 'max_attempts'")
        assert stored["value"] == ("5" if name == box.name else "10")


def test_contract_configure_takes_every_setting(box: Box) -> None:
    for name, value in (
        ("dedup_window_seconds", "0"),
        ("max_attempts", "0"),
        ("backoff_base_seconds", "0.5"),
        ("backoff_cap_seconds", "900"),
        ("notify", "off"),
        ("notify", "on"),
    ):
        assert box.configure(name, value)["name"] == name
    message = box.put()
    assert box.take() == [message]


def test_contract_configure_refuses_unknown_names_and_bad_values(box: Box) -> None:
    before = box.db.sql(f"SELECT name, value FROM {{schema}}.{box.name}_settings ORDER BY name")
    for name in (None, "", "unknown", "Max_Attempts", "max_attempts ", *HOSTILE):
        with refuses("name"):
            box.configure(name, "1")
    for name in DEFAULTS:
        for value in (None, "", "x", "-1", "1e999", "NaN", "Infinity", "1 "):
            with refuses("value"):
                box.configure(name, value)
    for value in (None, "", "x", "1", "ON "):
        with refuses("value"):
            box.configure("notify", value)
    with refuses("value"):
        box.configure("max_attempts", "1.5")
    assert box.db.sql(f"SELECT name, value FROM {{schema}}.{box.name}_settings ORDER BY name") == before
