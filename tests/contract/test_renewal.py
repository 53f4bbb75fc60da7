"""Second deliveries that change a message, or meet one that has just gone: nothing lost or miscounted."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest

from tests.contract.support import OTHER, OWNER, Box, Row, ids, server_now

KEY: Row = {"message_id": "m", "source": "s"}


def counts(box: Box, *names: str) -> dict[str | None, tuple[int, ...]]:
    """These columns of the statistics, by topic."""
    return {topic: tuple(row[name] for name in names) for topic, row in box.stats().items()}


def test_ibx_029_a_dead_message_is_listed_under_its_new_topic(inbox: Box) -> None:
    (dead,) = inbox.made_dead(topic="old", **KEY)
    assert inbox.enqueue("new", "p", **KEY)["outcome"] == "updated"
    assert inbox.call("dead_letters", topic="old") == []
    assert ids(inbox.call("dead_letters", topic="new")) == [dead]
    assert counts(inbox, "dead") == {"new": (1,), None: (1,)}


def test_ibx_029_a_message_marked_dead_before_it_was_enqueued_is_listed_under_its_topic(inbox: Box) -> None:
    inbox.call("already_processed", **KEY, hash=None)
    assert inbox.affected("mark_dead", **KEY) == 1
    row = inbox.enqueue("new", "p", **KEY)
    assert row["outcome"] == "updated"
    assert inbox.take() == []
    assert ids(inbox.call("dead_letters", topic="new")) == [row["id"]]
    assert counts(inbox, "dead") == {"new": (1,), None: (1,)}
    assert inbox.affected("replay", ids=[row["id"]]) == 1
    assert inbox.take(topics=["new"]) == [row["id"]]


def test_ibx_029_a_held_message_is_counted_under_its_new_topic(inbox: Box) -> None:
    message = inbox.put("old", **KEY)
    assert inbox.take() == [message]
    inbox.enqueue("new", "p", **KEY)
    assert counts(inbox, "in_flight") == {"new": (1,), None: (1,)}
    assert inbox.ack(OWNER, [message]) == 1
    assert counts(inbox, "done") == {"new": (1,), None: (1,)}
    inbox.db.advance(10)
    assert inbox.affected("cleanup", retention_seconds=5) == 1
    assert counts(inbox, "done") == {None: (0,)}


def test_ibx_029_a_waiting_message_is_counted_under_its_new_topic(inbox: Box) -> None:
    inbox.put("old", **KEY)
    inbox.enqueue("new", "p", **KEY)
    assert counts(inbox, "ready") == {"new": (1,), None: (1,)}


def test_ibx_029_a_waiting_member_may_change_its_topic(inbox: Box) -> None:
    first = inbox.put("old", **KEY, group_id="g")
    second = inbox.put("old", group_id="g")
    inbox.enqueue("new", "p", **KEY)
    assert inbox.take(topics=["old"]) == []
    assert inbox.take(topics=["new"]) == [first]
    assert inbox.ack(OWNER, [first]) == 1
    assert inbox.take(topics=["old"]) == [second]


def test_contract_an_expired_message_stays_so_until_a_replay(inbox: Box) -> None:
    message = inbox.put(**KEY, expires_at=server_now(inbox.db) - timedelta(seconds=1))
    assert inbox.take() == []
    inbox.enqueue("t", "new", **KEY)
    assert inbox.take() == []
    assert inbox.affected("replay", ids=[message]) == 1
    assert [row["payload"] for row in inbox.claim()] == ["new"]


def test_contract_replay_of_a_message_that_was_never_enqueued_does_not_hand_it_out(inbox: Box) -> None:
    inbox.call("already_processed", **KEY, hash=None)
    inbox.affected("mark_dead", **KEY)
    (row,) = inbox.call("find", **KEY)
    assert inbox.affected("replay", ids=[row["id"]]) == 1
    assert inbox.take() == []
    (again,) = inbox.call("find", **KEY)
    assert (again["status"], again["died_at"]) == ("Processing", None)
    assert inbox.enqueue(**KEY)["outcome"] == "updated"
    assert inbox.take() == [row["id"]]


def test_contract_collapsed_and_sent_again_in_one_batch_the_newest_stays(box: Box) -> None:
    key: Row = {"message_id": uuid4()} if box.kind == "outbox" else dict(KEY)
    rows = box.enqueue_many(
        box.record(payload="1", collapse_key="c", **key),
        box.record(payload="2", collapse_key="c"),
        box.record(payload="3", collapse_key="c", **key),
    )
    for row in rows[1:]:
        if row["outcome"] not in ("created", "collapsed"):
            assert box.get(row["id"])["id"] == row["id"], "what it is told to repeat exists"
    assert len(box.take()) == 1
    assert box.count() == 1


@pytest.mark.parametrize("gone", ["cleanup", "discard", "cleanup_dead"])
def test_ibx_014_a_message_that_is_cleaned_away_meanwhile_is_not_lost(inbox: Box, gone: str) -> None:
    inbox.put(message_id="1", source="s")
    (old,) = _settled(inbox, done=gone == "cleanup")
    inbox.db.advance(10)
    with inbox.db.session() as blocker, ThreadPoolExecutor(1) as pool:
        assert inbox.on(blocker).affected("mark_processed", message_id="1", source="s") == 1
        batch = [inbox.record(message_id=number, source="s", payload="again") for number in ("1", "2")]
        waiting = pool.submit(inbox_in_session, inbox, batch)
        time.sleep(0.5)  # until the batch waits for the first message, having found the second one there
        arguments: Row = {"ids": [old]} if gone == "discard" else {"retention_seconds": 5}
        assert inbox.affected(gone, **arguments) <= 1
        blocker.commit()
        rows = waiting.result(timeout=300)
    assert rows[0]["outcome"] == "done"
    found = inbox.call("find", message_id="2", source="s")
    if rows[1]["outcome"] != "done":
        assert [row["payload"] for row in found] == ["again"], "it was told to be there"


def _settled(inbox: Box, *, done: bool) -> list[int]:
    second = inbox.put("second", message_id="2", source="s")
    assert inbox.take(OTHER, topics=["second"]) == [second]
    assert (inbox.ack(OTHER, [second]) if done else inbox.fail(OTHER, [second])) == 1
    return [second]


def inbox_in_session(inbox: Box, batch: list[Row]) -> list[Row]:
    """Enqueues a batch on a connection of its own, and commits."""
    with inbox.db.session() as session:
        rows = inbox.on(session).enqueue_many(*batch)
        session.commit()
    return rows
