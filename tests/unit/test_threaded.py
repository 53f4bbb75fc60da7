"""A driver that only blocks, for asynchronous callers: who waits where, and what is left to whom."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

from pysqlbox.drivers.threaded import Threaded
from tests.unit.forked import child

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


class Connection:
    """One of pyodbc's."""

    def __init__(self) -> None:
        self.autocommit = True
        self.closed = False
        self.ended = threading.Event()

    def close(self) -> None:
        self.ended.set()
        raise OSError("the network is away")


class Driver:
    """One that notes in which thread it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []

    def _note(self, what: str) -> bool:
        self.asked.append((what, threading.current_thread() is threading.main_thread()))
        return True

    def is_alive(self, _connection: Connection, _idle: float) -> bool:
        return self._note("is_alive")

    def reset(self, _connection: Connection) -> bool:
        return self._note("reset")

    def has_routine(self, *_: Any) -> bool:
        return self._note("has_routine")

    def boxes(self, *_: Any) -> list[str]:
        self._note("boxes")
        return []

    def fetch(self, *_: Any) -> list[Any]:
        self._note("fetch")
        return []

    def connect(self, *_: Any, autocommit: bool, connect_timeout: int, reused: bool) -> Connection:
        assert (autocommit, connect_timeout, reused) == (True, 3, True)
        self._note("connect")
        return Connection()

    def database_error(self) -> type[Exception]:
        return OSError


def _threaded(driver: Any, threads: int = 1) -> Threaded:
    return Threaded(driver, threads)


def test_the_event_loop_waits_for_nothing_that_may_ask_the_server() -> None:
    """What asks nobody is done at once: a thread would cost more."""
    driver = Driver()

    async def main() -> None:
        threaded = _threaded(driver)
        target: Any = None
        connection = await threaded.connect(target, connect_timeout=3)
        await threaded.fetch(connection, "s", "r", {})
        await threaded.has_routine(connection, "s", "r")
        await threaded.boxes(connection, "s")
        await threaded.is_alive(connection, 0.5)
        await threaded.is_alive(connection, 2.0)
        await threaded.reset(connection)
        await threaded.begin(connection)
        await threaded.reset(connection)
        threaded.shut_down()

    asyncio.run(main())
    assert [what for what, here in driver.asked if not here] == [
        "connect", "fetch", "has_routine", "boxes", "is_alive", "reset"
    ]  # fmt: skip
    assert [what for what, here in driver.asked if here] == ["is_alive", "reset"]


def test_what_its_user_has_closed_is_of_no_more_use() -> None:
    """pyodbc answers nothing about it but that it is closed."""

    class Closed(Connection):
        @property
        def autocommit(self) -> bool:
            raise OSError("Attempt to use a closed connection.")

        @autocommit.setter
        def autocommit(self, value: bool) -> None:
            """As it was."""

    driver, connection = Driver(), Closed()
    connection.closed = True
    assert asyncio.run(_threaded(driver).reset(connection))
    assert driver.asked == [("reset", True)]


def test_what_cannot_even_be_closed_costs_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    threaded = _threaded(Driver())
    connection = Connection()
    threaded.close(connection)
    assert connection.ended.wait(10)
    ended = threaded._pool().submit(threaded._close, connection)
    assert ended.result(10) is None
    threaded.shut_down()
    assert caplog.messages == []


def test_threads_are_let_go_of_and_come_again_for_a_late_connection() -> None:
    threaded = _threaded(Driver())
    threaded.shut_down()
    threaded.close(Connection())
    threads = threaded._threads
    assert threads is not None
    threaded.shut_down()
    with pytest.raises(RuntimeError, match="shutdown"):
        threads.submit(int)
    late = Connection()
    threaded.close(late)
    assert late.ended.wait(10)
    threaded.shut_down()


def test_a_forked_child_has_threads_of_its_own() -> None:
    threaded = _threaded(Driver())
    threaded.close(Connection())
    here = os.getpid()

    def right() -> bool:
        mine = Connection()
        threaded.close(mine)
        threads = threaded._threads
        threaded.close(mine)
        return mine.ended.wait(5) and threads is threaded._threads and os.getpid() != here

    assert child(right) == 0
    threaded.shut_down()


def test_who_was_cancelled_hears_nothing_of_what_failed_meanwhile() -> None:
    """And there is nothing to undo."""
    begun, go = threading.Event(), threading.Event()

    def fails(*_: Any, **__: Any) -> Any:
        begun.set()
        go.wait(10)
        raise ConnectionRefusedError("refused")

    driver = Driver()
    driver.connect = fails  # type: ignore[method-assign]  # it hangs, and then fails

    async def main() -> None:
        threaded = _threaded(driver)
        target: Any = None
        task = asyncio.ensure_future(threaded.connect(target))
        assert await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        threaded.shut_down()

    asyncio.run(main())
