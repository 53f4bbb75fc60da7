"""Leases: kept while a handler runs, not trusted once they are lost."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

import pysqlbox
from pysqlbox.worker import Context
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.support import OWNER, Calls, comes, put, put_many, status, until

Box = pysqlbox.Outbox | pysqlbox.Inbox


@pytest.mark.every_engine
def test_obx_053_ibx_078_a_handler_longer_than_its_lease_is_not_overtaken(
    box: Box, make: MakeWorker, calls: Calls, db: Database
) -> None:
    """The lease keeper extends it, and those of what waits: in the group, in the batch, in other threads."""
    lease = 1 if db.dialect == "postgres" else 20  # Babelfish's first extend may take seconds
    worker, other = (make(threads=2, lease_seconds=lease) for _ in range(2))
    for each in (worker, other):
        each.add_handler("t", calls.handler(sleep=1.4 * lease))
        each.add_handler("quick", calls.handler())
        each.add_handler("b", lambda _messages: time.sleep(1.4 * lease), batch=True)
    made = [put(box, group_id="g"), put(box, "quick", group_id="g"), put(box)]
    made += [put(box, "b"), put(box, "b")]
    worker.start()
    other.start()
    until(lambda: worker.stats().acked + other.stats().acked == 5, 30)
    worker.stop()
    other.stop()
    assert sorted(calls.ids) == made[:3]
    assert {status(box, message) for message in made} == {"Done"}
    assert {box.get(message).attempt for message in made} == {0}


def test_what_waits_in_a_group_behind_a_slow_handler_keeps_its_lease(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls
) -> None:
    worker = make(boxes=["outbox"], threads=1, lease_seconds=1, batch_size=10)
    release = threading.Event()

    def handle(message: Any) -> None:
        call = calls.begin(message)
        if len(calls.all) == 5:  # the second claim brings several of the group at once
            release.wait(10)
        calls.end(call)

    worker.add_handler("t", handle)
    made = put_many(deployment.outbox, 12, group_id="g")
    worker.start()
    until(lambda: len(calls.all) >= 5)
    time.sleep(0.5)
    held = [message for message in made if status(deployment.outbox, message) == "InProgress"]
    assert len(held) > 1
    time.sleep(1.6)
    deployment.outbox.reap()
    assert [message for message in made if status(deployment.outbox, message) == "InProgress"] == held
    assert deployment.outbox.claim(OWNER) == []
    release.set()
    until(lambda: worker.stats().acked == 12)
    worker.stop()
    assert calls.ids == made
    assert {deployment.outbox.get(message).attempt for message in made} == {0}


def test_what_was_claimed_with_a_slow_message_does_not_wait_for_it(
    box: Box, make: MakeWorker, calls: Calls
) -> None:
    go = threading.Event()
    worker = make(threads=2, poll_seconds=30, listen=False)
    worker.add_handler("slow", lambda _message: go.wait(10) and None)
    worker.add_handler("t", calls.handler())
    slow = put(box, "slow")
    made = put_many(box, 60)
    worker.start()
    until(lambda: {status(box, message) for message in made} == {"Done"}, 5)
    assert status(box, slow) == "InProgress"
    go.set()
    assert worker.stop(5)
    assert status(box, slow) == "Done"


def test_what_was_finished_before_a_slow_message_is_settled_meanwhile(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls
) -> None:
    worker = make(threads=1, boxes=["outbox"])
    go = threading.Event()
    worker.add_handler("slow", lambda _message: go.wait(10) and None)
    worker.add_handler("t", calls.handler())
    made = [put(deployment.outbox), put(deployment.outbox), put(deployment.outbox, "slow")]
    worker.start()
    until(lambda: status(deployment.outbox, made[0]) == status(deployment.outbox, made[1]) == "Done", 5)
    assert status(deployment.outbox, made[2]) == "InProgress"
    go.set()
    worker.stop(5)


def lose(db: Database, box: Box, ids: list[int]) -> None:
    """Lets leases run out on the server's clock, and somebody else claim the messages.

    The worker's one thread is in a handler: it does not claim them itself.
    """
    taken: set[int] = set()
    for _ in range(5):  # unless the lease keeper was just in between
        db.advance(120)
        taken |= {message.id for message in box.claim(OWNER, batch_size=100, lease_seconds=10_000)}
        if set(ids) <= taken:
            return
    raise AssertionError(f"only {taken} of {ids} could be claimed")


@pytest.mark.parametrize("where", ["group", "limited"])
def test_a_waiting_message_whose_lease_is_lost_is_not_begun(
    box: Box, make: MakeWorker, db: Database, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls()
    go = threading.Event()
    contexts: list[Context] = []
    worker = make(threads=1, lease_seconds=3)

    @worker.handler("t", concurrency=1 if where == "limited" else None)
    def handle(message: Any, context: Context) -> None:
        contexts.append(context)
        call = calls.begin(message)
        if len(calls.all) == 2:
            comes(go, 10)
        calls.end(call)

    group = "g" if where == "group" else None
    put(box, group_id=group)  # a group's claims grow after the first
    worker.drain()
    made = put_many(box, 3, group_id=group)
    worker.start()
    until(lambda: len(calls.all) == 2)
    until(lambda: status(box, made[1]) == "InProgress")
    lose(db, box, made)
    until(lambda: contexts[1].cancelled, 5, "the context of a lost message says so")
    go.set()
    until(lambda: worker.stats().busy_threads == 0)
    worker.stop()
    assert calls.ids[1:] == made[:1]
    assert any("lost the lease" in record.getMessage() for record in caplog.records)
    # The answer of the one that ran came too late: the other one still has it.
    assert {status(box, message) for message in made} == {"InProgress"}


@pytest.mark.every_engine
def test_a_lost_message_is_handled_by_the_same_worker_when_it_comes_back(
    box: Box, make: MakeWorker, db: Database
) -> None:
    calls = Calls()
    go = threading.Event()
    worker = make(threads=1, lease_seconds=3)

    @worker.handler("t", concurrency=1)
    def handle(message: Any) -> None:
        call = calls.begin(message)
        if len(calls.all) == 1:
            comes(go, 10)
        calls.end(call)

    made = put_many(box, 3)
    worker.start()
    until(lambda: len(calls.all) == 1 and status(box, made[2]) == "InProgress")
    lose(db, box, made)
    time.sleep(1.3)  # the keeper asks once per third of a lease
    go.set()
    until(lambda: worker.stats().busy_threads == 0)
    box.release(OWNER, made)
    until(lambda: {status(box, message) for message in made} == {"Done"})
    worker.stop()
    assert sorted(calls.ids[1:]) == made


def test_a_worker_that_was_frozen_begins_nothing_whose_lease_has_run_out(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that slept: before anybody asks the database, its own clock says that the leases are over."""
    worker = make(threads=1, lease_seconds=1, boxes=["outbox"])
    monkeypatch.setattr("pysqlbox.worker.lease_keeper.LeaseKeeper._extend_all", lambda *_: None)
    monkeypatch.setattr("pysqlbox.worker.lease_keeper.LeaseKeeper._look", lambda *_: None)
    worker.add_handler("slow", calls.handler(sleep=1.2))
    worker.add_handler("t", calls.handler())
    made = [put(deployment.outbox, "slow"), put(deployment.outbox), put(deployment.outbox, group_id="g")]
    worker.start()
    until(
        lambda: status(deployment.outbox, made[2]) == "Done" and status(deployment.outbox, made[1]) == "Done",
        5,
    )
    worker.stop()
    assert [call.attempt for message in made[1:] for call in calls.of(message)] == [1, 1]


def test_claims_grow_and_shrink_with_how_long_handlers_take(
    deployment: pysqlbox.Deployment, make: MakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """At first few, then as many as take a few hundredths of a second, at most the batch size."""
    worker = make(boxes=["outbox"], threads=1, batch_size=40)
    worker.add_handler("quick", lambda _message: None)
    worker.add_handler("slow", lambda _message: time.sleep(0.03))
    put_many(deployment.outbox, 400, "quick")
    put_many(deployment.outbox, 20, "slow")
    with caplog.at_level(logging.DEBUG, "pysqlbox.worker"):
        worker.drain()
    sizes = [int(r.args[2]) for r in caplog.records if "claimed %d of %d" in r.msg]  # type: ignore[index,arg-type]
    assert sizes[0] <= 4
    assert max(sizes) == 40
    assert sizes[-2] <= 2, "one slow batch is enough"
