"""What goes to an asyncpg connection of the caller's, and what is made of its errors, on a stand-in."""

from __future__ import annotations

import asyncio
import enum
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from pysqlbox import DatabaseUnavailable, InvalidArgument, InvalidState

asyncpg = pytest.importorskip("asyncpg", reason="asyncpg is not installed")

from pysqlbox.drivers import asyncpg_calls  # noqa: E402  # it imports asyncpg

WHEN = datetime(2026, 1, 2, tzinfo=UTC)
IDENTITY = uuid.UUID(int=1)


class Name(enum.StrEnum):
    """Text of a kind of its own."""

    T = "t"


class Connection:
    """One of asyncpg's."""

    def __init__(self, answer: Any = ()) -> None:
        self.sent: list[tuple[str, tuple[object, ...]]] = []
        self.answer = answer
        self.closed = False

    async def fetch(self, text: str, *values: object) -> Any:
        self.sent.append((text, values))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def is_closed(self) -> bool:
        return self.closed


def fetch(connection: Connection, **arguments: object) -> Any:
    """One call."""
    return asyncio.run(asyncpg_calls.fetch(connection, "infra", "outbox_enqueue", arguments))


def test_each_value_goes_as_something_that_the_routine_takes() -> None:
    """As text where a program's own codec could stand between; a null as no value at all."""
    connection = Connection()
    fetch(
        connection, topic=Name.T, group_id=None, priority=3, flag=True, delay=Decimal("1.5"), due_at=WHEN,
        message_id=IDENTITY, hash=bytearray(b"x"), headers={"a": 1}, ids=[1, 2], names=["a", None],
        owners=[IDENTITY], empty=[],
    )  # fmt: skip
    ((text, values),) = connection.sent
    assert text == (
        'SELECT * FROM "infra"."outbox_enqueue"("topic" => $1::text, "group_id" => NULL, "priority" => $2,'
        ' "flag" => $3, "delay" => $4::text::numeric, "due_at" => $5::text::timestamptz,'
        ' "message_id" => $6::text::uuid, "hash" => $7::bytea, "headers" => $8::text::jsonb,'
        ' "ids" => $9::bigint[], "names" => $10::text[], "owners" => $11::text[]::uuid[], "empty" => $12)'
    )
    assert values == (
        "t", 3, True, "1.5", WHEN.isoformat(), str(IDENTITY), b"x", '{"a": 1}', [1, 2], ["a", None],
        [str(IDENTITY)], [],
    )  # fmt: skip
    assert {type(values[0]), type(values[6])} == {str, bytes}


@pytest.mark.parametrize(
    "value",
    [
        "\0",
        "a\ud800",
        ["\0"],
        object(),
        [object()],
        [True, False],
        [1, "a"],
        [1.5],
        [IDENTITY, 1],
        datetime(2026, 1, 2),
    ],
)
def test_what_no_routine_takes_is_refused_by_name_and_nothing_is_sent(value: object) -> None:
    connection = Connection()
    with pytest.raises(InvalidArgument, match=r"^mine: "):
        fetch(connection, mine=value)
    assert connection.sent == []


def test_answers_are_the_same_whatever_the_programs_codecs_make_of_them() -> None:
    connection = Connection([(1, {"a": 1}, ["b"], WHEN, b"x")])
    assert fetch(connection) == [(1, '{"a": 1}', '["b"]', WHEN, b"x")]


def test_a_name_is_quoted() -> None:
    connection = Connection()
    asyncio.run(asyncpg_calls.fetch(connection, 'in"fra', "r", {}))
    assert connection.sent[0][0] == 'SELECT * FROM "in""fra"."r"()'


@pytest.mark.parametrize(
    ("error", "closed", "kind"),
    [
        (asyncpg.InvalidParameterValueError("bad"), False, InvalidArgument),
        (asyncpg.DeadlockDetectedError("deadlock detected"), False, DatabaseUnavailable),
        (asyncpg.InterfaceError("another operation is in progress"), False, InvalidState),
        (asyncpg.InterfaceError("connection is closed"), True, DatabaseUnavailable),
        (asyncpg.InternalClientError("got result for unknown protocol state"), False, InvalidState),
        (ConnectionResetError("reset by peer"), False, DatabaseUnavailable),
        (OSError(), False, DatabaseUnavailable),
    ],
)
def test_errors_are_ours(error: Exception, closed: bool, kind: type[Exception]) -> None:
    connection = Connection(error)
    connection.closed = closed
    with pytest.raises(kind) as caught:
        fetch(connection)
    assert caught.value.__cause__ is error
    assert str(error) in str(caught.value) or kind is InvalidArgument
    with pytest.raises(kind):
        asyncio.run(asyncpg_calls.has_routine(connection, "infra", "r"))


def test_an_error_without_a_text_has_a_name() -> None:
    with pytest.raises(DatabaseUnavailable, match=r"^OSError; try again"):
        fetch(Connection(OSError()))
