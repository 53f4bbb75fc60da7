"""Who of many stores is asked next, with a clock that the test sets and no database."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from pysqlbox.stores.scheduler import StoresScheduler
from pysqlbox.stores.served import LONGEST_PAUSE, SURVEYED, TOLD_BY_NUMBERS, LeaningStore, StoreBox
from pysqlbox.stores.strategies import RoundRobin, Strategy
from pysqlbox.worker.handlers import Handlers
from pysqlbox.worker.scheduler import GROUP_SECONDS
from pysqlbox.worker.served_box import NEVER
from pysqlbox.worker.settings import Settings
from pysqlbox.worker.stalls import ASKS_AT_ONCE, StallWatch

SWEEP = 10.0


class Clock:
    """The time of all that is tested."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that stands still."""
    found = Clock()
    for module in (
        "stores.scheduler",
        "stores.served",
        "worker.scheduler",
        "worker.served_box",
        "worker.stalls",
    ):
        monkeypatch.setattr(f"pysqlbox.{module}.time", SimpleNamespace(monotonic=found, time=found))
    return found


class World:
    """A scheduler, and stores on servers that are not there."""

    def __init__(self, clock: Clock, strategy: Strategy | None = None, *, threads: int = 4) -> None:
        self.clock = clock
        self.scheduler = StoresScheduler(strategy or RoundRobin(), threads=threads)
        self.servers: dict[str, Any] = {}

    def now(self) -> float:
        """The time that the clock shows."""
        return self.clock()

    def add(self, key: str, *, server: str = "s", known: bool = True, boxes: int = 1) -> LeaningStore:
        """A store with one box, or more."""
        at = self.servers.setdefault(
            server,
            SimpleNamespace(has_room=True, is_answering=True, is_watched=True, is_over=False, budget=20),
        )
        place = SimpleNamespace(server=at, calls=None, is_postgres=True, is_surveyed=False, boxes={})
        db: Any = SimpleNamespace(
            store=key, store_key=key, schema="infra", driver=None, target=None,
        )  # fmt: skip
        entry: Any = SimpleNamespace(name=key, key=key, release=lambda: None)
        store = LeaningStore(entry, db, place, None)  # type: ignore[arg-type]
        store.is_known = known
        store.position = len(self.scheduler.stores)
        for number in range(boxes):
            queue: Any = SimpleNamespace(name=f"box{number}", deployment=db, kind="inbox")
            store.boxes.append(
                StoreBox(
                    queue, Handlers(), Settings(), topics=None, threads=4, store=store, sweep_seconds=SWEEP
                )
            )
        self.scheduler.add_store(store)
        return store

    def begin(self) -> tuple[Any, StoreBox] | None:
        """A thread comes and asks; what it is to talk about, None if it would have to wait."""
        thread: Any = SimpleNamespace(
            has_turn=False,
            at_work=False,
            hanging=False,
            superfluous=False,
            asked=None,
            is_doubtful=False,
            turn_began=0.0,
        )
        scheduler = self.scheduler
        box, due = scheduler._choose(self.now())
        if box is None or due > self.now():
            return None
        box.being_asked(self.now())
        scheduler._begin_turn(thread, box)
        assert isinstance(box, StoreBox)
        return thread, box

    def end(self, begun: tuple[Any, StoreBox], got: int = 0, asked: int = 4) -> None:
        """The thread has its answer."""
        thread, box = begun
        self.scheduler.answered(
            thread, box, [], asked=asked, got=got, progress=self.scheduler.progress, wakes=box.wakes
        )
        self.scheduler.visit_ends(thread, box)
        self.scheduler._leave(thread)

    def visit(self, got: int = 0) -> str | None:
        """One visit; the store's key."""
        begun = self.begin()
        if begun is None:
            return None
        self.end(begun, got)
        return begun[1].store.key


def test_each_store_gets_its_turn(clock: Clock) -> None:
    world = World(clock)
    for key in "abc":
        world.add(key)
    assert [world.visit(got=4) for _ in range(7)] == list("abcabca")


def test_an_empty_store_is_asked_less_and_less_until_the_sweep(clock: Clock) -> None:
    world = World(clock)
    store = world.add("a")
    store.boxes[0].empties = 0  # as after work
    pauses = []
    for _ in range(8):
        assert world.visit() == "a"
        pauses.append(store.boxes[0].next_poll - clock.now)
        clock.now = store.boxes[0].next_poll
    assert pauses[:6] == sorted(pauses[:6])  # then it varies a little, so that not all come at once
    assert pauses[0] < 0.1
    assert SWEEP * 0.8 <= pauses[-1] <= SWEEP


def test_a_due_time_comes_before_the_sweep(clock: Clock) -> None:
    world = World(clock)
    store = world.add("a")
    store.boxes[0].empties = 10
    store.boxes[0].due = clock.now + 3
    assert world.visit() == "a"
    assert store.boxes[0].next_poll == clock.now + 3


def test_a_quiet_box_costs_nothing_until_somebody_wakes_it(clock: Clock) -> None:
    world = World(clock)
    store, other = world.add("a"), world.add("b")
    for each in (store, other):
        each.boxes[0].empties = 10
    assert [world.visit(), world.visit(), world.visit()] == ["a", "b", None]
    world.scheduler.cool(set())
    assert len(world.scheduler.active_boxes()) == 2  # what a thread picks up just now is not seen yet
    world.scheduler.cool(set())
    assert world.scheduler.active_boxes() == []
    world.scheduler.wake(other.boxes[0])
    assert world.scheduler.active_boxes() == [other.boxes[0]]
    assert [world.visit(), world.visit()] == ["b", None]
    clock.now += SWEEP
    assert world.visit() == "a"


def test_a_box_whose_messages_are_held_stays_hot(clock: Clock) -> None:
    world = World(clock)
    box = world.add("a").boxes[0]
    box.empties = 10
    world.visit()
    for _ in range(3):
        world.scheduler.cool({box})
    assert world.scheduler.active_boxes() == [box]
    box.outcomes.acked.append(1)
    world.scheduler.cool(set())
    world.scheduler.cool(set())
    assert world.scheduler.active_boxes() == [box]


def test_no_more_than_two_threads_talk_to_one_store_and_one_if_it_is_doubtful(clock: Clock) -> None:
    world = World(clock, threads=8)
    store = world.add("a", boxes=4)
    assert [world.begin() is not None for _ in range(3)] == [True, True, False]
    doubtful = world.add("b", known=False, boxes=4)
    assert [world.begin() is not None for _ in range(2)] == [True, False]
    assert (store.visits, doubtful.visits) == (2, 1)


def test_stores_that_may_take_long_have_lanes_of_their_own(clock: Clock) -> None:
    """Half of the threads; the others serve those that answer."""
    world = World(clock, threads=4)
    for number in range(10):
        world.add(f"new{number}", known=False)
    taken: list[Callable[[], None]] = []
    while (begun := world.begin()) is not None:
        taken.append(lambda begun=begun: world.end(begun))  # type: ignore[misc]
    assert len(taken) == 2
    world.add("good")
    assert [world.visit(got=4) for _ in range(5)] == ["good"] * 5
    taken[0]()
    assert {world.visit(got=4) for _ in range(8)} > {"good"}  # and among them one that is new


def test_new_stores_come_before_those_that_have_failed(clock: Clock) -> None:
    world = World(clock)
    failed = world.add("failed", known=False)
    failed.failures = failed.boxes[0].failures = 3
    failed.boxes[0].next_poll = clock.now - 100
    world.add("new", known=False)
    assert world.visit() == "new"


def test_a_store_that_fails_is_left_alone_up_to_a_minute(clock: Clock) -> None:
    box = World(clock).add("a").boxes[0]
    pauses = []
    for _ in range(15):
        box.retreat()
        pauses.append(box.next_poll - clock.now)
    assert pauses[0] < 1
    assert LONGEST_PAUSE / 2 <= pauses[-1] <= LONGEST_PAUSE


def test_a_failing_store_is_not_woken_early(clock: Clock) -> None:
    world = World(clock)
    box = world.add("a").boxes[0]
    box.retreat()
    at = box.next_poll
    world.scheduler.wake(box)
    assert box.next_poll == at > clock.now


def test_nobody_is_sent_where_there_is_no_connection(clock: Clock) -> None:
    world = World(clock)
    world.add("a", server="full")
    world.servers["full"].has_room = False
    world.add("b", server="free")
    assert [world.visit(got=4) for _ in range(3)] == ["b", "b", "b"]
    world.servers["full"].has_room = True
    assert "a" in [world.visit(got=4), world.visit(got=4)]


def test_a_store_that_leaves_is_asked_only_to_settle(clock: Clock) -> None:
    world = World(clock)
    store = world.add("a")
    world.scheduler.leave(store)
    assert world.visit() is None
    store.boxes[0].outcomes.acked.append(1)
    assert not world.scheduler.remove_if_drained(store, set())
    begun = world.begin()
    assert begun is not None
    store.boxes[0].outcomes.take()
    world.end(begun)
    assert not world.scheduler.remove_if_drained(store, {store.boxes[0]})  # a handler still has a message
    assert world.scheduler.remove_if_drained(store, set())
    assert world.scheduler.boxes == []


def test_a_strategy_that_waits_does_not_hold_up_doubtful_stores(clock: Clock) -> None:
    class Stubborn:
        def choose(self, waiting: Any, going: Any) -> None:
            del waiting, going

        def answered(self, key: str, claimed: int) -> None:
            del key, claimed

    world = World(clock, Stubborn())
    world.add("a")
    assert world.visit() is None
    world.add("new", known=False)
    assert world.visit() == "new"


def test_a_box_is_put_off_while_its_numbers_are_read_and_none_was_drawn(clock: Clock) -> None:
    world = World(clock)
    store = world.add("a")
    box: Any = store.boxes[0]
    place: Any = store.place
    place.is_surveyed = True
    box.empties, box.written_at, box.drawn_at = 10, clock.now - 1, clock.now
    box.due, box.is_due_known = NEVER, True
    assert world.visit() == "a"
    assert box.next_poll > clock.now + SURVEYED * SWEEP * 0.7, "the survey asks for it, at each sweep"

    def is_put_off() -> bool:
        clock.now = box.next_poll
        return bool(box.put_off(clock.now))

    place.is_unchanged = lambda *_: False
    assert not is_put_off(), "nobody has read the numbers lately"
    box.drawn_at = clock.now
    assert box.put_off(clock.now)
    box.due = clock.now
    assert not box.put_off(clock.now)
    box.due, box.written_at = NEVER, clock.now
    assert not box.put_off(clock.now)
    box.written_at = 0.0
    clock.now += TOLD_BY_NUMBERS * SURVEYED * SWEEP
    box.drawn_at = clock.now
    assert not box.put_off(clock.now), "now and then it is asked all the same"


def test_a_box_that_waits_for_a_sign_is_not_asked_whether_it_moves(clock: Clock) -> None:
    """Thousands of tenants that have nothing to do would be asked again and again."""
    world = World(clock)
    idle, stuck = world.add("a").boxes[0], world.add("b").boxes[0]
    asked: list[str] = []

    def lend(box: Any) -> AbstractContextManager[Any]:
        asked.append(box.store.key)
        return nullcontext(SimpleNamespace(call=lambda *_: []))

    watch = StallWatch(world.scheduler, Settings(stall_seconds=60.0), lambda _: (), lend)
    assert world.visit() == "a"
    assert world.visit() == "b"
    idle.next_poll = clock.now + 1000
    for _ in range(3):
        world.scheduler.cool({stuck})
    assert world.scheduler.active_boxes() == [stuck]
    for _ in range(3):
        clock.now += 100
        watch.look()
    assert set(asked) == {"b"}


def test_few_boxes_at_a_time_are_asked_whether_they_move_and_each_has_its_turn(clock: Clock) -> None:
    """Where a slow database keeps thousands waiting, so many questions more would only add to that."""
    world = World(clock)
    keys = [f"store {number}" for number in range(10)]
    for key in keys:
        world.add(key)
    asked: list[str] = []

    def lend(box: Any) -> AbstractContextManager[Any]:
        asked.append(box.store.key)
        return nullcontext(SimpleNamespace(call=lambda *_: []))

    watch = StallWatch(world.scheduler, Settings(stall_seconds=60.0), lambda _: (), lend)
    clock.now += 100
    watch.look()
    assert asked == [], "at first they are only suspected"
    for _ in range(4):
        before = len(asked)
        clock.now += 1
        watch.look()
        assert len(asked) - before <= ASKS_AT_ONCE
    assert sorted(asked) == keys


def test_a_drain_waits_for_groups_also_where_somebody_wakes_it_meanwhile(clock: Clock) -> None:
    """The database looks at a group again a little later; a claim that comes before that shows nothing."""
    world = World(clock)
    one, other = world.add("a").boxes[0], world.add("b").boxes[0]
    world.scheduler.groups_seen = True
    world.scheduler.drain()
    while world.visit() is not None:
        pass
    world.scheduler._end_if_dry()
    assert not world.scheduler.stopping
    confirmed_at = clock.now + GROUP_SECONDS
    clock.now += GROUP_SECONDS / 5
    world.scheduler.wake(one)
    assert world.visit() == "a"
    assert (one.dry_at, one.next_poll) == (-1, confirmed_at)
    clock.now = confirmed_at
    assert world.visit() == "b"
    assert other.dry_at == world.scheduler.progress
    world.scheduler._end_if_dry()
    assert not world.scheduler.stopping, "a has not been asked since"
    assert world.visit() == "a"
    world.scheduler._end_if_dry()
    assert world.scheduler.stopping
