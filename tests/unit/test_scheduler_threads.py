"""Who is woken for what, when a drain has ended, and how threads that hang are replaced."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.served_box import NEVER, ServedBox
from tests.unit.standins import Parts, message


def work(parts: Parts, *ids: int) -> Assignment:
    """Messages to be handled."""
    return Assignment(parts.box, [message(each) for each in ids], time.monotonic())


class Sleeper:
    """A thread that asks the scheduler for something to do, and sleeps as there is nothing."""

    def __init__(self, parts: Parts, rank: int = 0) -> None:
        self.state = parts.thread()
        self.state.rank = rank
        self.got: list[Any] = []
        self._parts = parts
        before = parts.scheduler._changed.sleepers
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 10
        while parts.scheduler._changed.sleepers == before:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def _ask(self) -> None:
        self.got.append(self._parts.scheduler.next(self.state))

    def answer(self) -> Any:
        """What it got in the end."""
        self._thread.join(10)
        assert not self._thread.is_alive(), "nobody has woken it"
        return self.got[0]


def idle(*names: str, threads: int = 2) -> Parts:
    """A scheduler whose boxes are not due."""
    parts = Parts(*names, threads=threads)
    for box in parts.boxes:
        box.next_poll = NEVER
    return parts


def answered(parts: Parts, assignments: list[Assignment], *, asked: int = 9) -> None:
    """A claim came back to a thread that had a turn."""
    thread = parts.thread()
    thread.has_turn, thread.turn_began = True, time.monotonic()
    parts.scheduler._exchanging += 1
    parts.scheduler.answered(
        thread, parts.box, assignments, asked=asked, got=sum(len(each.held()) for each in assignments),
        progress=parts.scheduler.progress, wakes=parts.box.wakes,
    )  # fmt: skip


def test_nobody_asks_before_a_box_is_due() -> None:
    parts = idle()
    sleeper = Sleeper(parts)
    assert not sleeper.got
    parts.scheduler.wake(parts.box)
    assert sleeper.answer() is parts.box


def test_whoever_watched_the_clock_and_gets_work_leaves_the_watch_to_another() -> None:
    """Else nobody would ask before somebody came back from a handler."""
    parts = idle()
    parts.box.next_poll = time.monotonic() + 0.2
    first, second, ready = Sleeper(parts, 0), Sleeper(parts, 1), work(parts, 1)
    parts.scheduler.add([ready])
    assert {id(each.answer()) for each in (first, second)} == {id(ready), id(parts.box)}


def test_a_watch_ends_with_whoever_kept_it_and_no_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is woken to watch where somebody does."""
    parts = idle()
    scheduler = parts.scheduler
    woken: list[int] = []
    notify = scheduler._changed.notify

    def noting() -> None:
        woken.append(1)
        notify()

    monkeypatch.setattr(scheduler._changed, "notify", noting)
    parts.box.next_poll = late = time.monotonic() + 600
    first = Sleeper(parts, 0)
    assert scheduler._watched_until == late
    parts.box.next_poll = soon = late - 60
    second = Sleeper(parts, 1)
    assert scheduler._watched_until == soon
    scheduler.add([work(parts, 1)])
    first.answer()
    assert (scheduler._watched_until, woken) == (soon, [1]), "the second watches on"
    scheduler.add([work(parts, 2)])
    second.answer()
    assert scheduler._watched_until == NEVER, "whoever comes next is to watch"


def test_where_there_is_no_loop_coroutine_handlers_are_left_to_threads() -> None:
    """As pysqlbox.testing has it."""

    async def handle(_message: Any) -> None:
        """Never called."""

    parts = idle()
    parts.handler("t", handle)
    ready = work(parts, 1)
    parts.scheduler.add([ready])
    assert list(parts.scheduler.ready) == [ready]


def test_a_thread_that_is_superfluous_goes() -> None:
    parts = Parts()
    thread = parts.thread()
    thread.superfluous = True
    assert parts.scheduler.next(thread) is None


@pytest.mark.parametrize("how", ["add", "answered", "call_help"])
def test_work_wakes_a_sleeper(how: str) -> None:
    parts = idle()
    sleeper, ready = Sleeper(parts), work(parts, 1)
    if how == "add":
        parts.scheduler.add([ready])
    elif how == "answered":
        answered(parts, [ready])
        parts.box.next_poll = NEVER
    else:
        parts.scheduler.ready.append(ready)
        parts.scheduler.call_help()
    assert sleeper.answer() is ready


def test_a_box_that_is_due_wakes_a_sleeper_when_help_is_called() -> None:
    """Those who are quick look after the clock between them, until one of them is held up."""
    parts = idle()
    sleeper = Sleeper(parts)
    parts.scheduler.call_help()
    assert parts.scheduler._changed.sleepers == 1, "nothing can be done yet"
    parts.box.next_poll = 0.0
    parts.scheduler.call_help()
    assert sleeper.answer() is parts.box


@pytest.mark.parametrize("others", [0, 1])
def test_of_those_who_are_quick_no_more_wake_than_there_are_turns(others: int) -> None:
    """Whoever is at work comes back in a moment and claims himself, while the other one handles."""
    parts = idle(threads=3)
    parts.box.note_cost(1e-6)
    sleeper = Sleeper(parts)
    for _ in range(1 + others):
        parts.box.next_poll = 0.0
        thread = parts.thread()
        assert parts.scheduler.next(thread) is parts.box
    ready = Assignment(parts.box, [message(1), message(2)], time.monotonic(), loose=True)
    parts.scheduler.answered(
        thread, parts.box, [ready], asked=2, got=2, progress=parts.scheduler.progress, wakes=parts.box.wakes
    )
    if others:
        assert parts.scheduler._changed.sleepers == 1
        parts.scheduler.stop()
    assert sleeper.answer() is (None if others else ready)


def test_whoever_takes_work_wakes_the_next_while_there_is_more() -> None:
    parts = idle(threads=3)
    sleepers, ready = [Sleeper(parts, rank) for rank in range(3)], [work(parts, n) for n in range(3)]
    parts.scheduler.add(ready)
    assert {id(sleeper.answer()) for sleeper in sleepers} == {id(each) for each in ready}


def test_whoever_watches_the_clock_sleeps_on_while_others_take_work() -> None:
    """And the others wake one another all the same."""
    parts = idle(threads=3)
    parts.box.next_poll = time.monotonic() + 600
    watcher = Sleeper(parts, 2)
    others = [Sleeper(parts, rank) for rank in range(2)]
    ready = [work(parts, n) for n in range(2)]
    parts.scheduler.add(ready)
    assert {id(each.answer()) for each in others} == {id(each) for each in ready}
    assert watcher.got == []
    parts.scheduler.stop()
    assert watcher.answer() is None


def test_a_box_is_one_thread_s_to_ask_and_what_is_begun_counts_as_work() -> None:
    parts = Parts(threads=2)
    asking, working = parts.thread(), parts.thread()
    assert parts.scheduler.next(asking) is parts.box
    assert parts.box.next_poll > time.monotonic() + 10, "nobody else asks meanwhile"
    assert parts.scheduler.busy == 1
    ready = work(parts, 1)
    parts.scheduler.ready.append(ready)
    assert parts.scheduler.next(working) is ready
    assert (parts.scheduler.busy, working.at_work) == (2, True)


@pytest.mark.parametrize(
    "what",
    [
        "answered", "asked_nothing", "end_turn", "delivery", "lent_turn", "settled", "add",
        "coroutines_ended", "wake", "take_ready", "joined", "hangs", "came_back", "stop", "drain",
    ],
)  # fmt: skip
def test_whatever_changes_waits_for_the_lock(what: str) -> None:
    parts = idle()
    scheduler, thread, done = parts.scheduler, parts.thread(), threading.Event()
    thread.assignment = work(parts, 1)

    def within(context: AbstractContextManager[None]) -> None:
        with context:
            """Nothing to do."""

    acts: dict[str, Callable[[], object]] = {
        "answered": lambda: answered(parts, []),
        "asked_nothing": lambda: scheduler.asked_nothing(thread, parts.box, 0),
        "end_turn": lambda: scheduler.end_turn(thread),
        "delivery": lambda: within(scheduler.delivery()),
        "lent_turn": lambda: within(scheduler.lent_turn()),
        "settled": scheduler.settled,
        "add": lambda: scheduler.add([work(parts, 2)]),
        "coroutines_ended": scheduler.coroutines_ended,
        "wake": scheduler.wake,
        "take_ready": scheduler.take_ready,
        "joined": scheduler.joined,
        "hangs": lambda: scheduler.hangs(thread, thread.assignment),
        "came_back": lambda: scheduler.came_back(thread),
        "stop": scheduler.stop,
        "drain": scheduler.drain,
    }

    def act() -> None:
        acts[what]()
        done.set()

    with scheduler._changed:
        actor = threading.Thread(target=act)
        actor.start()
        assert not done.wait(0.05)
    assert done.wait(10)
    actor.join()


def test_coroutines_that_end_wake_whoever_settles() -> None:
    parts = idle()
    sleeper = Sleeper(parts)
    parts.box.outcomes.acked.append(1)
    parts.scheduler.coroutines_ended()
    assert sleeper.answer() is parts.box


def test_the_end_wakes_everybody() -> None:
    parts = idle(threads=3)
    sleepers = [Sleeper(parts, rank) for rank in range(3)]
    parts.scheduler.stop()
    assert [sleeper.answer() for sleeper in sleepers] == [None, None, None]
    assert parts.scheduler.pause(60)


def test_a_turn_that_comes_back_wakes_whoever_waits_for_it() -> None:
    parts = idle(threads=2)
    with parts.scheduler.lent_turn():
        other = parts.thread()
        parts.box.next_poll = 0.0
        assert parts.scheduler.next(other) is parts.box
        sleeper = Sleeper(parts)
        parts.box.next_poll = 0.0
    assert sleeper.answer() is parts.box


def test_a_turn_is_not_waited_for_longer_than_the_worker_runs() -> None:
    parts = idle(threads=2)
    for _ in range(2):
        parts.box.next_poll = 0.0
        assert isinstance(parts.scheduler.next(parts.thread()), ServedBox)
    parts.scheduler.stop()
    lent = threading.Event()

    def borrow() -> None:
        with parts.scheduler.lent_turn():
            lent.set()

    threading.Thread(target=borrow, daemon=True).start()
    assert lent.wait(10)


def test_more_is_asked_for_before_all_is_begun() -> None:
    """But with work ready only one thread asks, and only when little of it is left."""
    parts = idle(threads=2)
    answered(parts, [work(parts, n) for n in range(10)])
    scheduler = parts.scheduler
    assert scheduler.low_water == 4
    assert not scheduler._may_exchange()
    while len(scheduler.ready) > 4:
        scheduler.ready.popleft()
    assert scheduler._may_exchange()
    scheduler._exchanging = 1
    assert not scheduler._may_exchange()


def test_an_announcement_brings_a_box_forward_and_never_back() -> None:
    parts = idle("outbox", "orders")
    one, two = parts.boxes
    one.next_poll = 1.0  # long overdue
    two.failures, two.next_poll = 1, NEVER
    parts.scheduler.wake()
    assert (one.next_poll, two.next_poll) == (1.0, NEVER)
    assert (one.wakes, two.wakes) == (1, 1)


def test_what_a_lost_answer_would_have_brought_is_not_taken_for_nothing() -> None:
    parts = Parts()
    parts.scheduler.draining = True
    parts.box.dry_claims = 1000
    parts.box.doubtful_until = time.monotonic() + 30
    parts.box.last_work = 0.0
    answered(parts, [])
    assert (parts.box.dry_at, parts.box.dry_claims) == (-1, 0)
    assert parts.box.next_poll == parts.box.doubtful_until


def dry(parts: Parts) -> None:
    """All boxes have been asked, and had nothing."""
    for box in parts.boxes:
        box.dry_at = parts.scheduler.progress
    parts.scheduler.draining = True


@pytest.mark.parametrize("how", ["drain", "coroutines", "delivery", "thread"])
def test_a_dry_drain_ends_as_soon_as_somebody_sees_it(how: str) -> None:
    parts = idle()
    dry(parts)
    if how == "drain":
        parts.scheduler.drain()
    elif how == "coroutines":
        parts.scheduler.coroutines_ended()
    elif how == "thread":
        assert parts.scheduler.next(parts.thread()) is None
    else:
        with parts.scheduler.delivery():
            assert not parts.scheduler.stopping
    assert parts.scheduler.stopping


@pytest.mark.parametrize("why", ["busy", "delivering", "ready", "outcomes", "one box", "progress"])
def test_a_drain_goes_on_while_anything_may_come(why: str) -> None:
    parts = idle("outbox", "orders")
    dry(parts)
    scheduler = parts.scheduler
    if why == "busy":
        scheduler._busy = 1
    elif why == "delivering":
        scheduler._delivering = 1
    elif why == "ready":
        scheduler.ready.append(work(parts, 1))
    elif why == "outcomes":
        parts.box.outcomes.acked.append(1)
    elif why == "one box":
        parts.boxes[1].dry_at = -1
    else:
        scheduler.settled()
    scheduler.drain()
    assert not scheduler.stopping
    if why == "progress":
        assert all(box.next_poll <= time.monotonic() for box in parts.boxes), "they are asked again"


def test_a_drain_asks_no_database_that_is_away() -> None:
    parts = idle()
    dry(parts)
    parts.scheduler.settled()
    parts.box.failures = 1
    parts.scheduler.drain()
    assert parts.box.next_poll == NEVER


def test_where_groups_were_seen_a_drain_looks_once_more() -> None:
    """One in whose midst somebody was comes a little later."""
    parts = idle()
    dry(parts)
    parts.scheduler.groups_seen = True
    parts.scheduler.drain()
    assert not parts.scheduler.stopping
    assert parts.box.next_poll <= time.monotonic() + 1
    dry(parts)
    parts.scheduler.drain()
    assert parts.scheduler.stopping


def test_every_claim_that_brings_something_is_progress() -> None:
    parts = Parts()
    before = parts.scheduler.progress
    answered(parts, [work(parts, 1)])
    assert parts.scheduler.progress > before


def test_the_last_results_wait_for_no_long_pause() -> None:
    parts = idle()
    parts.scheduler.stop()
    assert parts.box.next_poll <= time.monotonic()


def test_what_is_taken_is_not_there_twice() -> None:
    parts = idle()
    ready = work(parts, 1)
    parts.scheduler.ready.append(ready)
    assert parts.scheduler.take_ready() == [ready]
    assert parts.scheduler.take_ready() == []


def test_without_results_or_work_to_settle_a_box_is_asked_at_its_next_poll() -> None:
    parts = Parts()
    thread = parts.thread()
    assert parts.scheduler.next(thread) is parts.box
    parts.box.next_poll = 0.0
    parts.scheduler.asked_nothing(thread, parts.box, parts.box.wakes)
    assert parts.box.next_poll > time.monotonic() + 10


def hang(parts: Parts) -> Any:
    """A thread that hangs in its handler; and whether another may take its place."""
    thread = parts.thread()
    thread.assignment, thread.at_work = work(parts, 1), True
    parts.scheduler._busy += 1
    parts.scheduler.joined()
    return thread, parts.scheduler.hangs(thread, thread.assignment)


def test_as_many_are_replaced_as_there_are_threads() -> None:
    parts = Parts(threads=2)
    found = [hang(parts)[1] for _ in range(4)]
    assert found == [True, True, True, False]
    assert parts.scheduler.exhausted
    assert parts.scheduler.hanging == 4


def test_nobody_is_replaced_while_the_worker_stops() -> None:
    parts = Parts(threads=2)
    parts.scheduler.stop()
    assert hang(parts)[1] is False


def test_who_comes_back_works_on_if_it_is_needed() -> None:
    parts = Parts(threads=1)
    first, _ = hang(parts)
    parts.scheduler.joined()  # the one in its place
    parts.scheduler.came_back(first)
    assert (first.superfluous, parts.scheduler.hanging) == (True, 0)
    other = Parts(threads=1)
    second, _ = hang(other)
    other.scheduler.came_back(second)
    assert (second.superfluous, other.scheduler.exhausted) == (False, False)
    other.scheduler.came_back(second)
    assert (other.scheduler.hanging, other.scheduler._active) == (0, 1), "it did not hang any more"


def test_a_nap_ends_once_for_each_claim() -> None:
    parts = Parts()
    answered(parts, [work(parts, 1)])
    parts.scheduler.nap(10)
    began = time.monotonic()
    parts.scheduler.nap(0.05)
    assert time.monotonic() - began >= 0.04
