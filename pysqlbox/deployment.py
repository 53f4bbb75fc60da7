"""A deployment in one database: its boxes, joins, ledger and schedules, and the calls they all make."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from pysqlbox import watching
from pysqlbox.audit import Audit
from pysqlbox.deployment_base import DeploymentBase, refuse_bytes
from pysqlbox.drivers import Target, Values
from pysqlbox.drivers.embedded import EmbeddedServer
from pysqlbox.errors import DatabaseUnavailable, PysqlboxError
from pysqlbox.inbox import Inbox
from pysqlbox.joins import Joins
from pysqlbox.ledger import Ledger
from pysqlbox.locate import locate
from pysqlbox.names import Kind
from pysqlbox.outbox import Outbox
from pysqlbox.pool import Pool
from pysqlbox.register import Register
from pysqlbox.retry import Retries
from pysqlbox.schedules import Schedules
from pysqlbox.serializer import Serializer
from pysqlbox.steps import Blocking, BoxNames, Call, Described, drive
from pysqlbox.transaction import driver_connection

if TYPE_CHECKING:
    from pysqlbox.deploy.plan import Plan
    from pysqlbox.worker import Worker
    from pysqlbox.worker.settings import WorkerOptions

__all__ = ["Deployment", "connect"]

Answer = TypeVar("Answer")


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


class Deployment(DeploymentBase, Blocking):
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
        super().__init__(target, schema=schema, retries=retries, serializer=serializer, store=store)
        self._server = server
        self._pool = Pool(
            self.driver, target, size=pool_size, timeout=pool_timeout, connect_timeout=connect_timeout
        )
        self.outbox = Outbox(self, "outbox")
        self.inbox = Inbox(self, "inbox")
        self.joins = Joins(self)
        self.ledger = Ledger(self)
        self.schedules = Schedules(self)
        self.audit = Audit(self)
        self.register = Register(self)
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
        if found is None or (kind is not None and found.kind != kind):
            real = self.run(self._box_kind(name, kind))
            found = self._boxes[name] = Outbox(self, name) if real == "outbox" else Inbox(self, name)
        return found

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
        return self.perform(Call(routine, arguments, connection, repeat))

    def run(self, steps: Described[Answer]) -> Answer:
        """Make the calls of a described method, and answer what it answers."""
        return drive(steps, self.perform)

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

    @property
    def pool(self) -> Pool:
        """The connections that calls without ``connection=`` use."""
        return self._pool

    def migrate(self, **options: Any) -> Plan:
        """Deploy the schema or bring it up to date; options as of ``pysqlbox.deploy.migrate.migrate``."""
        from pysqlbox.deploy.migrate import migrate

        try:
            plan = migrate(self.target, schema=self.schema, **options)
        except PysqlboxError as error:
            error.concerns(self.store_key)
            raise
        self._forget()
        return plan

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """A worker that serves boxes of this deployment; it works once it is started."""
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

    def perform(self, call: Call[Any]) -> list[Values]:
        """Make one call of a described method."""
        counts = self.counts
        if (counts is None and watching.watcher is None) or call.probe:
            return self._perform(call)
        if counts is None:
            return self._perform_traced(call)
        began = time.perf_counter()
        try:
            rows = self._perform_traced(call)
        except BaseException as error:
            counts.called(call.routine, call.arguments, (), time.perf_counter() - began, error)
            raise
        counts.called(call.routine, call.arguments, rows, time.perf_counter() - began, None)
        return rows

    def _perform_traced(self, call: Call[Any]) -> list[Values]:
        watcher = watching.watcher
        if watcher is None:
            return self._perform(call)
        with watcher.calling(self, call.routine, call.arguments) as watched:
            told: Call[Any] = Call(call.routine, watched.arguments, call.connection, call.repeat)
            return watched.answered(self._perform(told))

    def _perform(self, call: Call[Any]) -> list[Values]:
        try:
            refuse_bytes(call)
            if call.connection is None:
                return self._perform_pooled(call)
            raw = driver_connection(self.driver, self.target, call.connection)
            if not self._checked:
                self._check_on(raw)
            return self._fetch(raw, call)
        except PysqlboxError as error:
            error.concerns(self.store_key)
            raise

    def _fetch(self, raw: Any, call: Call[Any]) -> list[Values]:
        if type(call) is BoxNames:
            return [(name,) for name in self.driver.boxes(raw, self.schema)]
        if call.probe:
            return [(self.driver.has_routine(raw, self.schema, call.routine),)]
        return self.driver.fetch(raw, self.schema, call.routine, call.arguments)

    def _perform_pooled(self, call: Call[Any]) -> list[Values]:
        pool, driver = self._pool, self.driver
        started = time.monotonic()
        tried = 0
        while True:
            tried += 1
            raw = self._take(started, tried)
            try:
                if not self._checked:
                    self._check_on(raw)
                if call.probe:
                    rows = self._fetch(raw, call)
                else:
                    rows = driver.fetch(raw, self.schema, call.routine, call.arguments)
            except PysqlboxError as error:
                if not self._again(raw, error, call.repeat, tried, started):
                    raise
                self._log.warning(
                    "%s failed, trying again (%s of %s): %s [%s]",
                    call.routine, tried, self.retries.attempts, error, self.store,
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
        lost = self.driver.is_lost(raw, error.__cause__)
        if lost:
            self._pool.discard(raw)
            self._pool.purge()
        else:
            self._pool.give_back(raw)
        return self._is_passing(error, lost, repeat) and self._may_try(tried, started)

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

    def _check_on(self, raw: Any) -> None:
        drive(self._check(), lambda call: self._fetch(raw, call))
