"""Every method of an inbox, on every engine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from pysqlbox import (
    AlreadyProcessed,
    Inbox,
    InboxDeadLetter,
    InboxEnqueued,
    InboxMessage,
    InvalidArgument,
    NotFound,
    StoredInboxMessage,
)
from tests.contract.support import HOSTILE

OWNER = UUID("11111111-1111-4111-8111-111111111111")


def test_enqueue_with_every_argument_and_claim(inbox: Inbox) -> None:
    at = datetime(2020, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    done = inbox.enqueue(
        "t",
        "shop",
        "m-1",
        [1, 2],
        hash=b"\x00\xff",
        due_at=at,
        group_id="g",
        priority=-3,
        collapse_key="k",
        expires_at=datetime(2099, 1, 1, tzinfo=UTC),
        headers={"a": None},
        received_at=at,
    )
    assert done == InboxEnqueued(done.id, "created", False)
    (message,) = inbox.claim(OWNER)
    assert isinstance(message, InboxMessage)
    assert (message.id, message.message_id, message.source, message.topic) == (done.id, "m-1", "shop", "t")
    assert (message.payload, message.hash, message.headers) == ("[1,2]", b"\x00\xff", {"a": None})
    assert (message.group_id, message.priority, message.attempt) == ("g", -3, 0)
    assert message.first_seen_at == at
    assert inbox.ack(OWNER, [message.id]) == 1
    again = inbox.enqueue("t", "shop", "m-1", "p", hash=b"other")
    assert again == InboxEnqueued(done.id, "done", True)
    assert again.duplicate


def test_text_goes_through_unchanged(inbox: Inbox) -> None:
    for text in HOSTILE:
        inbox.enqueue(text, text, text, text)
    claimed = inbox.claim(OWNER)
    assert [each.payload for each in claimed] == list(HOSTILE)
    for message in claimed:
        assert {message.topic, message.source, message.message_id} == {message.payload}
        found = inbox.find(message.message_id, message.source)
        assert found is not None
        assert found.id == message.id


def test_enqueue_many(inbox: Inbox) -> None:
    record = {"topic": "t", "source": "s", "message_id": "1", "payload": {"a": 1}, "hash": b"\x01\x02"}
    done = inbox.enqueue_many(
        [record, {**record, "message_id": "2", "hash": None}, {**record, "hash": b"\x03"}]
    )
    assert [each.outcome for each in done] == ["created", "created", "updated"]
    assert [each.hash_mismatch for each in done] == [False, False, True]
    assert [each.ordinal for each in done] == [1, 2, 3]
    found = inbox.find("1", "s")
    assert found is not None
    assert found.hash == b"\x03"


def test_deduplication(inbox: Inbox) -> None:
    first = inbox.already_processed("1", "s", hash=b"h")
    assert first == AlreadyProcessed(False, False)
    assert not first
    assert inbox.mark_processing("1", "s") == 1
    assert inbox.mark_processed("1", "s") == 1
    assert inbox.mark_processed("1", "s") == 0
    again = inbox.already_processed("1", "s", hash=b"other")
    assert again
    assert again.hash_mismatch
    assert not inbox.already_processed("2", "s")
    assert inbox.mark_dead("2", "s") == 1
    stored = inbox.find("2", "s")
    assert isinstance(stored, StoredInboxMessage)
    assert (stored.status, stored.topic, stored.payload) == ("Dead", None, None)
    (dead,) = inbox.dead_letters()
    assert isinstance(dead, InboxDeadLetter)
    assert dead.id == stored.id
    assert inbox.get(stored.id) == stored
    assert inbox.find("3", "s") is None
    with pytest.raises(NotFound):
        inbox.get(10**15)


def test_settling(inbox: Inbox) -> None:
    ids = [inbox.enqueue("t", "s", str(n), "p").id for n in range(4)]
    assert [each.id for each in inbox.claim(OWNER)] == ids
    assert inbox.abandon(OWNER, ids[:1], delay_seconds=60) == 1
    assert inbox.release(OWNER, ids[1:2]) == 1
    assert inbox.fail(OWNER, ids[2:3], "no") == 1
    assert [each.id for each in inbox.extend(OWNER, ids, timedelta(minutes=5))] == ids[3:]
    assert [
        each.id for each in inbox.settle(OWNER, [{"ids": ids[3:], "result": "ack"}], claim_batch=1)
    ] == ids[1:2]


def test_hashes_are_bytes(inbox: Inbox) -> None:
    for wrong in ("abc", 5):
        with pytest.raises(InvalidArgument, match="hash: must be bytes"):
            inbox.enqueue("t", "s", "1", "p", hash=wrong)  # type: ignore[arg-type]  # that is the test
        with pytest.raises(InvalidArgument, match="hash: must be bytes"):
            inbox.already_processed("1", "s", hash=wrong)  # type: ignore[arg-type]  # that is the test
    with pytest.raises(InvalidArgument, match="source: must not be bytes"):
        inbox.enqueue("t", b"s", "1", "p")  # type: ignore[arg-type]  # that is the test
