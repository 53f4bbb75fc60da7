"""The inbox's natural key: what was seen, what was processed, and what a second delivery changes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contract.support import (
    DISTINCT,
    HOSTILE,
    LONG,
    OTHER,
    OWNER,
    TOO_LONG,
    Box,
    Row,
    refuses,
    server_now,
)

KEY: Row = {"message_id": "m", "source": "s"}


def already(box: Box, content: bytes | None = None, /, **key: str | None) -> tuple[bool, bool]:
    """Whether the message was processed, and whether its content's hash differs."""
    row = box.one("already_processed", **(KEY | key), hash=content)
    assert list(row) == ["already_processed", "hash_mismatch"]
    return bool(row["already_processed"]), bool(row["hash_mismatch"])


def found(box: Box, **key: object) -> Row:
    """The message of a key."""
    return box.one("find", **(KEY | key))


def processed(box: Box, **more: object) -> int:
    """Enqueues, claims and acknowledges the message of the key."""
    message = box.put(**(KEY | more))
    assert box.take() == [message]
    assert box.ack(OWNER, [message]) == 1
    return message


def test_ibx_001_source_and_message_id_together_are_the_key(inbox: Box) -> None:
    outcomes = [
        inbox.enqueue(source=source, message_id=message_id)["outcome"]
        for source, message_id in (("a", "1"), ("b", "1"), ("a", "2"), ("a", "1"), ("a1", "x"), ("a", "1x"))
    ]
    assert outcomes == ["created", "created", "created", "updated", "created", "created"]


def test_ibx_002_ibx_003_already_processed_is_true_once_done(inbox: Box) -> None:
    processed(inbox)
    assert already(inbox) == (True, False)
    assert already(inbox, source="other") == (False, False)
    assert found(inbox)["status"] == "Done"


def test_ibx_004_first_sight_inserts_seen_and_answers_false(inbox: Box) -> None:
    before = server_now(inbox.db)
    assert already(inbox) == (False, False)
    row = found(inbox)
    assert (row["status"], row["topic"], row["payload"], row["attempt"]) == ("Seen", None, None, 0)
    margin = timedelta(milliseconds=5)
    assert before - margin <= row["first_seen_at"] <= server_now(inbox.db) + margin
    assert inbox.count() == 1


def test_ibx_005_a_message_that_is_not_done_is_false_and_seen_again(inbox: Box) -> None:
    already(inbox)
    first = found(inbox)
    inbox.db.advance(100)
    assert already(inbox) == (False, False)
    again = found(inbox)
    assert again["first_seen_at"] == first["first_seen_at"]
    assert again["last_seen_at"] >= first["last_seen_at"] + timedelta(seconds=99)
    assert again["id"] == first["id"]


@pytest.mark.parametrize("fate", ["waiting", "held", "dead"])
def test_ibx_005_enqueued_messages_that_are_not_done_are_seen_again_too(inbox: Box, fate: str) -> None:
    message = inbox.put(**KEY)
    if fate != "waiting":
        inbox.take()
    if fate == "dead":
        inbox.fail(OWNER, [message])
    first = found(inbox)
    inbox.db.advance(100)
    assert already(inbox) == (False, False)
    again = found(inbox)
    assert again["last_seen_at"] > first["last_seen_at"]
    assert {name: again[name] for name in again if name != "last_seen_at"} == {
        name: first[name] for name in first if name != "last_seen_at"
    }


def test_ibx_003_a_done_message_is_not_touched_by_looking(inbox: Box) -> None:
    processed(inbox)
    before = found(inbox)
    inbox.db.advance(100)
    assert already(inbox, b"hash") == (True, False)
    assert found(inbox) == before


def test_ibx_006_a_rolled_back_check_leaves_nothing(inbox: Box) -> None:
    with inbox.db.session() as session:
        assert already(inbox.on(session)) == (False, False)
        session.rollback()
    assert inbox.call("find", **KEY) == []
    assert already(inbox) == (False, False)


def test_ibx_007_a_hash_is_stored_for_the_next_time(inbox: Box) -> None:
    assert already(inbox, b"\x00\x01\xff" * 11) == (False, False)
    assert found(inbox)["hash"] == b"\x00\x01\xff" * 11
    assert already(inbox, b"\x00\x01\xff" * 11) == (False, False)
    assert already(inbox, None) == (False, False)


def test_ibx_007_a_hash_that_was_not_known_is_stored_later(inbox: Box) -> None:
    already(inbox)
    assert already(inbox, b"late") == (False, False)
    assert found(inbox)["hash"] == b"late"
    assert already(inbox, b"other") == (False, True)


def test_ibx_008_a_different_hash_is_told_but_does_not_fail(inbox: Box) -> None:
    already(inbox, b"one")
    assert already(inbox, b"two") == (False, True)
    assert already(inbox, b"") == (False, True)
    assert already(inbox, b"one") == (False, False)


def test_ibx_008_enqueue_tells_a_different_hash(inbox: Box) -> None:
    rows = [inbox.enqueue(**KEY, hash=value) for value in (b"one", b"one", b"two", b"two", None)]
    assert [bool(row["hash_mismatch"]) for row in rows] == [False, False, True, False, False]
    assert [row["outcome"] for row in rows] == ["created", *["updated"] * 4]


def test_ibx_008_a_done_message_tells_a_different_hash_too(inbox: Box) -> None:
    processed(inbox, hash=b"one")
    assert already(inbox, b"two") == (True, True)
    row = inbox.enqueue(**KEY, hash=b"two")
    assert (row["outcome"], bool(row["hash_mismatch"])) == ("done", True)
    assert found(inbox)["hash"] == b"one"


def test_ibx_007_large_hashes_are_kept(inbox: Box) -> None:
    value = bytes(range(256)) * 8
    inbox.put(**KEY, hash=value)
    assert inbox.claim()[0]["hash"] == value


STEPS = ("mark_processing", "mark_processed", "mark_dead")


def test_ibx_009_ibx_010_ibx_011_ibx_012_bad_keys_are_refused(inbox: Box) -> None:
    for name in ("message_id", "source"):
        for value in (None, "", *TOO_LONG):
            with refuses(name):
                already(inbox, **{name: value})
            for step in STEPS:
                with refuses(name):
                    inbox.affected(step, **(KEY | {name: value}))
            with refuses(name):
                inbox.call("find", **(KEY | {name: value}))
    assert inbox.count() == 0


def test_ibx_011_ibx_012_keys_of_255_characters_and_hostile_ones_are_kept(inbox: Box) -> None:
    texts = [LONG, *HOSTILE, *DISTINCT]
    for text in texts:
        assert already(inbox, message_id=text, source=text) == (False, False)
        assert inbox.affected("mark_processing", message_id=text, source=text) == 1
        assert inbox.affected("mark_processed", message_id=text, source=text) == 1
        assert already(inbox, message_id=text, source=text) == (True, False)
        row = found(inbox, message_id=text, source=text)
        assert (row["message_id"], row["source"], row["status"]) == (text, text, "Done")
    assert inbox.count() == len(texts)


def test_contract_marks_answer_what_they_changed(inbox: Box) -> None:
    for step in STEPS:
        assert inbox.affected(step, **KEY) == 0
    already(inbox)
    assert inbox.affected("mark_processing", **KEY) == 1
    assert found(inbox)["status"] == "Processing"
    assert inbox.affected("mark_processing", **KEY) == 1
    assert inbox.affected("mark_processed", **KEY) == 1
    assert found(inbox)["status"] == "Done"
    assert [inbox.affected(step, **KEY) for step in STEPS] == [0, 0, 0]


def test_contract_a_seen_message_may_be_marked_dead(inbox: Box) -> None:
    already(inbox)
    assert inbox.affected("mark_dead", **KEY) == 1
    row = found(inbox)
    assert row["status"] == "Dead"
    assert row["died_at"] is not None
    assert [inbox.affected(step, **KEY) for step in STEPS] == [0, 0, 0]
    assert already(inbox) == (False, False)


def test_contract_a_seen_message_may_be_marked_processed(inbox: Box) -> None:
    already(inbox)
    assert inbox.affected("mark_processed", **KEY) == 1
    row = found(inbox)
    assert row["status"] == "Done"
    assert row["processed_at"] is not None
    assert already(inbox) == (True, False)


@pytest.mark.parametrize(("step", "status"), [("mark_processed", "Done"), ("mark_dead", "Dead")])
@pytest.mark.parametrize("held", [False, True])
def test_contract_enqueued_messages_may_be_marked(inbox: Box, step: str, status: str, held: bool) -> None:
    message = inbox.put(**KEY)
    if held:
        assert inbox.take() == [message]
    assert inbox.affected(step, **KEY) == 1
    assert found(inbox)["status"] == status
    assert inbox.ack(OWNER, [message]) == 0
    inbox.db.advance(1000)
    assert inbox.take(OTHER) == []
    assert inbox.reap() == 0
    assert found(inbox)["owner_token"] is None


@pytest.mark.parametrize("step", ["mark_processed", "mark_dead"])
@pytest.mark.parametrize("held", [False, True])
def test_contract_a_marked_member_does_not_block_its_group(inbox: Box, step: str, held: bool) -> None:
    first = inbox.put(**KEY, group_id="g")
    second = inbox.put(group_id="g")
    if held:
        assert inbox.take(batch=1) == [first]
    assert inbox.affected(step, **KEY) == 1
    assert inbox.take(OTHER) == [second]


def test_contract_a_delayed_message_may_be_marked(inbox: Box) -> None:
    inbox.put(**KEY, due_at=server_now(inbox.db) + timedelta(seconds=100))
    assert inbox.affected("mark_processed", **KEY) == 1
    inbox.db.advance(200)
    assert inbox.take() == []
    assert found(inbox)["status"] == "Done"


def test_contract_a_message_that_was_never_enqueued_is_never_claimed_whatever_its_status(inbox: Box) -> None:
    for number, steps in enumerate(([], ["mark_processing"], ["mark_dead"], ["mark_processed"])):
        key: Row = {"message_id": f"m{number}", "source": "s"}
        already(inbox, **key)
        for step in steps:
            assert inbox.affected(step, **key) == 1
    inbox.db.advance(10**6)
    assert inbox.take() == []
    assert inbox.reap() == 0


def test_ibx_014_enqueue_of_a_known_key_writes_no_second_message(inbox: Box) -> None:
    first = inbox.enqueue(**KEY)
    again = inbox.enqueue(**KEY)
    assert (first["outcome"], again["outcome"], again["id"]) == ("created", "updated", first["id"])
    assert inbox.take() == [first["id"]]
    assert inbox.take(OTHER) == []


def test_ibx_026_a_second_delivery_updates_last_seen_only(inbox: Box) -> None:
    inbox.enqueue(**KEY)
    first = found(inbox)
    inbox.db.advance(100)
    inbox.enqueue(**KEY)
    again = found(inbox)
    assert again["first_seen_at"] == first["first_seen_at"]
    assert again["last_seen_at"] >= first["last_seen_at"] + timedelta(seconds=99)


def test_ibx_027_enqueue_of_a_seen_message_makes_it_processing(inbox: Box) -> None:
    already(inbox, b"h")
    row = inbox.enqueue(**KEY, group_id="g", collapse_key="c", priority=4, hash=b"h")
    assert (row["outcome"], bool(row["hash_mismatch"])) == ("updated", False)
    (claimed,) = inbox.claim()
    assert (claimed["id"], claimed["group_id"], claimed["priority"]) == (row["id"], "g", 4)
    assert found(inbox)["status"] == "Processing"


def test_ibx_027_enqueue_of_a_message_marked_processing_makes_it_claimable(inbox: Box) -> None:
    already(inbox)
    inbox.affected("mark_processing", **KEY)
    row = inbox.enqueue(**KEY)
    assert row["outcome"] == "updated"
    assert inbox.take() == [row["id"]]


def test_ibx_028_enqueue_of_a_done_message_changes_nothing(inbox: Box) -> None:
    message = processed(inbox)
    before = found(inbox)
    inbox.db.advance(50)
    row = inbox.enqueue("other", "new", **KEY, priority=9)
    assert (row["id"], row["outcome"], bool(row["hash_mismatch"])) == (message, "done", False)
    assert found(inbox) == before
    assert inbox.take() == []


CHANGE: Row = {"topic": "new.topic", "payload": "new", "hash": b"new", "priority": 3, "headers": '{"n": 1}'}


@pytest.mark.parametrize("fate", ["seen", "waiting", "held", "dead", "delayed", "grouped"])
def test_ibx_029_enqueue_of_a_message_that_is_not_done_takes_the_new_content(inbox: Box, fate: str) -> None:
    later = server_now(inbox.db) + timedelta(seconds=1000)
    if fate == "seen":
        already(inbox)
    else:
        more: dict[str, Row] = {"delayed": {"due_at": later}, "grouped": {"group_id": "g"}}
        message = inbox.put(**KEY, **more.get(fate, {}))
        if fate in ("held", "dead"):
            assert inbox.take() == [message]
        if fate == "dead":
            assert inbox.fail(OWNER, [message]) == 1
    row = inbox.enqueue(**KEY, **CHANGE)
    assert row["outcome"] == "updated"
    stored = found(inbox)
    expected = {name: CHANGE[name] for name in ("topic", "payload", "hash", "priority")}
    assert {name: stored[name] for name in expected} == expected
    assert (stored["due_at"], stored["attempt"]) == (None, 0)
    assert stored["status"] == ("Dead" if fate == "dead" else "Processing")
    if fate in ("held", "dead"):
        assert inbox.take(OTHER) == []
    else:
        (claimed,) = inbox.claim(OTHER)
        assert claimed["payload"] == "new"


def test_ibx_029_a_new_due_time_moves_a_waiting_message(inbox: Box) -> None:
    message = inbox.put(**KEY)
    inbox.enqueue(**KEY, due_at=server_now(inbox.db) + timedelta(seconds=100))
    assert inbox.take() == []
    inbox.db.advance(200)
    assert inbox.take() == [message]


def test_ibx_029_a_new_due_time_moves_a_waiting_member_of_a_group(inbox: Box) -> None:
    first = inbox.put(**KEY, group_id="g")
    second = inbox.put(group_id="g")
    inbox.enqueue(**KEY, due_at=server_now(inbox.db) + timedelta(seconds=100))
    assert inbox.take() == []
    inbox.enqueue(**KEY)
    assert inbox.take() == [first, second]


def test_ibx_029_an_update_while_it_is_held_leaves_the_lease(inbox: Box) -> None:
    message = inbox.put(**KEY)
    assert inbox.take() == [message]
    inbox.enqueue("new", "new", **KEY)
    assert found(inbox)["owner_token"] == OWNER
    assert inbox.release(OWNER, [message]) == 1
    (row,) = inbox.claim(OTHER, topics=["new"])
    assert (row["id"], row["payload"]) == (message, "new")


def test_ibx_029_a_new_priority_moves_a_waiting_message(inbox: Box) -> None:
    message, other = inbox.put(**KEY), inbox.put(priority=5)
    first = inbox.put()
    inbox.enqueue(**KEY, priority=9)
    assert inbox.take(batch=1) == [message]
    inbox.release(OWNER, [message])
    inbox.enqueue(**KEY, priority=-1)
    assert inbox.take() == [other, first, message]


def test_ibx_029_a_message_waiting_for_its_retry_takes_the_new_due_time(inbox: Box) -> None:
    message = inbox.put(**KEY)
    inbox.take()
    inbox.abandon(OWNER, [message], last_error="e", delay_seconds=1000)
    assert inbox.enqueue("new", "new", **KEY)["outcome"] == "updated"
    (row,) = inbox.claim(OTHER)
    assert (row["id"], row["payload"], row["due_at"]) == (message, "new", None)


def test_ibx_029_a_new_topic_decides_who_may_claim(inbox: Box) -> None:
    message = inbox.put("old", **KEY)
    inbox.enqueue("new", **KEY)
    assert inbox.take(topics=["old"]) == []
    assert inbox.take(topics=["new"]) == [message]


def test_contract_a_dead_message_stays_dead_until_a_replay(inbox: Box) -> None:
    (message,) = inbox.made_dead(**KEY)
    assert inbox.enqueue("new", "new", **KEY)["outcome"] == "updated"
    assert inbox.take() == []
    assert inbox.affected("replay", ids=[message]) == 1
    (row,) = inbox.claim()
    assert (row["id"], row["topic"], row["payload"]) == (message, "new", "new")


def test_contract_an_update_keeps_group_and_collapse_key(inbox: Box) -> None:
    inbox.put(**KEY, group_id="g", collapse_key="c")
    inbox.enqueue(**KEY, group_id="other", collapse_key="other")
    row = found(inbox)
    assert (row["group_id"], row["collapse_key"]) == ("g", "c")


def test_contract_a_new_expiry_takes_the_place_of_the_old_one(inbox: Box) -> None:
    message = inbox.put(**KEY, expires_at=server_now(inbox.db) + timedelta(seconds=100))
    inbox.enqueue(**KEY)
    inbox.db.advance(200)
    (row,) = inbox.claim()
    assert (row["id"], row["expires_at"]) == (message, None)


def test_contract_find_of_an_unknown_key_answers_no_row(inbox: Box) -> None:
    inbox.put(**KEY)
    assert inbox.call("find", message_id="other", source="s") == []
    assert inbox.call("find", message_id="m", source="other") == []
