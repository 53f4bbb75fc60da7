"""Looking up, dead letters, replay and discard."""

from __future__ import annotations

from uuid import uuid4

import pytest

from pysqlbox.errors import InvalidArgument, InvalidState, NotFound
from tests.contract.support import HOSTILE, OTHER, OWNER, VIEW_COLUMNS, Box, ids, plain, refuses, unreadable


def test_contract_get_answers_the_row_of_the_view(box: Box) -> None:
    message = box.put("t", "p", group_id="g", headers='{"a": 1}')
    assert plain(box.get(message)) == plain(box.shown(message))
    assert list(box.get(message)) == VIEW_COLUMNS[box.kind]


def test_contract_get_of_an_unknown_id_is_not_found(box: Box) -> None:
    box.put()
    for unknown in (0, -1, 10**15):
        with pytest.raises(NotFound):
            box.get(unknown)
    assert box.count() == 1


def test_contract_get_refuses_null_and_malformed_ids(box: Box) -> None:
    for value in ("x", 2**63):
        with unreadable(box.db):
            box.call("get", id=value)
    with refuses("id"):
        box.call("get", id=None)
    assert box.count() == 0


def test_contract_find_answers_what_get_does(box: Box) -> None:
    made = box.enqueue()
    message = box.get(made["id"])
    key = {"message_id": message["message_id"]}
    if box.kind == "inbox":
        key["source"] = message["source"]
    assert box.call("find", **key) == [message]


def test_contract_outbox_find_of_an_unknown_message_answers_no_row(outbox: Box) -> None:
    outbox.put()
    assert outbox.call("find", message_id=uuid4()) == []
    with refuses("message_id"):
        outbox.call("find", message_id=None)


def test_contract_statuses_follow_the_message_through_its_life(box: Box) -> None:
    message = box.put()
    seen = [box.status(message)]
    box.take()
    seen.append(box.status(message))
    box.release(OWNER, [message])
    seen.append(box.status(message))
    box.take()
    box.fail(OWNER, [message])
    seen.append(box.status(message))
    box.affected("replay", ids=[message])
    seen.append(box.status(message))
    box.take()
    box.ack(OWNER, [message])
    seen.append(box.status(message))
    assert seen == [box.waiting, box.leased, box.waiting, box.dead, box.waiting, "Done"]


def test_contract_dead_letters_answer_the_dead_with_their_error(box: Box) -> None:
    box.put()
    box.take()
    dead = box.put("t", "the payload")
    assert box.take(OTHER) == [dead]
    box.fail(OTHER, [dead], "boom")
    (row,) = box.call("dead_letters")
    assert (row["id"], row["last_error"], row["payload"], row["attempt"]) == (dead, "boom", "the payload", 0)
    left_out = {"owner_token", "locked_until", "processed_at", "processed_by"}
    assert list(row) == [name for name in VIEW_COLUMNS[box.kind] if name not in left_out]
    assert row["status"] == box.dead
    assert row["died_at"] is not None


def test_contract_dead_letters_are_paged_by_id(box: Box) -> None:
    dead = box.made_dead(7)
    assert ids(box.call("dead_letters", limit=3)) == dead[:3]
    assert ids(box.call("dead_letters", limit=3, after_id=dead[2])) == dead[3:6]
    assert ids(box.call("dead_letters", limit=3, after_id=dead[5])) == dead[6:]
    assert ids(box.call("dead_letters", limit=10000, after_id=0)) == dead
    assert box.call("dead_letters", after_id=dead[6]) == []


def test_contract_dead_letters_answer_a_hundred_unless_asked(box: Box) -> None:
    made = box.fill(120)
    box.take(batch=200)
    box.fail(OWNER, made)
    assert ids(box.call("dead_letters")) == made[:100]


def test_contract_dead_letters_of_one_topic(box: Box) -> None:
    put = {topic: box.put(topic) for topic in ("a", "A", "a ", *HOSTILE)}
    box.take(batch=100)
    assert box.fail(OWNER, list(put.values())) == len(put)
    for topic, message in put.items():
        assert ids(box.call("dead_letters", topic=topic)) == [message]
    assert ids(box.call("dead_letters", topic=None)) == list(put.values())
    assert box.call("dead_letters", topic="b") == []


def test_contract_dead_letters_refuse_bad_arguments(box: Box) -> None:
    for limit in (0, -1, 10001, None):
        with refuses("limit"):
            box.call("dead_letters", limit=limit)
    assert box.call("dead_letters") == []


def test_contract_replay_revives_the_dead_with_no_attempt_and_the_last_error(box: Box) -> None:
    message = box.put()
    box.take()
    box.abandon(OWNER, [message], last_error="first", delay_seconds=1)
    box.db.advance(5)
    assert box.take() == [message]
    box.fail(OWNER, [message], "boom")
    assert box.affected("replay", ids=[message]) == 1
    row = box.get(message)
    assert (row["status"], row["attempt"], row["last_error"], row["due_at"]) == (box.waiting, 0, "boom", None)
    assert row["died_at"] is row["owner_token"] is None
    (claimed,) = box.claim()
    assert (claimed["id"], claimed["attempt"], claimed["last_error"]) == (message, 0, "boom")


def test_contract_replay_passes_over_unknown_and_repeated_ids(box: Box) -> None:
    dead = box.made_dead(3)
    assert box.affected("replay", ids=[dead[0], dead[2], dead[0], 10**15, -1]) == 2
    assert [box.status(message) for message in dead] == [box.waiting, box.dead, box.waiting]
    assert box.affected("replay", ids=[]) == 0


@pytest.mark.parametrize("fate", ["waiting", "held", "done", "delayed"])
def test_contract_replay_of_a_message_that_is_not_dead_is_an_invalid_state(box: Box, fate: str) -> None:
    (dead,) = box.made_dead()
    live = box.put()
    if fate != "waiting":
        assert box.take() == [live]
    if fate == "done":
        box.ack(OWNER, [live])
    elif fate == "delayed":
        box.abandon(OWNER, [live], delay_seconds=100)
    before = box.get(live)
    with pytest.raises(InvalidState):
        box.affected("replay", ids=[dead, live])
    assert (box.get(live), box.status(dead)) == (before, box.dead)


def test_contract_replay_and_discard_refuse_null_and_malformed_sets(box: Box) -> None:
    for step in ("replay", "discard"):
        with refuses("ids"):
            box.affected(step, ids=None)
        with pytest.raises(InvalidArgument):
            box.affected(step, ids="[1,")
    assert box.count() == 0


def test_contract_a_replayed_message_may_die_again(box: Box) -> None:
    (dead,) = box.made_dead()
    box.affected("replay", ids=[dead])
    assert box.take() == [dead]
    assert box.fail(OWNER, [dead], "again") == 1
    assert box.get(dead)["last_error"] == "again"
    assert ids(box.call("dead_letters")) == [dead]


def test_contract_discard_deletes_the_dead_and_only_them(box: Box) -> None:
    dead = box.made_dead(2)
    (done,) = box.made_done()
    held, waiting = box.put(), box.put()
    assert box.take(batch=1) == [held]
    assert box.affected("discard", ids=[dead[0], done, held, waiting, 10**15, dead[0]]) == 1
    with pytest.raises(NotFound):
        box.get(dead[0])
    statuses = [box.status(message) for message in (dead[1], done, held, waiting)]
    assert statuses == [box.dead, "Done", box.leased, box.waiting]
    assert box.affected("discard", ids=[]) == 0


def test_contract_a_discarded_message_of_a_key_may_be_sent_again(inbox: Box) -> None:
    (dead,) = inbox.made_dead(message_id="m", source="s")
    assert inbox.affected("discard", ids=[dead]) == 1
    assert inbox.enqueue(message_id="m", source="s")["outcome"] == "created"


def test_contract_replay_and_discard_take_five_thousand_ids(box: Box) -> None:
    made = box.fill(5000)
    assert len(box.take(batch=5000)) == 5000
    assert box.fail(OWNER, made) == 5000
    assert box.affected("replay", ids=made[:2500]) == 2500
    assert box.affected("discard", ids=made[2500:]) == 2500
    assert box.take(batch=5000) == made[:2500]
    assert box.count() == 2500


def test_contract_replay_rolled_back_leaves_the_dead_dead(box: Box) -> None:
    (dead,) = box.made_dead()
    with box.db.session() as session:
        assert box.on(session).affected("replay", ids=[dead]) == 1
        session.rollback()
    assert box.status(dead) == box.dead
    assert box.take() == []
