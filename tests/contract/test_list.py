"""Messages in one status, a page at a time: wherever they are, each once, oldest id first."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from tests.contract.support import (
    DISTINCT,
    HOSTILE,
    LONG,
    OTHER,
    OWNER,
    TOO_LONG,
    VIEW_COLUMNS,
    Box,
    Row,
    by_position,
    columns,
    ids,
    refuses,
    server_now,
)
from tests.support.database import Session

FIRST = {
    "outbox": ["id", "message_id", "status", "topic"],
    "inbox": ["id", "message_id", "source", "status", "topic"],
}
LEFT_OUT = {"payload", "headers", "hash"}
"""What a list does not show; a hash tells whether a payload is the one that somebody guesses."""
STATUSES = {
    "outbox": ["Ready", "InProgress", "Done", "Failed", "Expired", "Cancelled"],
    "inbox": ["Seen", "Processing", "Done", "Dead", "Expired", "Cancelled"],
}
LOOKED = 10_000
"""How many messages a page looks at."""


def list_columns(kind: str) -> list[str]:
    """The columns of a list: those of the view, the status in front of the topic."""
    rest = [name for name in VIEW_COLUMNS[kind] if name not in LEFT_OUT and name not in FIRST[kind]]
    return FIRST[kind] + rest


def listed(box: Box, status: str, **filters: Any) -> list[int]:
    """The ids of a list to its end, page by page, each row compared with the view."""
    found: list[int] = []
    after = filters.pop("after_id", 0)
    while True:
        rows = box.call("list", status=status, after_id=after, **filters)
        shown = [row for row in rows if row["status"] is not None]
        for row in shown:
            assert row["status"] == status
            assert row == {name: value for name, value in box.shown(row["id"]).items() if name in row}
        found += ids(shown)
        if len(shown) < filters.get("limit", 100) and len(shown) == len(rows):
            return found
        assert len(rows) - len(shown) in (0, 1)
        after = rows[-1]["id"]


def everywhere(box: Box) -> dict[str, list[int]]:
    """Messages in every place and status, by status."""
    made: dict[str, list[int]] = {status: [] for status in STATUSES[box.kind]}
    made["Done"] += box.made_done(2, topic="done") + box.made_done(1, topic="done", group_id="d")
    made[box.dead] += box.made_dead(3, topic="dead")
    expiring = [box.put("late", expires_at=server_now(box.db) + timedelta(seconds=50)) for _ in range(2)]
    box.db.advance(100)
    assert box.take(topics=["late"]) == []
    made["Expired"] += expiring
    soon = server_now(box.db) + timedelta(hours=1)
    waiting = [box.put("a"), box.put("b", priority=5), box.put("a", priority=-3), box.put("a", due_at=soon)]
    waiting += [
        box.put("b", group_id="g"),
        box.put("a", group_id="g", due_at=soon),
        box.put("a", group_id="h"),
    ]
    back = box.put("back")
    assert box.take(topics=["back"]) == [back]
    assert box.release(OWNER, [back]) == 1
    made[box.waiting] += [*waiting, back]
    gone = [box.put("gone"), box.put("gone", group_id="h")]
    assert box.cancel(gone, "why") == 2
    made["Cancelled"] += gone
    held = [box.put("held"), box.put("held", group_id="i"), box.put("held")]
    assert box.take(OTHER, topics=["held"], lease=600) == held
    made[box.leased] += held
    return {status: sorted(found) for status, found in made.items()}


def test_contract_list_shows_each_status_wherever_its_messages_are(box: Box) -> None:
    for status, expected in everywhere(box).items():
        assert listed(box, status) == expected, status
        assert listed(box, status, limit=1) == expected, status
        assert listed(box, status, limit=2) == expected, status


def test_contract_list_by_topic_and_by_group_is_a_part_of_the_list(box: Box) -> None:
    made = everywhere(box)
    for status, expected in made.items():
        shown = [box.shown(message) for message in expected]
        for name in ("topic", "group_id"):
            for value in {row[name] for row in shown} - {None}:
                part = [row["id"] for row in shown if row[name] == value]
                assert listed(box, status, **{name: value}) == part, (status, name, value)
                assert listed(box, status, limit=1, **{name: value}) == part, (status, name, value)
        assert listed(box, status, topic="nobody") == []
        assert listed(box, status, group_id="nobody") == []
    assert len(listed(box, box.waiting, topic="a", group_id="g")) == 1
    assert listed(box, box.waiting, topic="a", group_id="i") == []


def test_contract_list_tells_seen_from_processing(inbox: Box) -> None:
    for number in range(4):
        inbox.one("already_processed", message_id=f"m{number}", source="s", hash=None)
    assert inbox.affected("mark_processing", message_id="m1", source="s") == 1
    assert inbox.affected("mark_processed", message_id="m2", source="s") == 1
    put = inbox.put()
    found = {status: inbox.call("list", status=status) for status in STATUSES["inbox"]}
    assert [row["message_id"] for row in found["Seen"]] == ["m0", "m3"]
    assert [row["message_id"] for row in found["Processing"]][:1] == ["m1"]
    assert ids(found["Processing"])[1:] == [put]
    assert [row["message_id"] for row in found["Done"]] == ["m2"]
    assert all(row["topic"] is None for row in found["Seen"] + found["Done"])
    assert inbox.call("list", status="Seen", topic="t") == []
    assert inbox.call("list", status="Seen", group_id="g") == []


def test_contract_pages_go_on_behind_the_last_id_wherever_that_is(box: Box) -> None:
    made = box.made_run()
    assert box.cancel(made[40:45]) == 5
    rest = [message for message in made if message not in set(made[40:45])]
    for after in (0, made[0], made[30], made[31], made[39], made[42], made[-2], made[-1], 10**15, -5, None):
        expected = [message for message in rest if message > (after or 0)]
        assert ids(box.call("list", status=box.waiting, after_id=after, limit=300)) == expected
        assert ids(box.call("list", status=box.waiting, after_id=after, limit=7)) == expected[:7]
        assert ids(box.call("list", status=box.waiting, after_id=after, limit=7, topic="t")) == expected[:7]
    assert box.take(batch=150) == rest[:150]
    assert box.ack(OWNER, rest[:150]) == 150
    for after in (0, rest[0], rest[100], rest[148], rest[149]):
        expected = [message for message in rest[:150] if message > after]
        assert ids(box.call("list", status="Done", after_id=after, limit=300)) == expected
        assert ids(box.call("list", status="Done", after_id=after, limit=7)) == expected[:7]


def test_contract_pages_of_long_runs_show_each_message_once(box: Box) -> None:
    made = box.made_run(2_500)
    assert len(box.take(batch=2_500)) == 2_500
    assert box.ack(OWNER, made) == 2_500
    for limit in (999, 1_000, 1_001, 10_000):
        found: list[int] = []
        while page := ids(box.call("list", status="Done", limit=limit, after_id=found[-1] if found else 0)):
            found += page
        assert found == made
    assert box.affected("cleanup", retention_seconds=0, batch_size=700) == 700
    left = box.db.sql(f"SELECT id FROM {{schema}}.{box.name}_messages ORDER BY id")
    assert ids(box.call("list", status="Done", limit=10_000)) == ids(left)


def test_contract_a_sparse_page_ends_with_a_marker_and_the_next_goes_on(box: Box) -> None:
    first = box.put("rare", group_id="g")
    box.take()
    box.ack(OWNER, [first])
    made = box.fill(LOOKED + 20)
    for _ in range(2):
        taken = box.take(batch=10_000)
        assert box.ack(OWNER, taken) == len(taken)
    last = box.put("rare", group_id="g")
    box.take()
    box.ack(OWNER, [last])
    for filters in ({"topic": "rare"}, {"group_id": "g"}):
        shown, marker = box.call("list", status="Done", limit=2, **filters)
        assert shown["id"] == first
        assert list(marker) == list_columns(box.kind)
        assert {name for name, value in marker.items() if value is not None} == {"id"}
        assert marker["id"] == made[LOOKED - 2], "it has looked at so many"
        (found,) = box.call("list", status="Done", limit=2, after_id=marker["id"], **filters)
        assert found["id"] == last
    (marker,) = box.call("list", status="Done", topic="nobody")
    assert marker["status"] is None
    assert box.call("list", status="Done", topic="nobody", after_id=marker["id"]) == []
    assert len(box.call("list", status="Done", limit=10_000)) == 10_000, "a full page has no marker"
    assert len(box.call("list", status="Done", limit=10_000, topic="t")) == 10_000


def test_contract_list_compares_topics_and_groups_exactly(box: Box) -> None:
    names = [*HOSTILE, *DISTINCT, LONG]
    put = {name: box.put(name, group_id=name) for name in names}
    plain = {name: box.put(name) for name in names}
    for name in names:
        assert listed(box, box.waiting, topic=name) == [put[name], plain[name]]
        assert listed(box, box.waiting, group_id=name) == [put[name]]
    for name in (*TOO_LONG, "", "nobody", "\u0130"):
        assert listed(box, box.waiting, topic=name) == []
        assert listed(box, box.waiting, group_id=name) == []
        assert listed(box, "Cancelled", topic=name) == []
    dead = list(put.values())
    assert box.cancel(dead) == len(names)
    for name in names:
        assert listed(box, "Cancelled", topic=name) == [put[name]]
        assert listed(box, "Cancelled", group_id=name) == [put[name]]


def test_contract_list_refuses_bad_arguments(box: Box) -> None:
    box.put()
    other = "Seen" if box.kind == "outbox" else "Ready"
    for status in (None, "", "ready", f"{box.waiting} ", f" {box.waiting}", other, "Done\n", *HOSTILE):
        with refuses("status"):
            box.call("list", status=status)
    for limit in (0, -1, 10_001, 2**31 - 1, -(2**31), None):
        with refuses("limit"):
            box.call("list", status="Done", limit=limit)
    for after in (2**63 - 1, 2**62):
        assert box.call("list", status=box.waiting, after_id=after) == []
        assert box.call("list", status="Done", after_id=after) == []
    assert len(box.call("list", status=box.waiting, after_id=-(2**63))) == 1


def test_contract_list_has_its_shape(every_box: Box) -> None:
    expected = list_columns(every_box.kind)
    assert columns(every_box.db, f"{every_box.name}_list", "Done", "t", 5, 3, "g") == expected
    made = [every_box.put("t", group_id="g") for _ in range(3)]
    rows = by_position(every_box.db, f"{every_box.name}_list", every_box.waiting, "t", 1, made[0], "g")
    assert ids(rows) == [made[1]]
    assert ids(every_box.call("list", status=every_box.waiting)) == made


def test_contract_list_sees_a_callers_own_writes_and_nobody_elses(box: Box) -> None:
    made = box.put()
    with box.db.session() as session:
        own = box.on(session).put()
        assert ids(box.on(session).call("list", status=box.waiting)) == [made, own]
        assert ids(box.call("list", status=box.waiting)) == [made]


def test_contract_pages_show_all_that_stay_in_a_status_while_they_move(inbox: Box) -> None:
    """An inbox message is Processing while it waits, is leased, comes back and waits for a time."""
    made = [inbox.put(priority=number % 3, group_id="g" if number % 4 == 0 else None) for number in range(40)]
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool, inbox.db.session() as session:
        moved = pool.submit(_move, inbox, session, stop)
        try:
            for turn in range(30):
                found: list[int] = []
                while page := ids(
                    inbox.call("list", status="Processing", limit=7, after_id=found[-1] if found else 0)
                ):
                    found += page
                assert found == made, turn
        finally:
            stop.set()
        assert moved.result(60) > 0


def _move(box: Box, session: Session, stop: threading.Event) -> int:
    """Claims messages and gives them back, in all ways that do not end them; answers how many it moved."""
    moved = 0
    inside = box.on(session)
    while not stop.is_set():
        taken = inside.take(batch=9)
        moved += len(taken)
        inside.release(OWNER, taken[::3])
        inside.abandon(OWNER, taken[1::3], delay_seconds=0.05)
        inside.release(OWNER, taken[2::3], delay_seconds=0.02)
        session.commit()
    return moved


HISTORY = 60_000
"""Messages in the long history: a third of them done, a third dead, a third waiting in groups."""


@pytest.fixture
def long_history(outbox: Box) -> None:
    """A box with much of everything, of a thousand topics and as many groups, in rows of single messages."""
    db, name = outbox.db, outbox.name
    for statement in (
        f"INSERT INTO {{schema}}.{name}_message"
        " (id, message_id, created_at, attempt, priority, topic, payload, group_id)"
        f" SELECT nextval('{{schema}}._{name}_ids'), gen_random_uuid(), now(), 0, 0, 't' || n % 1000, 'p',"
        f" 'g' || n % 997 FROM generate_series(1, {HISTORY}) AS n",
        f"INSERT INTO {{schema}}.{name}_done (id, processed_at, span)"
        f" SELECT id, now(), 1 FROM {{schema}}.{name}_message WHERE id % 3 = 1",
        f"INSERT INTO {{schema}}.{name}_tally (no, topic, done)"
        f" SELECT nextval('{{schema}}._{name}_ids'), topic, count(*) FROM {{schema}}.{name}_message"
        " WHERE id % 3 = 1 GROUP BY topic",
        f"INSERT INTO {{schema}}.{name}_dead (id, died_at, expired, cancelled, topic)"
        f" SELECT id, now(), false, false, topic FROM {{schema}}.{name}_message WHERE id % 3 = 2",
        f"INSERT INTO {{schema}}.{name}_tally (no, topic, done, dead)"
        f" SELECT nextval('{{schema}}._{name}_ids'), topic, 0, count(*)"
        f" FROM {{schema}}.{name}_dead GROUP BY topic",
        f"INSERT INTO {{schema}}.{name}_group_member (group_id, id)"
        f" SELECT group_id, id FROM {{schema}}.{name}_message WHERE id % 3 = 0",
        # What the tests before have left behind would count too.
        f"VACUUM ANALYZE {{schema}}.{name}_message, {{schema}}.{name}_done, {{schema}}.{name}_dead,"
        f" {{schema}}.{name}_group_member, {{schema}}.{name}_ready, {{schema}}.{name}_lease",
    ):
        db.sql(statement)


FULL: list[tuple[dict[str, Any], int]] = [
    ({"status": "Done"}, 60),
    ({"status": "Done", "after_id": HISTORY // 2}, 60),
    ({"status": "Failed"}, 60),
    ({"status": "Failed", "topic": "t8"}, 20),
    ({"status": "Ready"}, 60),
    ({"status": "Ready", "group_id": "g500"}, 20),
    ({"status": "InProgress"}, 0),
    ({"status": "InProgress", "group_id": "g500"}, 0),
]
"""What finds its messages at once, and how many there are, up to one page."""
SPARSE: list[dict[str, Any]] = [
    {"status": "Expired"},
    {"status": "Done", "topic": "t7"},
    {"status": "Done", "group_id": "g500"},
    {"status": "Ready", "topic": "only"},
]
"""What has to look for its messages."""


@pytest.mark.dialect("postgres")
@pytest.mark.usefixtures("long_history")
def test_contract_a_page_of_a_list_reads_what_it_shows(outbox: Box) -> None:
    """Rows that are visited are counted: some for each message that is shown, and a few more."""
    for filters, count in FULL:
        rows, visited = _visited(outbox, filters)
        assert (len(rows), {row["status"] for row in rows} <= {filters["status"]}) == (count, True), filters
        assert visited < 12 * count + 50, filters


@pytest.mark.dialect("postgres")
@pytest.mark.usefixtures("long_history")
def test_contract_a_sparse_page_of_a_list_ends(outbox: Box) -> None:
    """It looks at so many, in some places, and tells where it ended."""
    outbox.fill(60, topic="only")
    for filters in SPARSE:
        rows, visited = _visited(outbox, filters)
        assert rows[-1]["status"] is None, filters
        assert len(rows) < 20, filters
        assert LOOKED <= visited < 4 * LOOKED, filters


def _visited(box: Box, filters: dict[str, Any]) -> tuple[list[Row], int]:
    """The rows of a page of 60, and how many rows of the box were visited for it, by indexes or without."""
    query = (
        "SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid)), 0) AS visited FROM pg_class AS c"
        f" WHERE c.relnamespace = '{{schema}}'::regnamespace AND c.relname LIKE '%%{box.name}%%'"
        " AND c.relkind IN ('r', 'i')"
    )
    with box.db.session() as session:
        rows = box.on(session).call("list", limit=60, **filters)
        return rows, int(str(session.sql(query)[0]["visited"]))
