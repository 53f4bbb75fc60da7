"""A condition that wakes by rank: whoever sleeps is woken once, and the lowest first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pysqlbox.worker import ranked_condition
from pysqlbox.worker.ranked_condition import RankedCondition
from tests.unit.runs import PATIENCE, comes


def asleep(condition: RankedCondition, rank: int, told: Callable[[int], Any]) -> threading.Thread:
    """A thread that sleeps, and says who it is once it is woken."""

    def sleep() -> None:
        with condition:
            assert condition.wait(rank)
            told(rank)

    before = condition.sleepers
    thread = threading.Thread(target=sleep, daemon=True)
    thread.start()
    comes(lambda: condition.sleepers > before)
    return thread


def test_the_lowest_rank_is_woken_first() -> None:
    condition, woken = RankedCondition(), list[int]()
    threads = [asleep(condition, rank, woken.append) for rank in (2, 0, 3, 1)]
    for count in range(1, 5):
        with condition:
            condition.notify()
        comes(lambda count=count: len(woken) == count)  # type: ignore[misc]  # a loop's lambda
    assert woken == [0, 1, 2, 3]
    for thread in threads:
        thread.join(PATIENCE)


def test_everybody_can_be_woken() -> None:
    condition, woken = RankedCondition(), list[int]()
    threads = [asleep(condition, rank, woken.append) for rank in range(3)]
    with condition:
        condition.notify_all()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(woken) == [0, 1, 2]
    assert condition.sleepers == 0


def test_who_has_left_by_itself_sleeps_no_more() -> None:
    """Otherwise it would be woken in place of one who sleeps."""
    condition = RankedCondition()
    with condition:
        assert not condition.wait(0, 0.001)
        assert condition.sleepers == 0
        condition.notify()


@pytest.mark.parametrize("seconds", [0, -1, -1e9])
def test_what_is_over_is_not_waited_for(seconds: float) -> None:
    """To a lock a negative timeout means none, or is an error."""
    condition = RankedCondition()
    with condition:
        assert not condition.wait(0, seconds)


def test_who_rang_in_the_last_moment_has_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time was over, but somebody has counted on the sleeper: it must look."""
    condition = RankedCondition()

    class Late:
        """A bell of which the sleeper has just turned away as it rings."""

        def __init__(self) -> None:
            self.lock = lock()

        def acquire(self, timeout: float | None = None) -> bool:
            if timeout is None:
                return self.lock.acquire()
            with condition:
                condition.notify()
            return False

        def release(self) -> None:
            self.lock.release()

    lock = threading.Lock
    monkeypatch.setattr(ranked_condition, "threading", SimpleNamespace(Lock=Late))
    with condition:
        assert condition.wait(0, 1.0)


def test_the_lock_is_had_again_whatever_ends_the_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, say: whoever leaves the block gives the lock back."""
    condition = RankedCondition()

    class Interrupted:
        def acquire(self, timeout: float | None = None) -> None:
            if timeout is not None:
                raise KeyboardInterrupt

    monkeypatch.setattr(ranked_condition, "threading", SimpleNamespace(Lock=Interrupted))
    with pytest.raises(KeyboardInterrupt), condition:
        condition.wait(0, 1.0)
    assert condition.sleepers == 0
    assert condition._lock.acquire(timeout=1)
