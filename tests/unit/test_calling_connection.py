"""A worker's connection to T-SQL, through a stand-in for pyodbc's.

This shows what the worker sends, what it makes of the driver's errors, and when it opens and closes; not what
a server does with any of it, which the tests of the worker show on the engines themselves.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

import pysqlbox
from pysqlbox.drivers.url import parse_url
from pysqlbox.worker.database import CONNECT_SECONDS, LAST_CONNECT_SECONDS, CallingConnection, Calls
from pysqlbox.worker.outcomes import Outcomes

pyodbc = pytest.importorskip("pyodbc", reason="the extra pysqlbox[mssql] is not installed")

OWNER = uuid.UUID("11111111-1111-4111-8111-111111111111")
CUT = pyodbc.OperationalError("08S01", "[08S01] [Microsoft][ODBC Driver 18] Communication link failure (0)")
LATE = pyodbc.OperationalError("HYT00", "[HYT00] [Microsoft][ODBC Driver 18] Query timeout expired (0)")
DENIED = pyodbc.ProgrammingError("42000", "[42000] [Microsoft][SQL Server]The SELECT was denied (229)")
DEADLOCK = pyodbc.OperationalError("40001", "[40001] [Microsoft][SQL Server]chosen as the victim (1205)")
MESSAGE = {"id": 7, "topic": "t", "payload": "p", "headers": '{"a": 1}'}


class Answer:
    """The columns and rows of one answer."""

    def __init__(self, *rows: dict[str, Any], columns: tuple[str, ...] = ("n",)) -> None:
        self.description = [(name,) for name in (rows[0] if rows else columns)]
        self.rows = [tuple(row.values()) for row in rows]


@dataclass
class Server:
    """What is said to it, and what it answers in turn: rows, or an error."""

    answers: deque[Answer | Exception] = field(default_factory=deque)
    said: list[tuple[str, list[Any]]] = field(default_factory=list)
    opened: list[Connection] = field(default_factory=list)
    timeouts: list[int] = field(default_factory=list)
    refuses: Exception | None = None

    def connect(self, _text: str, *, autocommit: bool, timeout: int) -> Connection:
        self.timeouts.append(timeout)
        if self.refuses is not None:
            raise self.refuses
        connection = Connection(self, autocommit=autocommit)
        self.opened.append(connection)
        return connection


@dataclass
class Connection:
    """One of pyodbc's, as far as the package uses it."""

    server: Server
    autocommit: bool
    closed: bool = False
    timeout: int = 0
    close_fails: bool = False

    def cursor(self) -> Cursor:
        return Cursor(self.server)

    def close(self) -> None:
        self.closed = True
        if self.close_fails:
            raise CUT

    def getinfo(self, _kind: int) -> str:
        return "libmsodbcsql-18.6.so.2.1"

    def get_output_converter(self, _kind: int) -> None:
        return None

    def add_output_converter(self, _kind: int, _converter: object) -> None:
        """Only needed on the wire."""

    def remove_output_converter(self, _kind: int) -> None:
        """The same."""


@dataclass
class Cursor:
    """One that answers what the server has next."""

    server: Server
    description: list[tuple[str]] | None = None
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def setinputsizes(self, _sizes: list[Any]) -> None:
        """Only needed on the wire."""

    def execute(self, text: str, *values: Any) -> None:
        if text.startswith("SET "):  # what every new connection is told
            return
        flat = list(values[0]) if values and isinstance(values[0], list) else list(values)
        self.server.said.append((text, flat))
        answer = self.server.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        self.description, self.rows = answer.description, answer.rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.rows

    def nextset(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is kept."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Whom pyodbc connects to."""
    made = Server()
    monkeypatch.setattr(pyodbc, "connect", made.connect)
    return made


@pytest.fixture
def database() -> Any:
    """What a run of a worker knows of the database."""
    return SimpleNamespace(must_end_at=float("inf"))


def opened(database: Any, limit: float = 30.0, query: str = "") -> CallingConnection:
    """A connection that has not connected."""
    target = parse_url(f"mssql://sa:x@here/db?driver=ODBC+Driver+18+for+SQL+Server{query}")
    return CallingConnection(target, "infra", Calls(database, limit))


@pytest.fixture
def connection(server: Server, database: Any) -> Iterator[CallingConnection]:
    """One whose calls last no longer than half a minute."""
    del server
    made = opened(database)
    yield made
    made.close()


def box() -> Any:
    """A box as the worker's connection sees it."""
    return SimpleNamespace(
        name="outbox", deployment=SimpleNamespace(schema="infra"), message_type=SimpleNamespace
    )


def done(*ids: int) -> Outcomes:
    """Results."""
    found = Outcomes()
    found.acked.extend(ids)
    return found


def test_with_nothing_to_say_nobody_is_asked(server: Server, connection: CallingConnection) -> None:
    assert connection.settle(box(), OWNER, Outcomes(), 0, 30, None) == []
    assert (server.opened, server.said) == ([], [])


def test_without_results_it_only_claims(server: Server, connection: CallingConnection) -> None:
    server.answers.append(Answer(MESSAGE))
    (message,) = connection.settle(box(), OWNER, Outcomes(), 5, 30, ["t"])
    assert (message.id, message.headers) == (7, {"a": 1})
    ((text, values),) = server.said
    assert "[infra].[outbox_claim]" in text
    assert sorted(map(str, values)) == sorted([str(OWNER), "30", "5", '["t"]'])


def test_results_go_with_the_claim(server: Server, connection: CallingConnection) -> None:
    server.answers.append(Answer({**MESSAGE, "headers": None}))
    (message,) = connection.settle(box(), OWNER, done(3, 4), 5, 30, None)
    assert message.headers is None
    ((text, values),) = server.said
    assert "[infra].[outbox_settle]" in text
    assert '[{"result":"ack","ids":[3,4]}]' in values


def test_every_call_has_the_limit_of_its_connection(server: Server, database: Any) -> None:
    """But what the URL says comes first."""
    for limit, query, expected in ((5.0, "", 5), (30.0, "", 30), (5.0, "&query_timeout=77", 77)):
        server.answers.append(Answer())
        made = opened(database, limit, query)
        made.call("outbox_stats", {})
        assert server.opened[-1].timeout == expected
        made.close()


def test_connecting_takes_no_longer_than_there_is_time(server: Server, database: Any) -> None:
    server.answers.extend([Answer(), Answer(), Answer()])
    opened(database).call("outbox_stats", {})
    opened(database, 1.0).call("outbox_stats", {})
    database.must_end_at = 1.0
    opened(database).call("outbox_stats", {})
    assert server.timeouts == [CONNECT_SECONDS, LAST_CONNECT_SECONDS, LAST_CONNECT_SECONDS]


@pytest.mark.parametrize(
    ("error", "raised", "lost"),
    [
        (CUT, pysqlbox.DatabaseUnavailable, True),
        (LATE, pysqlbox.DatabaseUnavailable, True),
        (DEADLOCK, pysqlbox.DatabaseUnavailable, False),
        (DENIED, pysqlbox.AccessDenied, False),
    ],
    ids=["cut", "late", "deadlock", "denied"],
)
def test_after_a_failure_the_next_call_opens_another(
    server: Server, connection: CallingConnection, error: Exception, raised: type[Exception], lost: bool
) -> None:
    """``lost``: whether nobody knows what the call did, so that what it claimed is waited for."""
    server.answers.append(error)
    with pytest.raises(raised):
        connection.settle(box(), OWNER, done(1), 5, 30, None)
    assert connection.calls.lost is lost
    assert [each.closed for each in server.opened] == [True]
    server.answers.append(Answer(MESSAGE))
    assert len(connection.settle(box(), OWNER, done(1), 5, 30, None)) == 1
    assert connection.calls.lost is False, "it is of the last call"
    assert [each.closed for each in server.opened] == [True, False]


def test_a_server_that_is_away_loses_no_answer(server: Server, connection: CallingConnection) -> None:
    server.refuses = pyodbc.OperationalError("08001", "[08001] [Microsoft]Unable to connect (10061)")
    with pytest.raises(pysqlbox.DatabaseUnavailable):
        connection.settle(box(), OWNER, done(1), 5, 30, None)
    assert connection.calls.lost is False
    assert connection.calls.began_at == 0.0, "the call is over"


def test_what_cannot_even_be_closed_is_forgotten(server: Server, connection: CallingConnection) -> None:
    server.answers.extend([Answer(), CUT, Answer()])
    connection.call("outbox_stats", {})
    server.opened[0].close_fails = True
    with pytest.raises(pysqlbox.DatabaseUnavailable):
        connection.call("outbox_stats", {})
    connection.call("outbox_stats", {})
    assert len(server.opened) == 2


def test_settings_and_who_may_not_read_them(server: Server, connection: CallingConnection) -> None:
    server.answers.extend([Answer({"value": "5"}), Answer(columns=("value",)), DENIED, CUT])
    assert connection.setting(box(), "max_attempts") == "5"
    assert server.said[0] == ("SELECT value FROM [infra].[outbox_settings] WHERE name = ?", ["max_attempts"])
    assert connection.setting(box(), "max_attempts") is None, "there is none"
    assert connection.setting(box(), "max_attempts") is None, "it may not be read"
    assert [each.closed for each in server.opened] == [False], "which is no fault of the connection's"
    with pytest.raises(pysqlbox.DatabaseUnavailable):
        connection.setting(box(), "max_attempts")
    assert [each.closed for each in server.opened] == [True]


def test_routines_that_there_are(server: Server, connection: CallingConnection) -> None:
    server.answers.extend([Answer({"n": 1}), CUT])
    assert connection.has_routine("worker_report")
    with pytest.raises(pysqlbox.DatabaseUnavailable):
        connection.has_routine("worker_report")
    assert [each.closed for each in server.opened] == [True]


def test_there_are_no_channels_and_locks_have_the_calls_own_limit(
    server: Server, connection: CallingConnection
) -> None:
    with pytest.raises(pysqlbox.InvalidState, match="T-SQL has no notifications"):
        connection.notify("x")
    server.answers.append(Answer())
    with connection.limited_locks(5.0):
        assert connection.call("outbox_stats", {}) == []
    assert len(server.said) == 1
