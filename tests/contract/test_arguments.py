"""What a producer may pass: limits, refusals before anything is written, and texts that mean harm."""

from __future__ import annotations

import contextlib

import pytest

from pysqlbox.errors import InvalidArgument, PysqlboxError
from tests.contract.support import (
    DISTINCT,
    HOSTILE,
    LONG,
    NIL,
    OTHER,
    OWNER,
    TOO_LONG,
    Box,
    check_books,
    headers_of,
    json_text,
    refuses,
    unreadable,
)

TEXTS = {
    "outbox": ("topic", "correlation_id", "group_id", "dedup_key", "collapse_key"),
    "inbox": ("topic", "source", "message_id", "group_id", "collapse_key"),
}
"""The short texts of an enqueue."""
NEEDED = {"outbox": ("topic",), "inbox": ("topic", "source", "message_id")}


def test_obx_004_ibx_015_ibx_016_ibx_017_enqueue_refuses_null_in_needed_texts(box: Box) -> None:
    for name in NEEDED[box.kind]:
        with refuses(name):
            box.enqueue(**{name: None})
    assert box.count() == 0


def test_obx_004_ibx_015_ibx_016_ibx_017_enqueue_refuses_empty_texts(box: Box) -> None:
    for name in TEXTS[box.kind]:
        if name != "correlation_id":
            with refuses(name):
                box.enqueue(**{name: ""})
    assert box.count() == 0


def test_obx_005_ibx_018_enqueue_refuses_a_null_payload(box: Box) -> None:
    with refuses("payload"):
        box.enqueue(payload=None)
    assert box.count() == 0


def test_obx_107_obx_109_ibx_011_ibx_012_ibx_020_enqueue_refuses_256_characters(box: Box) -> None:
    for name in TEXTS[box.kind]:
        for value in TOO_LONG:
            with refuses(name):
                box.enqueue(**{name: value})
    assert box.count() == 0


def test_obx_107_obx_109_ibx_011_ibx_012_ibx_020_enqueue_keeps_255_characters(box: Box) -> None:
    for value in (LONG, "ü" * 255, "y" * 254 + " ", "🐘" * 127):
        given: dict[str, object] = dict.fromkeys(TEXTS[box.kind], value)
        message = box.put(**given)
        row = box.get(message)
        assert {name: row[name] for name in given} == given
    assert len(box.take()) == 4, "the four have four groups, keys and topics"


def test_contract_correlation_id_may_be_empty(outbox: Box) -> None:
    assert outbox.get(outbox.put(correlation_id=""))["correlation_id"] == ""


def test_contract_priority_is_a_smallint(box: Box) -> None:
    for value in (32768, -32769, 10**6):
        with refuses("priority"):
            box.enqueue(priority=value)
    assert box.count() == 0
    low, high = box.put(priority=-32768), box.put(priority=32767)
    assert [(row["id"], row["priority"]) for row in box.claim()] == [(high, 32767), (low, -32768)]


@pytest.mark.parametrize("grouped", [False, True])
def test_contract_a_message_of_the_lowest_priority_goes_every_way(box: Box, grouped: bool) -> None:
    """The lowest smallint has no positive twin; a message that cannot come back would stop every claim."""
    group = {"group_id": "g"} if grouped else {}
    made = [box.put(priority=-32768, **group)]
    made += box.fill(2, priority=-32768, **group)
    made.append(box.put(priority=-32768, delay_seconds=30, **group))
    assert box.take() == made[:3]
    assert box.abandon(OWNER, made[:3], delay_seconds=5) == 3
    box.db.advance(6)
    assert box.take(lease=5) == made[:3]
    box.db.advance(6)
    assert sorted(box.take(OTHER)) == made[:3], "whose leases were reaped"
    assert box.release(OTHER, made[:3], delay_seconds=1) == 3
    assert box.affected("reschedule", ids=made, due_at=None) == 4
    assert sorted(box.take()) == made
    assert box.fail(OWNER, made) == 4
    assert box.affected("replay", ids=made) == 4
    assert sorted(box.take()) == made
    assert box.ack(OWNER, made) == 4
    check_books(box)


def test_contract_headers_are_a_json_object_and_no_other_value(box: Box) -> None:
    for value in ["[]", '"text"', "1", "null", "true"]:
        with pytest.raises(InvalidArgument):
            box.enqueue(headers=value)
    assert box.count() == 0


def test_contract_headers_that_are_not_json_are_refused(box: Box) -> None:
    for value in ["", "{", "{'a': 1}", '{"a": 1} x', "plain"]:
        with pytest.raises(InvalidArgument):
            box.enqueue(headers=value)
    assert box.count() == 0


def test_contract_headers_hold_hostile_names_and_values(box: Box) -> None:
    headers = {text: {"value": text, "list": [text]} for text in HOSTILE}
    box.put(headers=json_text(headers))
    box.put(headers="{}")
    first, second = box.claim()
    assert headers_of(first) == headers
    assert headers_of(second) == {}


def test_contract_an_error_names_the_argument_and_its_rule_but_never_the_payload(box: Box) -> None:
    with pytest.raises(InvalidArgument) as caught:
        box.enqueue("", "secret payload")
    assert "topic" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_contract_a_malformed_uuid_is_refused(outbox: Box) -> None:
    with unreadable(outbox.db):
        outbox.enqueue(message_id="not a uuid")
    assert outbox.count() == 0


def test_contract_hostile_texts_come_back_as_they_went_in(box: Box) -> None:
    for text in HOSTILE:
        given: dict[str, object] = dict.fromkeys(TEXTS[box.kind], text)
        message = box.put(**given, payload=text)
        row = box.get(message)
        assert {name: row[name] for name in given} == given
        assert row["payload"] == text
        (claimed,) = box.claim(topics=[text])
        assert (claimed["id"], claimed["topic"], claimed["group_id"]) == (message, text, text)


def test_contract_hostile_texts_pass_through_enqueue_many_too(box: Box) -> None:
    records = [box.record(payload=text, **dict.fromkeys(TEXTS[box.kind], text)) for text in HOSTILE]
    rows = box.enqueue_many(*records)
    for text, row in zip(HOSTILE, rows, strict=True):
        stored = box.get(row["id"])
        assert [stored[name] for name in TEXTS[box.kind]] == [text] * 5
        assert stored["payload"] == text


def test_contract_a_nul_character_is_refused_or_kept_but_never_cut(box: Box) -> None:
    for name in ("payload", *TEXTS[box.kind]):
        before = box.count()
        with contextlib.suppress(PysqlboxError):
            message = box.put(**{name: "a\0b"})
            assert box.get(message)[name] == "a\0b"
            before += 1
        assert box.count() == before


def test_ibx_021_topics_differ_by_case_and_by_trailing_spaces(box: Box) -> None:
    put = {topic: box.put(topic) for topic in DISTINCT}
    for topic, message in put.items():
        assert box.take(topics=[topic]) == [message]
    assert box.take() == []


def test_contract_group_ids_differ_by_case_and_by_trailing_spaces(box: Box) -> None:
    put = [box.put(group_id=group) for group in DISTINCT]
    assert [box.take(batch=1)[0] for _ in put] == put, "each is a group of its own"


def test_contract_collapse_keys_differ_by_case_and_by_trailing_spaces(box: Box) -> None:
    put = [box.put(collapse_key=key) for key in DISTINCT]
    assert box.take() == put


def test_contract_dedup_keys_differ_by_case_and_by_trailing_spaces(outbox: Box) -> None:
    rows = [outbox.enqueue(dedup_key=key) for key in DISTINCT]
    assert [row["outcome"] for row in rows] == ["created"] * len(DISTINCT)
    again = [outbox.enqueue(dedup_key=key) for key in DISTINCT]
    assert [row["outcome"] for row in again] == ["duplicate"] * len(DISTINCT)
    assert [row["id"] for row in again] == [row["id"] for row in rows]


def test_ibx_001_sources_and_message_ids_differ_by_case_and_by_trailing_spaces(inbox: Box) -> None:
    keys = [(source, message_id) for source in DISTINCT for message_id in DISTINCT]
    rows = [inbox.enqueue(source=source, message_id=message_id) for source, message_id in keys]
    assert {row["outcome"] for row in rows} == {"created"}
    assert inbox.count() == len(keys)
    for (source, message_id), row in zip(keys, rows, strict=True):
        (found,) = inbox.call("find", source=source, message_id=message_id)
        assert found["id"] == row["id"]


def test_contract_enqueue_refuses_the_nil_uuid_as_a_message_id(outbox: Box) -> None:
    """What an unset uuid is in many a language: as a key all but the first message would be duplicates."""
    for _ in range(2):
        with refuses("^message_id: must not be the nil uuid"):
            outbox.enqueue(message_id=NIL)
        with refuses("^message_id: must not be the nil uuid"):
            outbox.enqueue_many(outbox.record(), outbox.record(message_id=NIL))
    assert outbox.count() == 0


def test_contract_an_empty_optional_key_is_told_to_be_empty(box: Box) -> None:
    for name in ("group_id", "collapse_key") + (("dedup_key",) if box.kind == "outbox" else ()):
        with refuses(f"^{name}: must not be empty$"):
            box.enqueue(**{name: ""})
