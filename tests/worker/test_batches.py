"""Batch handlers: what their answers mean, message by message."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest

import pysqlbox
from pysqlbox import Ack, DeadLetter, NonRetryable, Release, Retry
from pysqlbox.worker import Context
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.support import put, put_many, status

Box = pysqlbox.Outbox | pysqlbox.Inbox


def shown(box: Box, ids: list[int]) -> list[tuple[str, int]]:
    """Status and attempt of each message."""
    return [(status(box, message), box.get(message).attempt) for message in ids]


def test_none_means_all_done_and_batches_hold_what_was_claimed(box: Box, make: MakeWorker) -> None:
    sizes: list[int] = []
    worker = make(threads=1, batch_size=20)

    @worker.batch_handler("t")
    def handle(messages: list[Any]) -> None:
        sizes.append(len(messages))

    made = put_many(box, 100)
    assert worker.drain() == 100
    assert sum(sizes) == 100
    assert max(sizes) == 20
    assert {status(box, message) for message in made} == {"Done"}


@pytest.mark.parametrize("shape", [list, tuple, iter, dict], ids=lambda shape: shape.__name__)
def test_an_outcome_for_each(box: Box, make: MakeWorker, shape: Any) -> None:
    results = [None, Ack(), Retry(delay=5, error="e"), DeadLetter("d")]
    worker = make(threads=1)

    @worker.batch_handler("t")
    def handle(messages: list[Any]) -> Any:
        answers = [results[int(message.payload) % 4] for message in messages]
        if shape is dict:  # what it does not name is done
            ids = [message.id for message in messages]
            return {i: answer for i, answer in zip(ids, answers, strict=True) if answer is not None}
        return shape(answers)

    made = put_many(box, 8)
    assert worker.drain() == 8
    assert shown(box, made) == [("Done", 0), ("Done", 0), ("Ready", 1), ("Failed", 0)] * 2
    assert box.get(made[2]).last_error == "e"


@pytest.mark.every_engine
def test_one_result_is_for_all(box: Box, make: MakeWorker) -> None:
    worker = make(threads=1)
    worker.add_handler("t", lambda _messages: Retry(delay=7), batch=True)
    made = put_many(box, 5)
    worker.drain()
    assert shown(box, made) == [("Ready", 1)] * 5


@pytest.mark.parametrize(
    "answer",
    [[], [Ack()] * 3, ["ack"] * 4, "acks", 17, ..., {1: "x", 2: 3}, [Retry(delay=-1)] * 4],
    ids=repr,
)
def test_nonsense_means_another_try_for_all(
    deployment: pysqlbox.Deployment, make: MakeWorker, answer: object
) -> None:
    worker = make(threads=1)
    made = put_many(deployment.outbox, 4)
    if isinstance(answer, dict):
        answer = {made[0]: "x"}
    worker.add_handler("t", lambda _messages: answer, batch=True)
    worker.drain()
    assert shown(deployment.outbox, made) == [("Ready", 1)] * 4


@pytest.mark.parametrize(
    ("error", "expected"), [(OSError("down"), ("Ready", 1)), (NonRetryable("no"), ("Failed", 0))]
)
def test_an_exception_is_for_all(
    box: Box, make: MakeWorker, error: Exception, expected: tuple[str, int]
) -> None:
    worker = make(threads=1)

    def handle(_messages: list[Any]) -> None:
        raise error

    worker.add_handler("t", handle, batch=True)
    made = put_many(box, 4)
    worker.drain()
    assert shown(box, made) == [expected] * 4
    assert box.get(made[3]).last_error == f"{type(error).__name__}: {error}"


def test_max_attempts_counts_for_each_message(
    deployment: pysqlbox.Deployment, make: MakeWorker, db: Database
) -> None:
    box = deployment.outbox
    worker = make(threads=1, max_attempts=2)
    worker.add_handler("t", lambda _messages: Retry(delay=1), batch=True)
    old = put(box)
    worker.drain()
    db.advance(2)
    new = put(box)
    worker.drain()
    assert shown(box, [old, new]) == [("Failed", 1), ("Ready", 1)]


@pytest.mark.every_engine
def test_fifo_batches_keep_the_order_within_groups(box: Box, make: MakeWorker) -> None:
    seen: list[tuple[str | None, int]] = []
    worker = make(threads=4, batch_size=30)

    @worker.batch_handler("t")
    def handle(messages: list[Any]) -> None:
        seen.extend((message.group_id, message.id) for message in messages)

    made = [put(box, group_id=group) for group in ["a", "b", None, "a", "a", "b"] * 6]
    assert worker.drain() == 36
    assert sorted(i for _, i in seen) == made
    for group in ("a", "b"):
        of_group = [i for g, i in seen if g == group]
        assert of_group == sorted(of_group)


def test_a_retry_within_a_fifo_batch_holds_up_its_group(box: Box, make: MakeWorker, db: Database) -> None:
    """What was handed in behind it had its own outcome already; what comes later waits."""
    worker = make(threads=1)
    turn = itertools.count()
    seen: list[list[int]] = []

    @worker.batch_handler("t")
    def handle(messages: list[Any]) -> list[Any]:
        seen.append([message.id for message in messages])
        if next(turn):
            return [None] * len(messages)
        return [Retry(delay=5) if number == 1 else Release() for number in range(len(messages))]

    made = put_many(box, 3, group_id="g")
    worker.drain()
    db.advance(6)
    worker.drain()
    later = [i for batch in seen[1:] for i in batch]
    assert seen[0] == made
    assert later[-2:] == made[1:]
    assert {status(box, message) for message in made} == {"Done"}


def test_a_group_of_several_topics_is_handled_in_order(box: Box, make: MakeWorker) -> None:
    seen: list[int] = []
    worker = make(threads=3)
    worker.add_handler("batch", lambda messages: seen.extend(m.id for m in messages), batch=True)
    worker.add_handler("one", lambda message: seen.append(message.id))
    made = [put(box, topic, group_id="g") for topic in ("batch", "one", "batch", "batch", "one")]
    worker.drain()
    assert seen == made


def test_typed_batches_with_context(box: Box, make: MakeWorker) -> None:
    @dataclass
    class Order:
        number: int

    found: list[Order] = []
    worker = make(threads=1)

    @worker.batch_handler("t")
    def handle(orders: list[Order], context: Context) -> list[Any]:
        assert [message.topic for message in context.messages] == ["t"] * len(orders)
        assert not context.cancelled
        found.extend(orders)
        return [None] * len(orders)

    for number in range(4):
        put(box, payload={"number": number})
    assert worker.drain() == 4
    assert found == [Order(number) for number in range(4)]


def test_one_undecodable_message_costs_its_batch_nothing(box: Box, make: MakeWorker) -> None:
    found: list[int] = []
    worker = make(threads=1)

    @worker.batch_handler("t")
    def handle(numbers: list[int]) -> None:
        found.extend(numbers)

    made = [put(box, payload=payload) for payload in ("1", "nonsense SECRET", "3", "4")]
    worker.drain()
    assert shown(box, made) == [("Done", 0), ("Failed", 0), ("Done", 0), ("Done", 0)]
    assert found == [1, 3, 4]
    assert "SECRET" not in (box.get(made[1]).last_error or "")


def test_async_batches(box: Box, make: MakeWorker) -> None:
    worker = make()

    @worker.batch_handler("t")
    async def handle(messages: list[Any]) -> list[Any]:
        return [DeadLetter("even") if int(message.payload) % 2 == 0 else None for message in messages]

    made = put_many(box, 6)
    worker.drain()
    assert shown(box, made) == [("Failed", 0), ("Done", 0)] * 3
