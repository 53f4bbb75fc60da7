"""What the worker's listener does as time goes by, on a link and a clock that the test moves."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Self

import psycopg
import pytest

from pysqlbox import DatabaseUnavailable
from pysqlbox.drivers import parse_url, postgres
from pysqlbox.worker import listener as module
from pysqlbox.worker.database import CALL_SECONDS
from pysqlbox.worker.listener import (
    AGAIN_SECONDS,
    CALLS,
    HEAR_SECONDS,
    SILENT_SECONDS,
    SLICE_SECONDS,
    Listener,
)

LOST = psycopg.OperationalError("gone")


class World:
    """Everything around a listener. ``then`` is what happens at each of its waits, in turn; then it stops."""

    def __init__(self, *then: Callable[[], object]) -> None:
        self.then = deque(then)
        self.now = 1000.0
        self.stopping = False
        self.asleep = False
        self.pending: deque[str] = deque()
        self.notified: deque[str] = deque()
        self.woken: list[str] = []
        #: What it did, in order.
        self.done: list[str] = []
        #: How long each wait for the server was to be, and each pause.
        self.waits: list[float] = []
        self.pauses: list[float] = []
        self.overdue: Callable[[], bool] | None = None
        self.refuses: Exception | None = None
        self.notify_fails = False
        self.boxes = [SimpleNamespace(name=name) for name in ("outbox", "inbox")]
        deployment = SimpleNamespace(
            schema="infra", store="shop", store_key=None, target=parse_url("postgresql://host/db")
        )
        database: Any = SimpleNamespace(must_end_at=float("inf"), deployment=deployment)
        scheduler: Any = self
        self.listener = Listener(database, scheduler, self._connection, 5.0)

    # A connection of the worker's, the scheduler, the clock

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Any]:
        yield self

    def notify(self, channel: str) -> None:
        if self.notify_fails:
            raise DatabaseUnavailable("away")
        self.done.append("notify")
        self.notified.append(channel)

    def wake(self, box: Any) -> None:
        self.woken.append(box.name)
        self.done.append("wake")

    def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.now += seconds
        self._step()
        return self.stopping

    def monotonic(self) -> float:
        return self.now

    # The server

    def connect(self, *_: Any, overdue: Callable[[], bool], connect_timeout: int, **__: Any) -> Any:
        assert connect_timeout == 10
        self.overdue = overdue
        self._say("connect")
        if self.refuses is not None:
            raise self.refuses
        return self

    def execute(self, text: Any) -> None:
        self._say(text.as_string(None).split(".")[0])

    def _say(self, what: str) -> None:
        """Every word to the server has a deadline."""
        assert self.overdue is not None
        assert not self.overdue()
        self.now += CALL_SECONDS + 1
        assert self.overdue()
        self.done.append(what)

    def close(self) -> None:
        self.done.append("close")

    # libpq

    @property
    def pgconn(self) -> World:
        return self

    socket = 99

    def notifies(self) -> Any:
        return SimpleNamespace(relname=self.pending.popleft().encode()) if self.pending else None

    def consume_input(self) -> None:
        self.done.append("read")

    # A selector

    def __enter__(self) -> Self:
        self.watched: list[Any] = []
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is kept."""

    def register(self, it: Any, _event: int) -> None:
        self.watched.append(it)

    def select(self, timeout: float) -> list[tuple[Any, int]]:
        self.waits.append(timeout)
        rung = self._step()
        return [(SimpleNamespace(fileobj=rung), 1)] if rung is not None else []

    def _step(self) -> Any:
        if self.then:
            return self.then.popleft()()
        self.stopping = True
        return None

    # What may happen

    def hears(self, channel: str | None = None) -> None:
        """A notification comes: what it called, or one of a box."""
        self.pending.append(self.notified.popleft() if channel is None else channel)

    def silence(self) -> None:
        """The wait ends without anything."""
        self.now += self.waits[-1]

    def nothing(self) -> None:
        """A pause ends."""

    def is_lost(self) -> None:
        """The connection."""
        raise LOST


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """One in which nothing happens yet."""
    made = World()
    monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr("pysqlbox.worker.database.time", made)
    monkeypatch.setattr(postgres, "connect", made.connect)
    monkeypatch.setattr(module, "selectors", SimpleNamespace(DefaultSelector=lambda: made, EVENT_READ=1))
    monkeypatch.setattr(module, "random", SimpleNamespace(uniform=lambda _low, high: high))
    return made


def test_it_listens_wakes_for_what_came_before_and_calls_itself(world: World) -> None:
    world.then.extend([world.hears])
    world.listener.run()
    listens = ['LISTEN "pysqlbox', 'LISTEN "infra', 'LISTEN "infra']
    assert world.done == ["connect", *listens, "wake", "wake", "notify", "read", "read", "close"]
    assert world.listener.state == "listening"
    assert world.waits == [HEAR_SECONDS, SILENT_SECONDS]


def test_notifications_wake_their_box_and_all_that_came_are_read(world: World) -> None:
    def several() -> None:
        for channel in ("infra.inbox", "infra.unknown", "infra.outbox"):
            world.hears(channel)

    world.then.extend([several])
    world.listener.run()
    assert world.woken == ["outbox", "inbox", "inbox", "outbox"]
    assert world.waits == [HEAR_SECONDS, SILENT_SECONDS]


def test_in_silence_it_calls_itself_again_and_counts_from_what_it_heard(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pysqlbox.worker")
    world.then.extend([world.silence, world.hears, world.silence, world.silence, world.hears])
    world.listener.run()
    assert world.done.count("notify") == 4, "each second one goes unheard, so it never takes itself for deaf"
    assert world.waits == [HEAR_SECONDS] * 2 + [SILENT_SECONDS] + [HEAR_SECONDS] * 2 + [SILENT_SECONDS]
    assert world.listener.state == "listening"
    assert caplog.messages == []


def test_unheard_it_is_deaf_tells_once_and_tries_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    slices = round(AGAIN_SECONDS / SLICE_SECONDS)
    deaf = [world.silence] * CALLS + [world.nothing] * slices
    world.then.extend(deaf * 2)
    world.listener.run()
    assert world.listener.state == "deaf"
    assert world.done.count("connect") == 3
    assert world.done.count("close") == 3
    assert world.done.count("notify") == 2 * CALLS + 1
    assert world.pauses == [SLICE_SECONDS] * (2 * slices)
    (told,) = caplog.messages
    assert "polling, every 5 seconds" in told


def test_once_it_hears_again_it_says_so_and_would_tell_anew(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pysqlbox.worker")
    deaf = [world.silence] * CALLS + [world.nothing] * round(AGAIN_SECONDS / SLICE_SECONDS)

    def heard() -> None:
        world.hears("infra.outbox")

    world.then.extend([*deaf, heard, world.is_lost, *[world.nothing], *deaf])
    world.listener.run()
    told = ["do not come" if "do not come through" in text else "again" for text in caplog.messages]
    assert told == ["do not come", "again", "do not come"]


def test_calls_that_do_not_go_out_say_nothing_about_deafness(world: World) -> None:
    """As while the database is away."""
    world.notify_fails = True
    world.then.extend([world.silence] * (CALLS + 3))
    world.listener.run()
    assert world.listener.state == "connecting"
    assert world.pauses == []


def test_a_worker_that_sleeps_does_not_wake_the_database(world: World) -> None:
    world.asleep = True

    def wakes_up() -> None:
        world.asleep = False

    world.then.extend([world.silence, world.silence, wakes_up])
    world.listener.run()
    assert world.waits == [SILENT_SECONDS] * 3 + [HEAR_SECONDS]
    assert world.done.count("notify") == 1


def test_deaf_it_is_quiet_for_as_long_as_the_worker_sleeps(world: World) -> None:
    """Connecting would wake the database."""
    slices = round(AGAIN_SECONDS / SLICE_SECONDS)

    def sleeps() -> None:
        world.asleep = True

    def wakes_up() -> None:
        world.asleep = False

    world.then.extend([world.silence] * CALLS)
    world.then.extend([sleeps, *[world.nothing] * (2 * slices), wakes_up])
    world.listener.run()
    assert len(world.pauses) == 2 * slices + 2
    assert world.done.count("connect") == 2


@pytest.mark.parametrize("heard", [False, True])
def test_a_lost_connection_is_opened_again(world: World, heard: bool) -> None:
    """One that heard something is lost: while the worker sleeps there is time to open another."""

    def lost_asleep() -> None:
        world.asleep = True
        raise LOST

    def wakes_up() -> None:
        world.asleep = False

    world.then.extend([world.hears] if heard else [])
    world.then.extend([lost_asleep, world.nothing, world.nothing, wakes_up])
    world.listener.run()
    assert len(world.pauses) == (3 if heard else 1)
    assert world.done.count("connect") == 2
    assert world.done.count("close") == 2
    assert world.listener.state == "connecting"


def test_pauses_grow_up_to_ten_seconds_and_begin_anew_once_it_has_heard(world: World) -> None:
    world.refuses = DatabaseUnavailable("away")
    pauses: list[float] = []

    def ends() -> None:
        """Of each pause the last slice."""
        started = world.now - world.pauses[-1]
        world.now = started + 60
        pauses.append(world.pauses[-1])

    begin = world.listener._pause
    asked: list[float] = []

    def noted(seconds: float, *, asleep: bool) -> None:
        asked.append(seconds)
        begin(seconds, asleep=asleep)

    world.listener._pause = noted  # type: ignore[method-assign]  # to see whole pauses, not slices

    def comes_back() -> None:
        ends()
        world.refuses = None

    world.then.extend([ends] * 6 + [comes_back, world.hears, world.is_lost, ends])
    world.listener.run()
    assert asked == [0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 0.4]
    assert pauses[0] == 0.4, "no slice is longer than the pause"


def test_the_bell_ends_it_whatever_it_waits_for(world: World) -> None:
    def rings() -> Any:
        world.stopping = True
        assert world.watched == [99, world.listener._bell]
        return world.listener._bell

    world.then.extend([rings])
    world.listener.run()
    assert world.done[-2:] == ["notify", "close"], "nothing more is read"


def test_a_pause_ends_with_the_worker(world: World) -> None:
    world.then.extend([world.silence] * CALLS)
    world.listener.run()
    assert world.pauses == [SLICE_SECONDS]


def test_it_leaves_no_sockets_and_may_be_stopped_late(world: World) -> None:
    def breaks() -> None:
        raise ZeroDivisionError

    world.then.extend([breaks])
    with pytest.raises(ZeroDivisionError):
        world.listener.run()
    assert world.listener._bell.fileno() == world.listener._string.fileno() == -1
    assert world.done[-1] == "close"
    world.listener.stop()


def test_stopped_it_is_rung(world: World) -> None:
    world.listener.stop()
    world.listener._bell.setblocking(False)
    assert world.listener._bell.recv(9) == b"\0"
    world.listener.run()
