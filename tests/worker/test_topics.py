"""Which handler, how many at once, and from which boxes."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest

import pysqlbox
from pysqlbox.typed import message
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.support import Calls, nothing, put, put_many, status, until

Box = pysqlbox.Outbox | pysqlbox.Inbox


@pytest.mark.every_engine
def test_obx_049_ibx_074_a_topic_without_a_handler_is_warned_of_and_abandoned(
    box: Box, make: MakeWorker, caplog: pytest.LogCaptureFixture, db: Database
) -> None:
    worker = make(unknown_topics="abandon")
    worker.add_handler("t", nothing)
    lost, kept = put(box, "nobody's", payload="SECRET"), put(box)
    with caplog.at_level(logging.INFO):
        worker.drain()
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "no handler" in warning
    assert "nobody's" in warning
    assert str(lost) in warning
    stored = box.get(lost)
    assert (stored.attempt, status(box, lost)) == (1, "Ready")
    assert "nobody's" in (stored.last_error or "")
    assert status(box, kept) == "Done"
    worker.add_handler("nobody's", nothing)
    db.advance(3)
    assert worker.drain() == 1
    assert status(box, lost) == "Done"


def test_unknown_topics_reach_max_attempts(
    deployment: pysqlbox.Deployment, make: MakeWorker, db: Database
) -> None:
    worker = make(max_attempts=2, unknown_topics="abandon")
    message = put(deployment.outbox)
    worker.drain()
    db.advance(3)
    worker.drain()
    assert status(deployment.outbox, message) == "Failed"


@pytest.mark.every_engine
def test_the_topics_of_a_worker_are_all_it_takes(box: Box, make: MakeWorker) -> None:
    worker = make(topics=["a", "b"])
    for topic in ("a", "b", "c"):
        worker.add_handler(topic, nothing)
    made = {topic: put(box, topic) for topic in ("a", "b", "c", "d")}
    assert worker.drain() == 2
    assert [status(box, message) for message in made.values()] == ["Done", "Done", "Ready", "Ready"]
    assert box.get(made["d"]).attempt == 0


@pytest.mark.every_engine
def test_one_worker_serves_boxes_of_both_kinds(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls
) -> None:
    names = ("outbox", "inbox", "orders", "mail")
    worker = make(boxes=names)
    worker.add_handler("t", calls.handler())
    made = {name: put_many(deployment.box(name), 30) for name in names}
    assert worker.drain() == 120
    for name, ids in made.items():
        assert {status(deployment.box(name), message) for message in ids} == {"Done"}, name
    assert len(calls.all) == 120


def test_a_box_that_is_not_served_is_left_alone(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls
) -> None:
    worker = make(boxes=["mail"])
    worker.add_handler("t", calls.handler())
    other, own = put(deployment.outbox), put(deployment.box("mail"))
    assert worker.drain() == 1
    assert status(deployment.outbox, other) == "Ready"
    assert status(deployment.box("mail"), own) == "Done"


def test_two_busy_boxes_both_get_on(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    """Neither waits until the other one is empty."""
    worker = make(boxes=["outbox", "mail"], threads=1)
    order: list[str] = []

    def handle(message: Any) -> None:
        order.append(message.topic)
        time.sleep(0.002)

    worker.add_handler("a", handle)
    worker.add_handler("b", handle)
    put_many(deployment.outbox, 200, "a")
    put_many(deployment.box("mail"), 200, "b")
    worker.drain()
    assert len(order) == 400
    assert set(order[:150]) == {"a", "b"}


@pytest.mark.parametrize("sleep", [0.0, 0.12], ids=["quick", "slow"])
@pytest.mark.parametrize("limit", [1, 2])
def test_never_more_at_once_than_the_topics_concurrency(
    deployment: pysqlbox.Deployment, make: MakeWorker, limit: int, sleep: float
) -> None:
    """Nothing is lost, other topics go on, and what waits for its turn waits for no poll."""
    limited, free = Calls(), Calls()
    worker = make(threads=5, poll_seconds=30, listen=False)
    worker.add_handler("limited", limited.handler(sleep=sleep), concurrency=limit)
    worker.add_handler("free", free.handler(sleep=sleep / 4))
    count = 10 if sleep else 100
    first = put_many(deployment.outbox, count, "limited")
    second = put_many(deployment.outbox, count, "free")
    began = time.monotonic()
    worker.start()
    until(lambda: worker.stats().acked == 2 * count, 15)
    took = time.monotonic() - began
    worker.stop()
    assert limited.most <= limit
    assert sorted(limited.ids) == first
    assert sorted(free.ids) == second
    assert {status(deployment.outbox, message) for message in first + second} == {"Done"}
    assert all(deployment.outbox.get(message).attempt == 0 for message in first)
    if sleep:
        assert limited.most == limit
        assert max(call.ended for call in free.all) < max(call.ended for call in limited.all)
        assert took < count * sleep / limit + 4


def test_concurrency_holds_for_groups_and_batches(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    groups, batches = Calls(), Calls()
    worker = make(threads=5, poll_seconds=30, listen=False)
    worker.add_handler("g", groups.handler(sleep=0.03), concurrency=1)

    def batch(messages: list[Any]) -> None:
        call = batches.begin(messages[0])
        time.sleep(0.06)
        batches.end(call)

    worker.add_handler("b", batch, batch=True, concurrency=1)
    made = [put(deployment.outbox, "g", group_id=f"g{n % 3}") for n in range(12)]
    made += put_many(deployment.outbox, 20, "b")
    worker.start()
    until(lambda: worker.stats().acked == 32, 12)
    worker.stop()
    assert (groups.most, batches.most) == (1, 1)
    assert {status(deployment.outbox, message) for message in made} == {"Done"}
    for group in range(3):
        of_group = made[group:12:3]
        assert [i for i in groups.ids if i in of_group] == of_group


def test_messages_parked_for_their_turn_are_released_when_the_worker_stops(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    go = threading.Event()
    worker = make(threads=4)
    worker.add_handler("t", lambda _message: go.wait(10) and None, concurrency=1)
    made = put_many(deployment.outbox, 4)
    worker.start()
    until(lambda: worker.stats().busy_threads and status(deployment.outbox, made[-1]) == "InProgress")
    time.sleep(0.2)  # the keeper hands on what waits, and all of it is parked
    threading.Timer(0.3, go.set).start()
    assert worker.stop(5)
    assert [status(deployment.outbox, message) for message in made] == ["Done", "Ready", "Ready", "Ready"]
    assert all(deployment.outbox.get(message).attempt == 0 for message in made)


def test_a_topic_has_one_handler(make: MakeWorker) -> None:
    worker = make()
    worker.handler("t")(nothing)
    with pytest.raises(pysqlbox.InvalidArgument, match="has a handler"):
        worker.batch_handler("t")(nothing)
    for topic in ("", "x" * 256):
        with pytest.raises(pysqlbox.InvalidArgument):
            worker.handler(topic)
    for options in ({"concurrency": 0}, {"timeout": 0}, {"timeout": -1}, {"timeout": "soon"}):
        with pytest.raises(pysqlbox.InvalidArgument):
            worker.add_handler("u", nothing, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"boxes": "outbox"}, {"boxes": ()}, {"topics": "t"}, {"threads": 0}, {"threads": 1.5},
        {"batch_size": 0}, {"batch_size": 10_001}, {"lease_seconds": 0}, {"lease_seconds": 86_401},
        {"poll_seconds": 0}, {"poll_seconds": -1}, {"max_attempts": -1}, {"handler_timeout": 0},
        {"unknown_topics": "keep"}, {"async_slots": 0}, {"reap_seconds": 0}, {"cleanup_seconds": -1},
        {"retention": -1},
    ],
    ids=str,
)  # fmt: skip
def test_a_worker_refuses_nonsense(options: dict[str, Any]) -> None:
    with (
        pysqlbox.connect("postgresql://nobody@localhost:1/none") as db,
        pytest.raises(pysqlbox.InvalidArgument, match=next(iter(options))),
    ):
        db.worker(**options)


@pytest.mark.every_engine
def test_a_box_that_does_not_exist_is_named_when_the_worker_starts(make: MakeWorker) -> None:
    with pytest.raises(pysqlbox.NotFound, match="nowhere"):
        make(boxes=["outbox", "nowhere"]).start()


def test_a_message_class_stands_for_its_topic(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    @message(topic="order.created")
    @dataclass
    class OrderCreated:
        number: int

    found: list[OrderCreated] = []
    worker = make()

    @worker.handler(OrderCreated)
    def handle(order: OrderCreated) -> None:
        found.append(order)

    put(deployment.outbox, "order.created", {"number": 7})
    worker.drain()
    assert found == [OrderCreated(7)]


@pytest.mark.every_engine
def test_join_wait_is_answered_by_itself_and_enqueues_the_follow_up(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls
) -> None:
    worker = make(boxes=["outbox"], poll_seconds=0.02)
    worker.add_handler("step", calls.handler())
    worker.add_handler("all done", calls.handler())
    worker.add_handler("not all", calls.handler(pysqlbox.Ack()))
    for fails in (False, True):
        join = deployment.joins.start("tenant", 3)
        for n in range(3):
            step = deployment.outbox.enqueue("broken" if fails and n == 1 else "step", "")
            deployment.joins.attach(join, step.message_id)
        deployment.joins.wait(join, on_complete_topic="all done", on_fail_topic="not all")
    worker.add_handler("broken", calls.handler(pysqlbox.DeadLetter("broken")))
    worker.start()
    until(lambda: {"all done", "not all"} <= {call.topic for call in calls.all})
    worker.stop()
    topics = [call.topic for call in calls.all]
    assert (topics.count("step"), topics.count("broken")) == (5, 1)
    assert (topics.count("all done"), topics.count("not all")) == (1, 1)


def test_a_join_wait_message_of_no_join_is_given_up(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    worker = make(boxes=["outbox"])
    made = [
        put(deployment.outbox, "join.wait", payload)
        for payload in ("nonsense", "{}", '{"join_id": "11111111-1111-4111-8111-111111111111"}', "[1]")
    ]
    worker.drain()
    assert [status(deployment.outbox, message) for message in made] == ["Failed"] * 4
