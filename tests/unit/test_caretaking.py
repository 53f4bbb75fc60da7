"""Chores and schedules where something goes wrong, or the worker stops in their midst."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

import pysqlbox
from pysqlbox.worker import caretaker
from pysqlbox.worker.caretaker import BATCH, Caretaker, Chore, first_at
from pysqlbox.worker.timetable import Timetable
from tests.unit.standins import OWNER, Parts

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
Answer = Callable[[Mapping[str, Any]], list[dict[str, object]]]


class Server:
    """Routines by name; what is not there does nothing."""

    def __init__(self) -> None:
        self.routines: dict[str, Answer] = {}
        self.called: list[tuple[str, Mapping[str, Any]]] = []
        self.closed = False

    def call(self, routine: str, arguments: Mapping[str, object]) -> list[dict[str, object]]:
        self.called.append((routine, arguments))
        answer = self.routines.get(routine)
        return [] if answer is None else answer(arguments)

    def close(self) -> None:
        self.closed = True

    def count(self, routine: str) -> int:
        """How often a routine was called."""
        return sum(name == routine for name, _ in self.called)


class Schedules(Server):
    """An outbox with schedules by name, and when each is due."""

    def __init__(self, **planned: datetime | None) -> None:
        super().__init__()
        self.planned = planned
        self.fired: list[tuple[str, datetime]] = []
        self.routines |= {
            "outbox_schedule_next": self._next, "outbox_schedule_due": self._due,
            "outbox_schedule_fire": self._fire, "outbox_schedule_skip": self._skip,
        }  # fmt: skip
        self.cron: str | None = None
        self.catch_up = 5

    def _next(self, _arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        times = [each for each in self.planned.values() if each is not None]
        due = len(times) < len(self.planned) or any(each <= NOW for each in times)
        return [{"now_at": NOW, "next_at": min(times, default=None), "is_due": due}]

    def _due(self, arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        due = [(name, at) for name, at in self.planned.items() if at is None or at <= NOW]
        return [self._row(name, at) for name, at in sorted(due)[: arguments["limit"]]]

    def _row(self, name: str, at: datetime | None) -> dict[str, object]:
        return {
            "name": name, "topic": "t", "cron": self.cron, "every_seconds": None if self.cron else 3600,
            "timezone": "UTC", "next_at": at, "last_fired_at": None, "catch_up": self.catch_up,
            "enabled": True, "group_id": None, "priority": 0,
        }  # fmt: skip

    def _fire(self, arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        if self.planned[arguments["name"]] != arguments["due_at"]:
            return [{"fired": False, "id": None}]
        self.fired.append((arguments["name"], arguments["due_at"]))
        self.planned[arguments["name"]] = arguments["next_at"]
        return [{"fired": True, "id": len(self.fired)}]

    def _skip(self, arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        if self.planned[arguments["name"]] != arguments["due_at"]:
            return [{"affected": 0}]
        self.planned[arguments["name"]] = arguments["next_at"]
        return [{"affected": 1}]


def caring(parts: Parts, server: Server, *chores: Chore, timetables: Any = ()) -> Caretaker:
    """A caretaker that nobody has started."""
    return Caretaker(parts.scheduler, server, OWNER, list(chores), list(timetables), parts.box.log)


def chore(**options: Any) -> Chore:
    """One that the first who comes does."""
    return Chore("reap", "outbox", 10.0, "outbox_reap", {}, **options)


def elected(server: Server) -> None:
    """Nobody else has the round."""
    server.routines["ledger_try_begin"] = lambda _arguments: [{"status": "Acquired"}]


def test_what_this_user_may_not_do_is_left_to_others(caplog: pytest.LogCaptureFixture) -> None:
    parts, server = Parts(), Server()
    elected(server)

    def denied(_arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        raise pysqlbox.AccessDenied("no right")

    server.routines["outbox_reap"] = denied
    one = chore()
    it = caring(parts, server, one)
    with caplog.at_level(logging.INFO):
        assert not it._try(one)
    assert it._chores == []
    assert "no reap by this worker: no right" in caplog.text


def test_a_chore_that_fails_is_done_next_time(caplog: pytest.LogCaptureFixture) -> None:
    parts, server = Parts(), Server()
    elected(server)

    def gone(_arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        raise pysqlbox.DatabaseUnavailable("gone")

    server.routines["outbox_reap"] = gone
    one = chore()
    it = caring(parts, server, one)
    before = time.monotonic()
    assert not it._try(one)
    assert it._chores == [one]
    assert one.next_at > before + 8
    assert "reap failed: gone" in caplog.text


def test_only_who_is_elected_does_it() -> None:
    parts, server = Parts(), Server()
    server.routines["ledger_try_begin"] = lambda _arguments: [{"status": "InProgress"}]
    one = chore()
    assert caring(parts, server, one)._try(one)
    assert server.count("outbox_reap") == 0


def test_a_chore_goes_on_until_nothing_is_left_and_schedules_fire_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts, server = Parts(), Server()
    elected(server)
    left = [2 * BATCH + 7]

    def reap(arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        took = min(left[0], int(arguments["batch_size"]))
        left[0] -= took
        return [{"affected": took}]

    server.routines["outbox_reap"] = reap
    one = chore()
    it = caring(parts, server, one)
    looks: list[int] = []
    monkeypatch.setattr(it, "_look", lambda: looks.append(left[0]))
    it._do(one)
    assert (left, looks) == ([0], [BATCH + 7, 7])


def test_a_chore_ends_with_the_worker() -> None:
    parts, server = Parts(), Server()

    def reap(_arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        parts.scheduler.stop()
        return [{"affected": BATCH}]

    server.routines["outbox_reap"] = reap
    caring(parts, server)._do(chore())
    assert server.count("outbox_reap") == 1


@pytest.mark.parametrize("what", ["chores", "timetables", "both", "nothing"])
def test_it_does_what_is_due_until_the_worker_stops_or_nothing_is_left(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, server = Parts(), Server()
    due, later = chore(by_all=True), chore()
    done: list[str] = []
    it = caring(
        parts, server, *((due, later) if what in ("chores", "both") else ()),
        timetables=[Timetable(parts.box, 10.0)] if what in ("timetables", "both") else [],
    )  # fmt: skip
    waits = iter([False, False, True])

    def do(each: Chore) -> None:
        done.append("due" if each is due else "later")
        each.next_at = time.monotonic() + 60

    monkeypatch.setattr(it, "_wait", lambda: next(waits))
    monkeypatch.setattr(it, "_look", lambda: done.append("look"))
    monkeypatch.setattr(it, "_try", do)
    it.run()
    assert done == {
        "chores": ["look", "due", "look"], "both": ["look", "due", "look"],
        "timetables": ["look", "look"], "nothing": [],
    }[what]  # fmt: skip
    assert server.closed


def test_whoever_is_in_the_register_leaves_it_though_the_database_is_away() -> None:
    for by_all, times in ((True, 1), (False, 0)):
        parts, server = Parts(), Server()
        parts.scheduler.stop()

        def gone(_arguments: Mapping[str, Any]) -> list[dict[str, object]]:
            raise pysqlbox.DatabaseUnavailable("gone")

        server.routines["worker_leave"] = gone
        one = chore(by_all=by_all)
        one.next_at = time.monotonic() + 60
        caring(parts, server, one).run()
        assert (server.count("worker_leave"), server.closed) == (times, True)


def test_workers_that_start_together_do_not_come_together() -> None:
    assert first_at(chore(by_all=True), 100.0) == 100.0
    times = {first_at(chore(), 100.0) for _ in range(20)}
    assert all(101.0 <= each <= 105.0 for each in times)
    assert len(times) > 1


@pytest.mark.parametrize("error", [pysqlbox.AccessDenied, pysqlbox.SchemaMismatch])
def test_schedules_that_cannot_be_seen_are_left_to_others(
    error: type[pysqlbox.PysqlboxError], caplog: pytest.LogCaptureFixture
) -> None:
    parts, server = Parts(), Server()

    def refused(_arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        raise error("not for you")

    server.routines["outbox_schedule_next"] = refused
    timetable = Timetable(parts.box, 10.0)
    timetable.next_at = 0.0
    it = caring(parts, server, timetables=[timetable])
    with caplog.at_level(logging.INFO):
        it._look()
    assert it._timetables == []
    assert "no schedules by this worker: not for you" in caplog.text


def test_an_outage_ends_a_look_and_not_the_schedules(caplog: pytest.LogCaptureFixture) -> None:
    """It is not told as a fault of the schedule that it met."""
    parts = Parts()
    server = Schedules(a=NOW, b=NOW)

    def gone(_arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        raise pysqlbox.DatabaseUnavailable("gone")

    server.routines["outbox_schedule_fire"] = gone
    timetable = Timetable(parts.box, 10.0)
    timetable.next_at = 0.0
    it = caring(parts, server, timetables=[timetable])
    it._look()
    assert (it._timetables, server.count("outbox_schedule_fire")) == ([timetable], 1)
    assert "schedules failed: gone" in caplog.text
    assert "could not be fired" not in caplog.text
    it._look()
    assert server.count("outbox_schedule_fire") == 1, "it looks again when the next look is due"


def look(parts: Parts, server: Server) -> Timetable:
    """One look at the schedules."""
    timetable = Timetable(parts.box, 10.0)
    timetable.look(server, parts.scheduler)
    return timetable


def test_each_is_fired_once_and_the_next_look_is_when_something_is_due() -> None:
    parts = Parts()
    server = Schedules(a=NOW, b=NOW - 2 * HOUR, c=NOW + timedelta(seconds=3))
    before = time.monotonic()
    timetable = look(parts, server)
    assert sorted(server.fired) == [("a", NOW), ("b", NOW - 2 * HOUR), ("b", NOW - HOUR), ("b", NOW)]
    assert before + 3.0 <= timetable.next_at <= time.monotonic() + 3.1


def test_missed_times_beyond_the_last_are_skipped_if_it_still_stands_there() -> None:
    parts = Parts()
    server = Schedules(a=NOW - 5 * HOUR)
    server.catch_up = 2
    look(parts, server)
    assert server.fired == [("a", NOW - HOUR), ("a", NOW)]


def test_what_somebody_else_skips_he_also_fires() -> None:
    parts = Parts()
    server = Schedules(a=NOW - 5 * HOUR)
    server.catch_up = 2
    skip = server.routines["outbox_schedule_skip"]

    def late(arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        server.planned["a"] = NOW + HOUR
        return skip(arguments)

    server.routines["outbox_schedule_skip"] = late
    look(parts, server)
    assert (server.fired, server.count("outbox_schedule_fire")) == ([], 0)


def test_what_somebody_else_has_fired_is_his() -> None:
    parts = Parts()
    server = Schedules(a=NOW - 2 * HOUR)
    fire = server.routines["outbox_schedule_fire"]

    def late(arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        server.planned["a"] = NOW + HOUR
        return fire(arguments)

    server.routines["outbox_schedule_fire"] = late
    look(parts, server)
    assert (server.fired, server.count("outbox_schedule_fire")) == ([], 1)


def test_what_somebody_else_has_moved_on_is_fired_where_it_stands_now() -> None:
    """In the same look, if that is due as well."""
    parts = Parts()
    server = Schedules(a=NOW - HOUR)
    server.catch_up = 1
    skip = server.routines["outbox_schedule_skip"]

    def late(arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        server.planned["a"] = NOW
        return skip(arguments)

    server.routines["outbox_schedule_skip"] = late
    look(parts, server)
    assert server.fired == [("a", NOW)]


def test_where_nothing_is_due_nothing_more_is_asked() -> None:
    parts = Parts()
    server = Schedules(a=NOW + HOUR)
    look(parts, server)
    assert [name for name, _ in server.called] == ["outbox_schedule_next"]


def test_so_many_are_asked_for_as_were_met_in_vain_and_some_but_not_any_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pysqlbox.worker import timetable

    monkeypatch.setattr(timetable, "BATCH", 2)
    monkeypatch.setattr(timetable, "MOST", 5)
    parts = Parts()
    server = Schedules(**dict.fromkeys("abcdefg", NOW))

    def never(_arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        raise pysqlbox.PysqlboxError("a trigger says no")

    server.routines["outbox_schedule_fire"] = never
    look(parts, server)
    limits = [arguments["limit"] for name, arguments in server.called if name == "outbox_schedule_due"]
    assert limits == [2, 4, 5, 5]


def test_times_long_missed_that_nobody_wants_any_more_are_passed_over() -> None:
    """``catch_up`` of 0: what is merely late is fired still."""
    parts = Parts()
    server = Schedules(a=NOW - 5 * HOUR - timedelta(minutes=30), b=NOW - timedelta(seconds=1))
    server.catch_up = 0
    look(parts, server)
    assert server.fired == [("b", NOW - timedelta(seconds=1))]
    assert server.planned["a"] == NOW + timedelta(minutes=30)


def test_whoever_watches_or_counts_hears_of_what_was_fired_and_of_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Parts()
    told: list[Any] = []
    watcher = SimpleNamespace(
        fired=lambda box, schedule, row, _took: told.append((box.name, schedule.name, row["id"]))
    )
    monkeypatch.setattr("pysqlbox.watching.watcher", watcher)
    counts: Any = SimpleNamespace(sent=lambda box, topic: told.append((box, topic)))
    parts.box.queue.deployment.counts = counts
    server = Schedules(a=NOW - HOUR)
    look(parts, server)
    assert told == [("outbox", "a", 1), ("outbox", "t"), ("outbox", "a", 2), ("outbox", "t")]
    server.planned["a"] = NOW
    server.routines["outbox_schedule_fire"] = lambda _arguments: [{"fired": False, "id": None}]
    look(parts, server)
    assert len(told) == 4


def test_it_looks_again_when_something_is_due_but_waits_no_longer_than_for_the_next_look() -> None:
    """Somebody else may have set what is not known here."""
    parts = Parts()
    for planned in ({}, {"a": NOW + HOUR}):
        before = time.monotonic()
        timetable = look(parts, Schedules(**planned))
        assert before + 9.0 <= timetable.next_at <= time.monotonic() + 11.0
    timetable = look(parts, Schedules(a=NOW + timedelta(seconds=2)))
    timetable.put_off(time.monotonic())
    assert timetable.next_at == timetable.due_at <= time.monotonic() + 3.0


def test_one_without_a_time_gets_its_first_and_fires_nothing() -> None:
    parts = Parts()
    server = Schedules(a=None)
    server.cron = "30 * * * *"
    look(parts, server)
    assert (server.fired, server.planned) == ([], {"a": NOW + timedelta(minutes=30)})


def test_a_rule_without_a_time_to_come_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    server = Schedules(a=None)
    server.cron = "0 0 30 2 *"
    look(parts, server)
    look(parts, server)
    assert server.planned == {"a": None}
    assert "schedule 'a' cannot be read here: cron:" in caplog.text


def test_at_the_end_of_the_calendar_none_is_moved_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The rule can be read, and has had its last time."""
    monkeypatch.setattr(sys.modules[__name__], "NOW", datetime(9998, 12, 31, 23, tzinfo=UTC))
    parts = Parts()
    server = Schedules(a=None)
    server.cron = "0 0 1 1 *"
    look(parts, server)
    assert server.count("outbox_schedule_skip") == 0
    assert "schedule 'a' cannot be read here: cron: must mean a time to come" in caplog.text


def test_those_that_cannot_be_fired_hide_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And are told of once in a while."""
    from pysqlbox.worker import timetable

    monkeypatch.setattr(timetable, "BATCH", 2)
    parts = Parts()
    server = Schedules(a=NOW, b=NOW, c=NOW, z=NOW)
    fire = server.routines["outbox_schedule_fire"]

    def picky(arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        if arguments["name"] != "z":
            raise pysqlbox.PysqlboxError("a trigger says no")
        return fire(arguments)

    server.routines["outbox_schedule_fire"] = picky
    one = look(parts, server)
    assert server.fired == [("z", NOW)]
    one.look(server, parts.scheduler)
    assert caplog.text.count("could not be fired: a trigger says no") == 3
    monkeypatch.setattr(timetable, "COMPLAIN_SECONDS", 0.0)
    one.look(server, parts.scheduler)
    assert caplog.text.count("could not be fired: a trigger says no") == 6, "that was a minute ago"


@pytest.mark.parametrize("where", ["outbox_schedule_due", "outbox_schedule_fire", "outbox_schedule_next"])
def test_a_worker_that_stops_fires_nothing_more(where: str) -> None:
    parts = Parts()
    server = Schedules(a=NOW - HOUR, b=NOW, c=None)
    real = server.routines[where]

    def stopping(arguments: Mapping[str, Any]) -> list[dict[str, object]]:
        parts.scheduler.stop()
        return real(arguments)

    server.routines[where] = stopping
    look(parts, server)
    assert len(server.fired) == (1 if where == "outbox_schedule_fire" else 0)
    assert server.count("outbox_schedule_due") == (0 if where == "outbox_schedule_next" else 1)
    assert server.count("outbox_schedule_skip") == 0, "nor does one get its first time"


def test_beside_a_worker_that_may_sleep_it_naps_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it notices when the worker sleeps, or was woken."""
    parts, server = Parts(), Server()
    one = chore()
    one.next_at = time.monotonic() + 60
    naps: list[float] = []

    def pause(seconds: float) -> bool:
        naps.append(seconds)
        return True

    monkeypatch.setattr(parts.scheduler, "pause", pause)
    it = Caretaker(parts.scheduler, server, OWNER, [one], [], parts.box.log, may_sleep=True)
    assert it._wait()
    it = Caretaker(parts.scheduler, server, OWNER, [one], [], parts.box.log)
    assert it._wait()
    assert naps[0] == caretaker.NAP_SECONDS
    assert naps[1] > 50


def test_while_the_worker_sleeps_nothing_is_done_though_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, server = Parts(), Server()
    one = chore()
    one.next_at = 0.0
    parts.box.asleep = True
    naps: list[float] = []

    def pause(seconds: float) -> bool:
        naps.append(seconds)
        parts.box.asleep = len(naps) < 2
        return False

    monkeypatch.setattr(parts.scheduler, "pause", pause)
    it = Caretaker(parts.scheduler, server, OWNER, [one], [], parts.box.log, may_sleep=True)
    assert not it._wait()
    assert naps == [caretaker.NAP_SECONDS] * 2
