"""What becomes of a message by what its handler answers or raises."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

import pysqlbox
from pysqlbox import Ack, DeadLetter, NonRetryable, Release, Retry
from pysqlbox.worker import exponential, fixed
from tests.support.database import Database
from tests.worker.conftest import MakeWorker
from tests.worker.support import Calls, put, status

Box = pysqlbox.Outbox | pysqlbox.Inbox


@pytest.mark.every_engine
def test_obx_048_ibx_073_messages_go_to_the_handler_of_their_topic(box: Box, make: MakeWorker) -> None:
    seen: dict[str, list[int]] = {"a": [], "A": [], "b": []}
    worker = make()
    for topic, found in seen.items():
        worker.add_handler(topic, lambda message, found=found: found.append(message.id))
    made = {topic: [put(box, topic) for _ in range(3)] for topic in seen}
    assert worker.drain() == 9
    assert {topic: sorted(found) for topic, found in seen.items()} == made
    assert {status(box, i) for ids in made.values() for i in ids} == {"Done"}


@pytest.mark.every_engine
def test_obx_051_ibx_076_handlers_get_the_whole_message(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    found: list[Any] = []
    worker = make()
    worker.add_handler("t", found.append)
    sent = deployment.outbox.enqueue(
        "t", "Ünï🐘", correlation_id="c", group_id="g", priority=3, headers={"h": [1]}
    )
    deployment.inbox.enqueue("t", "s", "m", '{"a": 1}', hash=b"\x00\xff", group_id="g", headers={})
    worker.drain()
    by_type = {type(message): message for message in found}
    out, into = by_type[pysqlbox.OutboxMessage], by_type[pysqlbox.InboxMessage]
    assert (out.id, out.message_id, out.topic, out.payload) == (sent.id, sent.message_id, "t", "Ünï🐘")
    assert (out.correlation_id, out.group_id, out.priority, out.headers) == ("c", "g", 3, {"h": [1]})
    assert out.attempt == 0
    assert out.created_at.tzinfo is not None
    assert out.created_at < out.locked_until
    assert out.last_error is None
    assert (into.message_id, into.source, into.hash, into.headers) == ("m", "s", b"\x00\xff", {})
    assert into.payload == '{"a": 1}'


@pytest.mark.parametrize("answer", [None, Ack()])
def test_none_and_ack_are_done(box: Box, make: MakeWorker, calls: Calls, answer: object) -> None:
    worker = make()
    worker.add_handler("t", calls.handler(answer))
    message = put(box)
    assert worker.drain() == 1
    assert status(box, message) == "Done"
    assert len(calls.all) == 1


@pytest.mark.every_engine
def test_retry_with_a_delay_comes_back_after_it(
    box: Box, make: MakeWorker, calls: Calls, db: Database
) -> None:
    worker = make()
    worker.add_handler("t", calls.handler(Retry(delay=timedelta(seconds=200), error="not yet"), None))
    message = put(box)
    assert worker.drain() == 1
    stored = box.get(message)
    assert (stored.attempt, stored.last_error, stored.owner_token) == (1, "not yet", None)
    assert worker.drain() == 0
    db.advance(150)
    assert worker.drain() == 0
    db.advance(51)
    assert worker.drain() == 1
    assert [call.attempt for call in calls.all] == [0, 1]
    assert status(box, message) == "Done"


def test_retry_without_a_delay_waits_for_the_boxes_backoff(
    box: Box, make: MakeWorker, calls: Calls, db: Database
) -> None:
    box.configure("backoff_base_seconds", "50")
    worker = make()
    worker.add_handler("t", calls.handler(Retry(), None))
    message = put(box)
    worker.drain()
    assert box.get(message).last_error is None
    db.advance(50)
    assert worker.drain() == 0  # twice the base
    db.advance(51)
    assert worker.drain() == 1


def test_release_comes_back_at_once_and_counts_nothing(box: Box, make: MakeWorker, calls: Calls) -> None:
    worker = make(threads=1)
    worker.add_handler("t", calls.handler(Release(), Release(), None))
    message = put(box)
    assert worker.drain() == 1
    assert [call.attempt for call in calls.all] == [0, 0, 0]
    assert status(box, message) == "Done"
    assert worker.stats().released == 2


def test_dead_letter_is_given_up_with_its_reason(box: Box, make: MakeWorker, calls: Calls) -> None:
    worker = make()
    worker.add_handler("t", calls.handler(DeadLetter("nobody wants it")))
    message = put(box)
    assert worker.drain() == 1
    stored = box.get(message)
    assert (status(box, message), stored.last_error) == ("Failed", "nobody wants it")
    assert worker.stats().dead == 1


def test_non_retryable_is_given_up_at_once(box: Box, make: MakeWorker, calls: Calls) -> None:
    class NoSuchOrder(NonRetryable):
        pass

    worker = make()
    worker.add_handler("t", calls.handler(NoSuchOrder("order 7")))
    message = put(box)
    worker.drain()
    assert status(box, message) == "Failed"
    assert box.get(message).last_error == "NoSuchOrder: order 7"


class Unspeakable(Exception):
    """It cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("wrong"), KeyError("k"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(),
        ExceptionGroup("several", [ValueError("1"), OSError("2")]), ValueError("nul \x00 in it"),
        ValueError("half \ud800 a character"), ValueError("x" * 100_000), Unspeakable(), StopIteration(),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_obx_050_ibx_075_any_exception_means_another_try(
    box: Box, make: MakeWorker, calls: Calls, db: Database, error: BaseException
) -> None:
    worker = make(backoff=fixed(5))
    worker.add_handler("t", calls.handler(error, None))
    message, other = put(box), put(box, "other")
    worker.add_handler("other", calls.handler())
    assert worker.drain() == 2
    stored = box.get(message)
    assert stored.attempt == 1
    assert stored.owner_token is None
    assert (stored.last_error or "").startswith(type(error).__name__)
    assert status(box, other) == "Done"
    db.advance(6)
    assert worker.drain() == 1
    assert status(box, message) == "Done"


@pytest.mark.parametrize(
    "answer",
    [
        True, False, 0, "ack", Ack, ..., [Ack()], NotImplemented, Retry(delay=0), Retry(delay=-1),
        Retry(delay=float("nan")), Retry(delay=timedelta(0)), Retry(delay="soon"),  # type: ignore[arg-type]
        Retry(delay=1e30), Retry(error=17),  # type: ignore[arg-type]
    ],
    ids=repr,
)  # fmt: skip
def test_nonsense_means_another_try(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls, answer: object
) -> None:
    """In every way a handler may be called: alone, in a group, under a limit; and nobody else suffers."""
    worker = make(threads=2)
    worker.add_handler("t", calls.handler(answer))
    worker.add_handler("limited", calls.handler(answer), concurrency=1)
    worker.add_handler("good", calls.handler())
    box = deployment.outbox
    bad = [put(box), put(box, group_id="g"), put(box, "limited")]
    good = [put(box, "good") for _ in range(3)]
    worker.drain()
    assert {status(box, message) for message in good} == {"Done"}
    for message in bad:
        assert (box.get(message).attempt, status(box, message)) == (1, "Ready")
    assert worker.stats().retried == 3
    assert len(calls.all) == 6


@pytest.mark.every_engine
@pytest.mark.parametrize("answer", [DeadLetter("nul \x00"), DeadLetter("\udfff"), DeadLetter(None)])  # type: ignore[arg-type]
def test_a_dead_letter_with_a_strange_reason_is_dead(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls, answer: object
) -> None:
    worker = make()
    worker.add_handler("t", calls.handler(answer))
    message = put(deployment.outbox)
    worker.drain()
    assert status(deployment.outbox, message) == "Failed"
    assert len(calls.all) == 1


@pytest.mark.every_engine
def test_contract_an_exception_retries_until_the_workers_max_attempts_then_dead(
    box: Box, make: MakeWorker, calls: Calls, db: Database
) -> None:
    worker = make(max_attempts=3, backoff=fixed(100))
    worker.add_handler("t", calls.handler(ValueError("again")))
    message = put(box)
    for attempt in range(3):
        assert status(box, message) == "Ready"
        worker.drain()
        assert len(calls.all) == attempt + 1
        db.advance(101)
    assert status(box, message) == "Failed"
    assert box.get(message).last_error == "ValueError: again"
    assert worker.drain() == 0
    assert (worker.stats().retried, worker.stats().dead) == (2, 1)


@pytest.mark.every_engine
def test_contract_max_attempts_is_the_boxes_setting_unless_the_worker_has_its_own(
    box: Box, make: MakeWorker, calls: Calls, db: Database
) -> None:
    box.configure("max_attempts", "2")
    worker = make(backoff=fixed(100))
    worker.add_handler("t", calls.handler(ValueError("again")))
    message = put(box)
    worker.drain()
    db.advance(101)
    assert status(box, message) == "Ready"
    worker.drain()
    assert status(box, message) == "Failed"


@pytest.mark.every_engine
def test_a_setting_lowered_while_the_worker_runs_counts_at_once(
    box: Box, make: MakeWorker, calls: Calls
) -> None:
    """The database decides, by the setting as it is then."""
    worker = make(threads=1)

    @worker.handler("t")
    def handle(message: Any) -> None:
        calls.all.append(message)
        box.configure("max_attempts", "1")
        raise ValueError("once is enough")

    message = put(box)
    assert worker.drain() == 1
    assert status(box, message) == "Failed"
    assert (box.get(message).attempt, box.get(message).last_error) == (1, "ValueError: once is enough")
    assert len(calls.all) == 1


@pytest.mark.parametrize("where", ["worker", "box"])
def test_max_attempts_of_zero_never_gives_up(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls, db: Database, where: str
) -> None:
    if where == "box":
        deployment.outbox.configure("max_attempts", "0")
    worker = make(boxes=["outbox"], max_attempts=0 if where == "worker" else None, backoff=fixed(1))
    worker.add_handler("t", calls.handler(Retry()))
    message = put(deployment.outbox)
    for _ in range(12):
        assert worker.drain() == 1
        db.advance(2)
    assert deployment.outbox.get(message).attempt == 12
    assert status(deployment.outbox, message) == "Ready"


def test_release_never_reaches_max_attempts(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls
) -> None:
    worker = make(threads=1, max_attempts=1)
    worker.add_handler("t", calls.handler(*[Release()] * 5, None))
    message = put(deployment.outbox)
    worker.drain()
    assert status(deployment.outbox, message) == "Done"


def test_the_backoff_policy_decides_the_delay(box: Box, make: MakeWorker, calls: Calls, db: Database) -> None:
    asked: list[int] = []

    def policy(attempt: int) -> timedelta:
        asked.append(attempt)
        return timedelta(seconds=10 * attempt)

    worker = make(backoff=policy)
    worker.add_handler("t", calls.handler(ValueError("1"), ValueError("2"), Retry(delay=1), None))
    put(box)
    worker.drain()
    db.advance(9)
    assert worker.drain() == 0
    db.advance(2)
    assert worker.drain() == 1
    db.advance(19)
    assert worker.drain() == 0
    db.advance(2)
    assert worker.drain() == 1
    db.advance(1.5)
    assert worker.drain() == 1  # the handler's own wish comes first
    assert asked == [1, 2]


def test_a_policy_that_answers_none_leaves_it_to_the_box(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls, db: Database
) -> None:
    deployment.outbox.configure("backoff_base_seconds", "50")
    worker = make(backoff=lambda _attempt: None)
    worker.add_handler("t", calls.handler(ValueError("1"), None))
    put(deployment.outbox)
    worker.drain()
    db.advance(50)
    assert worker.drain() == 0
    db.advance(51)
    assert worker.drain() == 1


@pytest.mark.parametrize("wrong", [ZeroDivisionError("policy"), -1, "soon", float("inf")])
def test_a_policy_that_fails_costs_no_thread_and_no_message(
    deployment: pysqlbox.Deployment, make: MakeWorker, calls: Calls, db: Database, wrong: Any
) -> None:
    """The box's own backoff is used then."""

    def policy(_attempt: int) -> Any:
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    worker = make(threads=2, backoff=policy)
    worker.add_handler("t", calls.handler(ValueError("1"), Retry(), ValueError("2"), None))
    made = [put(deployment.outbox), put(deployment.outbox, group_id="g"), put(deployment.outbox)]
    assert worker.drain() == 3
    db.advance(2.5)
    assert worker.drain() == 3
    assert {status(deployment.outbox, message) for message in made} == {"Done"}


def test_backoff_policies_of_the_package() -> None:
    doubling = exponential(base=1, cap=60)
    assert [doubling(n) for n in (1, 2, 3, 6, 5000)] == [2, 4, 8, 60, 60]
    spread = [exponential(base=1, cap=60, jitter=0.2)(3) for _ in range(200)]
    assert all(6.4 <= delay <= 9.6 for delay in map(float, spread))  # type: ignore[arg-type]
    assert len(set(spread)) > 100
    steps = fixed(1, 5, 30)
    assert [steps(n) for n in (1, 2, 3, 4, 99)] == [1, 5, 30, 30, 30]
    for base, cap, jitter in ((0, 60, 0), (5, 1, 0), (1, 60, 1)):
        with pytest.raises(pysqlbox.InvalidArgument):
            exponential(base, cap, jitter=jitter)
    for delays in ((), (0,), (1, -1)):
        with pytest.raises(pysqlbox.InvalidArgument):
            fixed(*delays)


@pytest.mark.every_engine
def test_a_mixed_claim_is_settled_each_as_it_answered(box: Box, make: MakeWorker) -> None:
    answers = itertools.cycle([None, Ack(), Retry(), DeadLetter("x"), ValueError("y"), NonRetryable("z")])
    wanted: dict[int, object] = {}

    def handle(message: Any) -> object:
        answer = wanted[message.id]
        if isinstance(answer, Exception):
            raise answer
        return answer

    worker = make(threads=1, batch_size=50, backoff=fixed(3600))  # not due again while this runs
    worker.add_handler("t", handle)
    for _ in range(30):
        message = put(box)
        wanted[message] = next(answers)
    assert worker.drain() == 30
    expected = {"NoneType": "Done", "Ack": "Done", "Retry": "Ready", "DeadLetter": "Failed",
                "ValueError": "Ready", "NonRetryable": "Failed"}  # fmt: skip
    for message, answer in wanted.items():
        assert status(box, message) == expected[type(answer).__name__]
    stats = worker.stats()
    assert (stats.acked, stats.retried, stats.dead, stats.handled) == (10, 10, 10, 30)
