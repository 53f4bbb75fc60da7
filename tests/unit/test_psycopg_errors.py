"""What is made of psycopg's errors, by their codes or kinds, and of arguments before they are sent."""

from __future__ import annotations

import uuid

import psycopg
import pytest

from pysqlbox import AccessDenied, DatabaseUnavailable, InvalidArgument, PysqlboxError
from pysqlbox.drivers import postgres
from pysqlbox.drivers.url import parse_url
from pysqlbox.errors import InvalidState, NotFound, SchemaMismatch

TARGET = parse_url("postgresql://someone:secret@host/db")


def test_names_are_quoted_whatever_they_hold() -> None:
    text = postgres.query_text('in"fra', "100%", ("topic",))
    assert text == b'SELECT * FROM "in""fra"."100%%"("topic" => %s)'


class Said(psycopg.Error):
    """An error of a server, by its code."""

    def __init__(self, code: str | None, message: str = "m") -> None:
        super().__init__(message)
        self.sqlstate = code


@pytest.mark.parametrize(
    ("code", "routines", "connecting"),
    [
        ("PB001", InvalidArgument, InvalidArgument),
        ("PB002", NotFound, NotFound),
        ("PB003", InvalidState, InvalidState),
        ("2200H", InvalidState, InvalidState),
        ("42883", SchemaMismatch, PysqlboxError),
        ("42501", AccessDenied, AccessDenied),
        ("3D000", AccessDenied, AccessDenied),
        ("28P01", AccessDenied, AccessDenied),
        ("22003", InvalidArgument, PysqlboxError),
        ("57014", DatabaseUnavailable, DatabaseUnavailable),
        ("40001", DatabaseUnavailable, DatabaseUnavailable),
        ("25P03", DatabaseUnavailable, DatabaseUnavailable),
        ("25P04", DatabaseUnavailable, DatabaseUnavailable),
        ("55P03", DatabaseUnavailable, DatabaseUnavailable),
        ("08006", DatabaseUnavailable, DatabaseUnavailable),
        ("53300", DatabaseUnavailable, DatabaseUnavailable),
        ("XX000", PysqlboxError, PysqlboxError),
        ("23505", PysqlboxError, PysqlboxError),
    ],
)
def test_each_code_has_its_error(code: str, routines: type[Exception], connecting: type[Exception]) -> None:
    """Of a routine, and of a connection that is being made, where nobody gave an argument."""
    assert type(postgres.map_error(Said(code))) is routines
    assert type(postgres.map_error(Said(code), TARGET)) is connecting


@pytest.mark.parametrize(
    ("error", "routines", "connecting"),
    [
        (psycopg.DataError("bad"), InvalidArgument, PysqlboxError),
        (psycopg.OperationalError("gone"), DatabaseUnavailable, DatabaseUnavailable),
        (psycopg.InterfaceError("gone"), DatabaseUnavailable, DatabaseUnavailable),
        (psycopg.OperationalError('role "x" does not exist'), DatabaseUnavailable, AccessDenied),
        (psycopg.OperationalError("authentication failed"), DatabaseUnavailable, AccessDenied),
        (psycopg.ProgrammingError("unknown keyword"), PysqlboxError, InvalidArgument),
    ],
)
def test_errors_without_a_code(
    error: Exception, routines: type[Exception], connecting: type[Exception]
) -> None:
    assert type(postgres.map_error(error)) is routines
    assert type(postgres.map_error(error, TARGET)) is connecting


def test_a_routines_own_words_are_no_fault_that_passes() -> None:
    assert type(postgres.map_error(Said("P0001", "cache lookup failed for x"))) is PysqlboxError


def test_an_error_without_a_text_has_a_name() -> None:
    assert "OperationalError" in str(postgres.map_error(psycopg.OperationalError("")))


@pytest.mark.parametrize(
    "value", ["\0", "a\ud800", object(), ["\0"], [object()], [True], [1.5], [uuid.uuid4(), 1]]
)
def test_arguments_that_no_routine_takes_are_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^x: "):
        postgres.adapted("x", value)
