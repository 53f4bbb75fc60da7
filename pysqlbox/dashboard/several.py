"""Many stores: one page that lists them, and the pages of each."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from starlette.responses import Response

from pysqlbox.dashboard.ask import Ask
from pysqlbox.dashboard.people import VIEWER
from pysqlbox.dashboard.watch import Watch
from pysqlbox.stores import Stores
from pysqlbox.stores.reports import StoreStats

__all__ = ["ENTRIES", "Watches"]


class Watches:
    """A watch for each store that somebody has looked at."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self._lock = threading.Lock()
        self._watches: dict[str, Watch] = {}

    def get(self, key: str) -> Watch:
        """The watch of a store; a new one if it has become another database. NotFound if there is none."""
        db = self.stores.get(key)
        with self._lock:
            found = self._watches.get(key)
            if found is not None and found.db is db:
                return found
            made = self._watches[key] = Watch(db)
        if found is not None:
            found.close()
        return made

    def close(self) -> None:
        """End the threads of all."""
        with self._lock:
            watches, self._watches = list(self._watches.values()), {}
        for watch in watches:
            watch.close()


@dataclass(frozen=True, slots=True)
class StoreState:
    """A store's boxes taken together."""

    key: str
    error: str | None
    ready: int
    in_flight: int
    dead: int
    done: int
    oldest_ready_seconds: float | None


def stores(ask: Ask) -> Response:
    """Every store, those that cannot be asked first, then those with the most dead letters."""
    found = ask.dashboard.watch.shared.get("stores", 5, lambda: _ask_all(ask))
    return ask.page("stores.html", title="Stores", rows=found)


def _ask_all(ask: Ask) -> list[StoreState]:
    watches = ask.dashboard.watches
    reports = [] if watches is None else watches.stores.stats()
    return sorted(map(_state, reports), key=lambda each: (each.error is None, -each.dead, -each.ready))


def _state(report: StoreStats) -> StoreState:
    totals = [rows[-1] for rows in report.stats.values() if rows]
    ages = [each.oldest_ready_seconds for each in totals if each.oldest_ready_seconds is not None]
    return StoreState(
        str(report.key),
        None if report.ok else report.error or "it cannot be asked",
        sum(each.ready for each in totals),
        sum(each.in_flight for each in totals),
        sum(each.dead for each in totals),
        sum(each.done for each in totals),
        max(ages, default=None),
    )


ENTRIES = (("GET", "/stores", VIEWER, stores),)
