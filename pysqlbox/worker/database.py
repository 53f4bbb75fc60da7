"""A worker's own connections, each kept by one user at a time, with a deadline on every call."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from pysqlbox.drivers import Target, driver_for
from pysqlbox.errors import AccessDenied, InvalidState, PysqlboxError
from pysqlbox.names import quote_identifier
from pysqlbox.worker.logs import log_of
from pysqlbox.worker.outcomes import Outcomes

if TYPE_CHECKING:
    from pysqlbox.boxes import AnyBox
    from pysqlbox.deployment import Deployment

__all__ = ["CALL_SECONDS", "Caller", "Calls", "Database", "WorkerConnection"]

#: No call may take longer; it is cut off then, and made again on another connection.
CALL_SECONDS = 30.0
#: A call that has taken so long is reported, once.
SILENT_SECONDS = 5.0
#: A connection must be there within so many seconds; less when the worker is ending.
CONNECT_SECONDS, LAST_CONNECT_SECONDS = 10, 2


class Calls:
    """When a connection's call began, and until when it may last."""

    def __init__(self, database: Database, limit: float) -> None:
        self.limit = limit
        self.began_at = 0.0
        self.reported = False
        #: Whether the answer to the last call was lost: nobody knows what it did.
        self.lost = False
        #: What to do meanwhile, about ten times a second (PostgreSQL).
        self.meanwhile: Callable[[], None] | None = None
        self._database = database

    @contextlib.contextmanager
    def one(self) -> Any:
        """Around a call."""
        self.began_at = time.monotonic()
        self.lost = False
        try:
            yield
        finally:
            self.began_at, self.reported = 0.0, False

    def overdue(self) -> bool:
        """Whether the call is to be cut off now; asked while the server says nothing."""
        if self.meanwhile is not None:
            self.meanwhile()
        now = time.monotonic()
        return now - self.began_at > self.limit or now > self._database.must_end_at

    @property
    def connect_seconds(self) -> int:
        """How long connecting may take."""
        ending = self._database.must_end_at < float("inf")
        return (
            LAST_CONNECT_SECONDS
            if ending
            else min(CONNECT_SECONDS, max(int(self.limit), LAST_CONNECT_SECONDS))
        )


class Caller(Protocol):
    """Somebody through whom routines are called."""

    def call(self, routine: str, arguments: Mapping[str, object]) -> list[dict[str, object]]:
        """The rows of a routine."""

    def close(self) -> None:
        """No more is called."""


class WorkerConnection(Caller, Protocol):
    """One connection of a worker, opened when it is first used, and again when it was lost."""

    calls: Calls
    #: The schema of the routines that call() runs.
    schema: str

    def settle(
        self,
        box: AnyBox,
        owner: uuid.UUID,
        outcomes: Outcomes,
        claim: int,
        lease_seconds: int,
        topics: Sequence[str] | None,
    ) -> list[Any]:
        """Settle and claim in one round trip; the claimed messages."""

    def limited_locks(self, seconds: float) -> AbstractContextManager[None]:
        """Let no call wait longer than that for somebody's lock meanwhile (PostgreSQL)."""

    def setting(self, box: AnyBox, name: str) -> str | None:
        """A setting of a box; None where this user may not read it."""

    def has_routine(self, routine: str) -> bool:
        """Whether the schema has a routine of this name."""

    def notify(self, channel: str) -> None:
        """Notify a channel, where the database has such."""

    def close(self) -> None:
        """Close the connection, if one is open."""


class Database:
    """The database as one run of a worker sees it."""

    def __init__(self, db: Deployment) -> None:
        self.deployment = db
        #: From then on nothing waits for the database any more.
        self.must_end_at = float("inf")
        self._log = log_of(db)
        self._calls: weakref.WeakSet[Calls] = weakref.WeakSet()

    def open(self, *, limit: float | None = None) -> WorkerConnection:
        """A connection of the box's dialect, none of whose calls lasts longer than the limit."""
        calls = Calls(self, CALL_SECONDS if limit is None else limit)
        self._calls.add(calls)
        if self.deployment.target.dialect == "postgres":
            from pysqlbox.worker.database_postgres import PostgresConnection

            return PostgresConnection(self.deployment.target, self.deployment.schema, calls)
        return CallingConnection(self.deployment.target, self.deployment.schema, calls)

    @property
    def is_silent(self) -> bool:
        """Whether a call has had no answer for too long."""
        now = time.monotonic()
        return any(calls.began_at and now - calls.began_at > SILENT_SECONDS for calls in list(self._calls))

    def report_silence(self) -> None:
        """Say so if a call has had no answer for too long."""
        now = time.monotonic()
        for calls in list(self._calls):
            began_at = calls.began_at
            if began_at and now - began_at > SILENT_SECONDS and not calls.reported:
                calls.reported = True
                self._log.error("the database has not answered for %.0f seconds", now - began_at)


class CallingConnection:
    """A connection that uses nothing but the driver's ordinary calls."""

    def __init__(self, target: Target, schema: str, calls: Calls) -> None:
        self.calls = calls
        self.schema = schema
        self._target = target
        self._driver = driver_for(target.dialect)
        self._connection: Any = None

    def settle(
        self,
        box: AnyBox,
        owner: uuid.UUID,
        outcomes: Outcomes,
        claim: int,
        lease_seconds: int,
        topics: Sequence[str] | None,
    ) -> list[Any]:
        """Settle and claim in one round trip; the claimed messages."""
        if not outcomes:
            if not claim:
                return []
            arguments = {
                "owner_token": owner, "lease_seconds": lease_seconds, "batch_size": claim, "topics": topics,
            }  # fmt: skip
            rows = self._call(box.deployment.schema, f"{box.name}_claim", arguments)
        else:
            arguments = {
                "owner_token": owner,
                "outcomes": outcomes.as_json(),
                "claim_batch": claim,
                "lease_seconds": lease_seconds,
                "topics": topics,
            }
            rows = self._call(box.deployment.schema, f"{box.name}_settle", arguments)
        message_type = box.message_type
        return [message_type(**_with_headers(row)) for row in rows]

    def call(self, routine: str, arguments: Mapping[str, object]) -> list[dict[str, object]]:
        """Any routine; a connection that fails is closed, the next call opens another."""
        return self._call(self.schema, routine, arguments)

    def _call(self, schema: str, routine: str, arguments: Mapping[str, object]) -> list[dict[str, object]]:
        try:
            with self.calls.one():
                return self._driver.call(self._connected(), schema, routine, arguments)
        except PysqlboxError as error:
            connection = self._connection
            self.calls.lost = connection is not None and self._driver.is_lost(connection, error.__cause__)
            self.close()
            raise

    def limited_locks(self, seconds: float) -> AbstractContextManager[None]:  # noqa: ARG002  # as documented
        """Calls have the connection's own timeout, for locks as for everything."""
        return contextlib.nullcontext()

    def has_routine(self, routine: str) -> bool:
        """Whether the schema has a routine of this name."""
        try:
            with self.calls.one():
                return self._driver.has_routine(self._connected(), self.schema, routine)
        except PysqlboxError:
            self.close()
            raise

    def setting(self, box: AnyBox, name: str) -> str | None:
        """A setting of a box; None where this user may not read it."""
        from pysqlbox.drivers import mssql

        table = ".".join(
            quote_identifier("mssql", part) for part in (box.deployment.schema, f"{box.name}_settings")
        )
        try:
            with self.calls.one():
                rows = mssql.query(self._connected(), f"SELECT value FROM {table} WHERE name = ?", name)
        except self._driver.database_error() as error:
            mapped = self._driver.map_error(error)
            if isinstance(mapped, AccessDenied):
                return None
            self.close()
            raise mapped from error
        return str(rows[0][0]) if rows else None

    def notify(self, channel: str) -> None:
        """There are no channels."""
        raise InvalidState(f"channel: {channel!r} must not be notified, T-SQL has no notifications")

    def close(self) -> None:
        """Close the connection, if one is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(self._driver.database_error()):
                connection.close()

    def _connected(self) -> Any:
        if self._connection is None:
            target = self._target
            connection = self._driver.connect(
                target, autocommit=True, connect_timeout=self.calls.connect_seconds
            )
            if target.query_timeout is None:  # the URL knows better
                connection.timeout = int(self.calls.limit)
            self._connection = connection
        return self._connection


def _with_headers(row: dict[str, object]) -> dict[str, Any]:
    headers = row.get("headers")
    return {**row, "headers": json.loads(headers)} if isinstance(headers, str) else row
