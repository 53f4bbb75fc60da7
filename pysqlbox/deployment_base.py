"""What a deployment is, whoever calls it: where, what it must be asked first, and what is tried again."""

from __future__ import annotations

import re
import time
from functools import cache
from typing import Any, Self

from pysqlbox.calls import CallCounts
from pysqlbox.drivers import Driver, Target, Values, driver_for
from pysqlbox.errors import DatabaseUnavailable, InvalidArgument, NotFound, PysqlboxError, SchemaMismatch
from pysqlbox.logs import DeploymentLog
from pysqlbox.messages import BoxMetrics, Finding
from pysqlbox.names import Kind, NamedBox, StoreKey, check_schema_name
from pysqlbox.paths import migrations_root
from pysqlbox.retry import Retries
from pysqlbox.serializer import JsonSerializer, Serializer
from pysqlbox.steps import BoxNames, Call, Probe, Steps, routine

__all__ = ["DeploymentBase", "known_version", "refuse_bytes"]

_BYTES = (bytes, bytearray, memoryview)


class DeploymentBase:
    """A schema of a database, and the described methods that belong to no box."""

    def __init__(
        self,
        target: Target,
        *,
        schema: str,
        retries: Retries | None,
        serializer: Serializer | None,
        store: str | None,
    ) -> None:
        self.target = target
        self.schema = check_schema_name(target.dialect, schema)
        self.driver: Driver = driver_for(target.dialect)
        self.serializer: Serializer = serializer or JsonSerializer()
        self.store = store or f"{target.display} {schema}"
        #: The key under which it is one of several stores; every error that concerns it carries it.
        self.store_key: StoreKey | None = None
        self.retries = retries or Retries()
        self._log = DeploymentLog("pysqlbox", self)
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


def refuse_bytes(call: Call[Any]) -> None:
    """Only a hash is bytes; as anything else they would be some type that the routine does not have."""
    for name, value in call.arguments.items():
        if isinstance(value, _BYTES) and name != "hash":
            raise InvalidArgument(f"{name}: must not be bytes")


@cache
def known_version() -> int:
    """The highest version of the tables that this release deploys."""
    names = (path.name for path in migrations_root().iterdir())
    return max(int(match[1]) for name in names if (match := re.fullmatch(r"(\d{4})\..+\.py", name)))
