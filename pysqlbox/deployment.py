"""A deployment in one database: its boxes, joins, ledger and schedules, and the calls they all make."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from pysqlbox import watching
from pysqlbox.audit import Audit
from pysqlbox.drivers import Driver, Target, Values, driver_for
from pysqlbox.drivers.embedded import EmbeddedServer
from pysqlbox.errors import DatabaseUnavailable, InvalidArgument, NotFound, PysqlboxError, SchemaMismatch
from pysqlbox.inbox import Inbox
from pysqlbox.joins import Joins
from pysqlbox.ledger import Ledger
from pysqlbox.locate import locate
from pysqlbox.logs import DeploymentLog
from pysqlbox.messages import BoxMetrics, Finding
from pysqlbox.names import Kind, NamedBox, StoreKey, check_schema_name
from pysqlbox.outbox import Outbox
from pysqlbox.paths import migrations_root
from pysqlbox.pool import Pool
from pysqlbox.retry import Retries
from pysqlbox.schedules import Schedules
from pysqlbox.serializer import JsonSerializer, Serializer
from pysqlbox.transaction import driver_connection, driver_connection_async

if TYPE_CHECKING:
    from pysqlbox.deploy.plan import Plan
    from pysqlbox.worker import Worker

__all__ = ["Deployment", "connect"]


def connect(
    url: str | Target | None = None,
    *,
    schema: str = "infra",
    pool_size: int = 10,
    pool_timeout: float = 30.0,
    connect_timeout: int = 10,
    retries: Retries | None = None,
    serializer: Serializer | None = None,
    store: str | None = None,
) -> Deployment:
    """A deployment; nothing is connected before the first call.

    ``url`` is ``postgresql://…``, ``mssql://…`` or an ODBC string; without one ``PYSQLBOX_URL`` counts.
    ``embedded:`` and ``embedded:NAME`` start a PostgreSQL of one's own, with its data in the user's data
    directory. ``store`` is what the log calls this database.
    """
    target, server = locate(url)
    return Deployment(
        target,
        schema=schema,
        pool_size=pool_size,
        pool_timeout=pool_timeout,
        connect_timeout=connect_timeout,
        retries=retries,
        serializer=serializer,
        store=store,
        server=server,
    )


class Deployment:
    """A deployment in one database, with a pool of connections; safe to share between threads."""

    def __init__(
        self,
        target: Target,
        *,
        schema: str = "infra",
        pool_size: int = 10,
        pool_timeout: float = 30.0,
        connect_timeout: int = 10,
        retries: Retries | None = None,
        serializer: Serializer | None = None,
        store: str | None = None,
        server: EmbeddedServer | None = None,
    ) -> None:
        """See connect; ``server`` is let go of when the deployment is closed."""
        self.target = target
        self.schema = check_schema_name(target.dialect, schema)
        self.driver: Driver = driver_for(target.dialect)
        self.serializer: Serializer = serializer or JsonSerializer()
        self.store = store or f"{target.display} {schema}"
        #: The key under which it is one of several stores; every error that concerns it carries it.
        self.store_key: StoreKey | None = None
        self.retries = retries or Retries()
        self._log = DeploymentLog("pysqlbox", self)
        self._server = server
        self._pool = Pool(
            self.driver, target, size=pool_size, timeout=pool_timeout, connect_timeout=connect_timeout
        )
        self._checked = False
        self._place: int | None = None
        self.outbox = Outbox(self, "outbox")
        self.inbox = Inbox(self, "inbox")
        self.joins = Joins(self)
        self.ledger = Ledger(self)
        self.schedules = Schedules(self)
        self.audit = Audit(self)
        self._boxes: dict[str, Outbox | Inbox] = {"outbox": self.outbox, "inbox": self.inbox}

    @overload
    def box(self, name: str, *, kind: Literal["outbox"]) -> Outbox: ...

    @overload
    def box(self, name: str, *, kind: Literal["inbox"]) -> Inbox: ...

    @overload
    def box(self, name: str, *, kind: Kind | None = None) -> Outbox | Inbox: ...

    def box(self, name: str, *, kind: Kind | None = None) -> Outbox | Inbox:
        """A box of this deployment by its name; NotFound if there is none.

        With ``kind`` a type checker knows what it is, and it is an InvalidArgument if it is of the other one.
        """
        found = self._boxes.get(name)
        if found is None:
            try:
                found = self._boxes[name] = self._find_box(name)
            except PysqlboxError as error:
                error.concerns(self.store_key)
                raise
        if kind is not None and found.kind != kind:
            raise InvalidArgument(f"kind: box {name!r} is an {found.kind}; kind must be that")
        return found

    def boxes(self) -> list[str]:
        """The names of all boxes of this deployment that this user may see."""
        with self.connection() as raw:
            try:
                if not self._checked:
                    self._check(raw)
                return sorted(self.driver.boxes(raw, self.schema))
            except PysqlboxError as error:
                error.concerns(self.store_key)
                raise

    def call(
        self,
        routine: str,
        arguments: Mapping[str, object],
        *,
        connection: Any = None,
        repeat: bool = False,
    ) -> list[Values]:
        """Run a routine and answer its rows.

        In the caller's transaction if a connection is given, else in one of its own; there faults that pass
        are tried again, a lost connection only if ``repeat`` says that the call may be made twice.
        """
        watcher = watching.watcher
        if watcher is None:
            return self._perform(routine, arguments, connection, repeat)
        with watcher.calling(self, routine, arguments) as watched:
            return watched.answered(self._perform(routine, watched.arguments, connection, repeat))

    def _perform(
        self, routine: str, arguments: Mapping[str, object], connection: Any, repeat: bool
    ) -> list[Values]:
        try:
            _refuse_bytes(arguments)
            if connection is not None:
                raw = driver_connection(self.driver, self.target, connection)
                if not self._checked:
                    self._check(raw)
                return self.driver.fetch(raw, self.schema, routine, arguments)
            return self._call_pooled(routine, arguments, repeat)
        except PysqlboxError as error:
            error.concerns(self.store_key)
            raise

    async def call_async(
        self, routine: str, arguments: Mapping[str, object], *, connection: Any
    ) -> list[Values]:
        """Run a routine in the transaction of a caller's asynchronous connection."""
        watcher = watching.watcher
        if watcher is None:
            return await self._perform_async(routine, arguments, connection)
        with watcher.calling(self, routine, arguments) as watched:
            return watched.answered(await self._perform_async(routine, watched.arguments, connection))

    async def _perform_async(
        self, routine: str, arguments: Mapping[str, object], connection: Any
    ) -> list[Values]:
        try:
            _refuse_bytes(arguments)
            raw = await driver_connection_async(self.driver, connection)
            if not self._checked:
                await self._check_async(raw)
            return await self.driver.fetch_async(raw, self.schema, routine, arguments)
        except PysqlboxError as error:
            error.concerns(self.store_key)
            raise

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        """A psycopg or pyodbc connection in a transaction: committed at the end, rolled back on an exception.

        Hand it to the methods as ``connection=``, and use it for statements of your own.
        """
        error_type = self.driver.database_error()
        with self.connection() as raw:
            raw.autocommit = False
            try:
                yield raw
            except BaseException:
                with contextlib.suppress(error_type):
                    raw.rollback()
                raise
            try:
                raw.commit()
            except error_type as error:
                raise self.driver.map_error(error, self.target).concerns(self.store_key) from error

    @contextlib.contextmanager
    def connection(self) -> Iterator[Any]:
        """A pooled psycopg or pyodbc connection in autocommit."""
        try:
            raw = self._take(time.monotonic())
        except PysqlboxError as error:
            error.concerns(self.store_key)
            raise
        try:
            yield raw
        finally:
            self._pool.give_back(raw)

    def schema_version(self) -> int:
        """The version of the deployed tables."""
        return int(self.call("schema_version", {}, repeat=True)[0][0])

    def schema_place(self) -> int | None:
        """The place that the deployment was given, if any."""
        place = self.call("schema_place", {}, repeat=True)[0][0]
        return None if place is None else int(place)

    def schema_boxes(self, *, connection: Any = None) -> list[NamedBox]:
        """The boxes of this deployment, the default ones first."""
        return [NamedBox(*row) for row in self.call("schema_boxes", {}, connection=connection, repeat=True)]

    def drawing_place(self) -> int:
        """What message_ids that are drawn here carry; asked once, for a place is for good."""
        if self._place is None:
            self._place = self.schema_place() or 0
        return self._place

    def doctor(self, *, connection: Any = None) -> list[Finding]:
        """What a DBA should know about this deployment: a row for each thing found, and for each check."""
        return [Finding(*row) for row in self.call("doctor", {}, connection=connection, repeat=True)]

    def metrics(self, *, connection: Any = None) -> list[BoxMetrics]:
        """What monitoring asks of every box: by topic, and in total where the topic is None."""
        return [BoxMetrics(*row) for row in self.call("metrics", {}, connection=connection, repeat=True)]

    @property
    def pool(self) -> Pool:
        """The connections that calls without ``connection=`` use."""
        return self._pool

    async def doctor_async(self, *, connection: Any = None) -> list[Finding]:
        """The same for asynchronous callers."""
        if connection is None:
            return await asyncio.to_thread(self.doctor)
        return [Finding(*row) for row in await self.call_async("doctor", {}, connection=connection)]

    def migrate(self, **options: Any) -> Plan:
        """Deploy the schema or bring it up to date; options as of ``pysqlbox.deploy.migrate.migrate``."""
        from pysqlbox.deploy.migrate import migrate

        try:
            plan = migrate(self.target, schema=self.schema, **options)
        except PysqlboxError as error:
            error.concerns(self.store_key)
            raise
        self._checked = False
        self._place = None
        return plan

    def worker(self, **options: Any) -> Worker:
        """A worker that serves boxes of this deployment; options as of ``pysqlbox.worker.Worker``."""
        from pysqlbox.worker import Worker

        return Worker(self, **options)

    def close(self) -> None:
        """Close the idle connections now, and those in use when they come back."""
        self._pool.close()
        if self._server is not None:
            self._server.stop()
            self._server = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<pysqlbox.Deployment {self.target} schema={self.schema!r}>"

    def _call_pooled(self, routine: str, arguments: Mapping[str, object], repeat: bool) -> list[Values]:
        pool, driver = self._pool, self.driver
        started = time.monotonic()
        tried = 0
        while True:
            tried += 1
            raw = self._take(started, tried)
            try:
                if not self._checked:
                    self._check(raw)
                rows = driver.fetch(raw, self.schema, routine, arguments)
            except PysqlboxError as error:
                if not self._again(raw, error, repeat, tried, started):
                    raise
                self._log.warning(
                    "%s failed, trying again (%s of %s): %s [%s]",
                    routine, tried, self.retries.attempts, error, self.store,
                )  # fmt: skip
            except BaseException:  # an interrupt, say, in the midst of a statement
                pool.discard(raw)
                raise
            else:
                pool.give_back(raw)
                return rows
            time.sleep(self.retries.pause(tried))

    def _again(self, raw: Any, error: PysqlboxError, repeat: bool, tried: int, started: float) -> bool:
        """Put away the connection of a failed call; whether the call is to be tried again."""
        cause = error.__cause__
        lost = self.driver.is_lost(raw, cause)
        if lost:
            self._pool.discard(raw)
            self._pool.purge()
        else:
            self._pool.give_back(raw)
        return (
            isinstance(error, DatabaseUnavailable)
            and ((lost and repeat) or self.driver.is_conflict(cause))
            and self._may_try(tried, started)
        )

    def _may_try(self, tried: int, started: float) -> bool:
        retries = self.retries
        return tried < retries.attempts and time.monotonic() - started < retries.give_up_seconds

    def _take(self, started: float, tried: int = 1) -> Any:
        """A connection of the pool; one that cannot be had is tried for again."""
        while True:
            try:
                return self._pool.take()
            except DatabaseUnavailable as error:
                if error.__cause__ is None or not self._may_try(tried, started):
                    raise  # without a cause the pool itself was exhausted, which took its time already
                self._log.warning("no connection, trying again: %s [%s]", error, self.store)
            time.sleep(self.retries.pause(tried))
            tried += 1

    def _check(self, raw: Any) -> None:
        """Refuse a schema that is missing, or newer than this release; once per deployment."""
        try:
            rows = self.driver.fetch(raw, self.schema, "schema_version", {})
        except SchemaMismatch as error:
            raise self._missing() from error.__cause__
        except PysqlboxError as error:
            # Babelfish has one number for all that SQL Server knows no number for, a missing schema too.
            if type(error) is PysqlboxError and not self.driver.has_routine(
                raw, self.schema, "schema_version"
            ):
                raise self._missing() from error.__cause__
            raise
        self._compare(rows)

    async def _check_async(self, raw: Any) -> None:
        try:
            rows = await self.driver.fetch_async(raw, self.schema, "schema_version", {})
        except SchemaMismatch as error:
            raise self._missing() from error.__cause__
        self._compare(rows)

    def _missing(self) -> SchemaMismatch:
        return SchemaMismatch(
            f"{self.target}: schema {self.schema!r} has no pysqlbox in it; run pysqlbox migrate"
        )

    def _compare(self, rows: list[Values]) -> None:
        version = rows[0][0] if rows else None
        if version is None:
            raise self._missing()
        if version > known_version():
            raise SchemaMismatch(
                f"{self.target}: schema {self.schema!r} has version {version}, newer than this release knows"
                f" ({known_version()}): use a newer pysqlbox"
            )
        self._checked = True

    def _find_box(self, name: str) -> Outbox | Inbox:
        missing = NotFound(
            f"box {name!r}: schema {self.schema!r} has none of that name, or it may not be used;"
            f" pysqlbox migrate --box {name}:outbox (or :inbox) adds one"
        )
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise missing
        with self.connection() as raw:
            if not self._checked:
                self._check(raw)
            if self.driver.has_routine(raw, self.schema, f"{name}_already_processed"):
                return Inbox(self, name)
            if self.driver.has_routine(raw, self.schema, f"{name}_enqueue"):
                return Outbox(self, name)
        raise missing


def _refuse_bytes(arguments: Mapping[str, object]) -> None:
    """Only a hash is bytes; as anything else they would be some type that the routine does not have."""
    for name, value in arguments.items():
        if isinstance(value, bytes | bytearray | memoryview) and name != "hash":
            raise InvalidArgument(f"{name}: must not be bytes")


@cache
def known_version() -> int:
    """The highest version of the tables that this release deploys."""
    names = (path.name for path in migrations_root().iterdir())
    return max(int(match[1]) for name in names if (match := re.fullmatch(r"(\d{4})\..+\.py", name)))
