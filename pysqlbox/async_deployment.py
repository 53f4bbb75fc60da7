"""A deployment for asynchronous callers: the same methods, each a coroutine function."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from pysqlbox import watching
from pysqlbox.async_pool import AsyncPool
from pysqlbox.async_transaction import driver_connection
from pysqlbox.audit import AsyncAudit
from pysqlbox.deployment import Deployment
from pysqlbox.deployment_base import DeploymentBase, refuse_bytes
from pysqlbox.drivers import Target, Values
from pysqlbox.drivers.asynchronous import AsyncDriver, async_driver_for
from pysqlbox.drivers.embedded import EmbeddedServer
from pysqlbox.errors import DatabaseUnavailable, PysqlboxError
from pysqlbox.inbox import AsyncInbox
from pysqlbox.joins import AsyncJoins
from pysqlbox.ledger import AsyncLedger
from pysqlbox.locate import locate
from pysqlbox.names import Kind
from pysqlbox.outbox import AsyncOutbox
from pysqlbox.register import AsyncRegister
from pysqlbox.retry import Retries
from pysqlbox.schedules import AsyncSchedules
from pysqlbox.serializer import Serializer
from pysqlbox.steps import Awaiting, BoxNames, Call, Described, drive_async

if TYPE_CHECKING:
    from pysqlbox.deploy.plan import Plan
    from pysqlbox.worker import Worker
    from pysqlbox.worker.settings import WorkerOptions

__all__ = ["AsyncDeployment", "connect_async"]

Answer = TypeVar("Answer")


def connect_async(
    url: str | Target | None = None,
    *,
    schema: str = "infra",
    pool_size: int = 10,
    pool_timeout: float = 30.0,
    connect_timeout: int = 10,
    retries: Retries | None = None,
    serializer: Serializer | None = None,
    store: str | None = None,
) -> AsyncDeployment:
    """A deployment whose methods are awaited; nothing is connected before the first call.

    The arguments are those of ``connect``. PostgreSQL's calls wait on the event loop, SQL Server's in up to
    ``pool_size`` threads, for its driver knows no other way.
    """
    target, server = locate(url)
    return AsyncDeployment(
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


class AsyncDeployment(DeploymentBase, Awaiting):
    """A deployment in one database, with a pool of connections; for the tasks of one event loop at a time."""

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
        """See connect_async; ``server`` is let go of when the deployment is closed."""
        super().__init__(target, schema=schema, retries=retries, serializer=serializer, store=store)
        self._server = server
        self._driver: AsyncDriver = async_driver_for(target.dialect, pool_size)
        self._pool = AsyncPool(
            self._driver, target, size=pool_size, timeout=pool_timeout, connect_timeout=connect_timeout
        )
        self._blocking: Deployment | None = None
        self.outbox = AsyncOutbox(self, "outbox")
        self.inbox = AsyncInbox(self, "inbox")
        self.joins = AsyncJoins(self)
        self.ledger = AsyncLedger(self)
        self.schedules = AsyncSchedules(self)
        self.audit = AsyncAudit(self)
        self.register = AsyncRegister(self)
        self._boxes: dict[str, AsyncOutbox | AsyncInbox] = {"outbox": self.outbox, "inbox": self.inbox}

    @overload
    async def box(self, name: str, *, kind: Literal["outbox"]) -> AsyncOutbox: ...

    @overload
    async def box(self, name: str, *, kind: Literal["inbox"]) -> AsyncInbox: ...

    @overload
    async def box(self, name: str, *, kind: Kind | None = None) -> AsyncOutbox | AsyncInbox: ...

    async def box(self, name: str, *, kind: Kind | None = None) -> AsyncOutbox | AsyncInbox:
        """A box of this deployment by its name; NotFound if there is none.

        With ``kind`` a type checker knows what it is, and it is an InvalidArgument if it is of the other one.
        """
        found = self._boxes.get(name)
        if found is None or (kind is not None and found.kind != kind):
            real = await self.run(self._box_kind(name, kind))
            found = self._boxes[name] = (
                AsyncOutbox(self, name) if real == "outbox" else AsyncInbox(self, name)
            )
        return found

    async def call(
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
        return await self.perform(Call(routine, arguments, connection, repeat))

    async def run(self, steps: Described[Answer]) -> Answer:
        """Make the calls of a described method, and answer what it answers."""
        return await drive_async(steps, self.perform)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A connection in a transaction: committed at the end, rolled back on an exception.

        It is psycopg's AsyncConnection, or pyodbc's connection, which blocks. Hand it to the methods as
        ``connection=``, and use it for statements of your own.
        """
        error_type = self.driver.database_error()
        async with self.connection() as raw:
            await self._driver.begin(raw)
            try:
                yield raw
            except BaseException:
                with contextlib.suppress(error_type):
                    await self._driver.rollback(raw)
                raise
            try:
                await self._driver.commit(raw)
            except error_type as error:
                raise self.driver.map_error(error, self.target).concerns(self.store_key) from error

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """A pooled connection in autocommit: psycopg's AsyncConnection, or pyodbc's, which blocks."""
        try:
            raw = await self._take(time.monotonic())
        except PysqlboxError as error:
            error.concerns(self.store_key)
            raise
        try:
            yield raw
        finally:
            await self._pool.give_back(raw)

    @property
    def pool(self) -> AsyncPool:
        """The connections that calls without ``connection=`` use."""
        return self._pool

    async def migrate(self, **options: Any) -> Plan:
        """Deploy the schema or bring it up to date; options as of ``pysqlbox.deploy.migrate.migrate``."""
        plan = await asyncio.to_thread(self._waiting().migrate, **options)
        self._forget()
        return plan

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """A worker that serves boxes of this deployment, on connections of its own.

        Start it with ``async with worker`` or ``await worker.run_async()``; stop it before ``close``.
        """
        return self._waiting().worker(**options)

    async def close(self) -> None:
        """Close the idle connections now, and those in use when they come back."""
        self._pool.close()
        self._driver.shut_down()
        if self._blocking is not None:
            self._blocking.close()
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.stop)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _waiting(self) -> Deployment:
        """The same deployment for what runs on threads; it connects when it is used."""
        if self._blocking is None:
            self._blocking = Deployment(
                self.target,
                schema=self.schema,
                retries=self.retries,
                serializer=self.serializer,
                store=self.store,
            )
        return self._blocking

    async def perform(self, call: Call[Any]) -> list[Values]:
        """Make one call of a described method."""
        counts = self.counts
        if (counts is None and watching.watcher is None) or call.probe:
            return await self._perform(call)
        if counts is None:
            return await self._perform_traced(call)
        began = time.perf_counter()
        try:
            rows = await self._perform_traced(call)
        except BaseException as error:
            counts.called(call.routine, call.arguments, (), time.perf_counter() - began, error)
            raise
        counts.called(call.routine, call.arguments, rows, time.perf_counter() - began, None)
        return rows

    async def _perform_traced(self, call: Call[Any]) -> list[Values]:
        watcher = watching.watcher
        if watcher is None:
            return await self._perform(call)
        with watcher.calling(self, call.routine, call.arguments) as watched:
            told: Call[Any] = Call(call.routine, watched.arguments, call.connection, call.repeat)
            return watched.answered(await self._perform(told))

    async def _perform(self, call: Call[Any]) -> list[Values]:
        try:
            refuse_bytes(call)
            if call.connection is None:
                return await self._perform_pooled(call)
            raw = await driver_connection(self._driver, self.target, call.connection)
            if not self._checked:
                await self._check_on(raw)
            return await self._fetch(raw, call)
        except PysqlboxError as error:
            error.concerns(self.store_key)
            raise

    async def _fetch(self, raw: Any, call: Call[Any]) -> list[Values]:
        if type(call) is BoxNames:
            return [(name,) for name in await self._driver.boxes(raw, self.schema)]
        if call.probe:
            return [(await self._driver.has_routine(raw, self.schema, call.routine),)]
        return await self._driver.fetch(raw, self.schema, call.routine, call.arguments)

    async def _perform_pooled(self, call: Call[Any]) -> list[Values]:
        pool = self._pool
        started = time.monotonic()
        tried = 0
        while True:
            tried += 1
            raw = await self._take(started, tried)
            try:
                if not self._checked:
                    await self._check_on(raw)
                rows = await self._fetch(raw, call)
            except PysqlboxError as error:
                if not await self._again(raw, error, call.repeat, tried, started):
                    raise
                self._log.warning(
                    "%s failed, trying again (%s of %s): %s [%s]",
                    call.routine, tried, self.retries.attempts, error, self.store,
                )  # fmt: skip
            except BaseException:  # a cancellation, most often, in the midst of a statement
                pool.discard(raw)
                raise
            else:
                await pool.give_back(raw)
                return rows
            await asyncio.sleep(self.retries.pause(tried))

    async def _again(self, raw: Any, error: PysqlboxError, repeat: bool, tried: int, started: float) -> bool:
        """Put away the connection of a failed call; whether the call is to be tried again."""
        lost = self.driver.is_lost(raw, error.__cause__)
        if lost:
            self._pool.discard(raw)
            self._pool.purge()
        else:
            await self._pool.give_back(raw)
        return self._is_passing(error, lost, repeat) and self._may_try(tried, started)

    async def _take(self, started: float, tried: int = 1) -> Any:
        """A connection of the pool; one that cannot be had is tried for again."""
        while True:
            try:
                return await self._pool.take()
            except DatabaseUnavailable as error:
                if error.__cause__ is None or not self._may_try(tried, started):
                    raise  # without a cause the pool itself was exhausted, which took its time already
                self._log.warning("no connection, trying again: %s [%s]", error, self.store)
            await asyncio.sleep(self.retries.pause(tried))
            tried += 1

    async def _check_on(self, raw: Any) -> None:
        await drive_async(self._check(), lambda call: self._fetch(raw, call))
