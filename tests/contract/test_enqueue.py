"""Producing one message: what is written, when it may be handed out, and whose transaction it belongs to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from tests.contract.support import OWNER, Box, headers_of, server_now


def test_obx_001_ibx_013_enqueue_persists_the_message_beyond_its_connection(every_box: Box) -> None:
    message = every_box.put("order.created", '{"no": 1}')
    with every_box.db.session() as session:
        row = every_box.on(session).shown(message)
    assert (row["topic"], row["payload"], row["status"]) == ("order.created", '{"no": 1}', every_box.waiting)


def test_obx_002_enqueue_alone_is_committed_by_itself(box: Box) -> None:
    message = box.put()
    with box.db.session() as session:
        assert [row["id"] for row in box.on(session).claim()] == [message]


def test_obx_003_enqueue_joins_the_callers_transaction_and_vanishes_with_its_rollback(box: Box) -> None:
    with box.db.session() as session:
        box.on(session).put()
        box.on(session).put(group_id="g", collapse_key="c")
        assert box.take() == []
        session.rollback()
    assert box.count() == 0
    assert box.take() == []


def test_obx_003_enqueue_is_there_once_the_callers_transaction_commits(box: Box) -> None:
    with box.db.session() as session:
        first = box.on(session).put()
        second = box.on(session).put(group_id="g")
        session.commit()
    assert box.take() == [first, second]


def test_obx_006_ibx_023_a_future_due_time_keeps_the_message_back_until_it_has_passed(box: Box) -> None:
    due = server_now(box.db) + timedelta(seconds=1000)
    message = box.put(due_at=due)
    assert box.take() == []
    box.db.advance(990)
    assert box.take() == []
    box.db.advance(20)
    (row,) = box.claim()
    assert (row["id"], row["due_at"]) == (message, due)


def test_obx_007_ibx_024_no_due_time_or_a_past_one_is_claimable_at_once(box: Box) -> None:
    past = datetime(2001, 2, 3, 4, 5, 6, 789000, tzinfo=UTC)
    first, second = box.put(due_at=None), box.put(due_at=past)
    rows = box.claim()
    assert [(row["id"], row["due_at"]) for row in rows] == [(first, None), (second, past)]


def test_obx_006_due_times_take_other_offsets_than_utc(box: Box) -> None:
    due = (server_now(box.db) + timedelta(hours=1)).astimezone(tz=None)
    message = box.put(due_at=due)
    assert box.get(message)["due_at"] == due
    assert box.take() == []


def test_obx_008_ids_are_unique_and_ascend_in_enqueue_order(every_box: Box) -> None:
    found = [every_box.put(), every_box.put(group_id="g"), every_box.put(priority=5), *every_box.fill(3)]
    found.append(every_box.put(payload=""))
    assert found == sorted(set(found))


def test_obx_008_the_outbox_draws_a_message_id_where_none_is_given(outbox: Box) -> None:
    first, second = outbox.enqueue(), outbox.enqueue()
    assert isinstance(first["message_id"], UUID)
    assert first["message_id"] != second["message_id"]
    assert outbox.get(first["id"])["message_id"] == first["message_id"]


def test_contract_drawn_message_ids_are_time_ordered(outbox: Box) -> None:
    drawn = [outbox.enqueue()["message_id"] for _ in range(5)]
    stamps = [message_id.hex[:12] for message_id in drawn]
    assert stamps == sorted(stamps)


def test_contract_the_outbox_keeps_the_callers_own_message_id(outbox: Box) -> None:
    own = uuid4()
    row = outbox.enqueue(message_id=own)
    assert (row["message_id"], row["outcome"]) == (own, "created")
    assert outbox.claim()[0]["message_id"] == own


def test_obx_009_ibx_025_the_first_time_is_the_servers_clock(box: Box) -> None:
    name = "created_at" if box.kind == "outbox" else "first_seen_at"
    before = server_now(box.db)
    message = box.put()
    after = server_now(box.db)
    margin = timedelta(milliseconds=5)
    assert before - margin <= box.get(message)[name] <= after + margin


def test_contract_a_migrated_message_keeps_its_time_and_is_due_at_once(box: Box) -> None:
    original = datetime(2019, 12, 31, 23, 59, 59, 123456, tzinfo=UTC)
    future = server_now(box.db) + timedelta(days=900)
    given, name = ("created_at", "created_at") if box.kind == "outbox" else ("received_at", "first_seen_at")
    old = box.put(**{given: original})
    new = box.put(**{given: future})
    assert [(row["id"], row[name]) for row in box.claim()] == [(old, original), (new, future)]


def test_obx_010_ibx_027_a_new_message_has_no_attempt_and_waits(box: Box) -> None:
    row = box.get(box.put())
    assert (row["attempt"], row["status"], row["last_error"]) == (0, box.waiting, None)
    assert row["processed_at"] is row["processed_by"] is row["died_at"] is None
    assert row["owner_token"] is row["locked_until"] is None


def test_contract_every_argument_comes_back_with_the_claim(every_box: Box) -> None:
    expires = server_now(every_box.db) + timedelta(days=2)
    more: dict[str, object] = {
        "group_id": "group",
        "priority": 7,
        "collapse_key": "collapse",
        "expires_at": expires,
        "headers": {"trace": "ü", "n": 1, "deep": {"list": [1, None, True]}},
    }
    if every_box.kind == "outbox":
        more |= {"correlation_id": "correlation", "dedup_key": "dedup"}
    else:
        more |= {"hash": b"\x00\xff\x10", "source": "source", "message_id": "message"}
    message = every_box.put("topic", "payload", **more)
    (row,) = every_box.claim()
    assert row["id"] == message
    expected = {"topic": "topic", "payload": "payload", "attempt": 0, "due_at": None, "last_error": None}
    expected |= more
    assert headers_of(row) == expected.pop("headers")
    for hidden in ("collapse_key", "dedup_key"):
        assert every_box.get(message).get(hidden) == expected.pop(hidden, None)
    assert {name: row[name] for name in expected} == expected


def test_contract_optional_arguments_left_out_are_null_and_priority_zero(box: Box) -> None:
    row = box.get(box.put())
    unset = {"group_id", "collapse_key", "headers", "due_at", "expires_at"}
    unset |= {"correlation_id", "dedup_key"} if box.kind == "outbox" else {"hash"}
    assert {name: row[name] for name in unset} == dict.fromkeys(unset)
    assert row["priority"] == 0


def test_contract_null_optional_arguments_are_as_if_left_out(box: Box) -> None:
    names = ["due_at", "group_id", "priority", "collapse_key", "expires_at", "headers"]
    names += ["correlation_id", "message_id", "dedup_key", "created_at"] if box.kind == "outbox" else ["hash"]
    row = box.get(box.put(**dict.fromkeys(names)))
    assert (row["priority"], row["status"], row["group_id"], row["headers"]) == (0, box.waiting, None, None)


def test_obx_108_ibx_118_a_payload_of_five_megabytes_makes_the_round_trip(box: Box) -> None:
    payload = ("0123456789abcde\n" * 65536 + "üß漢🐘") * 5
    message = box.put(payload=payload)
    (row,) = box.claim()
    assert row["payload"] == payload
    assert box.ack(OWNER, [message]) == 1


def test_ibx_019_an_empty_payload_is_valid_and_stays_empty(box: Box) -> None:
    box.put(payload="")
    (row,) = box.enqueue_many(box.record(payload=""))
    assert row["outcome"] == "created"
    assert [row["payload"] for row in box.claim()] == ["", ""]


def test_ibx_022_payloads_of_any_format_pass(box: Box) -> None:
    payloads = ["{not json", "\\x00ff", "<xml/>", "[", "null", "\ufeffbom"]
    for payload in payloads:
        box.put(payload=payload)
    assert [row["payload"] for row in box.claim()] == payloads


def test_obx_105_ibx_117_named_boxes_are_separate_from_the_default_ones(every_box: Box) -> None:
    message = every_box.put("only.here")
    counts = {
        name: every_box.db.sql(f"SELECT count(*) AS n FROM {{schema}}.{name}_messages")[0]["n"]
        for name in ("outbox", "inbox", "orders", "mail")
    }
    assert counts == {name: int(name == every_box.name) for name in counts}
    for name in counts:
        claimed = every_box.db.call(f"{name}_claim", owner_token=OWNER, lease_seconds=30, batch_size=10)
        assert [row["id"] for row in claimed] == ([message] if name == every_box.name else [])


def test_contract_the_same_keys_in_two_boxes_do_not_meet(every_box: Box) -> None:
    twin = {"outbox": "mail", "mail": "outbox", "inbox": "orders", "orders": "inbox"}[every_box.name]
    more: dict[str, object] = {"group_id": "g", "collapse_key": "c"}
    more |= {"dedup_key": "d"} if every_box.kind == "outbox" else {"source": "s", "message_id": "m"}
    assert every_box.enqueue(**more)["outcome"] == "created"
    other = every_box.db.one(f"{twin}_enqueue", topic="t", payload="p", **more)
    assert other["outcome"] == "created"
    assert len(every_box.take()) == 1
    assert len(every_box.db.call(f"{twin}_claim", owner_token=OWNER, lease_seconds=30, batch_size=9)) == 1
