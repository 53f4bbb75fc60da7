"""What a deployment needs of a database, whichever dialect it speaks."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pysqlbox.deploy.render import Unit
from pysqlbox.names import Dialect, NamedBox

#: How long a second deployer waits for the first.
LOCK_TIMEOUT_SECONDS = 300


class NotReplaceable(Exception):
    """An object cannot be replaced in place: all have to be dropped and created."""


@dataclass(frozen=True, slots=True)
class Record:
    """A unit as it was deployed: what its file said, and what the catalog then held."""

    id: str
    position: int
    object_name: str | None
    text_hash: str
    catalog_hash: bytes | None
    #: Every routine and view the unit created, as the store tells one from another of the same name.
    objects: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The objects; where the store has no more to tell them by, the name."""
        return self.objects or ((self.object_name,) if self.object_name else ())


class Store(Protocol):
    """One open transaction on the database to deploy to; never commits or rolls back by itself."""

    dialect: Dialect
    schema: str
    connection: Any

    def begin(self) -> None:
        """Set what the deployment's transaction needs of its session."""

    def lock(self) -> None:
        """Wait until no other deployment of this schema is under way; ends with the transaction."""

    def session(self) -> int:
        """What the server calls this session."""

    def limit_waits(self, seconds: float) -> None:
        """Wait for any other lock no longer than this."""

    def schema_exists(self) -> bool:
        """Whether the schema is there."""

    def create_schema(self) -> None:
        """Create the schema."""

    def has_state(self) -> bool:
        """Whether this schema was deployed by pysqlbox."""

    def version(self) -> int:
        """The highest version of the tables, 0 for none."""

    def boxes(self) -> list[NamedBox]:
        """The boxes this schema was deployed with."""

    def records(self) -> list[Record]:
        """The deployed units."""

    def objects(self) -> dict[str, bytes]:
        """The deployed routines and views that the catalog holds, each with a hash of its definition."""

    def strangers(self, units: Sequence[Unit], known: Collection[str]) -> list[str]:
        """Objects in the place of those that units would create, and not among the known."""

    def run(self, units: Sequence[Unit]) -> None:
        """Execute units."""

    def create(self, units: Sequence[Unit], stale: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Create units anew and drop what is stale by then, or change nothing and raise NotReplaceable.

        Answers each unit's objects where a name does not tell them.
        """

    def finish(self, records: Sequence[Record], roles: Sequence[Unit]) -> None:
        """Save the records of what was created, run the units for roles, note what the catalog holds then."""

    def clear(self, names: Sequence[str]) -> None:
        """Drop objects, given in the order of their creation."""

    def clear_for_tables(self, names: Sequence[str]) -> None:
        """Drop those of the objects that would stand in the way of changes to existing tables."""

    def place(self) -> int | None:
        """The place that this schema was given, if any."""

    def set_place(self, place: int) -> None:
        """Give the schema its place, and every box that has not got it yet."""

    def add_version(self, version: int) -> None:
        """Record a version of the tables."""

    def add_boxes(self, boxes: Iterable[NamedBox]) -> None:
        """Record boxes."""

    def save(self, records: Iterable[Record]) -> None:
        """Record units, in place of earlier records of them."""

    def forget(self, ids: Iterable[str]) -> None:
        """Remove records."""


def lock_key(schema: str) -> int:
    """The PostgreSQL advisory lock of a schema's deployments."""
    digest = hashlib.sha256(f"pysqlbox deployment {schema}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def lock_name(schema: str) -> str:
    """The SQL Server application lock of a schema's deployments."""
    return f"pysqlbox deployment {hashlib.sha256(schema.encode()).hexdigest()[:32]}"
