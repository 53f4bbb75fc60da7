"""A run for one deployment: how it comes to its boxes, what it starts beside its threads, what it closes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import pysqlbox
from pysqlbox import DatabaseUnavailable
from pysqlbox.worker import deployment_run
from pysqlbox.worker.caretaker import Caretaker
from pysqlbox.worker.deployment_run import DeploymentRun
from pysqlbox.worker.handlers import Handler, Handlers
from pysqlbox.worker.hooks import Hooks
from pysqlbox.worker.lent_connection import LentConnection
from pysqlbox.worker.served_box import JOIN_WAIT
from pysqlbox.worker.settings import Settings
from pysqlbox.worker.unknown_topics import UnknownTopics
from tests.unit.runs import PATIENCE, comes
from tests.unit.standins import OWNER


class Connection:
    """Answers settings."""

    def __init__(self) -> None:
        self.closed = False
        self.asked: list[str] = []
        self.answer: Callable[[], str | None] = lambda: "7"

    def setting(self, box: Any, name: str) -> str | None:
        self.asked.append(f"{box.name}.{name}")
        return self.answer()

    def close(self) -> None:
        self.closed = True


class It(DeploymentRun):
    """A run that begins nothing, and notes what it would."""

    def __init__(self, db: Any, **settings: Any) -> None:
        self.told: list[Any] = []
        self.launched: list[Any] = []
        self.helping: dict[str, Any] = {}
        super().__init__(
            db, Settings(**settings), Handlers(), Hooks(), UnknownTopics("snooze"), OWNER,
            threads=2, drain=False, ended=self.told.append,
        )  # fmt: skip
        self.connection = Connection()
        self.closed: list[str] = []
        self.database = SimpleNamespace(
            open=lambda: self.connection, must_end_at=None, deployment=db
        )  # fmt: skip
        store: Any = SimpleNamespace(
            database=self.database, close=lambda: self.closed.append("store"),
            close_helper=lambda: self.closed.append("helper"), deployment=db,
        )  # fmt: skip
        self._store = store

    def _launch(self, scheduler: Any) -> None:
        self.launched.append(scheduler)

    def _spawn_helper(self, name: str, target: Any) -> None:
        self.helping[name] = target.__self__


Make = Callable[..., It]


@pytest.fixture
def make() -> Iterator[Make]:
    """A maker of runs for a deployment that is nowhere."""
    made: list[It] = []
    with pysqlbox.connect("postgresql://127.0.0.1:1/none") as nowhere:
        nowhere._boxes["orders"] = pysqlbox.Inbox(nowhere, "orders")

        def run(**settings: Any) -> It:
            made.append(It(nowhere, **settings))
            return made[-1]

        yield run
    for each in made:
        each._stopping.set()
        for thread in each._helpers:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        each._coroutines.close()
        if each._listener is not None:  # it closes its sockets when it ends
            each._listener._scheduler.stop()
            each._listener.run()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once."""
    monkeypatch.setattr(deployment_run, "pause_after", lambda _failures, _away: 0.0)


def away(it: It, times: int, then: Any = None) -> None:
    """Lets the database be away for so many tries, and then do something, or answer."""
    load, failures = it._load_boxes, iter(range(times))

    def load_boxes() -> Any:
        if next(failures, None) is not None:
            raise DatabaseUnavailable("away")
        return load() if then is None else then()

    it._load_boxes = load_boxes  # type: ignore[method-assign]  # of this one only


def fail() -> Any:
    """Something is wrong."""
    raise ZeroDivisionError("never seen before")


# The start


def test_a_start_asks_calls_its_hooks_and_begins(make: Make) -> None:
    it = make()
    asking: list[bool] = []
    it.connection.answer = lambda: asking.append(it.is_asking)
    it._hooks.on_start.append(lambda: asking.append(it.is_asking))
    it.start()
    assert asking == [True, True], "a signal may end either"
    assert not it.is_asking
    assert [box.name for box in it.launched[0].boxes] == ["outbox"]
    assert it.told == []


@pytest.mark.parametrize("what", ["middleware", "boxes", "hook"])
def test_a_start_that_fails_leaves_nothing(make: Make, what: str) -> None:
    it = make()
    if what == "middleware":
        it._handlers.check = lambda *_: fail()  # type: ignore[method-assign]  # of this one only
    elif what == "boxes":
        it.connection.answer = fail
    else:
        it._hooks.on_start.append(fail)
    with pytest.raises(ZeroDivisionError):
        it.start()
    assert it.told == [it]
    assert it._over.is_set()
    assert it.launched == []
    assert it.connection.closed is (what != "middleware")


def test_a_handler_that_gets_nothing_is_warned_of(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    it = make(topics=("other",))
    it._handlers.add(Handler("t", lambda _message: None))
    it.start()
    assert "the handler of 't' gets nothing" in caplog.text


# A database that is away


def test_a_database_that_is_away_is_waited_for(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """It is told of once, and of the end."""
    caplog.set_level("INFO", "pysqlbox.worker")
    it, told = make(), list[str]()
    it._hooks.on_start.append(lambda: told.append("hook"))
    away(it, 3)
    it.start()
    comes(lambda: it.launched)
    assert told == ["hook"]
    assert caplog.text.count("cannot be reached") == 1
    assert "the database can be reached, after" in caplog.text
    assert it.failure is None


def test_one_that_stays_away_is_told_of_now_and_then(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once a minute, however often it is tried."""
    it, clock = make(), iter(range(0, 10_000, 10))
    monkeypatch.setattr(deployment_run, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    away(it, 9)
    assert it._loaded_in_the_end(next(clock)) is not None
    told = [record.getMessage() for record in caplog.records if "cannot be reached for" in record.msg]
    assert [text.split(" s now")[0].split()[-1] for text in told] == ["60", "120", "180"]


def test_pauses_grow_with_the_tries_and_the_time(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[int] = []

    def pause_after(failures: int, away: float) -> float:
        assert away >= 0
        paused.append(failures)
        return 0.0

    monkeypatch.setattr(deployment_run, "pause_after", pause_after)
    it = make()
    away(it, 3)
    it.start()
    comes(lambda: it.launched)
    assert paused == [1, 2, 3]


def test_a_stop_ends_the_waiting(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_run, "pause_after", lambda *_: PATIENCE)
    it = make()
    away(it, 1)
    it.start()
    it._stopping.set()
    (thread,) = it._helpers
    thread.join(PATIENCE / 2)
    assert not thread.is_alive()
    assert (it.launched, it.failure) == ([], None)


@pytest.mark.parametrize("what", ["boxes", "hook"])
def test_what_goes_wrong_behind_an_outage_ends_the_run_and_is_told(
    make: Make, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """Nobody may be waiting for it, who would get to hear of it otherwise."""
    it = make()
    away(it, 2, fail if what == "boxes" else None)
    it._hooks.on_start.append(fail)
    it.start()
    comes(it._stopping.is_set)
    assert isinstance(it.failure, ZeroDivisionError)
    assert it.launched == []
    assert "the worker has not started: never seen before" in caplog.text


# Its boxes


def test_the_boxes_own_attempts_count_unless_it_has_its_own(make: Make) -> None:
    it = make(boxes=("outbox", "orders"))
    assert [box.max_attempts for box in it._load_boxes()] == [7, 7]
    assert it.connection.asked == ["outbox.max_attempts", "orders.max_attempts"]
    assert it.connection.closed
    it.connection.answer = lambda: None  # it may not read them
    assert [box.max_attempts for box in it._load_boxes()] == [None, None]
    own = make(max_attempts=0)
    assert [box.max_attempts for box in own._load_boxes()] == [0]
    assert own.connection.asked == []


def test_an_outbox_waits_for_joins(make: Make) -> None:
    """Whatever topics it claims; an inbox has none."""
    assert [box.topics for box in make()._load_boxes()] == [None]
    for topics, expected in ((("t",), ["t", JOIN_WAIT]), ((JOIN_WAIT,), [JOIN_WAIT])):
        it = make(topics=topics)
        assert [box.topics for box in it._load_boxes()] == [expected]
        assert JOIN_WAIT in it._handlers
    inbox = make(boxes=("orders",), topics=("t",))
    assert [box.topics for box in inbox._load_boxes()] == [["t"]]
    assert JOIN_WAIT not in inbox._handlers


def test_an_applications_own_handler_of_joins_stays(make: Make) -> None:
    """So does the worker's at a second start."""
    it = make()
    own = Handler(JOIN_WAIT, lambda _message: None)
    it._handlers.add(own)
    for _ in range(2):
        it._load_boxes()
    assert it._handlers.by_topic[JOIN_WAIT] is own


def test_its_own_handler_of_joins_is_little_to_do(make: Make) -> None:
    """It does not count among those for which threads are kept."""
    it = make()
    it._load_boxes()
    assert not it._handlers.any_sync


# What runs beside the threads


def helping(it: It) -> dict[str, Any]:
    """What a run starts."""
    it._start_helpers(it._schedule(it._load_boxes()))
    return it.helping


def test_a_drain_needs_no_helpers(make: Make) -> None:
    it = make(reap_seconds=1.0)
    it._drain = True
    assert helping(it) == {}


def test_without_listening_and_chores_there_are_no_helpers(make: Make) -> None:
    assert helping(make(listen=False)) == {}


def test_a_listener_ends_with_the_run(make: Make) -> None:
    it = make()
    listener = helping(it)["listener"]
    assert it._bells == [listener.stop]
    assert it._hears(it._load_boxes()[0]) == "connecting"


def test_there_is_no_listener_but_for_postgresql(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    it = make()
    monkeypatch.setattr(it._db, "target", SimpleNamespace(dialect="mssql"))
    assert helping(it) == {}
    assert it._hears(it._load_boxes()[0]) == "off"


@pytest.mark.parametrize("idle", ["poll", "sleep"])
def test_a_caretaker_borrows_its_connection_and_sleeps_with_the_worker(make: Make, idle: str) -> None:
    caretaker = helping(make(listen=False, reap_seconds=1.0, idle=idle))["caretaker"]
    assert isinstance(caretaker, Caretaker)
    assert isinstance(caretaker._connection, LentConnection)
    assert caretaker._may_sleep is (idle == "sleep")


def test_chores_are_those_that_it_was_told_to_do(make: Make) -> None:
    def chores(**settings: Any) -> list[tuple[str, str]]:
        return [(chore.name, chore.routine) for chore in make(**settings)._chores()]

    assert chores() == []
    assert chores(boxes=("outbox", "orders"), reap_seconds=1.0) == [
        ("reap", "outbox_reap"), ("reap", "orders_reap")
    ]  # fmt: skip
    assert chores(cleanup_seconds=1.0) == [("cleanup", "outbox_cleanup")]
    assert chores(report_seconds=1.0) == [("report", "worker_report")]


def test_schedules_are_fired_into_outboxes(make: Make) -> None:
    it = make(boxes=("outbox", "orders"), schedule_seconds=1.0)
    scheduler = it._schedule(it._load_boxes())
    assert [timetable.box for timetable in it._timetables(scheduler)] == ["outbox"]
    without = make(boxes=("outbox",))
    assert list(without._timetables(without._schedule(without._load_boxes()))) == []
    only_schedules = make(listen=False, schedule_seconds=1.0)
    assert list(helping(only_schedules)) == ["caretaker"]


# Health, and the end


@pytest.mark.parametrize("state", ["unknown", "away"])
def test_before_it_has_begun_health_tells_whether_it_waits(make: Make, state: str) -> None:
    it = make(boxes=("outbox", "orders"))
    if state == "away":
        it._helpers.append(threading.Thread(target=bool))
        it._helpers[0].start()
    found = it.health().boxes
    assert [(box.box, box.database, box.listener) for box in found] == [
        ("outbox", state, "off"), ("orders", state, "off")
    ]  # fmt: skip


def test_at_the_end_nothing_waits_for_the_database_and_all_is_closed(make: Make) -> None:
    it = make()
    it._must_end_at(5.0)
    assert it.database.must_end_at == 5.0
    it._keeper_ended()
    it._close_stores()
    assert it.closed == ["helper", "store"]
