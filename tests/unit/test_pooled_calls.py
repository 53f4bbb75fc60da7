"""What a deployment does around a call, with both faces, on a driver and a pool that only pretend."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import pysqlbox
from pysqlbox import DatabaseUnavailable, InvalidArgument, Retries, SchemaMismatch, deployment_base
from pysqlbox.deployment_base import known_version
from pysqlbox.drivers import postgres
from pysqlbox.steps import Call

CUT = psycopg.errors.AdminShutdown("terminating connection")
DEADLOCK = psycopg.errors.DeadlockDetected("deadlock detected")
DENIED = psycopg.errors.InsufficientPrivilege("permission denied")


class World:
    """A pool and a driver of one face, a clock, and what was done with them."""

    def __init__(self, face: str, monkeypatch: pytest.MonkeyPatch, attempts: int = 4) -> None:
        self.is_async = face == "async"
        self.now = 0.0
        self.answers: deque[Any] = deque()
        self.taking: deque[Any] = deque()
        self.done: list[str] = []
        self.asked: list[str] = []
        self.pauses = 0
        retries = Retries(attempts=attempts, give_up_seconds=100.0, base_seconds=1.0, cap_seconds=1.0)
        connect: Callable[..., Any] = pysqlbox.connect_async if self.is_async else pysqlbox.connect
        self.db = connect("postgresql://host/db", retries=retries, store="shop")
        self.db.store_key = "shop"
        self.db._pool = self
        self.db._checked = True
        if self.is_async:
            self.db._io = self
        else:
            self.db.driver = self
        self.db._pause = self._pause
        monkeypatch.setattr(deployment_base, "time", self)

    def __getattr__(self, name: str) -> Any:
        """The rest of the driver."""
        return getattr(postgres, name)

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic

    def _answer(self, value: Any) -> Any:
        if not self.is_async:
            if isinstance(value, BaseException):
                raise value
            return value

        async def later() -> Any:
            if isinstance(value, BaseException):
                raise value
            return value

        return later()

    def _pause(self, seconds: float) -> Any:
        self.pauses += 1
        self.now += seconds
        return self._answer(None)

    def take(self) -> Any:
        self.done.append("take")
        found = self.taking.popleft() if self.taking else Raw()
        return self._answer(found)

    def give_back(self, _raw: Any) -> Any:
        self.done.append("give back")
        return self._answer(None)

    def discard(self, _raw: Any) -> None:
        self.done.append("discard")

    def purge(self) -> None:
        self.done.append("purge")

    def close(self) -> None:
        """Nothing is kept."""

    def is_connection(self, value: Any) -> bool:
        return isinstance(value, Raw)

    def fetch(self, _raw: Any, _schema: str, routine: str, _arguments: Any) -> Any:
        self.asked.append(routine)
        answer = self.answers.popleft() if self.answers else [(known_version(),)]
        if isinstance(answer, psycopg.Error):
            cause, answer = answer, postgres.map_error(answer)
            answer.__cause__ = cause
        return self._answer(answer)

    def has_routine(self, _raw: Any, _schema: str, routine: str) -> Any:
        self.asked.append(f"{routine}?")
        return self._answer(self.answers.popleft())

    def call(self, *, repeat: bool = False, connection: Any = None, **arguments: object) -> Any:
        """A call of the deployment's."""
        answer = self.db.perform(Call("outbox_claim", arguments, connection, repeat))
        return asyncio.run(answer) if self.is_async else answer

    def lend(self) -> Any:
        """A connection for the caller's own use."""

        async def lent() -> Any:
            async with self.db.connection() as raw:
                return raw

        if self.is_async:
            return asyncio.run(lent())
        with self.db.connection() as raw:
            return raw


class Raw:
    """A connection."""

    closed = False


@pytest.fixture(params=["sync", "async"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> World:
    """Each face."""
    return World(request.param, monkeypatch)


def refused() -> Exception:
    """What a pool answers that reached nobody."""
    error = DatabaseUnavailable("refused")
    error.__cause__ = psycopg.OperationalError("refused")
    return error


def test_a_connection_goes_back_behind_a_call(world: World) -> None:
    world.call()
    assert world.done == ["take", "give back"]


def test_a_lost_connection_takes_the_idle_ones_with_it_and_what_may_be_repeated_is(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.answers.append(CUT)
    assert world.call(repeat=True)
    assert world.done == ["take", "discard", "purge", "take", "give back"]
    assert world.pauses == 1
    (line,) = caplog.messages
    assert line.startswith("outbox_claim failed, trying again (1 of 4): terminating connection")


def test_what_may_be_made_once_is_made_once(world: World) -> None:
    """Nobody knows how far it came."""
    world.answers.append(CUT)
    with pytest.raises(DatabaseUnavailable):
        world.call()
    assert world.done == ["take", "discard", "purge"]


def test_a_conflict_is_tried_again_whatever_the_call(world: World) -> None:
    """Its transaction was undone; the connection is as good as before."""
    world.answers.append(DEADLOCK)
    assert world.call()
    assert world.done == ["take", "give back", "take", "give back"]


def test_what_does_not_pass_is_not_tried_again(world: World) -> None:
    world.answers.append(DENIED)
    with pytest.raises(pysqlbox.AccessDenied) as caught:
        world.call(repeat=True)
    assert world.done == ["take", "give back"]
    assert caught.value.store == "shop"
    world.answers.append(psycopg.errors.DatabaseDropped("the database was dropped"))
    with pytest.raises(pysqlbox.PysqlboxError, match="dropped"):
        world.call(repeat=True)
    assert world.done[2:] == ["take", "discard", "purge"]


def test_attempts_are_counted(world: World) -> None:
    world.answers.extend([DEADLOCK] * 9)
    with pytest.raises(DatabaseUnavailable):
        world.call()
    assert len(world.asked) == 4
    assert world.pauses == 3
    world.taking.extend([refused()] * 9)
    world.done.clear()
    with pytest.raises(DatabaseUnavailable, match="refused") as caught:
        world.call()
    assert world.done == ["take"] * 4
    assert caught.value.store == "shop"


def test_so_is_the_time(world: World) -> None:
    """Tries that take long are fewer."""

    def slow() -> Any:
        world.now += 60.0
        return world._answer(refused())

    world.db._pool.take = slow
    with pytest.raises(DatabaseUnavailable, match="refused"):
        world.call()
    assert world.pauses == 1


def test_an_exhausted_pool_is_not_waited_for_again(world: World) -> None:
    """It took its time already."""
    world.taking.append(DatabaseUnavailable("all connections were in use"))
    with pytest.raises(DatabaseUnavailable, match="in use"):
        world.call(repeat=True)
    assert world.done == ["take"]


def test_an_outage_is_told_of_and_its_end(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pysqlbox")
    world.taking.append(refused())
    world.call()
    assert [line.split(" ")[0:2] for line in caplog.messages] == [
        ["no", "connection,"],
        ["connected", "after"],
    ]


def test_who_is_lent_a_connection_is_told_the_store_that_has_none(world: World) -> None:
    assert isinstance(world.lend(), Raw)
    assert world.done == ["take", "give back"]
    world.taking.append(DatabaseUnavailable("all connections were in use"))
    with pytest.raises(DatabaseUnavailable) as caught:
        world.lend()
    assert caught.value.store == "shop"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, asyncio.CancelledError])
def test_a_connection_that_was_interrupted_in_a_call_is_not_used_again(
    world: World, kind: type[BaseException]
) -> None:
    world.answers.append(kind())
    with pytest.raises(kind):
        world.call(repeat=True)
    assert world.done == ["take", "discard"]


def test_bytes_go_nowhere_but_into_a_hash(world: World) -> None:
    for value in (b"x", bytearray(b"x"), memoryview(b"x")):
        assert world.call(hash=value)
        with pytest.raises(InvalidArgument, match="payload: must not be bytes"):
            world.call(payload=value)
    assert len(world.asked) == 3


# The schema


@pytest.mark.parametrize("where", ["the pool's", "the caller's"])
def test_the_schema_is_checked_before_the_first_call_and_once(world: World, where: str) -> None:
    world.db._checked = False
    connection = Raw() if where == "the caller's" else None
    for _ in range(2):
        world.call(connection=connection)
    assert world.asked == ["schema_version", "outbox_claim", "outbox_claim"]
    assert world.done == ([] if connection else ["take", "give back"] * 2)
    world.db._forget()
    world.call(connection=connection)
    assert world.asked[3:] == ["schema_version", "outbox_claim"]


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (
            [psycopg.errors.UndefinedFunction("no such function")],
            "has no pysqlbox in it; run pysqlbox migrate",
        ),
        ([psycopg.errors.UniqueViolation("Babelfish's one number"), False], "has no pysqlbox in it"),
        ([[(None,)]], "has no pysqlbox in it"),
        ([[]], "has no pysqlbox in it"),
        ([[(known_version() + 1,)]], "newer than this release knows"),
    ],
    ids=["missing", "missing in Babelfish", "empty", "none", "newer"],
)
def test_a_schema_that_is_not_as_it_should_be_is_refused(world: World, answers: Any, says: str) -> None:
    world.db._checked = False
    world.answers.extend(answers)
    with pytest.raises(SchemaMismatch, match=says) as caught:
        world.call()
    assert caught.value.store == "shop"
    assert world.done == ["take", "give back"]
    assert not world.db._checked


def test_other_faults_of_the_check_are_told_as_they_are(world: World) -> None:
    world.db._checked = False
    world.answers.append(DENIED)
    with pytest.raises(pysqlbox.AccessDenied):
        world.call()
    assert world.asked == ["schema_version"], "nobody asks whether there is a routine"
    world.answers.extend([psycopg.errors.UniqueViolation("unforeseen"), True])
    with pytest.raises(pysqlbox.PysqlboxError, match="unforeseen"):
        world.call()


def test_a_version_that_this_release_knows_is_the_newest_of_its_migrations() -> None:
    assert known_version() >= 1
    assert isinstance(known_version(), int)


# Once


def test_a_place_and_a_kind_are_asked_once(world: World) -> None:
    def ask(described: Any) -> Any:
        answer = world.db.run(described)
        return asyncio.run(answer) if world.is_async else answer

    world.answers.append([(7,)])
    assert [ask(world.db.draw_place()) for _ in range(2)] == [7, 7]
    world.answers.extend([False, True])
    assert [ask(world.db.kind_of("mail")) for _ in range(2)] == ["outbox", "outbox"]
    assert world.asked == ["schema_place", "mail_already_processed?", "mail_enqueue?"]
    world.answers.extend([False, False])
    for name in ("none", "No; such"):
        with pytest.raises(pysqlbox.NotFound) as caught:
            ask(world.db.kind_of(name))
        assert caught.value.store == "shop"
    assert len(world.asked) == 5, "what cannot be a name is not asked for"
    with pytest.raises(InvalidArgument, match="is an outbox"):
        ask(world.db._box_kind("mail", "inbox"))


def test_calls_that_fail_are_counted_too(world: World) -> None:
    world.db.measure()
    counts = world.db.counts
    world.db.measure()
    assert world.db.counts is counts
    told: list[Any] = []
    counts.called = lambda routine, _arguments, rows, _seconds, error: told.append((routine, rows, error))
    world.answers.extend([[(1,)], DENIED])
    world.call()
    with pytest.raises(pysqlbox.AccessDenied):
        world.call()
    assert [(routine, rows, type(error)) for routine, rows, error in told] == [
        ("outbox_claim", [(1,)], type(None)), ("outbox_claim", (), pysqlbox.AccessDenied)
    ]  # fmt: skip
