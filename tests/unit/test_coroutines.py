"""The loop of coroutine handlers: what is unforeseen on it, and loops that end under it."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import pysqlbox
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.coroutines import Coroutines
from tests.unit.standins import Parts, message


def serving(parts: Parts, slots: int = 10, loop: asyncio.AbstractEventLoop | None = None) -> Coroutines:
    """Coroutines that work for a scheduler."""
    made = Coroutines(slots, loop)
    parts.scheduler.coroutines = made
    made.serve(parts.scheduler, parts.handling)
    return made


def submit(parts: Parts, made: Coroutines, *ids: int) -> list[Assignment]:
    """Messages for the loop, each by itself."""
    found = [Assignment(parts.box, [message(each)], time.monotonic()) for each in ids]
    made.submit(found)
    return found


def comes(condition: Any) -> None:
    """Waits until something has come about, at most ten seconds."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_the_unforeseen_costs_the_others_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of the package itself: its message is left to its lease, its slot is free again."""
    parts = Parts()

    async def handle(_message: Any) -> None:
        await asyncio.sleep(0)

    parts.handler("t", handle)
    made = serving(parts, slots=1)
    note = parts.handling.note

    def failing(assignment: Assignment, each: Any, *rest: Any) -> None:
        if each.id == 1:
            raise RuntimeError("never seen before")
        note(assignment, each, *rest)

    monkeypatch.setattr(parts.handling, "note", failing)
    submit(parts, made, 1, 2, 3)
    comes(lambda: made.busy == 0)
    made.close()
    assert parts.box.outcomes.acked == [2, 3]
    assert "are left to leases" in caplog.text
    assert "never seen before" in caplog.text


def test_many_that_come_and_end_together_are_told_of_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of the loop and one word to the threads, not one each."""
    parts = Parts()
    gate = threading.Event()
    gates: list[asyncio.Future[None]] = []

    async def handle(_message: Any) -> None:
        if not gates:
            gates.append(asyncio.get_running_loop().create_future())
            gate.set()
        await asyncio.shield(gates[0])

    parts.handler("t", handle)
    made = serving(parts, slots=100)
    told: list[int] = []
    monkeypatch.setattr(parts.scheduler, "coroutines_ended", lambda: told.append(made.busy))
    submit(parts, made, *range(50))
    assert gate.wait(10)
    comes(lambda: len(made._tasks) == 50)
    loop = gates[0].get_loop()
    loop.call_soon_threadsafe(gates[0].set_result, None)
    comes(lambda: made.busy == 0)
    made.close()
    assert told[-1] == 0
    assert len(told) <= 5
    assert len(parts.box.outcomes.acked) == 50


def test_after_the_end_no_loop_begins() -> None:
    """A handler on a thread may come back with a coroutine after everything has been closed."""
    made = Coroutines(1, None)
    made.close()

    async def late() -> None:
        """Never runs, and warns of nothing."""

    with pytest.raises(pysqlbox.InvalidState, match="the worker was stopped"):
        made.run(late())
    assert made.thread is None


def test_closing_forgets_what_waits_and_cancels_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: a second time would cut off what it cleans up."""
    monkeypatch.setattr(
        "pysqlbox.worker.coroutines.CANCEL_SECONDS", 30.0
    )  # a busy machine may need some of it
    parts = Parts()
    begun, cancelled = threading.Event(), threading.Event()

    async def handle(_message: Any) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)  # as whoever gives a connection back
            cancelled.set()

    parts.handler("t", handle)
    made = serving(parts, slots=1)
    submit(parts, made, 1, 2)
    assert begun.wait(10)
    thread = made.thread
    assert thread is not None
    made.close()
    assert cancelled.is_set()
    assert not thread.is_alive(), "it waits for the loop to end"
    assert made.held() == []


def test_what_handlers_leave_on_the_loop_is_cleaned_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pysqlbox.worker.coroutines.CANCEL_SECONDS", 30.0)
    parts = Parts()
    told: list[str] = []

    async def generator() -> Any:
        try:
            yield 1
        finally:
            told.append("generator")

    async def background() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            told.append("task")

    kept: list[Any] = []

    async def handle(_message: Any) -> None:
        kept.append(generator())
        await anext(kept[0])
        kept.append(asyncio.create_task(background()))
        await asyncio.sleep(0)

    parts.handler("t", handle)
    made = serving(parts)
    submit(parts, made, 1)
    comes(lambda: parts.box.outcomes.acked == [1])
    made.close()
    assert sorted(told) == ["generator", "task"]


def test_a_loop_that_was_closed_takes_nothing_and_loses_nothing() -> None:
    """What was to run on it stays where the end of the worker finds it."""
    parts = Parts()

    async def handle(_message: Any) -> None:
        """Never called."""

    parts.handler("t", handle)
    loop = asyncio.new_event_loop()
    made = serving(parts, loop=loop)
    lost = [made.has_lost_loop]
    loop.close()
    lost.append(made.has_lost_loop)
    parts.scheduler.add([Assignment(parts.box, [message(1)], time.monotonic())])
    submit(parts, made, 2)
    assert [each.id for held in made.held() for each in held.held()] == [1, 2]

    async def hook() -> None:
        """Never runs, and warns of nothing."""

    with pytest.raises(pysqlbox.InvalidState, match="loop of the worker's coroutines was closed"):
        made.run(hook())
    made.close()
    assert made.held() == []
    assert [*lost, made.has_lost_loop] == [False, True, False], "at the end that is no loss any more"


def test_a_stranger_is_not_on_the_loop() -> None:
    made = Coroutines(1, None)
    assert not made.is_on_loop()

    async def ask() -> bool:
        return made.is_on_loop()

    assert made.run(ask())
    assert asyncio.run(ask()) is False
    made.close()


def test_so_many_more_could_begin_as_there_are_slots() -> None:
    parts = Parts()

    async def handle(_message: Any) -> None:
        await asyncio.Event().wait()

    parts.handler("t", handle)
    made = serving(parts, slots=3)
    assert (made.free_slots, made.has_lost_loop) == (3, False)
    submit(parts, made, 1, 2)
    assert made.free_slots == 1
    submit(parts, made, 3, 4, 5)
    assert made.free_slots == 0
    made.close()


def test_one_that_is_cancelled_answers_and_the_others_go_on() -> None:
    """As the lease keeper does with one that has overrun its time."""
    parts = Parts()
    both = threading.Semaphore(0)

    async def handle(each: Any) -> None:
        both.release()
        if each.id == 1:
            await asyncio.Event().wait()

    parts.handler("t", handle)
    made = serving(parts)
    stuck, _ = submit(parts, made, 1, 2)
    assert both.acquire(timeout=10)
    assert both.acquire(timeout=10)
    made.cancel(stuck)
    comes(lambda: made.busy == 0)
    made.close()
    assert parts.box.outcomes.acked == [2]
    assert parts.box.outcomes.others[0]["error"] == "CancelledError"


def test_an_assignment_that_has_ended_cannot_be_cancelled() -> None:
    parts = Parts()
    made = Coroutines(1, None)
    made.cancel(Assignment(parts.box, [message(1)], time.monotonic()))
    assert made.thread is None


def test_what_has_ended_is_there_until_nobody_looks_any_more() -> None:
    """Whoever looks has the lock, and counts on what it sees."""
    parts = Parts()
    ended = threading.Event()

    async def handle(_message: Any) -> None:
        asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, ended.set)

    parts.handler("t", handle)
    made = serving(parts)
    made._get_loop()
    begin = made._begin
    (it,) = [Assignment(parts.box, [message(1)], time.monotonic())]

    def beginning() -> None:
        begin()
        begun.set()
        assert locked.wait(10)

    begun, locked = threading.Event(), threading.Event()
    made._begin = beginning  # type: ignore[method-assign]  # of this one only
    made.submit([it])
    assert begun.wait(10)
    with made._lock:
        locked.set()
        assert not ended.wait(0.05), "the loop waits for us"
        assert made.busy == 1
    comes(lambda: made.busy == 0)
    made.close()


def test_no_more_run_at_once_than_there_are_slots(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is submitted at once; the rest begins as places are free."""
    parts = Parts()
    now, most = [0], [0]

    async def handle(_message: Any) -> None:
        now[0] += 1
        most[0] = max(most[0], now[0])
        await asyncio.sleep(0)
        now[0] -= 1

    parts.handler("t", handle)
    made = serving(parts, slots=2)
    submit(parts, made, *range(7))
    comes(lambda: made.busy == 0)
    made.close()
    assert (len(parts.box.outcomes.acked), most[0]) == (7, 2)
    assert caplog.records == []


def test_many_that_are_submitted_call_the_loop_once_until_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()

    async def handle(_message: Any) -> None:
        """Nothing to do."""

    parts.handler("t", handle)
    made = serving(parts)
    told: list[Any] = []
    monkeypatch.setattr(made, "_tell_loop", told.append)
    submit(parts, made, 1)
    submit(parts, made, 2)
    assert len(told) == 1

    async def begin() -> None:
        told[0]()
        await asyncio.gather(*made._tasks.values())

    asyncio.run(begin())
    assert parts.box.outcomes.acked == [1, 2]
    submit(parts, made, 3)
    assert len(told) == 2


@pytest.mark.parametrize("what", ["submit", "begin the loop", "look", "close", "begin"])
def test_threads_come_one_after_the_other(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two must not begin a loop each, nor think that the other calls it; nor look at what just changes."""
    parts = Parts()
    made, done = serving(parts), threading.Event()
    monkeypatch.setattr(made, "_tell_loop", lambda _function: None)

    async def begin() -> None:
        made._begin()

    def come() -> None:
        if what == "submit":
            submit(parts, made, 1)
        elif what == "look":
            assert made.held() == []
        elif what == "close":
            made.close()
        elif what == "begin":
            asyncio.run(begin())
        else:
            made._get_loop()
        done.set()

    with made._lock:
        thread = threading.Thread(target=come)
        thread.start()
        assert not done.wait(0.05)
        assert (made.busy, made.thread) == (0, None)
    assert done.wait(10)
    thread.join()
    monkeypatch.undo()
    made.close()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, ValueError])
def test_whatever_a_handler_raises_is_its_answer(error: type[BaseException]) -> None:
    """It ends neither the loop nor the others."""
    parts = Parts()

    async def handle(each: Any) -> None:
        if each.id == 1:
            raise error

    parts.handler("t", handle)
    made = serving(parts, slots=1)
    submit(parts, made, 1, 2)
    comes(lambda: made.busy == 0)
    made.close()
    assert parts.box.outcomes.acked == [2]
    assert [(each["result"], each["error"]) for each in parts.box.outcomes.others] == [
        ("retry", error.__name__)
    ]


def test_on_the_application_s_loop_only_what_is_the_worker_s_is_cancelled() -> None:
    """And the loop goes on."""
    parts = Parts()
    begun = asyncio.Event()

    async def handle(_message: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def application() -> None:
        theirs = asyncio.create_task(asyncio.sleep(0.01, "theirs"))
        parts.handler("t", handle)
        made = serving(parts, loop=asyncio.get_running_loop())
        submit(parts, made, 1)
        await begun.wait()
        (task,) = made._tasks.values()
        made.close()
        await asyncio.wait([task], timeout=10)
        assert task.done()
        assert await theirs == "theirs"

    asyncio.run(application())
    assert parts.box.outcomes.others[0]["error"] == "CancelledError"


def test_whoever_will_not_be_cancelled_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pysqlbox.worker.coroutines.CANCEL_SECONDS", 0.05)
    parts = Parts()
    begun = threading.Event()

    async def handle(_message: Any) -> None:
        begun.set()
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    parts.handler("t", handle)
    made = serving(parts)
    submit(parts, made, 1)
    assert begun.wait(10)
    made.close()
    assert made.thread is not None
    made.thread.join(10)
    assert not made.thread.is_alive()


def test_a_loop_of_our_own_that_a_handler_has_stopped_is_closed_all_the_same() -> None:
    parts = Parts()

    async def stop() -> None:
        asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)

    made = serving(parts)
    made.run(stop())
    assert made.thread is not None
    made.thread.join(10)
    assert made.has_lost_loop
    made.close()
    assert not made.has_lost_loop


def test_what_is_thrown_away_with_its_loop_answers_nothing() -> None:
    """Python closes the coroutines that nobody will ever go on with; their messages are left to leases."""
    parts = Parts()

    async def handle(_message: Any) -> None:
        await asyncio.get_running_loop().create_future()

    parts.handler("t", handle)
    loop = asyncio.new_event_loop()
    made = serving(parts, loop=loop)
    it = Assignment(parts.box, [message(1)], time.monotonic())
    thrown_away: Any = made._handle(it)
    made._tasks[it] = thrown_away

    async def begin() -> None:
        thrown_away.send(None)

    loop.run_until_complete(begin())
    loop.close()
    thrown_away.close()
    assert not parts.box.outcomes
    assert made.busy == 0
