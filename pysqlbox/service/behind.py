"""What is behind the service: one deployment, or many stores, each of which fails for itself."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from pysqlbox import metrics
from pysqlbox.deployment import Deployment
from pysqlbox.errors import DatabaseUnavailable, InvalidArgument
from pysqlbox.stores import Stores
from pysqlbox.stores.looks import Looks, named, totals

__all__ = ["Behind", "StoreSeen"]


@dataclass(frozen=True, slots=True)
class StoreSeen:
    """A store and whether its database answers; the counts are those of its boxes taken together."""

    store: str
    ok: bool
    error: str | None
    ready: int | None
    in_flight: int | None
    dead: int | None
    done: int | None
    oldest_ready_seconds: float | None


class Behind:
    """Finds the deployment that a request is about, and speaks for all of them."""

    def __init__(self, source: Deployment | Stores) -> None:
        if not isinstance(source, Deployment | Stores):
            raise InvalidArgument(f"db: must be a Deployment or Stores, not {type(source).__name__}")
        self.source = source
        self._exporter = metrics.Exporter(source)
        self.stores = source if isinstance(source, Stores) else None
        self._versions = self._totals = None
        if self.stores is not None:
            self._versions = Looks(self.stores, Deployment.schema_version)
            self._totals = Looks(self.stores, totals)

    def deployment(self, store: str | None) -> Deployment:
        """The one deployment, or that of a store; NotFound if there is none of the key."""
        if isinstance(self.source, Deployment):
            return self.source
        assert store is not None  # a route of many stores cannot be called without
        return named(self.source, store)

    def ready(self) -> dict[str, object]:
        """Whether there is anything that can be worked with: DatabaseUnavailable if no store answers."""
        if self._versions is None:
            return {"status": "ok", "schema_version": self.deployment(None).schema_version()}
        rows = self._versions.rows()
        away = [row for row in rows if row.found is None]
        if rows and len(away) == len(rows):
            raise next(
                (row.error for row in away if row.error),
                DatabaseUnavailable("no store has answered yet; try again later"),
            )
        return {"status": "ok", "stores": len(rows), "away": len(away)}

    def seen(self) -> list[StoreSeen]:
        """Every store, in the order of the source."""
        rows = [] if self._totals is None else self._totals.rows()
        found = []
        for row in rows:
            counts = (None,) * 5 if row.found is None else dataclasses.astuple(row.found)
            error = "the database does not answer" if row.found is None else None
            found.append(StoreSeen(str(row.key), row.found is not None, error, *counts))
        return found

    def metrics(self) -> str:
        """The figures of all of them for Prometheus."""
        return str(self._exporter)

    def close(self) -> None:
        """Ask nobody any more."""
        for looks in (self._versions, self._totals):
            if looks is not None:
                looks.close()
