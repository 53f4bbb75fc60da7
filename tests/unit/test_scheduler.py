"""When the worker's threads ask a box again."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from pysqlbox.worker.assignment import STUCK_SECONDS, Assignment
from pysqlbox.worker.handlers import Handlers
from pysqlbox.worker.scheduler import DRY_CLAIMS, GROUP_SECONDS, Scheduler
from pysqlbox.worker.served_box import NEVER, ServedBox
from pysqlbox.worker.settings import Settings


def _served() -> ServedBox:
    queue: Any = SimpleNamespace(
        name="outbox", deployment=SimpleNamespace(store="test", schema="infra", store_key=None)
    )
    store: Any = SimpleNamespace()
    return ServedBox(
        queue, Handlers(), Settings(poll_seconds=60.0),
        topics=None, threads=1, max_attempts=None, store=store,
    )  # fmt: skip


def _found_nothing(scheduler: Scheduler, box: ServedBox, wakes: int) -> None:
    thread: Any = SimpleNamespace(has_turn=False, turn_began=0.0)
    scheduler.answered(thread, box, [], asked=50, got=0, progress=scheduler.progress, wakes=wakes)


def test_what_is_announced_during_a_claim_is_asked_for_at_once() -> None:
    """The claim may have looked before the message was committed."""
    box = _served()
    scheduler = Scheduler([box], threads=1)
    box.last_work = time.monotonic() - 30
    wakes = box.wakes
    scheduler.wake(box)
    _found_nothing(scheduler, box, wakes)
    assert box.next_poll <= time.monotonic()


def test_a_claim_that_finds_nothing_is_followed_by_a_pause() -> None:
    """Which a later announcement ends."""
    box = _served()
    scheduler = Scheduler([box], threads=1)
    box.last_work = time.monotonic() - 3
    _found_nothing(scheduler, box, box.wakes)
    assert box.next_poll > time.monotonic() + 1
    scheduler.wake(box)
    assert box.next_poll <= time.monotonic()


def test_a_claim_that_was_under_way_does_not_wake_a_box() -> None:
    """Where the database is slow two threads may ask at once; the one that comes later brings nothing new."""
    one = _served()
    one.being_asked(0.0)
    one.being_asked(0.1)
    one.alarm = NEVER
    one.schedule(4, 0, 1.0)
    one.schedule(4, 0, 1.1)
    found = [(one.asleep, one.next_poll < NEVER)]
    one.being_asked(2.0)
    one.schedule(4, 0, 2.1)
    found.append((one.asleep, one.next_poll < NEVER))
    assert found == [(True, False), (False, True)]


def _thread() -> Any:
    return SimpleNamespace(has_turn=False, turn_began=0.0, at_work=False, superfluous=False, rank=0)


def test_a_drain_believes_only_so_many_empty_claims_in_a_row() -> None:
    """One that meets thousands of expired messages comes back empty, though others lie behind them."""
    box, thread = _served(), _thread()
    scheduler = Scheduler([box], threads=1)
    scheduler.drain()
    for _ in range(2):
        for _ in range(DRY_CLAIMS):
            assert scheduler.next(thread) is box
            _found_nothing(scheduler, box, box.wakes)
        assert scheduler.next(thread) is box, "it asks once more"
        scheduler.answered(thread, box, [], asked=1, got=1, progress=scheduler.progress, wakes=box.wakes)
    for _ in range(DRY_CLAIMS + 1):
        assert scheduler.next(thread) is box
        _found_nothing(scheduler, box, box.wakes)
    assert scheduler.next(thread) is None


def test_a_drain_confirms_groups_by_claims_that_begin_when_it_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A notice that arrives before that has a box asked, which shows nothing."""
    now = 1000.0
    clock = SimpleNamespace(monotonic=lambda: now, time=lambda: now)
    monkeypatch.setattr("pysqlbox.worker.scheduler.time", clock)
    box, thread = _served(), _thread()
    scheduler = Scheduler([box], threads=1)
    scheduler.groups_seen = True
    scheduler.drain()
    for _ in range(DRY_CLAIMS + 1):
        thread.turn_began = now
        _answer(scheduler, thread, box)
    scheduler._end_if_dry()
    assert not scheduler.stopping
    assert box.next_poll == now + GROUP_SECONDS
    now += GROUP_SECONDS / 5
    scheduler.wake(box)
    assert scheduler.next(thread) is box
    _answer(scheduler, thread, box)
    scheduler._end_if_dry()
    assert not scheduler.stopping
    now = box.next_poll
    assert scheduler.next(thread) is box
    _answer(scheduler, thread, box)
    assert scheduler.next(thread) is None
    assert now == 1000.0 + GROUP_SECONDS


def _answer(scheduler: Scheduler, thread: Any, box: ServedBox) -> None:
    scheduler.answered(thread, box, [], asked=50, got=0, progress=scheduler.progress, wakes=box.wakes)


def test_a_turn_that_is_lent_is_one_less_for_the_threads() -> None:
    scheduler = Scheduler([_served(), _served()], threads=2)
    one, two = _thread(), _thread()
    assert isinstance(scheduler.next(one), ServedBox)
    with scheduler.lent_turn():
        assert not scheduler._may_exchange()
    assert scheduler._may_exchange()
    assert isinstance(scheduler.next(two), ServedBox)
    lent, enough = threading.Event(), threading.Event()

    def borrow() -> None:
        with scheduler.lent_turn():
            lent.set()
            enough.wait(10)

    helper = threading.Thread(target=borrow)
    helper.start()
    assert not lent.wait(0.1), "both are taken"
    scheduler.end_turn(one)
    assert lent.wait(10)
    scheduler.end_turn(two)
    assert scheduler._may_exchange(), "one thread may always ask"
    enough.set()
    helper.join()


def test_whoever_naps_gets_up_when_there_is_work_or_the_end() -> None:
    box = _served()
    for stir in (
        lambda scheduler: scheduler.answered(_thread(), box, [], asked=1, got=1, progress=0, wakes=0),
        Scheduler.stop,
    ):
        scheduler = Scheduler([box], threads=1)
        scheduler.nap(0.0)
        napper = threading.Thread(target=scheduler.nap, args=(60,))
        napper.start()
        stir(scheduler)
        napper.join(10)
        assert not napper.is_alive()


@pytest.mark.parametrize("why", ["lease", "lost", "slow", "no handler", "not simple"])
def test_quick_messages_are_not_begun_once_things_are_not_as_hoped(why: str) -> None:
    """Their lease may be over, one of them lost, the one before slow: then each is looked at by itself."""
    box: Any = SimpleNamespace(settings=SimpleNamespace(lease_seconds=30))
    now = time.monotonic()
    messages = [SimpleNamespace(id=1, topic="t"), SimpleNamespace(id=2, topic="t")]
    handlers: Any = {"t": SimpleNamespace(simple=why != "not simple")}
    hoped: Any = {"t": SimpleNamespace(simple=True)}
    assert Assignment(box, messages, now, loose=True).next_quick(hoped, 30) is messages[0]
    assignment = Assignment(box, messages, now - (31 if why == "lease" else 0), loose=True)
    if why == "lost":
        assignment.lose([2])
    elif why == "slow":
        assignment.began_at = now - 2 * STUCK_SECONDS
    elif why == "no handler":
        handlers = {}
    assert assignment.next_quick(handlers, 30) is None
    assert not assignment.overrun
    assert assignment.held() == messages


def test_of_a_quick_message_that_was_taken_away_nobody_begins_the_next() -> None:
    """The thread may be the one that hangs, and another one works in its place."""
    box: Any = SimpleNamespace(settings=SimpleNamespace(lease_seconds=30))
    messages = [SimpleNamespace(id=number, topic="t") for number in range(3)]
    handlers: Any = {"t": SimpleNamespace(simple=True)}
    assignment = Assignment(box, messages, time.monotonic(), loose=True)
    assert assignment.next_quick(handlers, 30) is messages[0]
    assert assignment.next_quick(handlers, 30) is messages[1]
    assert assignment.take_handled() == [messages[1]]
    assert assignment.next_quick(handlers, 30) is None
    assert assignment.overrun
    assert assignment.held() == [messages[2]]
