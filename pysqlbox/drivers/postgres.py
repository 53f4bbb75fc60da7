"""PostgreSQL through psycopg 3."""

from __future__ import annotations

import contextlib
import re
import select
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any, cast

import psycopg
from psycopg import sql
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.pq import DiagnosticField, ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import tuple_row
from psycopg.types.bool import BoolLoader
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.numeric import IntLoader, NumericLoader
from psycopg.types.string import ByteaLoader, BytesDumper, StrDumperUnknown, TextLoader
from psycopg.types.uuid import UUIDLoader

from pysqlbox.drivers.advice import OTHER_PLACE, ROLL_BACK, UNFORESEEN, USED_UP, access_advice, outage_advice
from pysqlbox.drivers.url import OWN_NAME, Target
from pysqlbox.drivers.values import check_text, is_list, is_records, to_json, to_utc
from pysqlbox.errors import (
    AccessDenied,
    DatabaseUnavailable,
    InvalidArgument,
    InvalidState,
    NotFound,
    PysqlboxError,
    SchemaMismatch,
)

Connection = psycopg.Connection[Any]

_OURS = {"PB001": InvalidArgument, "PB002": NotFound, "PB003": InvalidState}
_USED_UP = "2200H"
_MISSING = {"3F000", "42883", "42P01", "42703", "42704"}
_CONFLICTS = {"40001", "40P01", "55P03"}
_SETTINGS = ("isolation_level", "read_only", "deferrable")
_ABORTED = "25P02"
_DONE = {ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK}
_CODE_AND_MESSAGE = DiagnosticField.SQLSTATE, DiagnosticField.MESSAGE_PRIMARY
_DIVISION_BY_ZERO = b"22012"
#: The answers of a pooler that does not carry prepared statements along, and after routines have changed.
NOT_PREPARED = {"26000", "42P05", "0A000"}
HAS_ROUTINE = (
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_proc AS p"
    " INNER JOIN pg_catalog.pg_namespace AS s ON s.oid = p.pronamespace"
    " WHERE s.nspname = %s AND p.proname = %s)"
)
BOX_NAMES = (
    "SELECT DISTINCT left(p.proname, -6) FROM pg_catalog.pg_proc AS p"
    " INNER JOIN pg_catalog.pg_namespace AS s ON s.oid = p.pronamespace"
    " WHERE s.nspname = %s AND p.proname LIKE '%%\\_claim' AND p.proname !~ '^_'"
)
#: A cursor holds what it sent and got last, so one is kept only after a call that was small: an enqueue, say.
_KEPT_COLUMNS, _KEPT_LENGTH = 4, 10_000
#: What a server answers who connects wrongly; libpq keeps no SQLSTATE of that, only the text.
_REFUSED = re.compile(r"authentication failed|(database|role) \".*\" does not exist|no pg_hba.conf entry")
_WHETHER_IT_RUNS = re.compile(r"\s*Is the server running[^?]*\?\s*")
_TRANSIENT = _CONFLICTS | {"57P01", "57P02", "57P03", "57P05", "53300", "57014", "25P03", "25P04"}


def _fast(name: str, loader: type[Loader]) -> type[Loader]:
    """The compiled version of a loader, if psycopg has one."""
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_loader(name, loader)
    return cast(type[Loader], adapters.get_loader(adapters.types[name].oid, Format.TEXT) or loader)


_TIME_LOADER = _fast("timestamptz", TimestamptzLoader)


class _UtcLoader(Loader):
    """Times in UTC, whatever time zone the session has."""

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        self._load = _TIME_LOADER(oid, context).load

    def load(self, data: Buffer) -> datetime:
        """The time, aware."""
        value: datetime = self._load(data)
        return value.astimezone(UTC)


def _adapters() -> AdaptersMap:
    """How psycopg reads what routines answer, whatever a program has registered for itself."""
    adapters = AdaptersMap(psycopg.adapters)
    loaders: dict[str, type[Loader]] = {
        "bool": BoolLoader,
        "bytea": ByteaLoader,
        "int2": IntLoader,
        "int4": IntLoader,
        "int8": IntLoader,
        "jsonb": TextLoader,
        "numeric": NumericLoader,
        "text": TextLoader,
        "timestamptz": _UtcLoader,
        "uuid": UUIDLoader,
    }
    for name, loader in loaders.items():
        adapters.register_loader(name, loader)
    adapters.register_dumper(str, StrDumperUnknown)
    adapters.register_dumper(bytes, BytesDumper)
    return adapters


ADAPTERS = _adapters()


class _Cursor(psycopg.Cursor[tuple[Any, ...]]):
    """A cursor with adapters of its own: those of the connection may be the caller's."""

    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS


class _Reused(psycopg.Connection[tuple[Any, ...]]):
    """A connection of our own; on a caller's nothing is ever prepared."""

    #: A cursor that goes on with the text that it ran last knows already how to read and write its values.
    kept: _Cursor | None = None
    #: Whether somebody else ends the transaction, so that its user may not.
    guarded = False

    def commit(self) -> None:
        """Commit, unless the end is somebody else's."""
        self._check_guard("commit")
        super().commit()

    def rollback(self) -> None:
        """Roll back, unless the end is somebody else's."""
        self._check_guard("rollback")
        super().rollback()

    def _check_guard(self, what: str) -> None:
        if self.guarded:
            raise psycopg.ProgrammingError(
                f"{what}() is not for the handler: its transaction ends with its message"
            )


class _Watched(psycopg.Connection[Any]):
    """A connection whose calls somebody may cut off while the server says nothing."""

    overdue: Callable[[], bool] | None = None

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        """Wait for the server, and ask about ten times a second whether to go on."""
        return super().wait(
            gen if self.overdue is None else _watched(gen, self.overdue), *arguments, **options
        )


def _watched(gen: Any, overdue: Callable[[], bool]) -> Generator[Any, Any, Any]:
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and overdue():
                raise psycopg.OperationalError("the database did not answer in time")
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value


def connect(
    target: Target,
    *,
    autocommit: bool = False,
    connect_timeout: int = 10,
    reused: bool = False,
    overdue: Callable[[], bool] | None = None,
) -> Connection:
    """Open a connection; one that is to be ``reused`` for call after call prepares those that come again.

    ``overdue`` is asked while a call waits for the server, and ends the call by answering true.
    """
    kind = _Reused if reused else _Watched if overdue is not None else psycopg.Connection[Any]
    try:
        connection = kind.connect(
            target.dsn,
            autocommit=autocommit,
            prepare_threshold=2 if reused else None,
            connect_timeout=connect_timeout,
            **own_settings(target),
        )
    except psycopg.Error as error:
        raise map_error(error, target) from error
    if isinstance(connection, _Watched):
        connection.overdue = overdue
    return connection


def own_settings(target: Target) -> dict[str, Any]:
    """What a connection of ours has beside what the URL says, in libpq's words.

    Text goes as UTF-8, whatever the environment says: any message must get through. It has a name of ours
    only if neither the URL, nor a service, nor PGAPPNAME gives it one.
    """
    name = {} if "fallback_application_name" in target.dsn else {"fallback_application_name": OWN_NAME}
    return {"client_encoding": "UTF8", **name}


def call(
    connection: Connection, schema: str, routine: str, arguments: Mapping[str, object]
) -> list[dict[str, object]]:
    """Run one routine with named arguments and answer its rows by column; never commits or rolls back."""
    with _run(connection, schema, routine, arguments) as cursor:
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def fetch(
    connection: Connection, schema: str, routine: str, arguments: Mapping[str, object]
) -> list[tuple[Any, ...]]:
    """Run one routine with named arguments and answer its rows; never commits or rolls back."""
    if type(connection) is _Reused and connection.autocommit:
        return _fetch_prepared(connection, schema, routine, arguments)
    with _run(connection, schema, routine, arguments) as cursor:
        return cursor.fetchall()


@contextlib.contextmanager
def _run(
    connection: Connection, schema: str, routine: str, arguments: Mapping[str, object]
) -> Iterator[_Cursor]:
    text = query_text(schema, routine, tuple(arguments))
    values = [adapted(name, value) for name, value in arguments.items()]
    try:
        with _Cursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute(text, values, prepare=False)
            yield cursor
    except (psycopg.Error, psycopg.Warning, UnicodeEncodeError) as error:
        raise map_error(error) from error


def _fetch_prepared(
    connection: _Reused, schema: str, routine: str, arguments: Mapping[str, object]
) -> list[tuple[Any, ...]]:
    """The same on a connection of our own, outside of a transaction."""
    text = query_text(schema, routine, tuple(arguments))
    values = [adapted(name, value) for name, value in arguments.items()]
    # Popped in one step: two threads that share a connection must not share a cursor.
    cursor = vars(connection).pop("kept", None) or _Cursor(connection, row_factory=tuple_row)
    try:
        _execute_prepared(connection, cursor, text, values)
        rows = cursor.fetchall()
    except (psycopg.Error, psycopg.Warning, UnicodeEncodeError) as error:
        raise map_error(error) from error
    if len(rows) == 1 and len(rows[0]) <= _KEPT_COLUMNS and _are_short(values):
        connection.kept = cursor
    return rows


def _are_short(values: Sequence[object]) -> bool:
    return all(v is None or (isinstance(v, str | bytes) and len(v) <= _KEPT_LENGTH) for v in values)


def _execute_prepared(connection: Connection, cursor: _Cursor, text: bytes, values: list[object]) -> None:
    """Outside of a transaction, so that a statement refused as not prepared can be sent again as it is."""
    try:
        cursor.execute(text, values)
    except psycopg.Error as error:
        if error.sqlstate not in NOT_PREPARED or connection.prepare_threshold is None:
            raise
        connection.prepare_threshold = None
        cursor.execute(text, values, prepare=False)


@cache
def query_text(schema: str, routine: str, names: tuple[str, ...]) -> bytes:
    """The text of a call; psycopg keeps what it makes of it too."""
    named = sql.SQL(", ").join(
        sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder()) for name in names
    )
    return sql.SQL("SELECT * FROM {}({})").format(quoted(schema, routine), named).as_bytes(None)


def quoted(*names: str) -> sql.Composable:
    """A name for a query with parameters: a % in it is none."""
    text = ".".join('"' + name.replace('"', '""') + '"' for name in names)
    return sql.SQL(text.replace("%", "%%"))


def is_connection(value: object) -> bool:
    """Whether a value is a connection that fetch takes."""
    return isinstance(value, psycopg.Connection)


def is_conflict(error: BaseException | None) -> bool:
    """Whether an exception says that the server undid the transaction for the sake of another one."""
    return isinstance(error, psycopg.Error) and (
        error.sqlstate in _CONFLICTS or _is_dropped(error.sqlstate, error.diag.message_primary or "")
    )


def _is_dropped(code: str | None, message: str) -> bool:
    """Whether a deployment dropped a routine between the call's parsing and its execution.

    PostgreSQL then answers an internal error, whose text is never translated; nothing has been done.
    """
    return code == "XX000" and message.startswith("cache lookup failed")


def is_lost(connection: Connection, error: BaseException | None) -> bool:
    """Whether a connection cannot be used any more."""
    if connection.closed:
        return True
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(
        ("08", "57P", "25P03", "25P04")
    )


def is_alive(connection: Connection, idle_seconds: float) -> bool:  # noqa: ARG001  # the other driver needs it
    """Whether an idle connection still works, asking the server only if it has said something."""
    if connection.closed:
        return False
    if not has_input(connection.pgconn.socket):
        return True
    try:  # the server said something: goodbye, most often
        with _Cursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute("SELECT 1", prepare=False)
    except psycopg.Error:
        return False
    return True


def has_input(descriptor: int) -> bool:
    """Whether the server has said something that nobody has read."""
    if hasattr(select, "poll"):  # takes any descriptor, where select stops at 1023
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([descriptor], [], [], 0)[0])


def reset(connection: Connection) -> bool:
    """Bring a connection back to how connect left it; false if it is of no more use."""
    if connection.pgconn.pipeline_status:  # its user has not left it: nobody knows what is still to come
        return False
    try:
        if connection.pgconn.transaction_status != TransactionStatus.IDLE:
            connection.rollback()
        if not connection.autocommit:
            connection.autocommit = True
        for name in settings_of(connection):
            setattr(connection, name, None)
    except psycopg.Error:
        return False
    connection.row_factory, connection.cursor_factory = tuple_row, psycopg.Cursor
    return not connection.closed


def settings_of(connection: Any) -> list[str]:
    """What its user has told a connection about transactions: the next one must not have them so."""
    return [name for name in _SETTINGS if getattr(connection, name) is not None]


def begin_transaction(connection: _Reused, target: Target) -> None:
    """Begin a transaction that its user can neither commit nor roll back.

    Its beginning and its end are sent by libpq itself: psycopg's way around statements without values costs
    more than they do.
    """
    _check(connection, target, _send(connection, target, "BEGIN"))
    connection.guarded = True


def end_transaction(
    connection: _Reused,
    target: Target,
    schema: str,
    routine: str,
    arguments: Mapping[str, object],
    affected: int,
) -> int:
    """Run a routine, and commit in the same round trip if it has affected so many; how many it has affected.

    If those are others nothing is committed, and the transaction is left to be undone. The arguments stand in
    the text as they are: numbers and uuids, none of which has a quote.
    """
    if affected != 1:
        found = int(fetch(connection, schema, routine, arguments)[0][0])
        if found == affected:
            _check(connection, target, _send(connection, target, "COMMIT"))
            connection.guarded = False
        return found
    where = ".".join('"' + name.replace('"', '""') + '"' for name in (schema, routine))
    given = ", ".join(f"{name} => '{adapted(name, value)}'" for name, value in arguments.items())
    # Where nothing is affected the division fails, and behind an error the server runs nothing more.
    result = _send(connection, target, f"SELECT 1 / {where}({given}); COMMIT")
    # With the transaction still there it was not the commit that failed so, in a deferred trigger say.
    is_open = connection.pgconn.transaction_status == TransactionStatus.INERROR
    if is_open and result.error_field(DiagnosticField.SQLSTATE) == _DIVISION_BY_ZERO:
        return 0
    _check(connection, target, result)
    connection.guarded = False
    return 1


def undo_transaction(connection: _Reused) -> None:
    """Roll back what is not committed; then the connection is guarded no more."""
    connection.guarded = False
    connection.rollback()


def _send(connection: Connection, target: Target, text: str) -> PGresult:
    """Run statements without values."""
    if connection.pgconn.pipeline_status:
        raise InvalidState("connection: has a pipeline that its user must leave first")
    try:
        with connection.lock:
            return connection.pgconn.exec_(text.encode())
    except psycopg.Error as error:
        raise map_error(error, target) from error


def _check(connection: Connection, target: Target, result: PGresult) -> None:
    if result.status in _DONE:
        return
    code, message = (result.error_field(field) or b"" for field in _CODE_AND_MESSAGE)
    if not code:  # the connection is lost
        lost = connection.pgconn.error_message.decode(errors="replace")
        raise map_error(psycopg.OperationalError(lost), target)
    raise error_of(code.decode(), message.decode(errors="replace"), target)


def has_failed(connection: Any) -> bool:
    """Whether an error has ended the transaction, so that its commit would only roll it back."""
    return bool(connection.pgconn.transaction_status == TransactionStatus.INERROR)


def has_routine(connection: Connection, schema: str, routine: str) -> bool:
    """Whether a schema has a routine of this name."""
    try:
        with _Cursor(connection, row_factory=tuple_row) as cursor:
            row = cursor.execute(HAS_ROUTINE, (schema, routine), prepare=False).fetchone()
            return row is not None and bool(row[0])
    except psycopg.Error as error:
        raise map_error(error) from error


def boxes(connection: Connection, schema: str) -> list[str]:
    """The names of the boxes that a schema has routines for."""
    try:
        with _Cursor(connection, row_factory=tuple_row) as cursor:
            rows = cursor.execute(BOX_NAMES, (schema,), prepare=False).fetchall()
    except psycopg.Error as error:
        raise map_error(error) from error
    return [str(row[0]) for row in rows]


def encoding(connection: Connection) -> str:
    """What the server calls the encoding of the database; it was said when the connection was made."""
    said = connection.pgconn.parameter_status(b"server_encoding")
    return said.decode("ascii") if said else ""


def run_script(connection: Connection, text: str) -> None:
    """Send a text of any number of statements as it stands."""
    with connection.cursor() as cursor:
        cursor.execute(text.encode())  # bytes: the text is a whole script, not a query to compose
        while cursor.nextset():
            pass


def database_error() -> type[Exception]:
    """The base class of psycopg's exceptions."""
    return psycopg.Error


def map_error(error: Exception, target: Target | None = None) -> PysqlboxError:
    """Turn a psycopg exception into ours, by its SQLSTATE; without a target it came from a routine."""
    if isinstance(error, UnicodeEncodeError):
        return InvalidArgument("an argument must be text, and has half a character (a lone surrogate)")
    code = getattr(error, "sqlstate", None)
    diagnostic = getattr(error, "diag", None)
    primary = diagnostic.message_primary if diagnostic else None
    message = primary or str(error).strip() or type(error).__name__
    if target is not None:
        message = target.redact(message)
    if code is not None or isinstance(error, psycopg.DataError):
        return error_of(code or "22000", message, target)
    where = f"{target}: " if target is not None else ""
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        if target is not None and _REFUSED.search(message):
            return AccessDenied(f"{where}{_one_line(message)}; {access_advice(target)}")
        return DatabaseUnavailable(f"{where}{_unreached(message)}; {outage_advice(target)}")
    if isinstance(error, psycopg.ProgrammingError) and target is not None:
        return InvalidArgument(f"url: must be one that libpq takes: {_one_line(message)}")
    return PysqlboxError(f"{where}{message} (SQLSTATE none); {UNFORESEEN}")


def error_of(code: str, message: str, target: Target | None = None) -> PysqlboxError:
    """Our exception for an SQLSTATE; without a target it came from a routine."""
    where = f"{target}: " if target is not None else ""
    if code in _OURS:
        return _OURS[code](message)
    if code == _USED_UP:
        return InvalidState(f"{where}{USED_UP}: {message}; {OTHER_PLACE}")
    if code == _ABORTED:
        return InvalidState(f"{where}{message}; {ROLL_BACK}")
    if code in _MISSING and target is None:
        return SchemaMismatch(f"{message}; run pysqlbox migrate")
    if code in ("42501", "3D000") or code.startswith("28"):
        return AccessDenied(f"{where}{message}; {access_advice(target)}")
    if code.startswith("22") and target is None:
        return InvalidArgument(
            "an argument must be of its parameter's type, and one is malformed or out of range"
            f" (SQLSTATE {code})"
        )
    if code in _TRANSIENT or code.startswith("08") or _is_dropped(code, message):
        return DatabaseUnavailable(f"{where}{message}; {outage_advice(target)}")
    return PysqlboxError(f"{where}{message} (SQLSTATE {code}); {UNFORESEEN}")


def _one_line(message: str) -> str:
    return " ".join(message.split())


def _unreached(message: str) -> str:
    """Without libpq's question whether the server runs, once for each address; our advice says it."""
    parts = [_one_line(part) for part in _WHETHER_IT_RUNS.split(message)]
    said = "; ".join(filter(None, parts))
    return said.removeprefix("connection failed: ").removeprefix("connection is bad: ")


def adapted(name: str, value: object) -> object:
    """Everything but sets goes untyped, so that the routine's own parameter types decide."""
    kind = type(value)
    if isinstance(value, str):
        check_text(name, value)
        return value if kind is str else str.__str__(value)
    if value is None:
        return value
    if kind is uuid.UUID:
        return str(value)
    if kind is int:
        return repr(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float | Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, datetime):
        return to_utc(name, value).isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if is_records(name, value):
        return to_json(name, value)
    if is_list(value):
        return _adapt_list(name, cast(Sequence[object], value))
    raise InvalidArgument(f"{name}: must not be of type {kind.__name__}")


def _adapt_list(name: str, items: Sequence[object]) -> object:
    """Numbers and uuids as the text of an array, which is quickest; text as an array of text."""
    if items and all(type(item) is int for item in items):
        return "{" + ",".join(map(str, items)) + "}"
    if any(isinstance(item, uuid.UUID) for item in items):
        if not all(item is None or isinstance(item, uuid.UUID) for item in items):
            raise InvalidArgument(f"{name}: must be a list of uuids")
        return "{" + ",".join("NULL" if item is None else str(item) for item in items) + "}"
    return [_adapt_item(name, item) for item in items]


def _adapt_item(name: str, item: object) -> object:
    if isinstance(item, int) and not isinstance(item, bool):
        return int.__repr__(item)
    if isinstance(item, str):
        check_text(name, item)
        return str.__str__(item)
    if item is None:
        return None
    raise InvalidArgument(f"{name}: must be a list of int, of str or of uuids")
