"""The pool of an event loop, on connections that only pretend."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pysqlbox import DatabaseUnavailable, InvalidState
from pysqlbox.async_pool import AsyncPool
from pysqlbox.drivers import parse_url
from tests.unit.forked import child

#: Threads of a test runner, say.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

TARGET = parse_url("postgresql://someone:secret@host/db")


class Fake:
    """One connection."""

    closed = False
    alive = True
    clean = True


class Driver:
    """What the pool asks of a driver. ``hangs`` names the step that waits until it is cancelled."""

    def __init__(self) -> None:
        self.opened: list[Fake] = []
        self.down = False
        self.hangs = ""
        self.hanging = asyncio.Event()

    async def _step(self, name: str) -> None:
        if name == self.hangs:
            self.hanging.set()
            await asyncio.Event().wait()

    async def connect(self, *_: Any, **__: Any) -> Fake:
        await self._step("connect")
        if self.down:
            raise DatabaseUnavailable("down")
        self.opened.append(Fake())
        return self.opened[-1]

    async def is_alive(self, connection: Fake, _: float) -> bool:
        await self._step("is_alive")
        return connection.alive

    async def reset(self, connection: Fake) -> bool:
        await self._step("reset")
        return connection.clean

    def close(self, connection: Fake) -> None:
        connection.closed = True


def _pool(driver: Driver, **options: Any) -> AsyncPool:
    return AsyncPool(driver, TARGET, **options)  # type: ignore[arg-type]  # it has what the pool asks for


Test = Callable[[], Coroutine[Any, Any, None]]


def looped(test: Test) -> Callable[[], None]:
    """Runs a test on a loop of its own."""

    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 30))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def _cancelled(driver: Driver, step: str, work: Coroutine[Any, Any, Any]) -> None:
    """Cancels it while the driver is at that step."""
    driver.hangs = step
    driver.hanging.clear()
    task = asyncio.ensure_future(work)
    await driver.hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    driver.hangs = ""


@looped
async def test_a_dead_or_dirty_connection_is_replaced() -> None:
    pool = _pool(Driver(), size=1, timeout=0.01)
    one = await pool.take()
    await pool.give_back(one)
    assert await pool.take() is one
    await pool.give_back(one)
    one.alive = False
    other = await pool.take()
    assert other is not one
    other.clean = False
    await pool.give_back(other)
    assert (one.closed, other.closed, pool.open) == (True, True, 0)


@looped
async def test_an_old_connection_is_closed() -> None:
    pool = _pool(Driver(), max_lifetime=0.0)
    one = await pool.take()
    await pool.give_back(one)
    assert await pool.take() is not one
    assert one.closed


@looped
async def test_one_that_was_idle_for_too_long_is_closed() -> None:
    pool = _pool(Driver(), max_idle=1.0)
    one, two = await pool.take(), await pool.take()
    await pool.give_back(one)
    pool._idle[0] = (one, pool._idle[0][1] - 2.0)
    await pool.give_back(two)
    assert (one.closed, two.closed, pool.open, pool.idle) == (True, False, 1, 1)


@looped
async def test_a_failed_connect_leaves_room_for_the_next() -> None:
    driver = Driver()
    pool = _pool(driver, size=1, timeout=0.01)
    driver.down = True
    for _ in range(3):
        with pytest.raises(DatabaseUnavailable, match="down"):
            await pool.take()
    driver.down = False
    assert await pool.take()


@looped
async def test_who_is_cancelled_leaves_his_room_and_a_connection_to_nobody() -> None:
    """Whatever the driver was asked just then: a connection in the midst of a question is of no more use."""
    driver = Driver()
    pool = _pool(driver, size=1, timeout=0.01)
    await _cancelled(driver, "connect", pool.take())
    one = await pool.take()
    await pool.give_back(one)
    await _cancelled(driver, "is_alive", pool.take())
    assert (one.closed, pool.open) == (True, 0)
    two = await pool.take()
    await _cancelled(driver, "reset", pool.give_back(two))
    assert (two.closed, pool.open) == (True, 0)
    assert await pool.take() not in (one, two)


@looped
async def test_a_full_pool_says_so_and_who_waits_gets_what_is_given_back() -> None:
    pool = _pool(Driver(), size=1, timeout=0.01)
    one = await pool.take()
    with pytest.raises(DatabaseUnavailable, match=r"all connections of the pool \(1\)"):
        await pool.take()
    pool._timeout = 60
    waiting = asyncio.ensure_future(pool.take())
    await asyncio.sleep(0)
    await pool.give_back(one)
    async with asyncio.timeout(10):
        assert await waiting is one


@looped
async def test_closing_wakes_all_who_wait() -> None:
    """Not when their time is up, and also if nobody gives back what he has."""
    pool = _pool(Driver(), size=1, timeout=60)
    one = await pool.take()
    waiting = [asyncio.ensure_future(pool.take()) for _ in range(3)]
    await asyncio.sleep(0)
    pool.close()
    async with asyncio.timeout(10):
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(each) for each in ended} == {InvalidState}
    assert not one.closed
    await pool.give_back(one)
    assert one.closed
    with pytest.raises(InvalidState, match="closed"):
        await pool.take()


def test_a_pool_is_closed_where_its_loop_has_ended() -> None:
    pool, kept = _used()
    pool.close()
    assert kept.closed
    _pool(Driver()).close()


def _used() -> tuple[AsyncPool, Fake]:
    """A pool whose loop has ended, with an idle connection."""

    async def use() -> tuple[AsyncPool, Fake]:
        pool = _pool(Driver(), size=1, timeout=0.01)
        one = await pool.take()
        await pool.give_back(one)
        return pool, one

    return asyncio.run(use())


def test_another_loop_takes_over_and_nothing_of_the_first() -> None:
    """What a connection waits with is gone; one that comes back late makes no room."""
    pool, idle = _used()

    async def leave() -> Fake:
        found: Fake = await pool.take()
        return found

    late = asyncio.run(leave())
    assert late is not idle
    assert idle.closed

    async def go_on() -> None:
        mine = await pool.take()
        assert mine is not late
        pool.discard(late)
        assert late.closed
        with pytest.raises(DatabaseUnavailable, match="all connections"):
            await pool.take()
        strange = Fake()
        await pool.give_back(strange)
        assert strange.closed
        assert pool.idle == 0
        await pool.give_back(mine)
        assert await pool.take() is mine

    asyncio.run(go_on())


def test_two_loops_at_once_are_refused() -> None:
    async def main() -> None:
        pool = _pool(Driver())
        one = await pool.take()
        await pool.give_back(one)
        told: list[str] = []

        def elsewhere() -> None:
            try:
                asyncio.run(pool.take())
            except InvalidState as error:
                told.append(str(error))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert ["another event loop" in each for each in told] == [True]
        assert await pool.take() is one

    asyncio.run(main())


@pytest.mark.parametrize("uses", ["take", "close"])
def test_a_forked_child_uses_nothing_of_its_parents(uses: str) -> None:
    pool, parents = _used()
    kept = weakref.ref(parents)
    here = os.getpid()

    def right() -> bool:
        if uses == "close":
            pool.close()
        else:
            assert asyncio.run(pool.take()) is not parents
        return os.getpid() != here and not parents.closed

    assert child(right) == 0
    assert kept() is parents


def test_a_forked_child_never_collects_what_is_its_parents() -> None:
    """For that would end the session."""
    pool, parents = _used()
    driver: Any = pool._driver
    kept = weakref.ref(parents)
    driver.opened.clear()
    del parents

    def right() -> bool:
        pool.close()
        return kept() is not None

    assert child(right) == 0
