"""When the worker's threads ask a box again."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from pysqlbox.worker.handlers import Handlers
from pysqlbox.worker.scheduler import Scheduler
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
    thread: Any = SimpleNamespace(has_turn=False)
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
