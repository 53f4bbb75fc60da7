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
from pysqlbox.worker.fast_messages import fast_messages
from pysqlbox.worker.handlers import Handler, Handlers
from pysqlbox.worker.ranked_condition import RankedCondition
from pysqlbox.worker.scheduler import Scheduler
from pysqlbox.worker.served_box import ServedBox
from pysqlbox.worker.settings import Settings
from tests.worker.conftest import MakeWorker
from tests.worker.support import Calls, nothing, put, put_many, until

Box = pysqlbox.Outbox | pysqlbox.Inbox


def served(handlers: Handlers | None = None, *, batch_size: int = 50, threads: int = 8) -> ServedBox:
    """A served box of no database."""
    queue: Any = SimpleNamespace(
        name="outbox", deployment=SimpleNamespace(store="test", schema="infra", store_key=None)
    )
    settings = Settings(batch_size=batch_size, poll_seconds=60.0)
    store: Any = SimpleNamespace()
    return ServedBox(
        queue, handlers or Handlers(), settings,
        topics=None, threads=threads, max_attempts=None, store=store,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cost", "expected"),
    [(1e-6, 200), (2.5e-5, 200), (5e-5, 100), (1e-4, 50), (3.9e-4, 400), (1e-3, 161), (0.1, 1)],
)
def test_a_claim_is_as_big_as_the_handlers_are_quick(cost: float, expected: int) -> None:
    """What one thread does in a moment, or all threads in a little while; nothing waits for slow ones."""
    one = served()
    assert one.claim_size() == 4  # nothing is known yet
    one.note_cost(cost, 1)
    assert one.claim_size() == pytest.approx(expected, abs=1)


@pytest.mark.parametrize(("cost", "expected"), [(2.5e-6, 2000), (2e-5, 250), (1e-4, 50)])
def test_larger_batches_make_no_handler_slow(cost: float, expected: int) -> None:
    """One thread works off by itself what a claim of quick messages brings, also with batches of 500."""
    one = served(batch_size=500)
    one.note_cost(cost, 1)
    assert one.claim_size() == pytest.approx(expected, abs=1)
    assert one.is_quick(expected - 1)


def test_a_claim_of_slow_handlers_is_for_those_that_are_idle() -> None:
    one = served()
    one.note_cost(0.5)
    assert [one.claim_size(idle) for idle in (1, 3, 8)] == [1, 3, 8]
    assert one.claim_size(3, waiting=2) == 1
    assert one.claim_size(3, waiting=5) == 0


def test_batch_handlers_and_the_database_limit_a_claim() -> None:
    handlers = Handlers()
    handlers.add(Handler("t", nothing, batch=True))
    one = served(handlers)
    one.note_cost(1e-6, 1)
    assert one.claim_size() == 50
    one.note_cost(1e-3, 1)
    assert one.claim_size(8) == 50
    one = served(batch_size=5000)
    one.note_cost(1e-7, 1)
    assert one.claim_size() == 10_000


def test_one_interruption_of_a_quick_handler_makes_it_no_slow_one() -> None:
    one = served()
    for _ in range(20):
        one.note_cost(1e-5)
    one.note_cost(0.005)
    assert one.claim_size() > 4
    one.note_cost(0.03)  # but this is no interruption
    assert one.claim_size() == 1


def test_batch_handlers_never_get_more_than_a_batch(box: Box, make: MakeWorker) -> None:
    sizes: list[int] = []
    worker = make(threads=8, batch_size=20)

    @worker.batch_handler("t")
    def handle(messages: list[Any]) -> None:
        sizes.append(len(messages))

    put_many(box, 300)
    assert worker.drain() == 300
    assert max(sizes) == 20


def test_one_thread_claims_the_share_of_those_that_sleep(box: Box, make: MakeWorker) -> None:
    sizes: list[int] = []
    worker = make(threads=8, batch_size=20)
    worker.handler("t")(nothing)
    put_many(box, 1000)
    answered = Scheduler.answered

    def spy(scheduler: Scheduler, *rest: Any, asked: int, **named: Any) -> None:
        sizes.append(asked)
        answered(scheduler, *rest, asked=asked, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "answered", spy)
        assert worker.drain() == 1000
    assert max(sizes) == 80  # two of the eight claim


def test_a_quick_handler_that_becomes_slow_comes_to_all_threads(
    box: Box, make: MakeWorker, calls: Calls
) -> None:
    """What one thread has claimed for several is done by all of them."""
    worker = make(threads=4, batch_size=50)

    @worker.handler("t")
    def handle(message: Any) -> None:
        call = calls.begin(message)
        if message.payload == "slow":
            time.sleep(0.1)
        calls.end(call)

    put_many(box, 200)
    for _ in range(40):
        put(box, payload="slow")
    began = time.monotonic()
    assert worker.drain() == 240
    assert time.monotonic() - began < 40 * 0.1 * 0.75
    assert len({call.thread for call in calls.all if call.payload == "slow"}) == 4


@pytest.mark.parametrize("kind", ["trickle", "burst"])
def test_few_threads_do_what_few_can_do(box: Box, make: MakeWorker, calls: Calls, kind: str) -> None:
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
        put(box)
        if kind == "trickle":
            until(lambda expected=number: len(calls.all) > expected)  # type: ignore[misc]  # a loop's lambda
    until(lambda: len(calls.all) == count)
    used = len({call.thread for call in calls.all})
    assert used <= 4 if kind == "trickle" else used == 8


def test_the_sleeper_of_the_lowest_rank_is_woken() -> None:
    condition, woken = RankedCondition(), []

    def sleep(rank: int) -> None:
        with condition:
            condition.wait(rank)
            woken.append(rank)

    threads = [threading.Thread(target=sleep, args=(rank,), daemon=True) for rank in (2, 0, 3, 1)]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    for expected in range(1, 4):
        with condition:
            condition.notify()
        until(lambda expected=expected: len(woken) == expected)  # type: ignore[misc]  # a loop's lambda
    assert woken == [0, 1, 2]
    with condition:
        condition.notify_all()
        condition.notify()  # nobody is there any more
    for thread in threads:
        thread.join(5)
    assert woken == [0, 1, 2, 3]


def test_sleep_ends_by_itself() -> None:
    """And whoever has left is not woken."""
    condition = RankedCondition()
    with condition:
        assert not condition.wait(0, 0.01)
        assert not condition.wait(0, -1)
        condition.notify()
        assert not condition.wait(0, 0.01)


def test_the_clock_is_watched_by_whoever_is_due_first() -> None:
    """A thread that lay down for long while another one claimed must not make that one's pause longer."""
    one = served()
    scheduler = Scheduler([one], threads=2)
    began: list[float] = []
    first, second = (thread(rank) for rank in range(2))
    assert scheduler.next(first) is one  # due in a minute for everybody else

    def wait() -> None:
        scheduler.next(second)
        began.append(time.monotonic())

    other = threading.Thread(target=wait, daemon=True)
    other.start()
    until(lambda: scheduler.idle_threads() == 2)
    scheduler.answered(first, one, [], asked=50, got=0, progress=scheduler.progress, wakes=one.wakes)
    asked = time.monotonic()
    assert scheduler.next(first) is one
    assert time.monotonic() - asked < 5
    assert not began
    scheduler.stop()
    other.join(5)
    assert began


def thread(rank: int) -> Any:
    """What the scheduler needs of a thread."""
    return SimpleNamespace(
        rank=rank, has_turn=False, at_work=False, hanging=False, superfluous=False, assignment=None
    )


def test_messages_are_what_their_class_would_have_made() -> None:
    now = datetime.now(UTC)
    outbox = (1, uuid.uuid4(), "t", "p", None, "g", 3, {"a": 1}, 2, now, None, None, "e", now)
    inbox = (1, "m", "s", "t", "p", b"h", "g", 3, None, 2, now, now, None, None, None, now)
    for kind, row in ((OutboxMessage, outbox), (InboxMessage, inbox)):
        (message,) = fast_messages(kind, [row])
        assert type(message) is kind
        assert message == kind(*row)
        assert repr(message) == repr(kind(*row))
        with pytest.raises(FrozenInstanceError):
            setattr(message, "id", 2)  # noqa: B010  # what a type checker would refuse
    assert fast_messages(OutboxMessage, []) == []
