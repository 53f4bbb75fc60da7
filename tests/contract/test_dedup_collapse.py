"""Repeated messages: the outbox's deduplication window, own message ids, and collapsing."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from tests.contract.support import OTHER, OWNER, Box, server_now


def test_contract_a_second_enqueue_of_a_dedup_key_is_a_duplicate_of_the_first(outbox: Box) -> None:
    first = outbox.enqueue(payload="first", dedup_key="k")
    again = outbox.enqueue("another topic", payload="second", dedup_key="k", message_id=uuid4())
    assert (first["outcome"], again["outcome"]) == ("created", "duplicate")
    assert (again["id"], again["message_id"]) == (first["id"], first["message_id"])
    assert outbox.count() == 1
    assert [row["payload"] for row in outbox.claim()] == ["first"]


def test_contract_a_duplicate_stays_one_whatever_became_of_the_first(outbox: Box) -> None:
    made = {key: outbox.put(dedup_key=key) for key in ("done", "dead", "held", "retried", "discarded")}
    assert outbox.take() == list(made.values())
    outbox.ack(OWNER, [made["done"]])
    outbox.fail(OWNER, [made["dead"], made["discarded"]])
    outbox.abandon(OWNER, [made["retried"]], delay_seconds=100)
    assert outbox.affected("discard", ids=[made["discarded"]]) == 1
    for key, message in made.items():
        again = outbox.enqueue(dedup_key=key)
        assert (again["outcome"], again["id"]) == ("duplicate", message)
    assert outbox.count() == 4


def test_contract_a_duplicate_outlives_the_cleanup_of_the_first(outbox: Box) -> None:
    (message,) = outbox.made_done(dedup_key="k")
    outbox.db.advance(100)
    assert outbox.affected("cleanup", retention_seconds=50, batch_size=100) == 1
    assert outbox.count() == 0
    again = outbox.enqueue(dedup_key="k")
    assert (again["outcome"], again["id"]) == ("duplicate", message)


def test_contract_the_window_is_an_hour_from_the_first_enqueue(outbox: Box) -> None:
    first = outbox.enqueue(dedup_key="k")
    outbox.db.advance(3500)
    assert outbox.enqueue(dedup_key="k")["outcome"] == "duplicate"
    outbox.db.advance(200)
    second = outbox.enqueue(dedup_key="k")
    assert second["outcome"] == "created"
    assert second["id"] > first["id"]
    again = outbox.enqueue(dedup_key="k")
    assert again["outcome"] == "duplicate"
    assert (again["id"], again["message_id"]) == (second["id"], second["message_id"])
    assert len(outbox.take()) == 2


def test_contract_the_window_is_a_setting(outbox: Box) -> None:
    outbox.configure("dedup_window_seconds", "100")
    assert outbox.enqueue(dedup_key="k")["outcome"] == "created"
    outbox.db.advance(90)
    assert outbox.enqueue(dedup_key="k")["outcome"] == "duplicate"
    outbox.db.advance(20)
    assert outbox.enqueue(dedup_key="k")["outcome"] == "created"


def test_contract_a_window_of_zero_turns_deduplication_off(outbox: Box) -> None:
    outbox.configure("dedup_window_seconds", "0")
    assert [outbox.enqueue(dedup_key="k")["outcome"] for _ in range(3)] == ["created"] * 3
    rows = outbox.enqueue_many(outbox.record(dedup_key="k"), outbox.record(dedup_key="k"))
    assert [row["outcome"] for row in rows] == ["created"] * 2
    assert len(outbox.take()) == 5


def test_contract_an_existing_message_id_is_a_duplicate_without_any_window(outbox: Box) -> None:
    own = uuid4()
    first = outbox.enqueue(message_id=own)
    outbox.configure("dedup_window_seconds", "0")
    outbox.db.advance(10**6)
    again = outbox.enqueue(payload="other", message_id=own)
    assert (again["id"], again["message_id"], again["outcome"]) == (first["id"], own, "duplicate")
    assert outbox.take() == [first["id"]]
    outbox.ack(OWNER, [first["id"]])
    assert outbox.enqueue(message_id=own)["outcome"] == "duplicate"
    assert outbox.count() == 1


def test_contract_a_duplicate_neither_collapses_nor_joins_a_group(outbox: Box) -> None:
    waiting = outbox.put(collapse_key="c")
    first = outbox.put(dedup_key="d")
    again = outbox.enqueue(dedup_key="d", collapse_key="c", group_id="g")
    assert again["outcome"] == "duplicate"
    assert outbox.take() == [waiting, first]


def test_contract_a_rolled_back_enqueue_leaves_its_keys_free(outbox: Box) -> None:
    own = uuid4()
    with outbox.db.session() as session:
        assert outbox.on(session).enqueue(dedup_key="k", message_id=own)["outcome"] == "created"
        session.rollback()
    assert outbox.enqueue(dedup_key="k", message_id=own)["outcome"] == "created"


def test_contract_a_dedup_key_whose_message_was_a_duplicate_stands_for_the_existing_one(outbox: Box) -> None:
    own = uuid4()
    first = outbox.enqueue(message_id=own)
    again = outbox.enqueue(message_id=own, dedup_key="k")
    assert (again["outcome"], again["id"]) == ("duplicate", first["id"])
    third = outbox.enqueue(dedup_key="k")
    assert (third["outcome"], third["id"]) == ("duplicate", first["id"])


def test_contract_collapsing_replaces_older_waiting_messages_of_the_key(box: Box) -> None:
    first = box.enqueue(payload="1", collapse_key="k")
    other = box.enqueue(payload="x", collapse_key="other")
    second = box.enqueue(payload="2", collapse_key="k")
    third = box.enqueue(payload="3", collapse_key="k")
    outcomes = [row["outcome"] for row in (first, other, second, third)]
    assert outcomes == ["created", "created", "collapsed", "collapsed"]
    assert [(row["id"], row["payload"]) for row in box.claim()] == [(other["id"], "x"), (third["id"], "3")]
    assert box.count() == 2


def test_contract_collapsing_replaces_delayed_messages_too(box: Box) -> None:
    later = server_now(box.db) + timedelta(seconds=100)
    box.put(collapse_key="k", due_at=later)
    assert box.enqueue(collapse_key="k", due_at=later)["outcome"] == "collapsed"
    newest = box.enqueue(collapse_key="k")
    assert newest["outcome"] == "collapsed"
    box.db.advance(200)
    assert box.take() == [newest["id"]]


def test_contract_collapsing_replaces_prioritised_messages_too(box: Box) -> None:
    box.put(collapse_key="k", priority=5)
    box.put(collapse_key="k", priority=-5)
    newest = box.put(collapse_key="k")
    assert box.take() == [newest]
    assert box.count() == 1


def test_contract_collapsing_leaves_what_is_claimed_done_or_dead(box: Box) -> None:
    kept = []
    for fate in ("held", "done", "dead"):
        message = box.put(payload=fate, collapse_key="k")
        assert box.take() == [message]
        if fate == "done":
            box.ack(OWNER, [message])
        elif fate == "dead":
            box.fail(OWNER, [message])
        kept.append(message)
    newest = box.enqueue(collapse_key="k")
    assert newest["outcome"] == "created"
    assert [box.status(message) for message in kept] == [box.leased, "Done", box.dead]
    assert box.ack(OWNER, kept[:1]) == 1
    assert box.take() == [newest["id"]]


def test_contract_collapsing_replaces_what_waits_again(box: Box) -> None:
    retried, released = box.put(collapse_key="retried"), box.put(collapse_key="released")
    assert box.take() == [retried, released]
    box.abandon(OWNER, [retried], delay_seconds=100)
    box.release(OWNER, [released])
    rows = [box.enqueue(collapse_key=key) for key in ("retried", "released")]
    assert [row["outcome"] for row in rows] == ["collapsed", "collapsed"]
    box.db.advance(200)
    assert box.take() == [row["id"] for row in rows]
    assert box.count() == 2


def test_contract_collapsing_does_not_touch_other_boxes_or_messages_without_a_key(box: Box) -> None:
    plain = box.put()
    keyed = box.put(collapse_key="k")
    newest = box.put(collapse_key="k")
    assert box.take() == [plain, newest]
    assert keyed not in (plain, newest)


def test_contract_collapsing_rolled_back_brings_the_older_one_back(box: Box) -> None:
    first = box.put(collapse_key="k")
    with box.db.session() as session:
        assert box.on(session).enqueue(collapse_key="k")["outcome"] == "collapsed"
        session.rollback()
    assert box.take() == [first]
    assert box.take(OTHER) == []


def test_contract_a_revived_message_may_be_collapsed_again(box: Box) -> None:
    (dead,) = box.made_dead(collapse_key="k")
    assert box.affected("replay", ids=[dead]) == 1
    newest = box.enqueue(collapse_key="k")
    remaining = box.take()
    assert newest["id"] in remaining
    assert (newest["outcome"] == "collapsed") == (dead not in remaining)
