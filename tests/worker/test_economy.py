"""What a worker does to need little: a few threads where few are needed, one claim for several batches."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

import pysqlbox
from pysqlbox.messages import InboxMessage, OutboxMessage
from pysqlbox.worker.crew import Crew
from pysqlbox.worker.handlers import Handler, Handlers
from pysqlbox.worker.lanes import Lane
from pysqlbox.worker.making import made
from pysqlbox.worker.rest import Rest
from tests.worker.conftest import MakeWorker
from tests.worker.support import Calls, nothing, put, put_many, until

Queue = pysqlbox.Outbox | pysqlbox.Inbox


def lane(handlers: Handlers | None = None, *, batch_size: int = 50, share: int = 200) -> Lane:
    """A lane of no database."""
    queue: Any = SimpleNamespace(name="outbox", box=SimpleNamespace(store="test"))
    return Lane(
        queue,
        handlers or Handlers(),
        topics=None,
        batch_size=batch_size,
        share=share,
        poll_seconds=60.0,
        max_attempts=None,
    )


@pytest.mark.parametrize(
    ("cost", "expected"),
    [(1e-6, 200), (2.5e-5, 200), (5e-5, 100), (1e-4, 50), (3.9e-4, 50), (1e-3, 20), (0.1, 1)],
)
def test_a_claim_is_as_big_as_its_handlers_are_quick(cost: float, expected: int) -> None:
    one = lane()
    assert one.claim_size() == 4  # nothing is known yet
    one.note_cost(cost, 1)
    assert one.claim_size() == pytest.approx(expected, abs=1)


def test_batch_handlers_and_the_database_limit_a_claim() -> None:
    handlers = Handlers()
    handlers.add(Handler("t", nothing, batch=True))
    one = lane(handlers)
    one.note_cost(1e-6, 1)
    assert one.claim_size() == 50
    one = lane(batch_size=5000, share=20_000)
    one.note_cost(1e-7, 1)
    assert one.claim_size() == 10_000


def test_batch_handlers_never_get_more_than_a_batch(queue: Queue, make: MakeWorker) -> None:
    sizes: list[int] = []
    worker = make(threads=8, batch_size=20)

    @worker.batch_handler("t")
    def handle(messages: list[Any]) -> None:
        sizes.append(len(messages))

    put_many(queue, 300)
    assert worker.drain() == 300
    assert max(sizes) == 20


def test_one_thread_claims_the_share_of_those_that_sleep(queue: Queue, make: MakeWorker) -> None:
    asked: list[int] = []
    worker = make(threads=8, batch_size=20)
    worker.handler("t")(nothing)
    put_many(queue, 1000)
    claimed = Crew.claimed

    def spy(crew: Crew, one: Lane, size: int, *rest: Any) -> None:
        asked.append(size)
        claimed(crew, one, size, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Crew, "claimed", spy)
        assert worker.drain() == 1000
    assert max(asked) == 80  # two of the eight claim


def test_a_quick_handler_that_becomes_slow_comes_to_all_threads(
    queue: Queue, make: MakeWorker, calls: Calls
) -> None:
    """What one thread has claimed for several is done by all of them."""
    worker = make(threads=4, batch_size=50)

    @worker.handler("t")
    def handle(message: Any) -> None:
        call = calls.begin(message)
        if message.payload == "slow":
            time.sleep(0.1)
        calls.end(call)

    put_many(queue, 200)
    for _ in range(40):
        put(queue, payload="slow")
    began = time.monotonic()
    assert worker.drain() == 240
    assert time.monotonic() - began < 40 * 0.1 * 0.75
    assert len({call.thread for call in calls.all if call.payload == "slow"}) == 4


@pytest.mark.parametrize("kind", ["trickle", "burst"])
def test_few_threads_do_what_few_can_do(queue: Queue, make: MakeWorker, calls: Calls, kind: str) -> None:
    """Each thread more is a connection more, whose plans the server has to make first."""
    worker = make(threads=8)

    @worker.handler("t")
    def handle(message: Any) -> None:
        calls.end(calls.begin(message))
        if kind == "burst":
            time.sleep(0.05)

    worker.start()
    count = 16 if kind == "trickle" else 80
    for number in range(count):
        put(queue)
        if kind == "trickle":
            until(lambda expected=number: len(calls.all) > expected)  # type: ignore[misc]  # a loop's lambda
    until(lambda: len(calls.all) == count)
    used = len({call.thread for call in calls.all})
    assert used <= 4 if kind == "trickle" else used == 8


def test_rest_wakes_the_lowest_rank() -> None:
    rest, woken = Rest(), []

    def sleep(rank: int) -> None:
        with rest:
            rest.wait(rank)
            woken.append(rank)

    threads = [threading.Thread(target=sleep, args=(rank,), daemon=True) for rank in (2, 0, 3, 1)]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    for expected in range(1, 4):
        with rest:
            rest.notify()
        until(lambda expected=expected: len(woken) == expected)  # type: ignore[misc]  # a loop's lambda
    assert woken == [0, 1, 2]
    with rest:
        rest.notify_all()
        rest.notify()  # nobody is there any more
    for thread in threads:
        thread.join(5)
    assert woken == [0, 1, 2, 3]


def test_rest_ends_by_itself() -> None:
    """And whoever has left is not woken."""
    rest = Rest()
    with rest:
        assert not rest.wait(0, 0.01)
        assert not rest.wait(0, -1)
        rest.notify()
        assert not rest.wait(0, 0.01)


def test_the_clock_is_watched_by_whoever_is_due_first() -> None:
    """A thread that lay down for long while another one claimed must not make that one's pause longer."""
    one = lane()
    crew = Crew([one], threads=2)
    began: list[float] = []
    first: Any = SimpleNamespace(rank=0, has_turn=False, at_work=False, written_off=False)
    second: Any = SimpleNamespace(rank=1, has_turn=False, at_work=False, written_off=False)
    assert crew.next(first) is one  # due in a minute for everybody else

    def wait() -> None:
        crew.next(second)
        began.append(time.monotonic())

    other = threading.Thread(target=wait, daemon=True)
    other.start()
    time.sleep(0.05)
    crew.claimed(one, 50, 0, crew.progress, one.wakes)
    crew.finished(first)
    asked = time.monotonic()
    assert crew.next(first) is one
    assert time.monotonic() - asked < 5
    assert not began
    crew.stop()
    other.join(5)
    assert began


def test_messages_are_what_their_class_would_have_made() -> None:
    now = datetime.now(UTC)
    outbox = (1, uuid.uuid4(), "t", "p", None, "g", 3, {"a": 1}, 2, now, None, None, "e", now)
    inbox = (1, "m", "s", "t", "p", b"h", "g", 3, None, 2, now, now, None, None, None, now)
    for kind, row in ((OutboxMessage, outbox), (InboxMessage, inbox)):
        (message,) = made(kind, [row])
        assert type(message) is kind
        assert message == kind(*row)
        assert repr(message) == repr(kind(*row))
        with pytest.raises(FrozenInstanceError):
            setattr(message, "id", 2)  # noqa: B010  # what a type checker would refuse
    assert made(OutboxMessage, []) == []
