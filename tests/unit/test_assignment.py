"""An assignment gives each of its messages away once, whoever asks at the same time."""

from __future__ import annotations

import threading
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.backoff import fixed
from pysqlbox.worker.outcomes import Outcomes
from tests.unit.standins import Parts, message


class Guarded(deque[Any]):
    """Messages that nobody may take without the lock."""

    def __init__(self, messages: list[Any], lock: threading.Lock) -> None:
        super().__init__(messages)
        self._lock = lock

    def _checked(self) -> None:
        assert self._lock.locked(), "without the lock"

    def popleft(self) -> Any:
        self._checked()
        return super().popleft()

    def clear(self) -> None:
        self._checked()
        super().clear()

    def __iter__(self) -> Any:
        self._checked()
        return super().__iter__()


class GuardedList(list[Any]):
    """The same for results."""

    lock: threading.Lock

    def __getitem__(self, key: Any) -> Any:
        assert self.lock.locked(), "without the lock"
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        assert self.lock.locked(), "without the lock"
        super().__setitem__(key, value)


BOX: Any = SimpleNamespace(settings=SimpleNamespace(lease_seconds=30), handlers=SimpleNamespace(by_topic={}))
HANDLER: Any = SimpleNamespace(simple=True, is_async=False)


def assigned(*ids: int, loose: bool = False) -> Assignment:
    """An assignment of messages of these ids."""
    return Assignment(BOX, [message(identity) for identity in ids], time.monotonic(), loose=loose)


@pytest.mark.parametrize(
    "take",
    [
        lambda it: it.begin(HANDLER), lambda it: it.next_quick({"t": HANDLER}, 30), Assignment.take_waiting,
        Assignment.held, lambda it: it.lose([1]), Assignment.split,
    ],
    ids=["begin", "next_quick", "take_waiting", "held", "lose", "split"],
)  # fmt: skip
def test_nobody_touches_what_waits_without_the_lock(take: Any) -> None:
    it = assigned(1, 2, loose=True)
    it._waiting = Guarded([message(1), message(2)], it._lock)
    take(it)
    assert not it._lock.locked()


@pytest.mark.parametrize("end", [Assignment.finish, Assignment.take_handled], ids=["finish", "take"])
def test_of_two_that_end_a_message_only_one_waits_for_the_other(end: Any) -> None:
    """Whoever has the lock decides; the other one comes behind."""
    it = assigned(1)
    it.begin(HANDLER)
    begun, ended = threading.Event(), threading.Event()

    def ending() -> None:
        begun.set()
        end(it)
        ended.set()

    with it._lock:
        thread = threading.Thread(target=ending)
        thread.start()
        assert begun.wait(10)
        assert not ended.wait(0.05)
        assert [each.id for each in it.handled] == [1]
    assert ended.wait(10)
    thread.join()
    assert it.handled == []


def test_what_has_just_begun_is_not_taken_for_what_overran() -> None:
    """The lease keeper has seen the one before it."""
    it = assigned(1, 2)
    it.begin(HANDLER)
    it.began_at -= 60
    assert it.finish()
    it.begin(HANDLER)
    assert it.take_overrun(30.0) == []
    assert (it.overrun, it.finish()) == (False, True)


def test_what_was_taken_is_nobodys() -> None:
    it = assigned(1, 2)
    assert [each.id for each in it.take_waiting()] == [1, 2]
    assert it.take_waiting() == []
    assert it.begin(HANDLER) is None
    assert not it.begins_with_coroutine


def test_a_loss_counts_once_and_only_what_is_here() -> None:
    it = assigned(1, 2)
    assert it.lose([1, 9]) == 1
    assert it.lose([1, 2]) == 1
    assert it.lost == {1, 2}
    assert it.is_lost(message(1))
    assert not it.is_lost(message(9)), "it was not here"


def test_those_that_are_split_know_of_a_loss() -> None:
    it = assigned(1, 2, loose=True)
    it.lose([2])
    one, two = it.split()
    assert (one.is_lost(one.head), two.is_lost(two.head)) == (False, True)
    assert it.held() == []


def test_a_loss_is_told_to_those_who_were_split_before() -> None:
    """They share what they know: the database is asked about them together."""
    it = assigned(1, 2, loose=True)
    parts = it.split()
    it.lost.add(2)
    assert parts[1].is_lost(parts[1].head)


def test_a_lost_message_is_not_begun_and_its_assignment_ends() -> None:
    parts = Parts()
    handled: list[int] = []
    parts.handler("t", lambda each: handled.append(each.id))
    it = Assignment(parts.box, [message(1)], time.monotonic())
    it.lose([1])
    parts.handle(it)
    assert (handled, it.held(), len(parts.box.outcomes)) == ([], [], 0)


def test_nobody_takes_results_without_the_lock() -> None:
    """What comes meanwhile stays for the next."""
    results = Outcomes()
    acked = GuardedList([1, 2])
    acked.lock = results._lock
    results.acked = acked
    taken = results.take()
    assert list(taken.acked) == [1, 2]
    results.acked.append(3)
    results.give_back(taken)
    with results._lock:
        assert list.__getitem__(results.acked, slice(None)) == [1, 2, 3]


def test_results_that_come_while_others_are_taken_stay() -> None:
    """A thread adds without the lock; it may do so between any two steps."""
    results = Outcomes()

    class Adding(list[int]):
        def __getitem__(self, key: Any) -> Any:
            found = super().__getitem__(key)
            self.append(99)
            return found

    results.acked = Adding([1, 2])
    assert results.take().acked == [1, 2]
    assert list(results.acked) == [99]


def test_the_first_attempt_of_a_policy_is_the_first() -> None:
    assert [fixed(1, 5)(attempt) for attempt in (0, 1, 2, 9)] == [1, 1, 5, 5]
