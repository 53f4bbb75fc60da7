"""What the lease keeper asks of the database, and what it does where that fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

import pysqlbox
from pysqlbox.worker import lease_keeper
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.lease_keeper import LeaseKeeper
from pysqlbox.worker.settings import Settings
from tests.unit.standins import OWNER, Parts, message


class Coroutines:
    """Those that are at work, and who was cancelled."""

    def __init__(self) -> None:
        self.at_work: list[Assignment] = []
        self.cancelled: list[Assignment] = []
        self.has_lost_loop = False

    def held(self) -> list[Assignment]:
        return self.at_work

    def cancel(self, assignment: Assignment) -> None:
        self.cancelled.append(assignment)


class Kept:
    """A lease keeper and what it watches; nothing runs by itself."""

    def __init__(self, *boxes: str, threads: int = 1, **settings: Any) -> None:
        settings = {"poll_seconds": 60.0, "lease_seconds": 30, "stall_seconds": None, **settings}
        self.parts = Parts(*boxes, settings=Settings(**settings), threads=threads)
        self.threads: list[Any] = []
        self.coroutines = cast(Any, Coroutines())
        self.replaced: list[int] = []
        self.ended: list[int] = []
        log: Any = self.parts.box.log
        stalls: Any = SimpleNamespace(look=lambda: None)
        self.keeper = LeaseKeeper(
            self.parts.scheduler, self.threads, self.parts.handlers, self.parts.handling, self.parts.exchange,
            self.coroutines, OWNER, self.parts.settings, lambda: self.replaced.append(1), lambda: None,
            lambda: self.ended.append(1), log, stalls,
        )  # fmt: skip

    def ready(self, *ids: int, box: int = 0, age: float = 0.0) -> Assignment:
        """Messages that nobody has begun."""
        made = Assignment(
            self.parts.boxes[box], [message(each) for each in ids], time.monotonic() - age
        )  # fmt: skip
        self.parts.scheduler.ready.append(made)
        return made

    def handled(self, *ids: int, since: float = 0.0, age: float = 0.0, **options: Any) -> Assignment:
        """Messages of which a thread handles the first, for so long already."""
        made = Assignment(
            self.parts.box, [message(each) for each in ids], time.monotonic() - age,
            loose=options.pop("loose", False),
        )  # fmt: skip
        topic = "t"
        handler = self.parts.handlers.by_topic.get(topic)
        if handler is None:
            handler = self.parts.handler(topic, options.pop("function", lambda _message: None), **options)
        made.begin(handler)
        made.began_at -= since
        thread = self.parts.thread()
        thread.assignment, thread.at_work = made, True
        self.parts.scheduler.joined()
        self.parts.scheduler._busy += 1
        self.threads.append(thread)
        return made

    def refuse(self, error: Exception | None) -> None:
        """The database extends nothing more, or everything again."""

        def on_call(_routine: str, arguments: Mapping[str, Any]) -> list[dict[str, object]]:
            if error is not None:
                raise error
            return [{"id": each} for each in arguments["ids"]]

        self.parts.connection.on_call = on_call

    @property
    def asked(self) -> list[str]:
        """The routines that were called."""
        return [routine for routine, _ in self.parts.connection.called]


def test_leases_are_extended_after_a_third_of_them() -> None:
    it = Kept()
    it.refuse(None)
    young, old = it.ready(1, age=1.0), it.ready(2, 3, age=11.0)
    before, leased_at = time.monotonic(), young.leased_at
    it.keeper._extend_all()
    assert it.asked == ["outbox_extend"]
    assert it.parts.connection.called[0][1]["ids"] == [2, 3]
    assert old.leased_at >= before
    assert young.leased_at == leased_at


def test_an_extended_lease_holds_from_when_it_was_asked_for() -> None:
    """The answer may come late."""
    it = Kept()
    old = it.ready(1, age=11.0)

    def on_call(_routine: str, _arguments: Any) -> list[dict[str, object]]:
        answered.append(time.monotonic())
        return [{"id": 1}]

    answered: list[float] = []
    it.parts.connection.on_call = on_call
    it.keeper._extend_all()
    assert old.leased_at < answered[0]


def test_what_the_database_does_not_extend_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    it = Kept()
    it.parts.connection.on_call = lambda *_: [{"id": 2}]
    old = it.ready(1, 2, age=11.0)
    it.keeper._extend_all()
    assert (old.lost, it.keeper.tally.lost) == ({1}, 1)
    assert "lost the lease of 1 message" in caplog.text


def test_what_was_finished_while_it_asked_is_not_lost() -> None:
    it = Kept()
    old = it.ready(1, age=11.0)
    it.parts.connection.on_call = lambda *_: old.take_waiting() and []
    it.keeper._extend_all()
    assert (old.lost, it.keeper.tally.lost) == (set(), 0)


def test_nothing_is_asked_for_what_has_just_been_finished() -> None:
    it = Kept()
    old = it.ready(1, age=11.0)
    old.take_waiting()
    it.keeper._extend_all()
    assert it.asked == []


def test_an_outage_is_not_asked_about_box_after_box(caplog: pytest.LogCaptureFixture) -> None:
    it = Kept("outbox", "orders")
    it.refuse(pysqlbox.DatabaseUnavailable("gone"))
    it.ready(1, box=0, age=11.0)
    it.ready(2, box=1, age=11.0)
    it.keeper._extend_all()
    assert len(it.asked) == 1
    assert "cannot extend 1 lease now: gone" in caplog.text
    it.keeper._extend_all()
    assert len(it.asked) == 1, "it is quiet for a second"
    it.keeper._quiet_until = 0.0
    it.refuse(None)
    it.keeper._extend_all()
    assert sorted(it.asked[1:]) == ["orders_extend", "outbox_extend"]


def test_a_refusal_of_one_box_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    it = Kept("outbox", "orders")
    first, second = it.ready(1, box=0, age=11.0), it.ready(2, box=1, age=11.0)

    def on_call(routine: str, arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        if routine == "outbox_extend":
            raise pysqlbox.AccessDenied("no right")
        return [{"id": each} for each in arguments["ids"]]

    it.parts.connection.on_call = on_call
    before = time.monotonic()
    it.keeper._extend_all()
    assert first.leased_at < before <= second.leased_at
    assert "extending leases is refused: no right" in caplog.text
    it.keeper._extend_all()
    assert len(it.asked) == 2, "it is quiet for a second"


def test_a_handler_that_asks_hears_after_a_second() -> None:
    it = Kept()
    it.refuse(None)
    it.handled(1, function=lambda _message, _context: None, age=1.5)
    it.keeper._extend_all()
    assert it.asked == ["outbox_extend"]


def test_a_handler_that_does_not_ask_costs_no_call() -> None:
    it = Kept()
    it.handled(1, age=1.5)
    it.keeper._extend_all()
    assert it.asked == []


def test_nor_does_one_that_asks_before_it_runs() -> None:
    """Between two messages of a group nobody asks anything."""
    it = Kept()
    between = it.handled(1, 2, function=lambda _message, _context: None, age=1.5)
    assert between.finish()
    it.keeper._extend_all()
    assert it.asked == []


def test_everything_that_is_held_is_extended() -> None:
    """What is handled, ready, parked, on the loop; and what waits behind it."""
    it = Kept()
    it.refuse(None)
    it.handled(1, 2, age=11.0)
    it.threads.append(it.parts.thread())  # and one that has nothing
    it.ready(3, age=11.0)
    parked = Assignment(it.parts.box, [message(4)], time.monotonic() - 11.0)
    it.parts.handler("limited", lambda _message: None, concurrency=1).parked.append(parked)
    it.coroutines.at_work.append(Assignment(it.parts.box, [message(5)], time.monotonic() - 11.0))
    it.keeper._extend_all()
    assert it.parts.connection.called[0][1]["ids"] == [1, 2, 3, 4, 5]


def test_a_handler_that_overran_is_replaced_once(caplog: pytest.LogCaptureFixture) -> None:
    it = Kept(handler_timeout=1.0)
    overran = it.handled(1, 2, since=2.0)
    it.keeper._look(it.threads[0])
    it.keeper._look(it.threads[0])
    assert (it.replaced, it.parts.scheduler.hanging, overran.overrun) == ([1], 1, True)
    assert [(each["id"], each["result"]) for each in it.parts.box.outcomes.others] == [
        (1, "retry"), (2, "release"),
    ]  # fmt: skip
    assert caplog.text.count("another one takes its place") == 1


def test_who_came_back_while_it_was_written_off_is_not_replaced() -> None:
    it = Kept(handler_timeout=1.0)
    overran = it.handled(1, since=2.0)
    thread = it.threads[0]
    thread.assignment = None  # it has just come back, and looks for more
    assert not it.parts.scheduler.hangs(thread, overran)
    assert (it.parts.scheduler.hanging, thread.hanging) == (0, False)
    thread.assignment = overran
    assert it.parts.scheduler.hangs(thread, overran)
    assert not it.parts.scheduler.hangs(thread, overran), "it hangs already"
    assert it.parts.scheduler.hanging == 1


def test_a_thread_that_handles_nothing_is_left_alone() -> None:
    """It has finished, and has not let go yet."""
    it = Kept(handler_timeout=1.0)
    done = it.handled(1, since=2.0)
    assert done.finish()
    it.keeper._look(it.threads[0])
    assert (it.replaced, len(it.parts.box.outcomes)) == ([], 0)


def test_a_thread_that_is_about_to_begin_is_left_alone() -> None:
    """What it has is not slow: it has just been claimed."""
    it = Kept()
    thread = it.parts.thread()
    thread.assignment = Assignment(
        it.parts.box, [message(1), message(2)], time.monotonic(), loose=True
    )  # fmt: skip
    it.keeper._look(thread)
    assert (len(thread.assignment.held()), len(it.parts.scheduler.ready)) == (2, 0)


def test_a_thread_without_work_and_one_that_begins_just_now_are_no_matter() -> None:
    """Nobody has the lock while it looks: what is handled is there a moment before who handles it."""
    it = Kept(handler_timeout=60.0)
    idle, beginning = it.parts.thread(), it.parts.thread()
    beginning.assignment = Assignment(it.parts.box, [], time.monotonic())
    beginning.assignment._current = [message(1)]
    beginning.assignment.began_at = time.monotonic()
    it.keeper._look(idle)
    it.keeper._look(beginning)
    assert beginning.assignment.handled


@pytest.mark.parametrize(
    ("own", "worker", "late"), [(1.0, None, True), (60.0, 1.0, False), (None, 1.0, True), (None, None, False)]
)
def test_a_handler_s_own_time_comes_first(own: float | None, worker: float | None, late: bool) -> None:
    """On a thread and on the loop."""
    it = Kept(handler_timeout=worker)
    on_thread = it.handled(1, since=2.0, timeout=own)
    on_loop = Assignment(it.parts.box, [message(2)], time.monotonic())
    on_loop.begin(it.parts.handlers.by_topic["t"])
    on_loop.began_at -= 2.0
    it.coroutines.at_work.append(on_loop)
    it.keeper._look(it.threads[0])
    it.keeper._look_at_coroutines()
    assert [each.overrun for each in (on_thread, on_loop)] == [late, late]


@pytest.mark.parametrize("where", ["thread", "loop"])
def test_whoever_comes_back_just_before_it_is_written_off_is_not(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The assignment decides, under its lock; what waits behind it is still its thread's."""
    it = Kept(handler_timeout=1.0)
    back = it.handled(1, 2, since=2.0)
    handler = it.parts.handlers.by_topic["t"]
    monkeypatch.setattr(Assignment, "take_overrun", lambda *_: [])
    if where == "thread":
        it.keeper._look(it.threads[0])
    else:
        it.coroutines.at_work.append(back)
        it.keeper._look_at_coroutines()
    assert (it.replaced, it.coroutines.cancelled, handler.hanging) == ([], [], 0)
    assert (len(back.held()), len(it.parts.box.outcomes)) == (2, 0)


def test_while_nothing_hangs_nothing_is_said_nor_released(caplog: pytest.LogCaptureFixture) -> None:
    it = Kept()
    it.parts.scheduler.joined()
    waits = it.ready(1)
    with caplog.at_level(logging.INFO):
        it.keeper._look_at_all()
    assert (caplog.records, len(waits.held())) == ([], 1)


def test_where_no_results_wait_no_connection_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Kept()
    it.parts.scheduler.stop()
    monkeypatch.setattr(it.parts.store, "helper_connection", None)
    it.keeper._settle()
    assert it.parts.connection.settled == []


def test_each_look_is_at_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Kept()
    it.handled(1)
    done: list[str] = []
    for name in (
        "_report_silence", "_look", "_look_at_coroutines", "_look_at_all", "_settle", "_extend_all"
    ):  # fmt: skip
        monkeypatch.setattr(it.keeper, name, lambda *_, name=name: done.append(name))
    monkeypatch.setattr(it.keeper._stalls, "look", lambda: done.append("stalls"))
    it.keeper._tick()
    assert sorted(done) == [
        "_extend_all", "_look", "_look_at_all", "_look_at_coroutines", "_report_silence", "_settle", "stalls",
    ]  # fmt: skip


def test_behind_a_slow_handler_somebody_else_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who works alone has let the others sleep."""
    it = Kept()
    called: list[int] = []
    monkeypatch.setattr(it.parts.scheduler, "call_help", lambda: called.append(1))
    it.handled(1)
    it.keeper._look(it.threads[0])
    assert called == []
    it.handled(2, since=1.0)
    it.keeper._look(it.threads[1])
    assert called == [1]


@pytest.mark.parametrize("where", ["thread", "loop"])
def test_whoever_is_in_time_is_not_disturbed(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks a hundred times a second, and a handler's end would have to wait for it."""
    it = Kept(handler_timeout=60.0)
    begun = it.handled(1, since=1.0)
    disturbed: list[float] = []

    def take_overrun(_assignment: Assignment, seconds: float) -> list[Any]:
        disturbed.append(seconds)
        return []

    monkeypatch.setattr(Assignment, "take_overrun", take_overrun)
    if where == "thread":
        it.keeper._look(it.threads[0])
    else:
        it.coroutines.at_work.append(begun)
        it.keeper._look_at_coroutines()
    assert disturbed == []


def test_a_place_of_a_handler_that_overran_is_known_to_hang() -> None:
    """What waits for it here is hopeless then, and goes to others."""
    it = Kept(handler_timeout=1.0)
    it.handled(1, since=2.0, concurrency=1)
    handler = it.parts.handlers.by_topic["t"]
    handler.active = 1
    parked = Assignment(it.parts.box, [message(2)], time.monotonic())
    assert not it.parts.handlers.enter(handler, parked)
    it.keeper._look_at_all()
    assert len(parked.held()) == 1, "the place may still be given back"
    it.keeper._look(it.threads[0])
    assert handler.hanging == 1
    it.keeper._look_at_all()
    assert (parked.held(), it.parts.handlers.parked()) == ([], [])
    assert [(each["id"], each["result"]) for each in it.parts.box.outcomes.others] == [
        (1, "retry"), (2, "release"),
    ]  # fmt: skip


def test_thousands_of_coroutines_are_looked_at_every_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Kept()
    looks: list[int] = []

    def held() -> list[Assignment]:
        looks.append(1)
        return []

    monkeypatch.setattr(it.coroutines, "held", held)
    for _ in range(5):
        it.keeper._look_at_coroutines()
    assert looks == [1]


def rest(it: Kept, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """How the keeper waits after a look."""
    waits: list[tuple[str, float]] = []
    scheduler = it.parts.scheduler
    monkeypatch.setattr(it.keeper, "_tick", lambda: waits.append(("look", 0.0)))
    monkeypatch.setattr(scheduler, "pause", lambda seconds: waits.append(("pause", seconds)))
    monkeypatch.setattr(scheduler, "nap", lambda seconds: waits.append(("nap", seconds)))
    monkeypatch.setattr(
        lease_keeper, "time", SimpleNamespace(sleep=lambda seconds: waits.append(("sleep", seconds)))
    )
    it.keeper.run(lambda: len(waits) > 1)
    assert waits.pop(0) == ("look", 0.0)
    return waits


@pytest.mark.parametrize("why", ["stopping", "busy", "hanging", "held", "nothing"])
def test_it_looks_as_often_as_there_is_something_to_see(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim wakes it from its nap; at the end, which every pause ends with, it must not spin."""
    it = Kept()
    if why == "stopping":
        it.parts.scheduler.stop()
    elif why == "busy":
        it.parts.scheduler._busy = 1
    elif why == "hanging":
        it.parts.scheduler._stuck = 1
    elif why == "held":
        it.ready(1)
    tick, idle = lease_keeper.TICK_SECONDS, lease_keeper.IDLE_TICK_SECONDS
    assert rest(it, monkeypatch) == [
        {
            "stopping": ("sleep", tick), "busy": ("pause", tick), "hanging": ("pause", idle),
            "held": ("pause", idle), "nothing": ("nap", it.keeper.nap_seconds),
        }[why]
    ]  # fmt: skip


def test_only_loose_messages_are_split_and_not_while_the_worker_ends() -> None:
    it = Kept()
    group = it.handled(1, 2, since=1.0)
    loose = it.handled(3, 4, 5, since=1.0, loose=True)
    it.parts.scheduler.stopping = True
    for thread in it.threads:
        it.keeper._look(thread)
    assert [len(each.held()) for each in (group, loose)] == [2, 3]
    it.parts.scheduler.stopping = False
    for thread in it.threads:
        it.keeper._look(thread)
    assert [len(each.held()) for each in (group, loose)] == [2, 1]
    assert [len(each.held()) for each in it.parts.scheduler.ready] == [1, 1]


def test_a_coroutine_that_overran_is_cancelled_once_and_one_in_time_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_keeper, "COROUTINES_SECONDS", 0.0)
    it = Kept(handler_timeout=1.0)
    handler = it.parts.handler("t", lambda _message: None, concurrency=9)
    waiting, quick, late = (Assignment(it.parts.box, [message(n)], time.monotonic()) for n in range(3))
    quick.begin(handler)
    late.begin(handler)
    late.began_at -= 2.0
    it.coroutines.at_work += [waiting, quick, late]
    for _ in range(2):
        it.keeper._look_at_coroutines()
    assert it.coroutines.cancelled == [late]
    assert handler.hanging == 1
    assert [each["id"] for each in it.parts.box.outcomes.others] == [2]


def test_where_the_loop_was_closed_the_worker_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lease_keeper, "COROUTINES_SECONDS", 0.0)
    it = Kept()
    it.keeper._look_at_coroutines()
    assert it.ended == []
    it.coroutines.has_lost_loop = True
    it.keeper._look_at_coroutines()
    assert it.ended == [1]
    assert "the event loop of the coroutine handlers was closed: the worker ends" in caplog.text
    it.parts.scheduler.stopping = True
    it.keeper._look_at_coroutines()
    assert it.ended == [1], "which it does once"


def test_that_every_thread_hangs_is_said_once_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    it = Kept(handler_timeout=1.0)
    it.handled(1, since=2.0)
    it.keeper._look(it.threads[0])
    waits = it.ready(2)
    with caplog.at_level(logging.INFO):
        it.keeper._look_at_all()
        it.keeper._look_at_all()
        assert caplog.text.count("nothing is claimed") == 1
        assert waits.held() == [], "what nobody can handle is released"
        it.parts.scheduler.came_back(it.threads[0])
        it.keeper._look_at_all()
        it.keeper._look_at_all()
        assert caplog.text.count("claimed again") == 1


def test_that_every_thread_hangs_is_no_news_while_the_worker_ends(caplog: pytest.LogCaptureFixture) -> None:
    it = Kept(handler_timeout=1.0)
    it.handled(1, since=2.0)
    it.keeper._look(it.threads[0])
    it.parts.scheduler.stopping = True
    it.keeper._look_at_all()
    assert "nothing is claimed" not in caplog.text


def test_results_that_wait_are_settled_by_the_keeper_after_a_while() -> None:
    """Whoever should have done it may hang. While others take results away, it only looks."""
    it = Kept()
    it.parts.scheduler.joined()
    results = it.parts.box.outcomes
    results.acked.append(1)
    it.keeper._settle()
    assert it.parts.connection.settled == []
    _since(it, 1.0)
    results.taken_at += 1.0  # somebody has settled, and these came later
    it.keeper._settle()
    assert it.parts.connection.settled == []
    _since(it, 1.0)
    it.keeper._settle()
    assert [each.acked for each in it.parts.connection.settled] == [[1]]
    results.acked.append(2)
    it.keeper._settle()
    assert len(it.parts.connection.settled) == 1, "those wait anew"


@pytest.mark.parametrize("why", ["stopping", "exhausted"])
def test_where_nobody_else_is_left_results_wait_for_nothing(why: str) -> None:
    it = Kept(handler_timeout=1.0)
    it.parts.scheduler.joined()
    if why == "stopping":
        it.parts.scheduler.stopping = True
    else:
        it.parts.scheduler._active = 0
    it.parts.box.next_poll = time.monotonic() + 60  # which is no outage's pause
    it.parts.box.outcomes.acked.append(1)
    it.keeper._settle()
    assert [each.acked for each in it.parts.connection.settled] == [[1]]


def test_results_wait_out_an_outages_pause() -> None:
    it = Kept()
    it.parts.scheduler.stopping = True
    it.parts.box.outcomes.acked.append(1)
    it.parts.box.failures, it.parts.box.next_poll = 1, time.monotonic() + 60
    it.keeper._settle()
    assert it.parts.connection.settled == []
    it.parts.box.next_poll = 0.0
    it.keeper._settle()
    assert [each.acked for each in it.parts.connection.settled] == [[1]]


def test_the_unforeseen_does_not_end_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = Kept()
    it.parts.scheduler.joined()
    it.refuse(ZeroDivisionError("never seen before"))
    it.ready(1, age=11.0)
    pauses: list[float] = []
    monkeypatch.setattr(it.parts.scheduler, "pause", pauses.append)
    it.keeper._tick()
    assert "the lease keeper: unexpected; going on" in caplog.text
    assert pauses == [1.0], "it does not say so a hundred times a second"


def _since(it: Kept, seconds: float) -> None:
    """What the keeper has seen waiting, it has seen so much earlier."""
    box = it.parts.box
    taken_at, since = it.keeper._waiting[box]
    it.keeper._waiting[box] = taken_at, since - seconds
