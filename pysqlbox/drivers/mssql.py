"""SQL Server and Babelfish through pyodbc, which is imported only here and only when used.

A server keeps one plan for each text and each set of parameter types. pyodbc binds a text by its length and
a number by its size, and would so leave thousands of plans for one routine; therefore every argument is bound
by a type of its own, and a call's text depends on nothing but which arguments are given and which are null.
(`{CALL …}` would do the same, but Babelfish refuses it from Microsoft's driver.)
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pysqlbox.drivers.advice import OTHER_PLACE, TRY_AGAIN, UNFORESEEN, USED_UP, access_advice, outage_advice
from pysqlbox.drivers.url import OWN_NAME, Target, odbc_string, read_odbc
from pysqlbox.drivers.values import check_text, from_database, is_list, is_records, to_json, to_utc
from pysqlbox.errors import (
    AccessDenied,
    DatabaseUnavailable,
    DriverMissing,
    InvalidArgument,
    InvalidState,
    NotFound,
    PysqlboxError,
    SchemaMismatch,
)
from pysqlbox.extras import needed_for
from pysqlbox.names import quote_identifier

_OURS = {51001: InvalidArgument, 51002: NotFound, 51003: InvalidState}
_USED_UP = 11728
#: Babelfish has no number of its own for it.
_USED_UP_TEXT = "nextval: reached maximum value of sequence"
#: Nor for this: a deployment dropped the procedure between the call's parsing and its execution.
_DROPPED_TEXT = "cache lookup failed"
#: Nor for this: while others create and drop things, a session loses sight of a table variable of its own.
#: Nobody knows how far the call came.
_ASTRAY = re.compile(r"relation \d+ deleted while still in use")
_MISSING = {208, 2812}
_DENIED = {229, 230, 262, 297, 300, 2760, 15247, 4060, 18456, 18452, 916}
#: 601: a scan met rows that moved; like a deadlock's, its victim may simply try again.
_CONFLICTS = {601, 1205, 50001, 1222, 3960}
_TRANSIENT = _CONFLICTS | {10928, 10929, 40197, 40501, 40613, 49918}
_BROKEN = {20002, 20003, 20004, 20006, 20017, 20047, 40197, 40613}  # 20xxx: FreeTDS's own; 40xxx: Azure's
_TRUSTED_SECONDS = 5.0
_MALFORMED = {220, 245, 2628, 8114, 8115, 8152, 8169, 13609, 9803}
_NATIVE = re.compile(r"\((-?\d+)\)")
_SHORT_TEXT = 2000  # in UTF-16 at most 4000 units, which every driver binds whole
_SHORT_BYTES = 8000
#: Seconds; what .NET's clients have, too. Whoever wants another says so in the URL.
_QUERY_TIMEOUT = 30
_TIMED_OUT = "HYT00"
#: What filtered indexes need of a session that writes; a database's or a driver's defaults may differ.
_SETTINGS = (
    "SET ANSI_NULLS, QUOTED_IDENTIFIER, ANSI_PADDING, ANSI_WARNINGS, ARITHABORT, CONCAT_NULL_YIELDS_NULL ON;"
    " SET NUMERIC_ROUNDABORT OFF;"
)
#: How an argument is written and bound.
_Form = Literal["null", "bigint", "bit", "text", "short", "time", "bytes"]
_QUERY_TEXT = (-9, 4000, 0)  # SQL_WVARCHAR; what this module asks by itself is never longer
#: Installed by the system; the better one first.
_MICROSOFTS = ("ODBC Driver 18 for SQL Server", "ODBC Driver 17 for SQL Server")


@cache
def _pyodbc() -> Any:
    with needed_for("SQL Server", "mssql"):
        import pyodbc
    pyodbc.pooling = False  # a pooled ODBC connection keeps its session, so its locks, after close()
    return pyodbc


def connect(
    target: Target,
    *,
    autocommit: bool = False,
    connect_timeout: int = 10,
    reused: bool = False,  # noqa: ARG001  # the other driver needs it
) -> Any:
    """Open a connection that answers uniqueidentifier as uuid.UUID, and cuts off calls that take too long."""
    pyodbc = _pyodbc()
    try:
        connection = pyodbc.connect(_connection_string(target), autocommit=True, timeout=connect_timeout)
        run_batch(connection, _SETTINGS)
        connection.autocommit = autocommit
    except pyodbc.Error as error:
        raise map_error(error, target) from error
    connection.timeout = _QUERY_TIMEOUT if target.query_timeout is None else target.query_timeout
    connection.add_output_converter(pyodbc.SQL_GUID, _read_guid)
    if _is_freetds(connection):
        connection.maxwrite = 2**30  # FreeTDS hangs on SQLPutData, which pyodbc uses above this length
    return connection


def _is_freetds(connection: Any) -> bool:
    return "tdsodbc" in str(connection.getinfo(_pyodbc().SQL_DRIVER_NAME)).lower()


def call(
    connection: Any, schema: str, routine: str, arguments: Mapping[str, object]
) -> list[dict[str, object]]:
    """Run one procedure with named arguments and answer its rows by column; never commits or rolls back."""
    names, rows = _run(connection, schema, routine, arguments)
    return [dict(zip(names, row, strict=True)) for row in rows]


def fetch(
    connection: Any, schema: str, routine: str, arguments: Mapping[str, object]
) -> list[tuple[Any, ...]]:
    """Run one procedure with named arguments and answer its rows; never commits or rolls back."""
    return _run(connection, schema, routine, arguments)[1]


def _run(
    connection: Any, schema: str, routine: str, arguments: Mapping[str, object]
) -> tuple[list[str], list[tuple[Any, ...]]]:
    pyodbc = _pyodbc()
    bound = {name: _bind(name, value) for name, value in arguments.items()}
    text = _statement(schema, routine, tuple((name, form) for name, (form, _) in bound.items()))
    # Times stand first in the text.
    parameters = [pair for pair in bound.values() if pair[0] == "time"]
    parameters += [pair for pair in bound.values() if pair[0] not in ("time", "null")]
    values = [value for _, value in parameters]
    converter = connection.get_output_converter(pyodbc.SQL_GUID)
    connection.add_output_converter(pyodbc.SQL_GUID, _read_guid)
    try:
        with _cursor(connection) as cursor:
            if values:
                is_freetds = _is_freetds(connection)
                cursor.setinputsizes([_size(form, value, is_freetds) for form, value in parameters])
            cursor.execute(text, values)
            return _read_rows(cursor)
    except (pyodbc.Error, UnicodeEncodeError) as error:
        raise map_error(error) from error
    finally:
        if converter is None:
            connection.remove_output_converter(pyodbc.SQL_GUID)
        else:
            connection.add_output_converter(pyodbc.SQL_GUID, converter)


@cache
def _statement(schema: str, routine: str, forms: tuple[tuple[str, _Form], ...]) -> str:
    """The text of a call, the same for all values of the same forms."""
    declared: list[str] = []
    named: list[str] = []
    for name, form in forms:
        if not name.isidentifier():
            raise InvalidArgument(f"{name!r}: must be a name of an argument")
        if form == "null":  # untyped: an ODBC null would go as varchar, which varbinary does not take
            named.append(f"@{name} = NULL")
        elif form == "time":  # Babelfish takes no text for a procedure's time, but for a variable
            declared.append(f"DECLARE @time_{name} datetimeoffset(6) = ?; ")
            named.append(f"@{name} = @time_{name}")
        else:
            named.append(f"@{name} = ?")
    target = f"{quote_identifier('mssql', schema)}.{quote_identifier('mssql', routine)}"
    return f"{''.join(declared)}EXEC {target} {', '.join(named)}".rstrip()


def _size(form: _Form, value: object, is_freetds: bool) -> tuple[int, int, int]:
    """What an argument is bound as: nothing in it depends on the value, except where FreeTDS forces it."""
    pyodbc = _pyodbc()
    if form == "bigint":
        return pyodbc.SQL_BIGINT, 0, 0
    if form == "bit":
        return pyodbc.SQL_BIT, 0, 0
    if form in ("short", "time"):
        return pyodbc.SQL_WVARCHAR, 64, 0
    if not is_freetds:  # 0 is max
        return pyodbc.SQL_VARBINARY if form == "bytes" else pyodbc.SQL_WVARCHAR, 0, 0
    # FreeTDS has no max: it silently cuts at these lengths, or sends the old types image and ntext.
    length = len(value) if isinstance(value, str | bytes) else 0
    if form == "bytes":
        return (pyodbc.SQL_VARBINARY, 8000, 0) if length <= _SHORT_BYTES else (pyodbc.SQL_LONGVARBINARY, 0, 0)
    return (pyodbc.SQL_WVARCHAR, 4000, 0) if length <= _SHORT_TEXT else (pyodbc.SQL_WLONGVARCHAR, 0, 0)


def is_connection(value: object) -> bool:
    """Whether a value is a connection that fetch takes."""
    return isinstance(value, _pyodbc().Connection)


def is_conflict(error: BaseException | None) -> bool:
    """Whether an exception says that the server undid the transaction for the sake of another one."""
    if _numbers(error) & _CONFLICTS:
        return True
    if not isinstance(error, _pyodbc().Error) or not error.args:
        return False
    return error.args[0] == "40001" or _message(str(error.args[-1])).startswith(_DROPPED_TEXT)


def is_lost(connection: Any, error: BaseException | None) -> bool:
    """Whether a connection cannot be used any more."""
    if connection.closed:
        return True
    if not isinstance(error, _pyodbc().Error):
        return False
    state = str(error.args[0]) if error.args else ""
    if state == _TIMED_OUT:  # nobody knows how far the call came: closing undoes what is not committed
        return True
    if error.args and _ASTRAY.match(_message(str(error.args[-1]))):
        return True
    return state.startswith("08") or bool(_numbers(error) & _BROKEN) or _is_cut_freetds(error)


def _is_cut_freetds(error: BaseException) -> bool:
    """Whether FreeTDS lost the connection in the midst of a call; from the next call on it says 08S01."""
    return error.args[:1] == ("HY000",) and "[FreeTDS]" in str(error.args[-1]) and _numbers(error) == {0}


def is_alive(connection: Any, idle_seconds: float) -> bool:
    """Whether an idle connection still works; after a while the server is asked."""
    if connection.closed:
        return False
    if idle_seconds < _TRUSTED_SECONDS:
        return True
    try:
        query(connection, "SELECT 1 AS alive")
    except _pyodbc().Error:
        return False
    return True


def reset(connection: Any) -> bool:
    """Bring a connection back to how connect left it; false if it is of no more use."""
    try:
        if not connection.autocommit:
            connection.rollback()
            connection.autocommit = True
    except _pyodbc().Error:
        return False
    return not connection.closed


def begin_transaction(connection: Any, target: Target) -> None:
    """Begin a transaction, which its user should neither commit nor roll back."""
    with _mapped(target):
        connection.autocommit = False


def end_transaction(
    connection: Any,
    target: Target,
    schema: str,
    routine: str,
    arguments: Mapping[str, object],
    affected: int,
) -> int:
    """Run a routine, and commit if it has affected so many; how many it has affected.

    If those are others nothing is committed, and the transaction is left to be undone.
    """
    found = int(fetch(connection, schema, routine, arguments)[0][0])
    if found == affected:
        with _mapped(target):
            connection.commit()
    return found


def undo_transaction(connection: Any) -> None:
    """Roll back what is not committed."""
    connection.rollback()


@contextlib.contextmanager
def _mapped(target: Target) -> Iterator[None]:
    try:
        yield
    except _pyodbc().Error as error:
        raise map_error(error, target) from error


def has_failed(connection: Any) -> bool:  # noqa: ARG001  # the other driver needs it
    """Whether a commit would only roll back: here that is an error of the commit."""
    return False


def has_routine(connection: Any, schema: str, routine: str) -> bool:
    """Whether a schema has a routine of this name that the caller may run."""
    name = f"{quote_identifier('mssql', schema)}.{quote_identifier('mssql', routine)}"
    try:
        return query(connection, "SELECT OBJECT_ID(?, 'P') AS id", name)[0][0] is not None
    except _pyodbc().Error as error:
        raise map_error(error) from error


def boxes(connection: Any, schema: str) -> list[str]:
    """The names of the boxes that a schema has routines for."""
    text = "SELECT p.name FROM sys.procedures AS p WHERE p.schema_id = SCHEMA_ID(?)"
    try:
        names = [str(row[0]) for row in query(connection, text, schema)]
    except _pyodbc().Error as error:
        raise map_error(error) from error
    return [name.removesuffix("_claim") for name in names if re.fullmatch("[a-z].*_claim", name)]


def _numbers(error: BaseException | None) -> set[int]:
    if not isinstance(error, _pyodbc().Error) or len(error.args) < 2:
        return set()
    return {int(number) for number in _NATIVE.findall(str(error.args[1]))}


def query(connection: Any, text: str, *values: object) -> list[Any]:
    """Run one query and answer the rows of its first result set, none if it has no result set."""
    with _cursor(connection) as cursor:
        if values:
            cursor.setinputsizes([_QUERY_TEXT if isinstance(value, str) else None for value in values])
        cursor.execute(text, *values)
        while cursor.description is None:
            if not cursor.nextset():
                return []
        return list(cursor.fetchall())


@contextlib.contextmanager
def _cursor(connection: Any) -> Iterator[Any]:
    """A cursor that is closed at the end; pyodbc's own context manager would commit."""
    cursor = connection.cursor()
    try:
        yield cursor
    finally:
        cursor.close()


def run_batch(connection: Any, text: str) -> None:
    """Send one batch as it stands, and read on until the server has said everything, errors too."""
    with _cursor(connection) as cursor:
        cursor.execute(text)
        while cursor.nextset():
            pass


def database_error() -> type[Exception]:
    """The base class of pyodbc's exceptions."""
    error: type[Exception] = _pyodbc().Error
    return error


def map_error(error: Exception, target: Target | None = None) -> PysqlboxError:
    """Turn a pyodbc exception into ours, by its codes; without a target it came from a routine."""
    if isinstance(error, UnicodeEncodeError):
        return InvalidArgument("an argument must be text, and has half a character (a lone surrogate)")
    state = str(error.args[0]) if error.args else ""
    full = str(error.args[1]) if len(error.args) > 1 else str(error)
    if target is not None:
        full = target.redact(full)
    numbers = {int(number) for number in _NATIVE.findall(full)}
    message = _message(full)
    where = f"{target}: " if target is not None else ""
    for number in numbers & _OURS.keys():
        return _OURS[number](message)
    if _USED_UP in numbers or message.startswith(_USED_UP_TEXT):
        return InvalidState(f"{where}{USED_UP}: {message}; {OTHER_PLACE}")
    if state in ("IM002", "IM003") or (state == "01000" and "open lib" in full):
        return DriverMissing(
            f"{where}the ODBC driver cannot be loaded, install it or name another (driver=…): {message}"
        )
    if numbers & _DENIED or state == "28000":
        return AccessDenied(f"{where}{message}; {access_advice(target)}")
    if numbers & _MISSING and target is None:
        return SchemaMismatch(f"{message}; run pysqlbox migrate")
    if _is_cut_freetds(error):
        return DatabaseUnavailable(f"{where}the connection was lost; {TRY_AGAIN}")
    if (
        message.startswith(_DROPPED_TEXT)
        or _ASTRAY.match(message)
        or numbers & _TRANSIENT
        or state.startswith("08")
        or state in (_TIMED_OUT, "HYT01", "40001")
    ):
        return DatabaseUnavailable(f"{where}{message}; {outage_advice(target)}")
    if target is None and (numbers & _MALFORMED or state.startswith("22")):
        return InvalidArgument(
            "an argument must be of its parameter's type, and one is malformed or out of range"
        )
    return PysqlboxError(f"{where}{message}; {UNFORESEEN}")


def _message(full: str) -> str:
    """The server's own words: without the bracketed prefixes, the number and the ODBC function."""
    first = full.split("; [", 1)[0]
    text = re.sub(r"^(?:\[[^\]]*\]\s*)+", "", first)
    text = re.sub(r"\s*\(-?\d+\)\s*(?:\(SQL\w+\))?\s*$", "", text)
    return " ".join(text.split())


def _connection_string(target: Target) -> str:
    entries = read_odbc(target.dsn)
    keys = {key.lower() for key in entries}
    if target.driver is not None or "dsn" not in keys:
        driver = target.driver or _default_driver()
        entries = {"DRIVER": driver} | entries
        if "tds_version" not in keys and "freetds" in driver.lower():
            server, comma, port = entries.get("SERVER", "").partition(",")
            entries |= {"TDS_Version": "7.4", "ClientCharset": "UTF-8"}
            if "port" not in keys:
                entries |= {"SERVER": server, "PORT": port if comma else "1433"}
    if not keys & {"app", "dsn", "filedsn"}:  # a data source may have a name for its programs
        entries["APP"] = OWN_NAME
    return odbc_string(entries)


def installed_drivers() -> list[str]:
    """The ODBC drivers that this machine has, best first: Microsoft's, its wheel's library, FreeTDS."""
    known = _pyodbc().drivers()
    found = [name for name in _MICROSOFTS if name in known]
    spec = importlib.util.find_spec("mssql_python_odbc")
    if spec is not None and spec.origin is not None:
        libraries = Path(spec.origin).parent.glob("libs/linux/debian_ubuntu/*/lib/libmsodbcsql-*.so*")
        found += sorted(map(str, libraries), reverse=True)[:1]
    if "FreeTDS" in known:
        found.append("FreeTDS")
    return found


@cache
def _default_driver() -> str:
    """The first of the installed drivers."""
    found = installed_drivers()
    if not found:
        raise DriverMissing(
            "no ODBC driver for SQL Server is installed: install Microsoft's msodbcsql18, the Python package"
            " mssql-python-odbc, or FreeTDS (Debian: tdsodbc)"
        )
    return found[0]


def _read_rows(cursor: Any) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Columns and rows of the first result set; the rest is read too, since an error may wait behind it."""
    names: list[str] | None = None
    rows: list[tuple[Any, ...]] = []
    while True:
        if cursor.description is not None and names is None:
            names = [column[0] for column in cursor.description]
            rows = [tuple(map(from_database, row)) for row in cursor.fetchall()]
        if not cursor.nextset():
            return names or [], rows


def _read_guid(raw: bytes | str | None) -> uuid.UUID | None:
    if raw is None:
        return None
    return uuid.UUID(bytes_le=raw) if isinstance(raw, bytes) and len(raw) == 16 else uuid.UUID(_text(raw))


def _text(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode("ascii")


def _bind(name: str, value: object) -> tuple[_Form, object]:
    """How an argument goes: sets as JSON; times, uuids and fractions as text that every server reads."""
    if value is None:
        return "null", None
    if isinstance(value, str):
        check_text(name, value)
        return "text", str.__str__(value)
    if isinstance(value, bool):
        return "bit", value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise InvalidArgument(f"{name}: must fit bigint")
        return "bigint", int(value)
    if isinstance(value, float | Decimal):
        return "short", _plain_number(name, Decimal(str(value)))
    if isinstance(value, datetime):
        return "time", to_utc(name, value).isoformat(timespec="microseconds")
    if isinstance(value, uuid.UUID):
        return "short", str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", bytes(value)
    if is_records(name, value) or is_list(value):
        return "text", to_json(name, value)
    raise InvalidArgument(f"{name}: must not be of type {type(value).__name__}")


def _plain_number(name: str, number: Decimal) -> str:
    """A number without an exponent, which T-SQL's decimal does not take, and short enough to be bound."""
    if not number.is_finite() or number.adjusted() > 30:
        raise InvalidArgument(f"{name}: must be a finite number below 10^31")
    return f"{round(number, 20) if int(number.as_tuple().exponent) < -20 else number:f}"
