"""What a deployment is, whoever calls it: where, what it must be asked first, and what is tried again."""

from __future__ import annotations

import functools
import re
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Self, TypedDict

from pysqlbox import watching
from pysqlbox.calls import CallCounts
from pysqlbox.drivers import Driver, Target, Values, driver_for
from pysqlbox.errors import (
    DatabaseUnavailable,
    InvalidArgument,
    InvalidState,
    NotFound,
    PysqlboxError,
    SchemaMismatch,
)
from pysqlbox.logs import DeploymentLog
from pysqlbox.messages import BoxMetrics, Finding
from pysqlbox.names import Kind, NamedBox, StoreKey, check_schema_name
from pysqlbox.paths import migrations_root
from pysqlbox.pool_base import PoolLimits
from pysqlbox.retry import Retries
from pysqlbox.serializer import JsonSerializer, Serializer
from pysqlbox.steps import BoxNames, Call, Doings, Probe, Steps, routine, through
from pysqlbox.unreachable import Unreachable

if TYPE_CHECKING:
    from pysqlbox.drivers.embedded import EmbeddedServer

__all__ = ["DeploymentBase", "DeploymentOptions", "known_version"]

_BYTES = (bytes, bytearray, memoryview)


class DeploymentOptions(TypedDict, total=False):
    """What ``connect`` and ``connect_async`` may be told, beside the URL."""

    schema: str
    """The schema with the boxes; ``infra`` unless told otherwise."""
    pool_size: int
    """How many connections there may be at once; 10."""
    pool_timeout: float
    """How many seconds to wait for one when all are in use; 30."""
    connect_timeout: int
    """How many seconds connecting may take; 10."""
    retries: Retries | None
    """How often, and for how long, what passes is tried again."""
    serializer: Serializer | None
    """What makes text of payloads that are none; JSON unless told otherwise."""
    store: str | None
    """What the log calls this database."""


class DeploymentBase:
    """A schema of a database, the described methods that belong to no box, and how each call is made.

    How a call is made is described as well (``Doings``), for those who wait and for those who await.
    """

    #: The pool, and what talks through its connections; both faces have their own kind.
    _pool: Any
    _io: Any

    def __init__(
        self,
        target: Target,
        *,
        server: EmbeddedServer | None = None,
        schema: str = "infra",
        pool_size: int = 10,
        pool_timeout: float = 30.0,
        connect_timeout: int = 10,
        retries: Retries | None = None,
        serializer: Serializer | None = None,
        store: str | None = None,
    ) -> None:
        """See ``DeploymentOptions``; ``server`` is let go of when the deployment is closed."""
        self._server = server
        self._limits: PoolLimits = {
            "size": pool_size, "timeout": pool_timeout, "connect_timeout": connect_timeout
        }  # fmt: skip
        self.target = target
        self.schema = check_schema_name(target.dialect, schema)
        self.driver: Driver = driver_for(target.dialect)
        self.serializer: Serializer = serializer or JsonSerializer()
        self.store = store or f"{target.display} {schema}"
        #: The key under which it is one of several stores; every error that concerns it carries it.
        self.store_key: StoreKey | None = None
        self.retries = retries or Retries()
        self._log = DeploymentLog("pysqlbox", self)
        self._unreachable = Unreachable(self._log)
        #: What its methods have sent, received and settled, since measure().
        self.counts: CallCounts | None = None
        self._checked = False
        #: What message_ids that are drawn here carry, once it was asked for.
        self.place: int | None = None
        self._kinds: dict[str, Kind] = {"outbox": "outbox", "inbox": "inbox"}

    def __repr__(self) -> str:
        return f"<pysqlbox.{type(self).__name__} {self.target} schema={self.schema!r}>"

    @property
    def deployment(self) -> Self:
        """Itself: what boxes have under this name."""
        return self

    def measure(self) -> None:
        """Count from now on what its methods send, receive and settle, for metrics."""
        if self.counts is None:
            self.counts = CallCounts()

    @routine
    def schema_version(self) -> Steps[int]:
        """The version of the deployed tables."""
        rows = yield Call("schema_version", {}, repeat=True)
        return int(rows[0][0])

    @routine
    def schema_place(self) -> Steps[int | None]:
        """The place that the deployment was given, if any."""
        rows = yield Call("schema_place", {}, repeat=True)
        place = rows[0][0]
        return None if place is None else int(place)

    @routine
    def schema_boxes(self, *, connection: Any = None) -> Steps[list[NamedBox]]:
        """The boxes of this deployment, the default ones first."""
        rows = yield Call("schema_boxes", {}, connection, True)
        return [NamedBox(*row) for row in rows]

    @routine
    def boxes(self) -> Steps[list[str]]:
        """The names of all boxes of this deployment that this user may see."""
        rows = yield BoxNames()
        return sorted(str(row[0]) for row in rows)

    @routine
    def drawing_place(self) -> Steps[int]:
        """What message_ids that are drawn here carry; asked once, for a place is for good."""
        return self.draw_place()

    @routine
    def doctor(self, *, connection: Any = None) -> Steps[list[Finding]]:
        """What a DBA should know about this deployment: a row for each thing found, and for each check."""
        rows = yield Call("doctor", {}, connection, True)
        return [Finding(*row) for row in rows]

    @routine
    def metrics(self, *, connection: Any = None) -> Steps[list[BoxMetrics]]:
        """What monitoring asks of every box: by topic, and in total where the topic is None."""
        rows = yield Call("metrics", {}, connection, True)
        return [BoxMetrics(*row) for row in rows]

    def draw_place(self) -> Steps[int]:
        """The steps of drawing_place, none after the first time."""
        if self.place is None:
            self.place = (yield from DeploymentBase.schema_place.steps(self)) or 0
        return self.place

    def kind_of(self, name: str) -> Steps[Kind]:
        """What a box is, asked once; NotFound if there is none of that name."""
        if name not in self._kinds:
            self._kinds[name] = yield from self._look_for(name)
        return self._kinds[name]

    def _look_for(self, name: str) -> Steps[Kind]:
        if re.fullmatch(r"[a-z][a-z0-9_]*", name):
            if (yield from Probe(f"{name}_already_processed")):
                return "inbox"
            if (yield from Probe(f"{name}_enqueue")):
                return "outbox"
        raise NotFound(
            f"box {name!r}: schema {self.schema!r} has none of that name, or it may not be used;"
            f" pysqlbox migrate --box {name}:outbox (or :inbox) adds one"
        ).concerns(self.store_key)

    def _box_kind(self, name: str, wanted: Kind | None) -> Steps[Kind]:
        found = yield from self.kind_of(name)
        if wanted is not None and found != wanted:
            raise InvalidArgument(f"kind: box {name!r} is an {found}; kind must be that")
        return found

    def _joined(self, connection: Any) -> Any:
        """The driver's connection behind a caller's, or what is to be awaited for it."""
        raise NotImplementedError

    def _pause(self, seconds: float) -> Any:
        """Wait, or what is to be awaited for that."""
        raise NotImplementedError

    def _performing(self, call: Call[Any]) -> Doings[list[Values]]:
        """Make one call of a described method, told to whoever counts or watches."""
        counts = self.counts
        if (counts is None and watching.watcher is None) or call.probe:
            return self._making(call)
        return self._traced(call) if counts is None else self._counted(call, counts)

    def _counted(self, call: Call[Any], counts: CallCounts) -> Doings[list[Values]]:
        began = time.perf_counter()
        try:
            rows = yield from self._traced(call)
        except BaseException as error:
            counts.called(call.routine, call.arguments, (), time.perf_counter() - began, error)
            raise
        counts.called(call.routine, call.arguments, rows, time.perf_counter() - began, None)
        return rows

    def _traced(self, call: Call[Any]) -> Doings[list[Values]]:
        watcher = watching.watcher
        if watcher is None:
            return (yield from self._making(call))
        with watcher.calling(self, call.routine, call.arguments) as watched:
            told: Call[Any] = Call(call.routine, watched.arguments, call.connection, call.repeat)
            return watched.answered((yield from self._making(told)))

    def _making(self, call: Call[Any]) -> Doings[list[Values]]:
        """The call itself: in the caller's transaction, or on a connection of the pool."""
        try:
            _refuse_bytes(call)
            if call.connection is None:
                return (yield from self._pooled(call))
            raw = yield lambda: self._joined(call.connection)
            if not self._checked:
                yield from self._check_on(raw)
            return (yield from self._fetching(raw, call))
        except PysqlboxError as error:
            error.concerns(self.store_key)
            raise

    def _pooled(self, call: Call[Any]) -> Doings[list[Values]]:
        pool = self._pool
        started = time.monotonic()
        tried = 0
        while True:
            tried += 1
            raw = yield from self._taking(started, tried)
            try:
                if not self._checked:
                    yield from self._check_on(raw)
                rows = yield from self._fetching(raw, call)
            except PysqlboxError as error:
                lost = self.driver.is_lost(raw, error.__cause__)
                if lost:
                    pool.discard(raw)
                    pool.purge()
                else:
                    yield functools.partial(pool.give_back, raw)
                if not (self._is_passing(error, lost, call.repeat) and self._may_try(tried, started)):
                    raise
                self._log.warning(
                    "%s failed, trying again (%s of %s): %s [%s]",
                    call.routine, tried, self.retries.attempts, error, self.store,
                )  # fmt: skip
            except BaseException:  # an interrupt, or a cancellation, in the midst of a statement
                pool.discard(raw)
                raise
            else:
                yield functools.partial(pool.give_back, raw)
                return rows
            yield functools.partial(self._pause, self.retries.pause(tried))

    def _taking(self, started: float, tried: int = 1) -> Doings[Any]:
        """A connection of the pool; one that cannot be had is tried for again."""
        while True:
            try:
                taken = yield self._pool.take
            except DatabaseUnavailable as error:
                if error.__cause__ is None or not self._may_try(tried, started):
                    raise  # without a cause the pool itself was exhausted, which took its time already
                self._unreachable.note(error, self.store)
            else:
                self._unreachable.end(self.store)
                return taken
            yield functools.partial(self._pause, self.retries.pause(tried))
            tried += 1

    def _lending(self) -> Doings[Any]:
        """A connection of the pool for the caller's own use."""
        try:
            return (yield from self._taking(time.monotonic()))
        except PysqlboxError as error:
            error.concerns(self.store_key)
            raise

    def _check_on(self, raw: Any) -> Doings[None]:
        """The check of the schema, on a connection."""
        return through(self._check(), functools.partial(self._fetching, raw))

    def _fetching(self, raw: Any, call: Call[Any]) -> Doings[list[Values]]:
        """The rows of a call, on a connection."""
        io, schema = self._io, self.schema
        if type(call) is BoxNames:
            return [(name,) for name in (yield lambda: io.boxes(raw, schema))]
        if call.probe:
            return [((yield lambda: io.has_routine(raw, schema, call.routine)),)]
        rows: list[Values] = yield lambda: io.fetch(raw, schema, call.routine, call.arguments)
        return rows

    def _check_commits(self, raw: Any) -> None:
        """Refuse the commit of a transaction that an error has ended: the server would roll it back, and say
        nothing.
        """
        if self.driver.has_failed(raw):
            raise InvalidState(
                "transaction: an error has ended it, so it is rolled back; let errors leave the block,"
                " or catch them around a savepoint"
            ).concerns(self.store_key)

    def _is_passing(self, error: PysqlboxError, lost: bool, repeat: bool) -> bool:
        """Whether a call that failed so may do better when it is made again."""
        return isinstance(error, DatabaseUnavailable) and (
            (lost and repeat) or self.driver.is_conflict(error.__cause__)
        )

    def _may_try(self, tried: int, started: float) -> bool:
        retries = self.retries
        return tried < retries.attempts and time.monotonic() - started < retries.give_up_seconds

    def _check(self) -> Steps[None]:
        """Refuse a schema that is missing, or newer than this release; once per deployment."""
        try:
            rows = yield Call("schema_version", {})
        except SchemaMismatch as error:
            raise self._missing() from error.__cause__
        except PysqlboxError as error:
            # Babelfish has one number for all that SQL Server knows no number for, a missing schema too.
            if type(error) is PysqlboxError and not (yield from Probe("schema_version")):
                raise self._missing() from error.__cause__
            raise
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

    def _forget(self) -> None:
        """Ask again what a migration may have changed."""
        self._checked = False
        self.place = None


def _refuse_bytes(call: Call[Any]) -> None:
    """Only a hash is bytes; as anything else they would be some type that the routine does not have."""
    for name, value in call.arguments.items():
        if isinstance(value, _BYTES) and name != "hash":
            raise InvalidArgument(f"{name}: must not be bytes")


@cache
def known_version() -> int:
    """The highest version of the tables that this release deploys."""
    names = (path.name for path in migrations_root().iterdir())
    return max(int(match[1]) for name in names if (match := re.fullmatch(r"(\d{4})\..+\.py", name)))
