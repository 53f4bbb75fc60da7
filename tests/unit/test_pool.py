"""The pool, on connections that only pretend."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

import pytest

from pysqlbox import DatabaseUnavailable, InvalidArgument, InvalidState
from pysqlbox.drivers import parse_url
from pysqlbox.pool import Pool
from tests.unit.forked import child

#: Threads of a test runner, say.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

TARGET = parse_url("postgresql://someone:secret@host/db")


class Fake:
    """One connection."""

    closed = False
    alive = True
    clean = True

    def close(self) -> None:
        self.closed = True


class Driver:
    """What the pool asks of a driver."""

    def __init__(self) -> None:
        self.opened: list[Fake] = []
        self.down = False

    def connect(self, *_: Any, autocommit: bool, **__: Any) -> Fake:
        assert autocommit
        if self.down:
            raise DatabaseUnavailable("down")
        self.opened.append(Fake())
        return self.opened[-1]

    def is_alive(self, connection: Fake, _: float) -> bool:
        return connection.alive

    def reset(self, connection: Fake) -> bool:
        return connection.clean

    def database_error(self) -> type[Exception]:
        return OSError


def _pool(driver: Driver, **options: Any) -> Pool:
    return Pool(driver, TARGET, **options)  # type: ignore[arg-type]  # it has what the pool asks for


def test_the_connection_used_last_is_used_next() -> None:
    driver = Driver()
    pool = _pool(driver)
    one, two = pool.take(), pool.take()
    pool.give_back(one)
    pool.give_back(two)
    assert pool.take() is two
    assert pool.open == 2


def test_a_dead_or_dirty_connection_is_replaced() -> None:
    driver = Driver()
    pool = _pool(driver)
    with pool.connection() as connection:
        pass
    connection.alive = False
    with pool.connection() as other:
        assert other is not connection
        other.clean = False
    assert connection.closed
    assert other.closed
    assert pool.open == 0


def test_idle_and_old_connections_are_closed() -> None:
    driver = Driver()
    pool = _pool(driver, max_idle=0.05)
    one, two = pool.take(), pool.take()
    pool.give_back(one)
    time.sleep(0.1)
    pool.give_back(two)
    assert one.closed
    assert not two.closed
    assert pool.idle == 1
    old = _pool(driver, max_lifetime=0.0)
    with old.connection() as connection:
        pass
    with old.connection() as other:
        assert other is not connection
    assert connection.closed


def test_a_failed_connect_leaves_room_for_the_next() -> None:
    driver = Driver()
    driver.down = True
    pool = _pool(driver, size=1, timeout=0.1)
    for _ in range(3):
        with pytest.raises(DatabaseUnavailable, match="down"):
            pool.take()
    assert pool.open == 0
    driver.down = False
    assert pool.take()


def _waiting(pool: Pool) -> tuple[threading.Thread, list[Any]]:
    """Somebody who waits for a connection, and what he got."""
    got: list[Any] = []
    waits = threading.Thread(target=lambda: got.append(pool.take()), daemon=True)
    waits.start()
    while not pool._free._waiters:  # type: ignore[attr-defined]  # how a condition tells that somebody waits
        time.sleep(0.001)
    return waits, got


def test_who_waits_gets_what_is_given_back() -> None:
    """Then, and not when his time is up."""
    pool = _pool(Driver(), size=1, timeout=60)
    first = pool.take()
    other, got = _waiting(pool)
    pool.give_back(first)
    other.join(10)
    assert got == [first]


def test_who_waits_may_open_anew_when_one_was_lost() -> None:
    pool = _pool(Driver(), size=1, timeout=60)
    first = pool.take()
    other, got = _waiting(pool)
    pool.discard(first)
    other.join(10)
    assert got not in ([], [first])
    assert pool.open == 1


def test_a_connection_comes_back_whatever_its_user_did() -> None:
    pool = _pool(Driver(), size=1)
    with pytest.raises(ZeroDivisionError), pool.connection():
        raise ZeroDivisionError
    assert pool.idle == 1


def test_a_full_pool_says_so() -> None:
    pool = _pool(Driver(), size=1, timeout=0.05)
    pool.take()
    with pytest.raises(DatabaseUnavailable, match=r"all connections of the pool \(1\)") as caught:
        pool.take()
    assert "secret" not in str(caught.value)


def test_closing() -> None:
    pool = _pool(Driver(), size=2)
    one, two = pool.take(), pool.take()
    pool.give_back(one)
    pool.close()
    assert one.closed
    assert not two.closed
    pool.give_back(two)
    assert two.closed
    assert pool.open == 0
    with pytest.raises(InvalidState, match="closed"):
        pool.take()


def test_closing_wakes_who_waits() -> None:
    pool = _pool(Driver(), size=1, timeout=30)
    pool.take()
    failed: list[str] = []

    def wait() -> None:
        try:
            pool.take()
        except InvalidState as error:
            failed.append(str(error))

    other = threading.Thread(target=wait)
    other.start()
    time.sleep(0.05)
    pool.close()
    other.join(5)
    assert failed == ["the deployment is closed: open another with connect()"]


def test_purging_leaves_what_is_in_use() -> None:
    pool = _pool(Driver(), size=2)
    one, two = pool.take(), pool.take()
    pool.give_back(one)
    pool.purge()
    assert one.closed
    assert not two.closed
    assert pool.open == 1


@pytest.mark.parametrize("state", ["idle", "lock held"])
def test_a_forked_child_uses_nothing_of_its_parents(state: str) -> None:
    """Neither its connections, which two processes would speak on, nor a lock that nobody will let go of."""
    driver = Driver()
    pool = _pool(driver, size=1)
    with pool.connection() as parents:
        pass
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with pool._free:
            held.set()
            go.wait(20)

    def uses() -> bool:
        first = pool.take()
        pool.give_back(first)
        return first is not parents and not parents.closed and pool.open == 1 and pool.take() is first

    def closes() -> bool:
        pool.close()
        return not parents.closed

    holder = threading.Thread(target=hold)
    if state == "lock held":
        holder.start()
        assert held.wait(10)
    ended = [child(uses), child(closes)]
    go.set()
    if state == "lock held":
        holder.join(10)
    assert ended == [0, 0]
    assert pool.take() is parents


def test_a_forked_child_never_collects_what_is_its_parents() -> None:
    """For that would end the session."""
    driver = Driver()
    pool = _pool(driver)
    with pool.connection() as parents:
        kept = weakref.ref(parents)
    driver.opened.clear()
    del parents

    def right() -> bool:
        pool.take()
        return kept() is not None

    assert child(right) == 0


def test_what_is_not_the_pools_is_closed_and_makes_no_room() -> None:
    driver = Driver()
    pool = _pool(driver, size=1)
    mine, strange = pool.take(), Fake()
    pool.give_back(strange)
    pool.discard(Fake())
    assert strange.closed
    assert (pool.open, pool.idle) == (1, 0)
    pool.give_back(mine)
    assert pool.take() is mine


def test_what_was_purged_is_not_handed_out_again() -> None:
    driver = Driver()
    pool = _pool(driver)
    one = pool.take()
    pool.give_back(one)
    pool.purge()
    assert one.closed
    assert pool.idle == 0
    assert pool.take() is not one


def test_a_connection_that_cannot_even_be_closed_is_forgotten() -> None:
    class Stubborn(Fake):
        def close(self) -> None:
            raise OSError("no")

    driver = Driver()
    pool = _pool(driver)
    connection = pool.take()
    connection.__class__ = Stubborn
    pool.discard(connection)
    assert pool.open == 0


def test_who_waits_for_room_hears_that_a_connect_failed() -> None:
    """Not only when its own time is up."""
    driver, entered, go = Driver(), threading.Event(), threading.Event()
    connect = driver.connect

    def slow(*arguments: Any, **named: Any) -> Fake:
        if not entered.is_set():
            entered.set()
            go.wait(10)
            raise DatabaseUnavailable("down")
        return connect(*arguments, **named)

    driver.connect = slow  # type: ignore[method-assign]  # the first call hangs, and then fails
    pool = _pool(driver, size=1, timeout=60)
    failed: list[Exception] = []
    found: list[Any] = []

    def fail() -> None:
        try:
            pool.take()
        except DatabaseUnavailable as error:
            failed.append(error)

    first = threading.Thread(target=fail)
    first.start()
    assert entered.wait(10)
    second = threading.Thread(target=lambda: found.append(pool.take()), daemon=True)
    second.start()
    while not pool._free._waiters:  # type: ignore[attr-defined]  # how a condition tells that somebody waits
        time.sleep(0.001)
    go.set()
    second.join(10)
    first.join(10)
    assert failed
    assert found


@pytest.mark.parametrize("size", [0, -1, True])
def test_a_size_that_makes_no_sense_is_refused(size: int) -> None:
    with pytest.raises(InvalidArgument, match="pool_size"):
        _pool(Driver(), size=size)
