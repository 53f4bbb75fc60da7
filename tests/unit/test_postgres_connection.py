"""A worker's connection to PostgreSQL, through a stand-in for psycopg's.

This shows what the worker sends, what it makes of the driver's errors, and when it opens and closes; not what
a server does with any of it, which the tests of the worker show.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg import sql

import pysqlbox
from pysqlbox.drivers import parse_url, postgres
from pysqlbox.worker.database import CALL_SECONDS, CONNECT_SECONDS, Calls
from pysqlbox.worker.database_postgres import SEQUENCES_AT_ONCE, PostgresConnection
from pysqlbox.worker.outcomes import Outcomes
from tests.unit.standins import OWNER

CUT = psycopg.errors.AdminShutdown("terminating connection")
DEADLOCK = psycopg.errors.DeadlockDetected("deadlock detected")
DENIED = psycopg.errors.InsufficientPrivilege("permission denied")
GONE = psycopg.errors.InvalidSqlStatementName("prepared statement does not exist")
REFUSED = pysqlbox.DatabaseUnavailable("refused")


class Raw:
    """One of psycopg's, and its own cursor. Whoever runs something on it is under a deadline."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.closed = False
        self.prepare_threshold: int | None = 5
        self.loaders: list[str] = []
        self.handlers: list[Any] = []
        self.close_fails = False
        self.info = SimpleNamespace(backend_pid=77)
        self.rows: list[tuple[Any, ...]] = []

    @property
    def connection(self) -> Raw:
        return self

    @property
    def adapters(self) -> Raw:
        return self

    def register_loader(self, name: str, _loader: Any) -> None:
        self.loaders.append(name)

    def cursor(self, *, binary: bool = False) -> Raw:
        del binary
        return self

    def add_notify_handler(self, handler: Any) -> None:
        self.handlers.append(handler)

    def execute(self, query: Any, values: Any = (), *, prepare: bool | None = None) -> Raw:
        self.rows = self.behind = self.server.answer(query, values, prepare)
        if self.server.said and self.server.said[-1][0].startswith("SET LOCAL"):
            self.rows = []  # what the setting answers
        return self

    def fetchone(self) -> Any:
        return self.rows[0] if self.rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.rows

    def nextset(self) -> bool:
        self.rows = self.behind
        return True

    def close(self) -> None:
        self.closed = True
        if self.close_fails:
            raise CUT


class Server:
    """What is said to it, and what it answers in turn: rows, or an error."""

    def __init__(self) -> None:
        self.answers: deque[list[tuple[Any, ...]] | Exception] = deque()
        self.said: list[tuple[str, Any, bool | None]] = []
        self.opened: list[Raw] = []
        self.refuses: Exception | None = None
        self.setting_up: Exception | None = None
        self.calls: Any = None

    def connect(self, *_: Any, autocommit: bool, connect_timeout: int, overdue: Callable[[], bool]) -> Raw:
        assert autocommit
        assert connect_timeout == CONNECT_SECONDS
        assert overdue == self.calls.overdue
        assert self.calls.began_at, "connecting is part of a call"
        if self.refuses is not None:
            raise self.refuses
        self.opened.append(Raw(self))
        return self.opened[-1]

    def answer(self, query: Any, values: Any, prepare: bool | None) -> list[tuple[Any, ...]]:
        assert self.calls.began_at, "every call has a deadline"
        composed = query.as_bytes() if isinstance(query, sql.Composable) else query
        text = composed.decode() if isinstance(composed, bytes) else composed
        if text == "SET TimeZone = 'UTC'":
            if self.setting_up is not None:
                raise self.setting_up
            return []
        self.said.append((text, values, prepare))
        answer = self.answers.popleft() if self.answers else []
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def closed(self) -> list[bool]:
        return [each.closed for each in self.opened]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Whom the driver connects to."""
    made = Server()

    def call(raw: Raw, schema: str, routine: str, _arguments: Any) -> Any:
        try:
            return raw.server.answer(f"{schema}.{routine}", (), None)
        except psycopg.Error as error:
            raise postgres.map_error(error) from error

    monkeypatch.setattr(postgres, "connect", made.connect)
    monkeypatch.setattr(postgres, "call", call)
    monkeypatch.setattr(postgres, "has_routine", lambda raw, schema, name: bool(call(raw, schema, name, {})))
    return made


@pytest.fixture
def connection(server: Server) -> PostgresConnection:
    """One that has not connected."""
    database: Any = SimpleNamespace(must_end_at=float("inf"))
    server.calls = Calls(database, CALL_SECONDS)
    return PostgresConnection(parse_url("postgresql://host/db"), "infra", server.calls)


BOX: Any = SimpleNamespace(
    name="outbox", deployment=SimpleNamespace(schema="infra"), message_type=pysqlbox.OutboxMessage
)


def done(*ids: int) -> Outcomes:
    """Results."""
    found = Outcomes()
    found.acked.extend(ids)
    return found


def settle(connection: PostgresConnection, *ids: int, claim: int = 5) -> Any:
    """Results, and room for so many."""
    return connection.settle(BOX, OWNER, done(*ids), claim, 30, None)


#: Each of its calls.
CALLS: dict[str, Callable[[PostgresConnection], Any]] = {
    "settle": lambda connection: settle(connection, 1),
    "call": lambda connection: connection.call("outbox_stats", {}),
    "has_routine": lambda connection: connection.has_routine("worker_report"),
    "limited_locks": lambda connection: connection._tell("BEGIN"),
    "database_name": lambda connection: connection.database_name(),
    "listen": lambda connection: connection.listen("LISTEN x", None),
    "setting": lambda connection: connection.setting(BOX, "max_attempts"),
    "rows": lambda connection: connection.add_to_name("x"),
    "drawn": lambda connection: connection.drawn({1: "outbox"}, 1.0),
    "notify": lambda connection: connection.notify("x"),
}


@pytest.mark.parametrize("name", CALLS)
def test_after_a_failure_the_next_call_opens_another(
    server: Server, connection: PostgresConnection, name: str
) -> None:
    """And the call is over; also where the connection cannot even be closed."""
    server.answers.extend([[], CUT])
    CALLS[name](connection)
    server.opened[0].close_fails = True
    with pytest.raises(pysqlbox.DatabaseUnavailable):
        CALLS[name](connection)
    assert connection.calls.began_at == 0.0
    assert server.closed == [True]
    CALLS[name](connection)
    assert server.closed == [True, False]
    assert connection.calls.began_at == 0.0


@pytest.mark.parametrize("name", CALLS)
def test_a_connection_that_is_lost_while_it_is_set_up_is_closed(
    server: Server, connection: PostgresConnection, name: str
) -> None:
    server.setting_up = CUT
    with pytest.raises(pysqlbox.DatabaseUnavailable):
        CALLS[name](connection)
    assert server.closed == [True]
    assert not connection.calls.lost
    server.setting_up = None
    CALLS[name](connection)
    assert server.closed == [True, False]


def test_with_nothing_to_say_nobody_is_asked(server: Server, connection: PostgresConnection) -> None:
    assert settle(connection, claim=0) == []
    assert (server.opened, server.said) == ([], [])


def test_without_results_it_only_claims_and_results_go_with_the_claim(
    server: Server, connection: PostgresConnection
) -> None:
    settle(connection)
    settle(connection, 3, claim=0)
    (claim, values, _), (settled, _, _) = server.said
    assert '"infra"."outbox_claim"' in claim
    assert values == (OWNER, 30, 5, None)
    assert '"infra"."outbox_settle"' in settled


@pytest.mark.parametrize(("error", "lost"), [(CUT, True), (DEADLOCK, False), (DENIED, False)])
def test_a_lost_answer_is_of_the_last_call(
    server: Server, connection: PostgresConnection, error: Exception, lost: bool
) -> None:
    """Nobody knows what that call did, so what it claimed is waited for."""
    server.answers.append(error)
    with pytest.raises(pysqlbox.PysqlboxError):
        settle(connection, 1)
    assert connection.calls.lost is lost
    server.setting_up = CUT
    with pytest.raises(pysqlbox.DatabaseUnavailable):
        settle(connection, 1)
    assert not connection.calls.lost, "this one claimed nothing"


def test_a_server_that_is_away_loses_no_answer(server: Server, connection: PostgresConnection) -> None:
    server.refuses = REFUSED
    with pytest.raises(pysqlbox.DatabaseUnavailable, match="refused"):
        settle(connection, 1)
    assert not connection.calls.lost
    assert connection.calls.began_at == 0.0


@pytest.mark.parametrize("name", ["settle", "rows"])
def test_what_is_not_prepared_any_more_is_sent_again_and_nothing_is_prepared_from_then_on(
    server: Server, connection: PostgresConnection, name: str
) -> None:
    """As behind a pooler that gives every transaction another connection."""
    connection.notify("x")
    thresholds = [server.opened[0].prepare_threshold]
    server.said.clear()
    server.answers.append(GONE)
    CALLS[name](connection)
    thresholds.append(server.opened[0].prepare_threshold)
    assert thresholds == [5, None]
    CALLS[name](connection)
    assert [prepare for _, _, prepare in server.said] == [name == "settle" or None, False, False]
    connection.close()
    settle(connection, 3)
    assert server.opened[1].prepare_threshold is None
    assert [prepare for _, _, prepare in server.said][3:] == [False]


def test_what_was_sent_unprepared_is_not_sent_again(server: Server, connection: PostgresConnection) -> None:
    server.answers.extend([GONE, [], GONE])
    settle(connection, 1)
    with pytest.raises(pysqlbox.PysqlboxError):
        settle(connection, 2)
    assert len(server.said) == 3


def test_another_error_is_not_answered_by_sending_it_again(
    server: Server, connection: PostgresConnection
) -> None:
    server.answers.append(DEADLOCK)
    with pytest.raises(pysqlbox.DatabaseUnavailable):
        settle(connection, 1)
    assert len(server.said) == 1


def test_a_closed_connection_is_kept_by_nobody(server: Server, connection: PostgresConnection) -> None:
    settle(connection)
    kept = weakref.ref(server.opened.pop())
    connection.close()
    assert kept() is None


def test_headers_are_read_as_json_on_every_connection(server: Server, connection: PostgresConnection) -> None:
    settle(connection)
    connection.close()
    settle(connection)
    assert [each.loaders for each in server.opened] == [["jsonb"], ["jsonb"]]


def test_locks_are_limited_only_meanwhile(server: Server, connection: PostgresConnection) -> None:
    """Also if what happens meanwhile fails for a reason of its own."""
    with pytest.raises(ZeroDivisionError), connection.limited_locks(1.5):
        raise ZeroDivisionError
    assert [text for text, _, _ in server.said] == ["BEGIN; SET LOCAL lock_timeout = 1500", "COMMIT"]
    assert {prepare for _, _, prepare in server.said} == {False}


@pytest.mark.parametrize("again", [False, True])
def test_a_limit_ends_with_its_connection(
    server: Server, connection: PostgresConnection, again: bool
) -> None:
    """Another one has none to take back; and none is opened for it."""
    server.answers.extend([[], CUT])
    with connection.limited_locks(1.0):
        for _ in range(1 + again):
            with contextlib.suppress(pysqlbox.DatabaseUnavailable):
                connection.call("outbox_stats", {})
    assert len(server.opened) == 1 + again
    assert "COMMIT" not in [text for text, _, _ in server.said]


def test_settings_and_who_may_not_read_them(server: Server, connection: PostgresConnection) -> None:
    server.answers.extend([[("5",)], [], DENIED])
    assert connection.setting(BOX, "max_attempts") == "5"
    assert connection.setting(BOX, "max_attempts") is None, "there is none"
    assert connection.setting(BOX, "max_attempts") is None, "it may not be read"
    assert server.closed == [False], "which is no fault of the connection's"


def test_the_servers_process_is_known_while_there_is_a_connection(
    server: Server, connection: PostgresConnection
) -> None:
    found = [connection.process]
    settle(connection)
    found.append(connection.process)
    server.opened[0].closed = True
    found.append(connection.process)
    assert found == [None, 77, None]


def test_who_listens_hears_what_comes_while_calls_go_on(
    server: Server, connection: PostgresConnection
) -> None:
    """Told once: a listener that adds channels goes on with the handler that it has."""
    connection.listen("LISTEN a", print)
    answered: Any = connection.listen("LISTEN b;LISTEN c", None)
    assert answered is server.opened[0]
    assert server.opened[0].handlers == [print]
    assert {prepare for _, _, prepare in server.said} == {False}, "several statements cannot be prepared"


def test_tables_that_are_not_there_are_not_asked_for(server: Server, connection: PostgresConnection) -> None:
    server.answers.extend([[(1, "ready", 10), (1, "paused", None), (2, "ready", 20)], [(2, 7, 8)]])
    tables = connection.tables({"a": ("infra", "outbox"), "b": ("infra", "inbox")})
    assert connection.written(tables) == {"b": (7, 8)}
    assert server.said[1][1] == ["{1,2}", "{ready,ready}", "{10,20}"]


def test_sequences_are_read_so_many_at_once(server: Server, connection: PostgresConnection) -> None:
    """One statement locks all that it reads until it ends."""
    sequences = {oid: str(oid) for oid in range(2 * SEQUENCES_AT_ONCE + 1)}
    server.answers.append([(5, 42)])
    assert connection.drawn(sequences, 0.5) == {"5": 42}
    assert [text.count(",", text.index("{"), text.index("}")) + 1 for text, _, _ in server.said] == [
        SEQUENCES_AT_ONCE, SEQUENCES_AT_ONCE, 1
    ]  # fmt: skip
    connection.drawing(sequences, {"3"}, 0.5)
    assert "'{3}'::oid[]" in server.said[-1][0]
    for text, values, prepare in server.said:
        assert text.startswith("SET LOCAL lock_timeout = 500; ")
        assert (values, prepare) == ((), False), "several statements go together only so"
