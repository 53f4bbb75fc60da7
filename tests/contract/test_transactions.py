"""Atomic steps in the caller's transaction, and several workers and producers at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest

from pysqlbox.errors import DatabaseUnavailable, InvalidArgument, PysqlboxError
from tests.contract.support import OTHER, OWNER, Box, Row, impatient, is_babelfish, needs_lock_hints


def test_obx_091_ibx_102_a_claim_that_is_rolled_back_leaves_no_lease(box: Box) -> None:
    made = [*box.fill(2), box.put(group_id="g"), box.put(priority=2)]
    with box.db.session() as session:
        assert sorted(box.on(session).take()) == made
        session.rollback()
    rows = [box.get(message) for message in made]
    assert {(row["status"], row["attempt"], row["owner_token"]) for row in rows} == {(box.waiting, 0, None)}
    assert sorted(box.take(OTHER)) == made


@pytest.mark.parametrize("step", ["ack", "abandon", "release", "fail"])
def test_obx_091_ibx_102_a_settlement_that_is_rolled_back_keeps_the_lease(box: Box, step: str) -> None:
    made = [*box.fill(2), box.put(group_id="g")]
    assert box.take() == made
    before = [box.get(message) for message in made]
    with box.db.session() as session:
        seen = box.on(session)
        more = {"error": "e"} if step == "fail" else {}
        assert seen.affected(step, owner_token=OWNER, ids=made, **more) == 3
        session.rollback()
    assert [box.get(message) for message in made] == before
    assert box.take(OTHER) == []
    assert box.ack(OWNER, made) == 3


def test_obx_003_a_whole_life_fits_into_one_transaction(box: Box) -> None:
    with box.db.session() as session:
        inside = box.on(session)
        message, retried = inside.put(), inside.put(group_id="g")
        assert inside.take() == [message, retried]
        assert inside.ack(OWNER, [message]) == 1
        assert inside.release(OWNER, [retried]) == 1
        assert inside.take() == [retried]
        assert inside.fail(OWNER, [retried], "e") == 1
        assert box.count() == 0
        session.commit()
    assert [box.status(message), box.status(retried)] == ["Done", box.dead]


def test_obx_003_handler_and_ack_commit_or_vanish_together(outbox: Box) -> None:
    first = outbox.put("first")
    assert outbox.take() == [first]
    with outbox.db.session() as session:
        outbox.on(session).put("follow-up")
        outbox.on(session).ack(OWNER, [first])
        session.rollback()
    assert (outbox.status(first), outbox.count()) == (outbox.leased, 1)
    with outbox.db.session() as session:
        outbox.on(session).put("follow-up")
        outbox.on(session).ack(OWNER, [first])
        session.commit()
    assert (outbox.status(first), outbox.count()) == ("Done", 2)


def test_obx_091_ibx_102_bad_input_raises_before_anything_is_written(box: Box) -> None:
    message = box.put()
    assert box.take() == [message]
    before = box.get(message)
    with pytest.raises(InvalidArgument):
        box.settle(OWNER, [{"id": message, "result": "ack"}], claim_batch=-1)
    with pytest.raises(InvalidArgument):
        box.enqueue_many(box.record(), box.record(topic=""))
    assert (box.get(message), box.count()) == (before, 1)


def test_obx_011_obx_095_ibx_106_two_open_claims_get_different_messages_without_waiting(box: Box) -> None:
    needs_lock_hints(box.db)
    made = box.fill(6)
    with box.db.session() as one, box.db.session() as two:
        first = box.on(impatient(one)).take(OWNER, batch=3)
        second = box.on(impatient(two)).take(OTHER, batch=3)
        assert (first, second) == (made[:3], made[3:])
        assert box.on(two).take(OTHER) == []
        one.commit()
        two.rollback()
    assert box.take(OTHER) == made[3:]


def test_obx_095_ibx_106_two_open_claims_of_groups_hold_different_ones(box: Box) -> None:
    needs_lock_hints(box.db)
    made = [box.put(group_id=group) for group in "abab"]
    with box.db.session() as one, box.db.session() as two:
        first = box.on(impatient(one)).take(OWNER, batch=1)
        second = box.on(impatient(two)).take(OTHER, batch=10)
        assert first == made[:1]
        assert second == [made[1], made[3]]
        one.commit()
        two.commit()
    assert box.take() == []
    assert box.ack(OWNER, first) == 1
    assert box.take(OTHER) == [made[2]]


def test_obx_095_ibx_106_two_open_claims_of_one_topic_do_not_wait(box: Box) -> None:
    needs_lock_hints(box.db)
    foreign = box.fill(3, topic="foreign")
    made = box.fill(4, topic="wanted")
    with box.db.session() as one, box.db.session() as two:
        first = box.on(impatient(one)).take(OWNER, batch=2, topics=["wanted"])
        second = box.on(impatient(two)).take(OTHER, batch=9, topics=["wanted"])
        assert (first, second) == (made[:2], made[2:])
        one.rollback()
        two.commit()
    assert box.take() == [*foreign, *made[:2]]


def test_obx_095_an_open_reap_and_an_open_claim_do_not_wait_for_each_other(box: Box) -> None:
    needs_lock_hints(box.db)
    lost = box.fill(2)
    assert box.take(lease=10) == lost
    box.db.advance(20)
    fresh = box.put()
    with box.db.session() as one, box.db.session() as two:
        assert box.on(impatient(one)).reap() == 2
        assert box.on(impatient(two)).take(OTHER) == [fresh]
        two.commit()
        one.commit()
    assert box.take(OTHER) == lost


def test_obx_091_an_uncommitted_message_is_neither_handed_out_nor_in_the_way(box: Box) -> None:
    needs_lock_hints(box.db)
    with box.db.session() as session:
        open_one = box.on(session).put()
        grouped = box.on(session).put(group_id="g")
        with box.db.session() as worker:
            fresh = box.put()
            assert box.on(impatient(worker)).take() == [fresh]
            worker.commit()
        session.commit()
    assert box.take() == [open_one, grouped]


def test_contract_enqueues_of_different_keys_never_wait_for_each_other(box: Box) -> None:
    def keys(number: int) -> dict[str, object]:
        name = f"k{number}"
        more: dict[str, object] = {"group_id": name, "collapse_key": name}
        own: dict[str, object] = {"dedup_key": name, "message_id": uuid4()}
        return more | (own if box.kind == "outbox" else {"message_id": name})

    needs_lock_hints(box.db)
    with box.db.session() as one, box.db.session() as two:
        first = box.on(impatient(one)).put(**keys(1))
        second = box.on(impatient(two)).put(**keys(2))
        rows = box.on(two).enqueue_many(box.record(**keys(3)), box.record())
        two.commit()
        one.commit()
    assert sorted(box.take()) == sorted([first, second, *(row["id"] for row in rows)])


def test_contract_enqueues_into_one_group_do_not_wait_and_none_is_lost(box: Box) -> None:
    needs_lock_hints(box.db)
    with box.db.session() as one, box.db.session() as two:
        first = box.on(impatient(one)).put(group_id="g")
        second = box.on(impatient(two)).put(group_id="g")
        two.commit()
        early = box.take()
        one.commit()
    assert early in ([], [second])
    assert box.ack(OWNER, early) == len(early)
    rest = box.take()
    assert sorted(early + rest) == [first, second]


def test_contract_a_producer_may_add_to_a_group_that_a_worker_is_emptying(box: Box) -> None:
    needs_lock_hints(box.db)
    first = box.put(group_id="g")
    assert box.take() == [first]
    with box.db.session() as worker, box.db.session() as producer:
        second = box.on(impatient(producer)).put(group_id="g")
        assert box.on(impatient(worker)).ack(OWNER, [first]) == 1
        worker.commit()
        producer.commit()
    box.db.advance(1)  # the emptied group is looked at again a little later
    assert box.take(OTHER) == [second]


def test_contract_a_second_enqueue_of_an_open_key_does_not_make_a_second_message(outbox: Box) -> None:
    refusal = PysqlboxError if is_babelfish(outbox.db) else DatabaseUnavailable
    with outbox.db.session() as one:
        outbox.on(one).put(dedup_key="k")
        with outbox.db.session() as two, pytest.raises(refusal):
            outbox.on(impatient(two)).put(dedup_key="k")
        one.commit()
    assert outbox.enqueue(dedup_key="k")["outcome"] == "duplicate"
    assert outbox.count() == 1


def _work(box: Box, owner: UUID, start: threading.Barrier, rounds: int) -> list[int]:
    """What one worker gets to handle, on a connection of its own, each step committed."""
    handled: list[int] = []
    with box.db.session() as session:
        mine = box.on(session)
        start.wait(timeout=30)
        for _ in range(rounds):
            taken = mine.take(owner, batch=7)
            session.commit()
            assert mine.ack(owner, taken) == len(taken)
            session.commit()
            handled += taken
    return handled


def test_obx_094_obx_095_ibx_105_ibx_106_concurrent_workers_handle_each_message_once(box: Box) -> None:
    made = box.fill(150) + box.fill(30, group_id="g") + box.fill(20, priority=1)
    start = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(_work, box, uuid4(), start, 25) for _ in range(4)]
        handled = [message for future in futures for message in future.result()]
    assert len(handled) == len(set(handled))
    while rest := box.take(batch=50):
        assert box.ack(OWNER, rest) == len(rest)
        handled += rest
    assert sorted(handled) == sorted(made)


def _enqueue_key(box: Box, start: threading.Barrier, number: int) -> str:
    with box.db.session() as session:
        start.wait(timeout=30)
        key: Row = {"dedup_key": "k"} if box.kind == "outbox" else {"message_id": "m", "source": "s"}
        row = box.on(session).enqueue(payload=str(number), **key)
        session.commit()
    return str(row["outcome"])


def test_ibx_006_ibx_014_obx_093_concurrent_enqueues_of_one_key_make_one_message(box: Box) -> None:
    start = threading.Barrier(6)
    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(lambda number: _enqueue_key(box, start, number), range(6)))
    repeated = "duplicate" if box.kind == "outbox" else "updated"
    assert sorted(outcomes) == sorted(["created", *[repeated] * 5])
    assert box.count() == 1
    assert len(box.take()) == 1


def _first_sight(box: Box, start: threading.Barrier) -> bool:
    with box.db.session() as session:
        start.wait(timeout=30)
        row = box.on(session).one("already_processed", message_id="m", source="s", hash=None)
        session.commit()
    return bool(row["already_processed"])


def test_ibx_006_concurrent_first_sights_make_one_seen_message(inbox: Box) -> None:
    start = threading.Barrier(6)
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: _first_sight(inbox, start), range(6)))
    assert answers == [False] * 6
    assert inbox.count() == 1


def _sweep(box: Box, start: threading.Barrier) -> int:
    start.wait(timeout=30)
    with box.db.session() as session:
        affected = box.on(session).reap(1000)
        session.commit()
    return affected


def test_obx_093_ibx_104_concurrent_reaps_count_each_lease_once(box: Box) -> None:
    made = box.fill(60)
    assert box.take(batch=60, lease=10) == made
    box.db.advance(20)
    start = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        swept = sum(pool.map(lambda _: _sweep(box, start), range(4)))
    rest = box.reap()
    assert swept + rest == 60
    assert {row["attempt"] for row in box.claim(batch_size=100)} == {1}
