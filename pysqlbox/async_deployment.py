"""A deployment for asynchronous callers: the same methods, each a coroutine function."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from pysqlbox.async_pool import AsyncPool
from pysqlbox.async_transaction import driver_connection
from pysqlbox.audit import AsyncAudit
from pysqlbox.deployment import Deployment
from pysqlbox.deployment_base import DeploymentBase, DeploymentOptions
from pysqlbox.drivers import Target, Values
from pysqlbox.drivers.asynchronous import AsyncDriver, async_driver_for
from pysqlbox.drivers.embedded import EmbeddedServer
from pysqlbox.inbox import AsyncInbox
from pysqlbox.joins import AsyncJoins
from pysqlbox.ledger import AsyncLedger
from pysqlbox.locate import locate
from pysqlbox.names import Kind
from pysqlbox.outbox import AsyncOutbox
from pysqlbox.register import AsyncRegister
from pysqlbox.schedules import AsyncSchedules
from pysqlbox.steps import Awaiting, Call, Described, do_async, drive_async

if TYPE_CHECKING:
    from pysqlbox.deploy.plan import Plan
    from pysqlbox.worker import Worker
    from pysqlbox.worker.settings import WorkerOptions

__all__ = ["AsyncDeployment", "connect_async"]

Answer = TypeVar("Answer")


def connect_async(url: str | Target | None = None, **options: Unpack[DeploymentOptions]) -> AsyncDeployment:
    """A deployment whose methods are awaited; nothing is connected before the first call.

    The arguments are those of ``connect``. PostgreSQL's calls wait on the event loop, SQL Server's in up to
    ``pool_size`` threads, for its driver knows no other way.
    """
    target, server = locate(url)
    return AsyncDeployment(target, server=server, **options)


class AsyncDeployment(DeploymentBase, Awaiting):
    """A deployment in one database, with a pool of connections; for the tasks of one event loop at a time."""

    _pool: AsyncPool

    def __init__(
        self, target: Target, *, server: EmbeddedServer | None = None, **options: Unpack[DeploymentOptions]
    ) -> None:
        """See connect_async; ``server`` is let go of when the deployment is closed."""
        super().__init__(target, server=server, **options)
        self._io: AsyncDriver = async_driver_for(target.dialect, self._limits["size"])
        self._pool = AsyncPool(self._io, target, **self._limits)
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
        ``connection=``, and use it for statements of your own. InvalidState if an error has ended the
        transaction that was kept from it: then nothing of it is committed.
        """
        error_type = self.driver.database_error()
        async with self.connection() as raw:
            await self._io.begin(raw)
            try:
                yield raw
                self._check_commits(raw)
            except BaseException:
                with contextlib.suppress(error_type):
                    await self._io.rollback(raw)
                raise
            try:
                await self._io.commit(raw)
            except error_type as error:
                raise self.driver.map_error(error, self.target).concerns(self.store_key) from error

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """A pooled connection in autocommit: psycopg's AsyncConnection, or pyodbc's, which blocks."""
        raw = await do_async(self._lending())
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
        self._io.shut_down()
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
                pool_size=self._limits["size"],
                pool_timeout=self._limits["timeout"],
                connect_timeout=self._limits["connect_timeout"],
                retries=self.retries,
                serializer=self.serializer,
                store=self.store,
            )
        return self._blocking

    async def perform(self, call: Call[Any]) -> list[Values]:
        """Make one call of a described method."""
        return await do_async(self._performing(call))

    async def _joined(self, connection: Any) -> Any:
        return await driver_connection(self._io, self.target, connection)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
