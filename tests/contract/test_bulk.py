"""Batches so large that a box may keep them together: callers see each message by itself all the same."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from tests.contract.support import NIL, OTHER, OWNER, Box, check_books, ids, server_now

SIZE = 1000


def put_many(box: Box, size: int = SIZE, **more: object) -> list[int]:
    """Many plain messages by one call."""
    records = [{"topic": "a.b", "payload": str(number), **more} for number in range(size)]
    return ids(box.enqueue_many(*records))


def statuses(box: Box) -> dict[str, int]:
    """How many messages the view shows by status."""
    rows = box.db.sql(f"SELECT status, count(*) AS n FROM {{schema}}.{box.name}_messages GROUP BY status")
    return {str(row["status"]): int(str(row["n"])) for row in rows}


def test_contract_a_large_batch_is_claimed_in_order_by_batches_of_any_size(outbox: Box) -> None:
    made = put_many(outbox)
    taken: list[int] = []
    for batch in (1, 7, 50, 3, 500, 1, 40, 398, 100):
        rows = outbox.claim(OWNER, batch_size=batch)
        assert len(rows) == min(batch, SIZE - len(taken))
        assert [int(row["payload"]) for row in rows] == list(range(len(taken), len(taken) + len(rows)))
        taken += ids(rows)
    assert taken == made
    assert outbox.take() == []


@pytest.mark.dialect("postgres")
def test_a_large_batch_stands_in_few_rows_also_with_its_defaults_spelled_out(outbox: Box) -> None:
    """Docs/architecture.md promises runs for plain records: a 0 for what is 0 anyway leaves them plain."""
    defaults: dict[str, object] = {"priority": 0, "delay_seconds": 0, "group_id": None, "due_at": None}
    for spelled_out in ({}, defaults):
        made = put_many(outbox, SIZE, **spelled_out)
        (ready,) = outbox.db.sql("SELECT count(*) AS n FROM {schema}.outbox_ready")
        assert int(str(ready["n"])) < SIZE / 10
        assert outbox.take(batch=SIZE) == made


def test_contract_what_is_enqueued_around_a_large_batch_keeps_its_place(outbox: Box) -> None:
    before = [outbox.put() for _ in range(5)]
    made = put_many(outbox, 300)
    between = outbox.put()
    other = outbox.put(topic="other")
    more = put_many(outbox, 300)
    urgent = outbox.put(priority=1)
    low = outbox.put(priority=-1)
    expected = [urgent, *before, *made, between, other, *more, low]
    assert outbox.take(batch=9) == expected[:9]
    assert outbox.take(batch=390) == expected[9:399]
    assert outbox.take(batch=1000) == expected[399:]


def test_contract_part_of_a_large_batch_is_settled_in_any_way(outbox: Box) -> None:
    made = put_many(outbox, 400)
    held = outbox.take(batch=200)
    assert held == made[:200]
    assert outbox.ack(OWNER, held[0:200:2]) == 100
    assert outbox.ack(OWNER, held[0:200:2]) == 0
    assert outbox.abandon(OWNER, held[1:41:4], delay_seconds=5) == 10
    assert outbox.release(OWNER, held[3:43:4]) == 10
    assert outbox.fail(OWNER, held[101:141:2]) == 20
    assert outbox.ack(OTHER, held) == 0
    check_books(outbox)
    shown = {name: outbox.status(held[place]) for name, place in (("ack", 2), ("fail", 103), ("held", 99))}
    assert shown == {"ack": "Done", "fail": outbox.dead, "held": outbox.leased}
    assert statuses(outbox) == {"Done": 100, outbox.dead: 20, outbox.leased: 60, outbox.waiting: 220}
    assert outbox.take(batch=1000) == made[200:] + sorted(held[3:43:4])
    assert outbox.ack(OWNER, made) == 270
    outbox.db.advance(6)
    assert sorted(outbox.take(batch=1000)) == held[1:41:4]
    check_books(outbox)


def test_contract_ids_acknowledged_in_any_order_are_done_each(outbox: Box) -> None:
    put_many(outbox, 300)
    held = outbox.take(batch=300)
    shuffled = held[150:] + held[:150][::-1] + held[10:20]
    assert outbox.ack(OWNER, [*shuffled, 10**12, -1]) == 300
    assert statuses(outbox) == {"Done": 300}
    check_books(outbox)


def test_contract_the_statistics_count_every_message_of_a_large_batch(outbox: Box) -> None:
    put_many(outbox, 300)
    put_many(outbox, 300, topic="other")
    outbox.take(batch=310)
    stats = outbox.stats()
    assert (stats["a.b"]["ready"], stats["a.b"]["in_flight"]) == (0, 300)
    assert (stats["other"]["ready"], stats["other"]["in_flight"]) == (290, 10)
    assert stats[None]["ready"] == 290
    assert stats[None]["oldest_ready_seconds"] is not None
    check_books(outbox)


def test_contract_topics_and_pauses_hold_for_large_batches(outbox: Box) -> None:
    first = put_many(outbox, 300, topic="first")
    second = put_many(outbox, 300, topic="second")
    third = put_many(outbox, 300, topic="third")
    assert outbox.take(batch=250, topics=["second"]) == second[:250]
    assert outbox.take(batch=120, topics=["third", "second"]) == second[250:] + third[:70]
    outbox.call("pause", topic="first")
    assert outbox.take(batch=10) == third[70:80]
    outbox.call("resume", topic="first")
    assert outbox.take(batch=1000) == first + third[80:]


def test_contract_a_large_batch_of_mixed_records_is_placed_record_by_record(outbox: Box) -> None:
    due = server_now(outbox.db) + timedelta(seconds=500)
    records: list[dict[str, object]] = []
    for number in range(400):
        record: dict[str, object] = {"topic": f"t{number % 3}", "payload": str(number)}
        if number % 5 == 1:
            record["due_at"] = due
        if number % 7 == 1:
            record["priority"] = 2
        if number % 11 == 1:
            record["group_id"] = "g"
        records.append(record)
    made = ids(outbox.enqueue_many(*records))
    assert made == sorted(made)
    now = [
        place for place, record in enumerate(records) if "due_at" not in record and "group_id" not in record
    ]
    urgent = [made[place] for place in now if "priority" in records[place]]
    plain = [made[place] for place in now if "priority" not in records[place]]
    ungrouped = set(urgent) | set(plain)
    taken = [message for message in outbox.take(batch=1000) if message in ungrouped]
    assert taken == urgent + plain
    assert outbox.stats()[None]["scheduled"] > 0
    check_books(outbox)


def test_contract_cleanup_takes_as_many_as_it_is_told(outbox: Box) -> None:
    made = put_many(outbox, 300)
    assert outbox.ack(OWNER, outbox.take(batch=300)) == 300
    outbox.db.advance(10)
    steps = [outbox.affected("cleanup", retention_seconds=5, batch_size=70) for _ in range(6)]
    assert steps == [70, 70, 70, 70, 20, 0]
    assert outbox.count() == 0
    assert made
    check_books(outbox)


def test_contract_cleanup_goes_on_over_long_and_short_runs(outbox: Box) -> None:
    for _ in range(3):
        outbox.made_done()
    put_many(outbox, 300)
    assert outbox.ack(OWNER, outbox.take(batch=300)) == 300
    for _ in range(3):
        outbox.made_done()
    outbox.db.advance(10)
    assert outbox.affected("cleanup", retention_seconds=5, batch_size=100) == 100
    left = ids(outbox.db.sql(f"SELECT id FROM {{schema}}.{outbox.name}_messages ORDER BY id"))
    assert len(left) == 206
    assert {outbox.status(message) for message in (left[0], left[100], left[-1])} == {"Done"}
    assert outbox.affected("cleanup", retention_seconds=5, batch_size=1000) == 206
    assert outbox.affected("cleanup", retention_seconds=5, batch_size=1000) == 0


def test_contract_every_message_of_a_large_batch_is_found_by_its_message_id(outbox: Box) -> None:
    rows = outbox.enqueue_many(*[{"topic": "a.b", "payload": str(number)} for number in range(300)])
    assert len({row["message_id"] for row in rows}) == 300
    assert [row["outcome"] for row in rows] == ["created"] * 300
    assert [row["ordinal"] for row in rows] == list(range(1, 301))
    for row in (rows[0], rows[150], rows[299]):
        found = outbox.one("find", message_id=row["message_id"])
        assert (found["id"], found["payload"]) == (row["id"], str(row["ordinal"] - 1))


def test_contract_a_drawn_message_id_given_again_is_a_duplicate(outbox: Box) -> None:
    (one, two) = outbox.enqueue_many({"topic": "a.b", "payload": "1"}, {"topic": "a.b", "payload": "2"})
    single = outbox.one("enqueue", topic="a.b", payload="3")
    for known in (one, two, single):
        again = outbox.one("enqueue", topic="a.b", payload="x", message_id=known["message_id"])
        assert (again["outcome"], again["id"]) == ("duplicate", known["id"])
        (many,) = outbox.enqueue_many(
            {"topic": "a.b", "payload": "x", "message_id": str(known["message_id"])}
        )
        assert (many["outcome"], many["id"]) == ("duplicate", known["id"])
        keyed = outbox.one(
            "enqueue",
            topic="a.b",
            payload="x",
            message_id=known["message_id"],
            group_id="g",
            dedup_key=f"k{known['id']}",
        )
        assert (keyed["outcome"], keyed["id"]) == ("duplicate", known["id"])
    assert outbox.count() == 3


def test_contract_message_ids_that_look_alike_are_different_messages(outbox: Box) -> None:
    drawn = outbox.one("enqueue", topic="a.b", payload="1")
    text = str(drawn["message_id"])
    like_it = [UUID("0" * 8 + text[8:]), UUID(text[:-1] + ("0" if text[-1] != "0" else "1")), UUID(int=1)]
    made = [outbox.one("enqueue", topic="a.b", payload="2", message_id=given) for given in like_it]
    assert [row["outcome"] for row in made] == ["created"] * 3
    assert [outbox.one("find", message_id=given)["id"] for given in like_it] == [row["id"] for row in made]
    assert outbox.call("find", message_id=UUID(int=2)) == []
    assert outbox.call("find", message_id=NIL) == []
