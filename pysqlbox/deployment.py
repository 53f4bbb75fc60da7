"""A deployment in one database: its boxes, joins, ledger and schedules, and the calls they all make."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from pysqlbox.audit import Audit
from pysqlbox.deployment_base import DeploymentBase, DeploymentOptions
from pysqlbox.drivers import Driver, Target, Values
from pysqlbox.drivers.embedded import EmbeddedServer
from pysqlbox.errors import PysqlboxError
from pysqlbox.inbox import Inbox
from pysqlbox.joins import Joins
from pysqlbox.ledger import Ledger
from pysqlbox.locate import locate
from pysqlbox.names import Kind
from pysqlbox.outbox import Outbox
from pysqlbox.pool import Pool
from pysqlbox.register import Register
from pysqlbox.schedules import Schedules
from pysqlbox.steps import Blocking, Call, Described, do, drive
from pysqlbox.transaction import driver_connection

if TYPE_CHECKING:
    from pysqlbox.deploy.plan import Plan
    from pysqlbox.worker import Worker
    from pysqlbox.worker.settings import WorkerOptions

__all__ = ["Deployment", "connect"]

Answer = TypeVar("Answer")


def connect(url: str | Target | None = None, **options: Unpack[DeploymentOptions]) -> Deployment:
    """A deployment; nothing is connected before the first call.

    ``url`` is ``postgresql://…``, ``mssql://…`` or an ODBC string; without one ``PYSQLBOX_URL`` counts.
    ``embedded:`` and ``embedded:NAME`` start a PostgreSQL of one's own, with its data in the user's data
    directory. The options are those of ``DeploymentOptions``: ``schema="infra"``, ``pool_size=10``,
    ``pool_timeout=30.0``, ``connect_timeout=10``, ``retries``, ``serializer``, and ``store``, which is what
    the log calls this database.
    """
    target, server = locate(url)
    return Deployment(target, server=server, **options)


class Deployment(DeploymentBase, Blocking):
    """A deployment in one database, with a pool of connections; safe to share between threads."""

    _pool: Pool

    def __init__(
        self, target: Target, *, server: EmbeddedServer | None = None, **options: Unpack[DeploymentOptions]
    ) -> None:
        """See connect; ``server`` is let go of when the deployment is closed."""
        super().__init__(target, server=server, **options)
        self._pool = Pool(self.driver, target, **self._limits)
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

        Hand it to the methods as ``connection=``, and use it for statements of your own. InvalidState if an
        error has ended the transaction that was kept from it: then nothing of it is committed.
        """
        error_type = self.driver.database_error()
        with self.connection() as raw:
            raw.autocommit = False
            try:
                yield raw
                self._check_commits(raw)
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
        raw = do(self._lending())
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
        return do(self._performing(call))

    @property
    def _io(self) -> Driver:
        return self.driver

    def _joined(self, connection: Any) -> Any:
        return driver_connection(self.driver, self.target, connection)

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)
