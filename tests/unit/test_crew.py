"""When the worker's threads ask a box again."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from pysqlbox.worker.crew import Crew
from pysqlbox.worker.handlers import Handlers
from pysqlbox.worker.lanes import Lane


def _lane() -> Lane:
    queue: Any = SimpleNamespace(name="outbox", box=SimpleNamespace(store="test"))
    return Lane(queue, Handlers(), topics=None, batch_size=50, poll_seconds=60.0, max_attempts=None)


def test_what_is_announced_during_a_claim_is_asked_for_at_once() -> None:
    """The claim may have looked before the message was committed."""
    lane = _lane()
    crew = Crew([lane], threads=1)
    lane.last_work = time.monotonic() - 30
    wakes = lane.wakes
    crew.wake("outbox")
    crew.claimed(lane, 50, 0, crew.progress, wakes)
    assert lane.next_poll <= time.monotonic()


def test_a_claim_that_finds_nothing_is_followed_by_a_pause() -> None:
    """Which a later announcement ends."""
    lane = _lane()
    crew = Crew([lane], threads=1)
    lane.last_work = time.monotonic() - 3
    crew.claimed(lane, 50, 0, crew.progress, lane.wakes)
    assert lane.next_poll > time.monotonic() + 1
    crew.wake("outbox")
    assert lane.next_poll <= time.monotonic()
