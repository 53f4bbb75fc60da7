"""What both faces make of psycopg's connections and errors, on stand-ins for them.

This shows what is sent and what is made of the answers; not what a server does with any of it.
"""

from __future__ import annotations

import asyncio
import inspect
import select
import socket
from collections import deque
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg.pq import PipelineStatus, TransactionStatus

from pysqlbox import DatabaseUnavailable, InvalidArgument, PysqlboxError
from pysqlbox.drivers import postgres, postgres_async
from pysqlbox.drivers.url import parse_url

CUT = psycopg.errors.AdminShutdown("terminating connection")
GONE = psycopg.errors.InvalidSqlStatementName("prepared statement does not exist")
DEADLOCK = psycopg.errors.DeadlockDetected("deadlock detected")
TARGET = parse_url("postgresql://someone:secret@host/db")


class Raw:
    """A connection: a caller's, unless it is one of the kinds that are reused."""

    is_async = False

    def __init__(self) -> None:
        self.answers: deque[list[tuple[Any, ...]] | Exception] = deque()
        self.sent: list[tuple[Any, bool | None]] = []
        self.cursors = 0
        self.prepare_threshold: int | None = 2
        self.autocommit = True
        self.closed = False
        self.rollbacks = 0
        self.on_rollback: Callable[[], None] = lambda: None
        self.on_execute: Callable[[], None] = lambda: None
        self.pgconn = SimpleNamespace(
            socket=0, transaction_status=TransactionStatus.IDLE, pipeline_status=PipelineStatus.OFF
        )
        self.isolation_level = self.read_only = self.deferrable = None

    def execute(self, values: Any, prepare: bool | None) -> list[tuple[Any, ...]]:
        self.on_execute()
        self.sent.append((values, prepare))
        answer = self.answers.popleft() if self.answers else [(1,)]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _roll_back(self) -> None:
        if self.closed:
            raise psycopg.OperationalError("the connection is closed")
        self.rollbacks += 1
        self.on_rollback()
        self.pgconn.transaction_status = TransactionStatus.IDLE

    def rollback(self) -> Any:
        if not self.is_async:
            return self._roll_back()
        return _later(self._roll_back)

    async def set_autocommit(self, value: bool) -> None:
        assert self.pgconn.transaction_status == TransactionStatus.IDLE
        self.autocommit = value


async def _later(function: Callable[[], Any]) -> Any:
    return function()


class Reused(Raw):
    """One of ours."""

    kept: Any = None


class AsyncRaw(Raw):
    """The same of the other face."""

    is_async = True
    __class__ = psycopg.AsyncConnection  # type: ignore[assignment]  # what isinstance sees


class AsyncReused(AsyncRaw):
    """One of ours."""


class Cursor:
    """A cursor of either face; closed after its block."""

    def __init__(self, connection: Any, row_factory: Any) -> None:
        del row_factory
        connection.cursors += 1
        self._connection = connection
        self._rows: list[tuple[Any, ...]] = []

    def __enter__(self) -> Cursor:  # noqa: PYI034  # a stand-in
        return self

    def __exit__(self, *_: object) -> None:
        self._connection = None

    async def __aenter__(self) -> Cursor:  # noqa: PYI034  # a stand-in
        return self

    async def __aexit__(self, *_: object) -> None:
        self._connection = None

    def execute(self, _text: bytes, values: Any = (), *, prepare: bool | None = None) -> Any:
        if self._connection.is_async:
            return _later(lambda: self._execute(values, prepare))
        return self._execute(values, prepare)

    def _execute(self, values: Any, prepare: bool | None) -> Cursor:
        self._rows = self._connection.execute(values, prepare)
        return self

    def fetchall(self) -> Any:
        return _later(lambda: self._rows) if self._connection.is_async else self._rows

    def fetchone(self) -> Any:
        row = self._rows[0] if self._rows else None
        return _later(lambda: row) if self._connection.is_async else row


class Face:
    """One of the two modules, whose coroutines are awaited here."""

    def __init__(self, name: str) -> None:
        self.is_async = name == "async"
        self._module: Any = postgres_async if self.is_async else postgres

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)

        def call(*arguments: Any, **named: Any) -> Any:
            answer = function(*arguments, **named)
            return asyncio.run(answer) if inspect.iscoroutine(answer) else answer

        return call

    def ours(self) -> Any:
        """A connection of our own."""
        return AsyncReused() if self.is_async else Reused()

    def callers(self) -> Any:
        """A connection of the caller's."""
        return AsyncRaw() if self.is_async else Raw()


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Face:
    """Each of the two."""
    for module, reused in ((postgres, Reused), (postgres_async, AsyncReused)):
        monkeypatch.setattr(module, "_Cursor", Cursor)
        monkeypatch.setattr(module, "_Reused", reused)
        monkeypatch.setattr(module, "has_input", lambda descriptor: descriptor > 0)
    return Face(request.param)


def fetch(face: Face, connection: Any, **arguments: object) -> Any:
    """One call."""
    return face.fetch(connection, "infra", "outbox_enqueue", arguments)


def test_only_on_a_connection_of_ours_outside_of_a_transaction_anything_is_prepared(face: Face) -> None:
    mine, theirs, joined = face.ours(), face.callers(), face.ours()
    joined.autocommit = False
    for connection in (mine, theirs, joined):
        assert fetch(face, connection, topic="t") == [(1,)]
    assert [each.sent for each in (mine, theirs, joined)] == [
        [(["t"], None)], [(["t"], False)], [(["t"], False)]
    ]  # fmt: skip


def test_what_is_not_prepared_any_more_is_sent_again_and_nothing_is_prepared_from_then_on(face: Face) -> None:
    connection = face.ours()
    connection.answers.append(GONE)
    assert fetch(face, connection) == [(1,)]
    assert [prepare for _, prepare in connection.sent] == [None, False]
    assert connection.prepare_threshold is None


def test_other_errors_are_not_answered_by_sending_it_again(face: Face) -> None:
    for connection, error in ((face.ours(), DEADLOCK), (face.callers(), GONE)):
        connection.answers.append(error)
        with pytest.raises(PysqlboxError):
            fetch(face, connection)
        assert len(connection.sent) == 1
        assert connection.prepare_threshold == 2


def test_what_was_sent_unprepared_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_Cursor", Cursor)
    monkeypatch.setattr(postgres, "_Reused", Reused)
    connection: Any = Reused()
    connection.prepare_threshold = None
    connection.answers.append(GONE)
    with pytest.raises(PysqlboxError):
        postgres.fetch(connection, "infra", "outbox_stats", {})
    assert len(connection.sent) == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CUT, DatabaseUnavailable),
        (psycopg.Warning("oh"), PysqlboxError),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), InvalidArgument),
    ],
    ids=["error", "warning", "half a character"],
)
@pytest.mark.parametrize("whose", ["ours", "callers"])
def test_what_a_call_raises_is_ours(face: Face, error: Exception, kind: type[Exception], whose: str) -> None:
    connection = getattr(face, whose)()
    connection.answers.append(error)
    with pytest.raises(kind) as caught:
        fetch(face, connection)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("ask", ["has_routine", "boxes"])
def test_what_a_question_raises_is_ours_and_it_is_not_prepared(face: Face, ask: str) -> None:
    connection = face.ours()
    arguments = ("infra", "x")[: 2 if ask == "has_routine" else 1]
    connection.answers.extend([[("a",)], CUT])
    assert getattr(face, ask)(connection, *arguments)
    with pytest.raises(DatabaseUnavailable):
        getattr(face, ask)(connection, *arguments)
    assert {prepare for _, prepare in connection.sent} == {False}


def test_an_idle_connection_is_asked_only_if_the_server_said_something(face: Face) -> None:
    """Which is its goodbye, most often."""
    connection = face.ours()
    assert face.is_alive(connection, 1000.0)
    assert connection.sent == []
    connection.pgconn.socket = 1
    assert face.is_alive(connection, 0.0), "it was something else"
    assert [prepare for _, prepare in connection.sent] == [False]
    connection.answers.append(CUT)
    assert not face.is_alive(connection, 0.0)
    connection.closed = True
    connection.pgconn.socket = 0
    assert not face.is_alive(connection, 0.0)


def test_a_connection_is_brought_back_to_how_it_was(face: Face) -> None:
    connection = face.ours()
    assert face.reset(connection)
    assert connection.rollbacks == 0
    connection.autocommit = False
    connection.pgconn.transaction_status = TransactionStatus.INERROR
    assert face.reset(connection)
    assert connection.rollbacks == 1
    assert connection.autocommit


def test_a_connection_of_no_more_use_is_told(face: Face) -> None:
    connection = face.ours()
    connection.pgconn.transaction_status = TransactionStatus.INTRANS

    def fails() -> None:
        raise CUT

    def closes() -> None:
        connection.closed = True

    connection.on_rollback = fails
    assert not face.reset(connection)
    connection.on_rollback = closes
    assert not face.reset(connection)
    assert connection.rollbacks == 2
    for status in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN):
        connection.pgconn.transaction_status = status
        assert not face.reset(connection), "it was closed before"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A connection of ours that keeps a cursor."""
    monkeypatch.setattr(postgres, "_Cursor", Cursor)
    monkeypatch.setattr(postgres, "_Reused", Reused)
    connection = Reused()
    postgres.fetch(connection, "infra", "outbox_enqueue", {"topic": "t"})  # type: ignore[arg-type]  # a stand-in
    assert connection.kept is not None
    return connection


def test_two_threads_that_share_a_connection_share_no_cursor(kept: Any) -> None:
    cursor, seen = kept.kept, []
    kept.on_execute = lambda: seen.append(kept.kept)
    postgres.fetch(kept, "infra", "outbox_enqueue", {"topic": "t"})
    assert seen == [None]
    assert kept.kept is cursor
    assert kept.cursors == 1


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        ({"topic": "x" * 10_001}, [(1,)]),
        ({"hash": b"x" * 10_001}, [(1,)]),
        ({"names": ["a"]}, [(1,)]),
        ({"topic": "t"}, []),
        ({"topic": "t"}, [(1,), (2,)]),
        ({"topic": "t"}, [(1, 2, 3, 4, 5)]),
        ({"topic": "t"}, CUT),
    ],
    ids=["long text", "long bytes", "a list", "no row", "rows", "columns", "an error"],
)
def test_a_cursor_is_kept_only_after_a_small_call(kept: Any, arguments: Any, rows: Any) -> None:
    """It holds what it sent and got."""
    kept.answers.append(rows)
    if rows is CUT:
        with pytest.raises(DatabaseUnavailable):
            postgres.fetch(kept, "infra", "outbox_enqueue", arguments)
    else:
        postgres.fetch(kept, "infra", "outbox_enqueue", arguments)
    assert kept.kept is None


def _waits() -> Generator[Any, Any, Any]:
    """What psycopg waits with: it says what for, and is told what is ready."""
    first = yield "read"
    second = yield "write"
    return [first, second]


def test_a_call_is_cut_off_only_while_the_server_says_nothing() -> None:
    asked: list[None] = []

    def overdue() -> bool:
        asked.append(None)
        return len(asked) == 2

    waits = postgres._watched(_waits(), overdue)
    assert next(waits) == "read"
    assert waits.send(1) == "write"
    with pytest.raises(StopIteration) as ended:
        waits.send(2)
    assert ended.value.value == [1, 2]
    assert asked == []
    waits = postgres._watched(_waits(), overdue)
    next(waits)
    assert waits.send(0) == "write", "it is not overdue yet"
    with pytest.raises(psycopg.OperationalError, match="did not answer in time"):
        waits.send(0)


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, Any]]]:
    """How psycopg was asked for connections, which never reach anybody."""
    made: list[tuple[Any, dict[str, Any]]] = []

    def connect(kind: Any, _dsn: str, /, **options: Any) -> Any:
        made.append((kind, options))
        return kind.__new__(kind)

    monkeypatch.setattr(psycopg.Connection, "connect", classmethod(connect))
    return made


def test_only_what_comes_again_is_prepared_and_a_watched_connection_is_watched(
    connected: list[tuple[Any, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = postgres.connect(TARGET)
    reused = postgres.connect(TARGET, reused=True, connect_timeout=3, autocommit=True)
    watched = postgres.connect(TARGET, overdue=lambda: True)
    options = [each for _, each in connected]
    assert [each["prepare_threshold"] for each in options] == [None, 2, None]
    assert [each["connect_timeout"] for each in options] == [10, 3, 10]
    assert [each["autocommit"] for each in options] == [False, True, False]
    assert {each["client_encoding"] for each in options} == {"UTF8"}
    assert [type(each).__name__ for each in (plain, reused, watched)] == ["Connection", "_Reused", "_Watched"]
    waited: list[Any] = []
    monkeypatch.setattr(psycopg.Connection, "wait", lambda _self, gen, *_: waited.append(gen))
    watched.wait(_waits())
    unwatched = postgres._Watched.__new__(postgres._Watched)
    unwatched.wait(_waits())
    assert [gen.__name__ for gen in waited] == ["_watched", "_waits"], "while it connects nobody is asked"


def test_a_name_of_its_own_gives_way_to_the_urls() -> None:
    assert postgres.own_settings(TARGET)["fallback_application_name"]
    named = parse_url("postgresql://host/db?fallback_application_name=mine")
    assert "fallback_application_name" not in postgres.own_settings(named)


@pytest.mark.parametrize("name", ["sync", "async"])
def test_who_cannot_connect_is_told_so_without_the_password(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise psycopg.OperationalError("connection failed: secret is not answering")

    async def fails_later(*_: Any, **__: Any) -> Any:
        fails()

    monkeypatch.setattr(psycopg.Connection, "connect", fails)
    monkeypatch.setattr(psycopg.AsyncConnection, "connect", fails_later)
    with pytest.raises(DatabaseUnavailable, match=r"\*\*\* is not answering") as caught:
        Face(name).connect(TARGET)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("has_poll", [True, False])
def test_whether_the_server_said_something(monkeypatch: pytest.MonkeyPatch, has_poll: bool) -> None:
    """With select only where there is no better: that takes no descriptor above 1023."""

    def refuses(*_: Any) -> Any:
        raise ValueError("filedescriptor out of range in select()")

    if has_poll:
        monkeypatch.setattr(select, "select", refuses)
    else:
        monkeypatch.delattr(select, "poll")
    here, there = socket.socketpair()
    with here, there:
        assert not postgres.has_input(here.fileno())
        there.send(b"x")
        assert postgres.has_input(here.fileno())
