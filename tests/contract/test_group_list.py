"""FIFO groups: what waits in them, which head holds them up, and since when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.contract.support import (
    DISTINCT,
    HOSTILE,
    OTHER,
    OWNER,
    Box,
    Row,
    by_position,
    columns,
    refuses,
    server_now,
)

COLUMNS = ["group_id", "waiting", "leased", "head_id", "head_status", "head_due_at", "blocked_seconds"]


def groups(box: Box, **filters: Any) -> dict[str, Row]:
    """The groups by their id, in their order."""
    rows = box.call("groups", **filters)
    assert all(list(row) == COLUMNS for row in rows)
    assert len({row["group_id"] for row in rows}) == len(rows)
    return {str(row["group_id"]): row for row in rows}


def test_contract_groups_tell_what_waits_and_what_is_leased(box: Box) -> None:
    box.put()
    made = {name: [box.put(group_id=name) for _ in range(3)] for name in ("a", "b", "c")}
    found = groups(box)
    assert list(found) == ["a", "b", "c"], "none is held up: by their heads"
    for name, row in found.items():
        assert (row["waiting"], row["leased"], row["head_id"]) == (3, 0, made[name][0])
        assert (row["head_status"], row["head_due_at"], row["blocked_seconds"]) == (box.waiting, None, None)
    ungrouped, *taken = box.take(batch=3)
    assert set(taken) <= set(made["a"])
    row = groups(box)["a"]
    assert (row["waiting"], row["leased"]) == (3 - len(taken), len(taken))
    assert (row["head_id"], row["head_status"]) == (made["a"][0], box.leased)
    assert box.ack(OWNER, [ungrouped, *taken]) == 1 + len(taken)
    left = [message for message in made["a"] if message not in taken]
    assert groups(box)["a"]["head_id"] == left[0]
    assert box.cancel(made["b"]) == 3
    assert set(groups(box)) == {"a", "c"}, "what is over is in no group"


def test_contract_a_leased_head_holds_up_those_behind_it(box: Box) -> None:
    head = box.put(group_id="g")
    assert box.take(lease=600) == [head]
    assert groups(box)["g"]["blocked_seconds"] is None, "nobody waits"
    assert groups(box, only_blocked=True) == {}
    behind = box.put(group_id="g")
    box.db.advance(40)
    (row,) = box.call("groups", only_blocked=True)
    assert (row["waiting"], row["leased"], row["head_id"]) == (1, 1, head)
    assert 39 < row["blocked_seconds"] < 60
    assert box.ack(OWNER, [head]) == 1
    assert groups(box)["g"]["blocked_seconds"] is None, "the head can be claimed"
    assert groups(box)["g"]["head_id"] == behind


def test_contract_a_head_that_waits_for_its_time_holds_up_what_is_due(box: Box) -> None:
    soon = server_now(box.db) + timedelta(seconds=100)
    late = box.put(group_id="late", due_at=soon)
    box.put(group_id="both", due_at=soon)
    box.put(group_id="both", due_at=soon + timedelta(seconds=100))
    retried = box.put(group_id="retried")
    assert box.take() == [retried]
    assert box.abandon(OWNER, [retried], delay_seconds=100) == 1
    box.put(group_id="retried")
    box.db.advance(20)
    box.put(group_id="late")
    box.db.advance(30)
    found = groups(box, only_blocked=True)
    assert list(found) == ["retried", "late"], "the longest held up first"
    assert 49 < found["retried"]["blocked_seconds"] < 70
    assert 29 < found["late"]["blocked_seconds"] < 50
    assert (found["late"]["head_id"], found["late"]["waiting"]) == (late, 2)
    assert found["late"]["head_status"] == box.waiting
    assert abs(found["late"]["head_due_at"] - soon) < timedelta(seconds=1)
    assert groups(box)["both"]["blocked_seconds"] is None, "the one behind is not due itself"
    box.db.advance(60)
    assert groups(box, only_blocked=True) == {}, "every head is due"
    assert box.take(OTHER, batch=1) != []


def test_contract_a_paused_topic_holds_up_its_groups(box: Box) -> None:
    head = box.put("paused", group_id="g")
    box.put("open", group_id="g")
    box.put("open", group_id="h")
    box.put("open", group_id="h")
    assert groups(box, only_blocked=True) == {}
    box.affected("pause", topic="paused")
    box.db.advance(10)
    (row,) = box.call("groups", only_blocked=True)
    assert (row["group_id"], row["head_id"]) == ("g", head)
    assert 9 < row["blocked_seconds"] < 30
    box.affected("pause")
    assert set(groups(box, only_blocked=True)) == {"g", "h"}, "the whole box"
    for topic in (None, "paused"):
        assert box.affected("resume", topic=topic) == 1


def test_contract_groups_are_limited_and_the_longest_held_up_come_first(box: Box) -> None:
    for number in range(12):
        box.put(group_id=f"g{number}")
    for number in range(3):
        box.db.advance(10)
        box.take(batch=1, lease=600)
        box.put(group_id=f"g{number}")
    rows = box.call("groups", limit=5)
    assert [row["group_id"] for row in rows] == ["g0", "g1", "g2", "g3", "g4"]
    assert [row["leased"] for row in rows] == [1, 1, 1, 0, 0]
    held_up = [row["blocked_seconds"] for row in rows[:3]]
    assert held_up == sorted(held_up, reverse=True)
    assert held_up[0] - held_up[2] > 19
    assert [row["blocked_seconds"] for row in rows[3:]] == [None, None]
    assert len(box.call("groups", limit=10_000)) == 12
    assert len(box.call("groups", only_blocked=True)) == 3


def test_contract_groups_of_hostile_names_are_told_apart(box: Box) -> None:
    names = [*HOSTILE, *DISTINCT]
    for name in names:
        box.put(group_id=name)
    assert list(groups(box)) == names
    assert len(box.take(batch=100)) == len(names)
    for name in names:
        box.put(group_id=name)
    assert set(groups(box, only_blocked=True)) == set(names)


def test_contract_groups_refuse_bad_arguments(box: Box) -> None:
    box.put(group_id="g")
    for limit in (0, -1, 10_001, 2**31 - 1, None):
        with refuses("limit"):
            box.call("groups", limit=limit)
    assert len(box.call("groups", only_blocked=None)) == 1


def test_contract_groups_have_their_shape(every_box: Box) -> None:
    assert columns(every_box.db, f"{every_box.name}_groups", 5, True) == COLUMNS
    every_box.put(group_id="g")
    every_box.put(group_id="h")
    (row,) = by_position(every_box.db, f"{every_box.name}_groups", 1, False)
    assert row["group_id"] == "g"
    assert by_position(every_box.db, f"{every_box.name}_groups", 1, True) == []


def test_contract_groups_see_nothing_that_is_not_committed(box: Box) -> None:
    box.put(group_id="g")
    with box.db.session() as session:
        box.on(session).put(group_id="h")
        assert set(groups(box)) == {"g"}
        assert set(groups(box.on(session))) == {"g", "h"}


@pytest.mark.dialect("postgres")
def test_contract_groups_cost_what_waits_in_groups(outbox: Box) -> None:
    """Of ten thousand groups the heads are looked up, and what is behind those that hold it up."""
    db = outbox.db
    records = "SELECT nextval('{schema}._outbox_ids') AS id, n FROM generate_series(1, 20000) AS n"
    db.sql(
        f"WITH made AS ({records}), message AS ("
        " INSERT INTO {schema}.outbox_message"
        " (id, message_id, created_at, due_at, attempt, priority, topic, payload, group_id)"
        " SELECT id, gen_random_uuid(), now() - interval '1 minute' + n * interval '1 ms',"
        " CASE WHEN n <= 50 THEN now() + interval '1 hour' END, 0, 0, 't', 'p', 'g' || n % 10000 FROM made)"
        " INSERT INTO {schema}.outbox_group_member (group_id, id) SELECT 'g' || n % 10000, id FROM made"
    )
    outbox.call("enqueue_payloads", topic="t", payloads=["p"] * 5000)
    with db.session() as session:
        query = "SELECT pg_stat_get_xact_tuples_fetched('{schema}.pk_outbox_message'::regclass) AS n"
        rows = outbox.on(session).call("groups", limit=60, only_blocked=True)
        looked_up = int(str(session.sql(query)[0]["n"]))
    assert len(rows) == 50
    assert [row["group_id"] for row in rows] == [f"g{n}" for n in range(1, 51)]
    assert looked_up < 11_000
