"""Threads that several stores share: none gets all, and one that is away keeps none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future

import pytest

from pysqlbox.dashboard.lanes import Lanes, TooMany
from pysqlbox.errors import DatabaseUnavailable

PATIENCE = 60.0


class Clock:
    """A time that stands still."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The lanes' time."""
    return Clock()


@pytest.fixture
def lanes(clock: Clock) -> Iterator[Lanes]:
    """Four threads."""
    made = Lanes(4, 10, name="lane", rest=2.0, clock=clock)
    yield made
    made.close(wait=True)


def away() -> None:
    raise DatabaseUnavailable("nobody there")


def test_a_store_gets_half_of_the_threads(lanes: Lanes) -> None:
    go = threading.Event()
    stuck = [lanes.submit(lambda: go.wait(PATIENCE), "slow") for _ in range(5)]
    assert lanes.submit(lambda: 7, "quick").result(PATIENCE) == 7
    assert lanes.submit(lambda: 8).result(PATIENCE) == 8
    assert sum(each.running() for each in stuck) <= 2
    go.set()
    assert all(each.result(PATIENCE) for each in stuck)


def test_without_stores_all_threads_work(lanes: Lanes) -> None:
    together = threading.Barrier(4)
    for each in [lanes.submit(lambda: together.wait(PATIENCE)) for _ in range(4)]:
        each.result(PATIENCE)


def test_a_store_that_is_away_is_asked_again_by_one_after_a_rest(lanes: Lanes, clock: Clock) -> None:
    with pytest.raises(DatabaseUnavailable, match="nobody there"):
        lanes.submit(away, "a").result(PATIENCE)
    with pytest.raises(DatabaseUnavailable, match="does not answer"):
        lanes.submit(lambda: 1, "a")
    assert lanes.submit(lambda: 2, "b").result(PATIENCE) == 2
    clock.now += 3
    go = threading.Event()
    tries = lanes.submit(lambda: go.wait(PATIENCE), "a")
    with pytest.raises(DatabaseUnavailable, match="does not answer"):
        lanes.submit(lambda: 1, "a")
    go.set()
    assert tries.result(PATIENCE)
    assert lanes.submit(lambda: 3, "a").result(PATIENCE) == 3


def test_few_threads_look_for_stores_that_are_away(lanes: Lanes, clock: Clock) -> None:
    for store in "abc":
        with pytest.raises(DatabaseUnavailable):
            lanes.submit(away, store).result(PATIENCE)
    clock.now += 3
    go = threading.Event()
    first = lanes.submit(lambda: go.wait(PATIENCE), "a")
    with pytest.raises(DatabaseUnavailable):
        lanes.submit(lambda: 1, "b")
    go.set()
    assert first.result(PATIENCE)


def test_those_that_wait_are_told_when_their_store_is_away(lanes: Lanes) -> None:
    go = threading.Event()

    def fail() -> None:
        go.wait(PATIENCE)
        away()

    running: list[Future[None]] = [lanes.submit(fail, "a") for _ in range(2)]
    waiting = [lanes.submit(lambda: 1, "a") for _ in range(3)]
    go.set()
    for each in running:
        with pytest.raises(DatabaseUnavailable):
            each.result(PATIENCE)
    for late in waiting:
        with pytest.raises(DatabaseUnavailable, match="does not answer"):
            late.result(PATIENCE)


def test_only_so_many_wait_and_the_end_cancels_them(lanes: Lanes) -> None:
    go = threading.Event()
    running = [lanes.submit(lambda: go.wait(PATIENCE), "a") for _ in range(14)]
    with pytest.raises(TooMany):
        lanes.submit(lambda: 1, "b")
    lanes.close(wait=False)
    with pytest.raises(CancelledError):
        running[-1].result(PATIENCE)
    go.set()
    assert running[0].result(PATIENCE)
    assert lanes.submit(lambda: 1, "b").result(PATIENCE) == 1
