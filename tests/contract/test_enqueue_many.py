"""Producing many at once: one row a record in their order, all or nothing."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from pysqlbox.errors import InvalidArgument
from tests.contract.support import OWNER, Box, Row, headers_of, ids, refuses, server_now


def test_contract_many_answers_one_row_a_record_in_input_order(box: Box) -> None:
    rows = box.enqueue_many(*(box.record(payload=str(n)) for n in range(25)))
    assert [row["ordinal"] for row in rows] == list(range(1, 26))
    assert {row["outcome"] for row in rows} == {"created"}
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    claimed = box.claim(batch_size=25)
    assert ids(claimed) == ids(rows)
    assert [row["payload"] for row in claimed] == [str(n) for n in range(25)]


def test_contract_many_takes_every_argument_of_enqueue(box: Box) -> None:
    expires = server_now(box.db) + timedelta(days=1)
    more: dict[str, object] = {
        "group_id": "g",
        "priority": -3,
        "collapse_key": "c",
        "headers": {"a": [1]},
        "expires_at": expires,
    }
    if box.kind == "outbox":
        more |= {"correlation_id": "x", "message_id": uuid4(), "dedup_key": "d", "created_at": expires}
    else:
        more |= {"source": "s", "message_id": "m", "hash": "00ff10", "received_at": expires}
    (made,) = box.enqueue_many(box.record(**more))
    row = box.get(made["id"])
    assert headers_of(row) == more.pop("headers")
    if box.kind == "inbox":
        assert row["hash"] == bytes.fromhex(str(more.pop("hash")))
        assert row["first_seen_at"] == more.pop("received_at")
    assert {name: row[name] for name in more} == more


def test_contract_many_keeps_due_times_and_priorities_apart(box: Box) -> None:
    later = server_now(box.db) + timedelta(seconds=500)
    rows = box.enqueue_many(
        box.record(), box.record(due_at=later), box.record(priority=9), box.record(group_id="g"), box.record()
    )
    made = [row["id"] for row in rows]
    assert box.take() == [made[2], made[0], made[3], made[4]]
    box.db.advance(600)
    assert made[1] in box.take()


def test_contract_many_keeps_topics_apart(box: Box) -> None:
    made = ids(box.enqueue_many(box.record("a"), box.record("b"), box.record("a")))
    assert box.take(topics=["b"]) == made[1:2]
    assert box.take(topics=["a"]) == [made[0], made[2]]


def test_contract_many_takes_a_null_for_an_argument_left_out(box: Box) -> None:
    """All that may be left out is null, also headers, whose JSON null would be a value."""
    names = ["group_id", "priority", "collapse_key", "headers", "expires_at", "due_at", "delay_seconds"]
    if box.kind == "outbox":
        names += ["correlation_id", "message_id", "dedup_key", "created_at"]
    else:
        names += ["hash", "received_at"]
    (made,) = box.enqueue_many(box.record(**dict.fromkeys(names)))
    row = box.get(made["id"])
    assert headers_of(row) is None
    assert [row[name] for name in ("group_id", "collapse_key", "expires_at", "due_at")] == [None] * 4
    assert row["priority"] == 0
    assert box.take() == [made["id"]]


def test_contract_many_without_records_is_a_no_op(box: Box) -> None:
    assert box.call("enqueue_many", messages="[]") == []
    assert box.count() == 0


def test_contract_many_refuses_a_null_set(box: Box) -> None:
    with refuses("messages"):
        box.call("enqueue_many", messages=None)


def test_contract_many_refuses_json_that_is_no_array_of_objects(box: Box) -> None:
    for text in ["{}", '"text"', "1", "null", "[1]", '["a"]', "[[]]", "[null]"]:
        with refuses("messages"):
            box.call("enqueue_many", messages=text)
    assert box.count() == 0


def test_contract_many_refuses_text_that_is_not_json(box: Box) -> None:
    for text in ["", "[", "[{]", "plain", '[{"topic": "t"', "[{'topic': 't'}]"]:
        with pytest.raises(InvalidArgument):
            box.call("enqueue_many", messages=text)
    assert box.count() == 0


BAD: dict[str, Row] = {
    "null topic": {"topic": None},
    "empty topic": {"topic": ""},
    "long topic": {"topic": "x" * 256},
    "null payload": {"payload": None},
    "empty group": {"group_id": ""},
    "long group": {"group_id": "x" * 256},
    "long collapse key": {"collapse_key": "x" * 256},
    "empty collapse key": {"collapse_key": ""},
    "priority": {"priority": 32768},
    "priority text": {"priority": "high"},
    "headers array": {"headers": [1]},
    "headers text": {"headers": "text"},
    "due time": {"due_at": "tomorrow-ish"},
    "expiry": {"expires_at": "2024-13-45"},
}
BAD_OF: dict[str, dict[str, Row]] = {
    "outbox": {
        "long correlation": {"correlation_id": "x" * 256},
        "empty dedup key": {"dedup_key": ""},
        "long dedup key": {"dedup_key": "x" * 256},
        "message id": {"message_id": "no uuid"},
        "created at": {"created_at": "x"},
    },
    "inbox": {
        "null source": {"source": None},
        "empty source": {"source": ""},
        "long source": {"source": "x" * 256},
        "null message id": {"message_id": None},
        "empty message id": {"message_id": ""},
        "long message id": {"message_id": "x" * 256},
        "hash of odd length": {"hash": "abc"},
        "hash no hex": {"hash": "zz"},
        "received at": {"received_at": "x"},
    },
}


def test_obx_004_obx_091_ibx_015_ibx_102_many_writes_nothing_when_one_record_is_bad(box: Box) -> None:
    for name, change in (BAD | BAD_OF[box.kind]).items():
        good = [box.record(), box.record(group_id="g"), box.record(collapse_key="c")]
        accepted: list[str] = []
        try:
            box.enqueue_many(*good, box.record() | change, box.record())
        except InvalidArgument:
            pass
        else:
            accepted.append(name)
        assert accepted == []
        assert box.count() == 0
    assert box.take() == []


def test_contract_many_refuses_a_record_without_a_needed_key(box: Box) -> None:
    for name in ("topic", "payload"):
        record = box.record()
        del record[name]
        with refuses(name):
            box.enqueue_many(box.record(), record)
    assert box.count() == 0


def test_contract_many_tells_created_and_duplicate_apart(outbox: Box) -> None:
    known = outbox.enqueue(dedup_key="known")
    own = uuid4()
    rows = outbox.enqueue_many(
        outbox.record(dedup_key="new"),
        outbox.record(dedup_key="known"),
        outbox.record(dedup_key="new"),
        outbox.record(message_id=own),
        outbox.record(message_id=own),
        outbox.record(message_id=known["message_id"]),
        outbox.record(),
    )
    outcomes = [row["outcome"] for row in rows]
    assert outcomes == ["created", "duplicate", "duplicate", "created", "duplicate", "duplicate", "created"]
    assert [row["ordinal"] for row in rows] == list(range(1, 8))
    assert (rows[1]["id"], rows[1]["message_id"]) == (known["id"], known["message_id"])
    assert (rows[2]["id"], rows[2]["message_id"]) == (rows[0]["id"], rows[0]["message_id"])
    assert (rows[4]["id"], rows[4]["message_id"]) == (rows[3]["id"], own)
    assert rows[5]["id"] == known["id"]
    assert outbox.take() == [known["id"], rows[0]["id"], rows[3]["id"], rows[6]["id"]]


def test_contract_many_keeps_only_the_newest_of_one_collapse_key(box: Box) -> None:
    old = box.put(collapse_key="k")
    rows = box.enqueue_many(
        box.record(collapse_key="k"),
        box.record(),
        box.record(collapse_key="k"),
        box.record(collapse_key="other"),
    )
    assert [row["outcome"] for row in rows] == ["created", "created", "collapsed", "created"]
    made = [row["id"] for row in rows]
    assert box.take() == made[1:]
    assert old not in made
    assert box.count() == 3


def test_ibx_014_many_tells_the_inboxs_outcomes_apart(inbox: Box) -> None:
    done = inbox.record(message_id="done", hash="aa")
    waiting = inbox.record(message_id="waiting", hash="aa")
    first = inbox.enqueue_many(done, waiting)
    assert inbox.take() == [row["id"] for row in first]
    assert inbox.ack(OWNER, [first[0]["id"]]) == 1
    rows = inbox.enqueue_many(
        done | {"hash": "bb"}, waiting | {"payload": "new"}, inbox.record(message_id="fresh"), done
    )
    assert [(row["ordinal"], row["outcome"], row["hash_mismatch"]) for row in rows] == [
        (1, "done", True),
        (2, "updated", False),
        (3, "created", False),
        (4, "done", False),
    ]
    assert [row["id"] for row in rows[:2]] == [row["id"] for row in first]
    assert inbox.get(first[1]["id"])["payload"] == "new"


def test_ibx_014_many_takes_one_key_twice_in_one_batch(inbox: Box) -> None:
    one = inbox.record(message_id="m", payload="first")
    rows = inbox.enqueue_many(one, inbox.record(), one | {"payload": "second"})
    assert [row["ordinal"] for row in rows] == [1, 2, 3]
    assert rows[0]["id"] == rows[2]["id"]
    assert (rows[0]["outcome"], rows[2]["outcome"]) == ("created", "updated")
    assert inbox.get(rows[0]["id"])["payload"] == "second"
    assert sorted(inbox.take()) == sorted({row["id"] for row in rows})


def test_contract_many_in_a_session_is_undone_with_it(box: Box) -> None:
    with box.db.session() as session:
        assert len(box.on(session).enqueue_many(box.record(), box.record(group_id="g"))) == 2
        session.rollback()
    assert box.count() == 0


def test_contract_many_takes_a_thousand_records(box: Box) -> None:
    made = box.fill(1000, payload="x" * 100)
    assert len(set(made)) == 1000
    assert box.take(batch=1000) == made


def test_contract_a_set_of_records_may_be_given_as_a_list_too(box: Box) -> None:
    rows = box.call("enqueue_many", messages=[box.record(headers={"a": "ü"}), box.record()])
    assert [row["outcome"] for row in rows] == ["created", "created"]
    assert headers_of(box.get(rows[0]["id"])) == {"a": "ü"}


def test_contract_many_keeps_large_headers_and_payloads(box: Box) -> None:
    headers = {f"key {number}": "ü🐘" * 500 for number in range(20)}
    payload = 'a \\ "long" ü🐘\n' * 5000
    box.enqueue_many(box.record(payload=payload, headers=headers))
    (row,) = box.claim()
    assert headers_of(row) == headers
    assert row["payload"] == payload


def test_contract_an_array_or_object_does_not_pass_for_an_argument_left_out(box: Box) -> None:
    typed = ["due_at", "expires_at", "delay_seconds", "priority"]
    typed += ["hash", "received_at"] if box.kind == "inbox" else ["message_id", "created_at"]
    for name in typed:
        for value in ([], [1], {}, {"a": 1}):
            with refuses("messages"):
                box.enqueue_many(box.record(), box.record(**{name: value}))
    assert box.count() == 0
    keys = ["group_id", "collapse_key"] + (["correlation_id"] if box.kind == "outbox" else [])
    (row,) = box.enqueue_many(box.record(**{name: [1] for name in keys}))
    found = box.get(row["id"])
    assert {found[name] for name in keys} == {"[1]"}, (
        "where a text is asked for, JSON is one, as it is for the payload"
    )


def test_contract_a_dedup_key_that_is_an_array_is_a_key(outbox: Box) -> None:
    rows = [outbox.enqueue_many(outbox.record(dedup_key=[1]))[0] for _ in range(2)]
    assert [row["outcome"] for row in rows] == ["created", "duplicate"]
