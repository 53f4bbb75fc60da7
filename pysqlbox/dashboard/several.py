"""Many stores: one page that lists them, and the pages of each."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response

from pysqlbox.dashboard.ask import Ask
from pysqlbox.dashboard.pages import NAVIGATION
from pysqlbox.dashboard.people import VIEWER
from pysqlbox.dashboard.watch import Watch
from pysqlbox.stores import Stores
from pysqlbox.stores.looks import Look, Looks, Totals, named, totals

__all__ = ["ENTRIES", "Watches"]

#: Stores on one page; the field above them finds the others.
_MOST = 500
#: More are not offered by the chooser at the top, but by the page that lists them.
CHOICES = 200
#: Pages that are the same in every store, so that choosing another one stays on them.
PAGES = frozenset(page for page, _, _ in NAVIGATION)


class Watches:
    """A watch for each store that somebody has looked at."""

    def __init__(self, stores: Stores, boxes: Sequence[str] | None = None) -> None:
        self.stores = stores
        self.looks = Looks(stores, totals)
        self._boxes = boxes
        self._lock = threading.Lock()
        self._watches: dict[str, Watch] = {}

    def get(self, key: str) -> Watch:
        """The watch of a store; a new one if it has become another database. NotFound if there is none."""
        db = named(self.stores, key)
        with self._lock:
            found = self._watches.get(key)
            if found is not None and found.db is db:
                return found
            made = self._watches[key] = Watch(db, self._boxes)
        if found is not None:
            found.close()
        return made

    def keys(self) -> list[str]:
        """The keys to choose from, none if they are too many to."""
        found = sorted(store.name for store in self.stores.known())
        return found if len(found) <= CHOICES else []

    def close(self) -> None:
        """End the threads of all."""
        self.looks.close()
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
    assert ask.dashboard.watches is not None  # the route is there only with stores
    find = (ask.query("find") or "").strip()
    rows = [
        _state(look) for look in ask.dashboard.watches.looks.rows() if find.lower() in str(look.key).lower()
    ]
    rows.sort(key=lambda each: (each.error is None, -each.dead, -each.ready))
    return ask.page(
        "stores.html", title="Stores", rows=rows[:_MOST], left_out=max(0, len(rows) - _MOST), find=find
    )


def choose(ask: Ask) -> Response:
    """Go to a store's page; which one, the chooser at the top of every page says."""
    key, page = ask.query("key"), ask.query("page") or ""
    if key is None:
        return ask.go("")
    ask.store = key
    return ask.go(page if page in PAGES else "")


def _state(look: Look[Totals]) -> StoreState:
    found = look.found
    error = None if found is not None else str(look.error or "it has not answered yet")
    if found is None:
        return StoreState(str(look.key), error, 0, 0, 0, 0, None)
    return StoreState(
        str(look.key), None, found.ready, found.in_flight, found.dead, found.done, found.oldest_ready_seconds
    )


ENTRIES = (("GET", "/", VIEWER, stores), ("GET", "/choose", VIEWER, choose))
