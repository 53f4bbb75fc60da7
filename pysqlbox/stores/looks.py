"""Looking at every store again and again, for whoever shows them all: none waits for one that is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from pysqlbox.deployment import Deployment
from pysqlbox.errors import DatabaseUnavailable, InvalidArgument, NotFound, PysqlboxError
from pysqlbox.names import StoreKey
from pysqlbox.stores.keys import LONGEST, key_text
from pysqlbox.stores.store import Store
from pysqlbox.stores.stores import Stores

__all__ = ["Look", "Looks", "Totals", "named", "totals"]

Row = TypeVar("Row")

#: A store that is away is looked for this much more seldom than the others.
_SELDOM = 6


@dataclass(frozen=True, slots=True)
class Look(Generic[Row]):
    """What a store answered last; neither found nor error as long as it has not answered at all."""

    key: StoreKey
    found: Row | None
    error: PysqlboxError | None


class _Entry(Generic[Row]):
    def __init__(self, store: Store) -> None:
        self.store = store
        self.next_at = 0.0
        self.found: Row | None = None
        self.error: PysqlboxError | None = None
        self.future: Future[None] | None = None


class Looks(Generic[Row]):
    """Asks each store the same, at most every few seconds and only while somebody wants to know."""

    def __init__(
        self, stores: Stores, ask: Callable[[Deployment], Row], *, every: float = 5.0, patience: float = 2.0,
        threads: int = 8,
    ) -> None:  # fmt: skip
        """``patience``: seconds that a caller waits for those that do not answer at once."""
        self._stores = stores
        self._ask = ask
        self._every = every
        self._patience = patience
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry[Row]] = {}
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="pysqlbox-looks")

    def rows(self) -> list[Look[Row]]:
        """Each store, in the order of the source."""
        now = time.monotonic()
        with self._lock:
            before = self._entries
            self._entries = {}
            for store in self._stores.current():
                known = before.get(store.name)
                self._entries[store.name] = known if known and known.store is store else _Entry(store)
            entries = list(self._entries.values())
            # Those that answered last come first: what is away may hold the threads up.
            for entry in sorted(entries, key=lambda each: each.error is not None):
                if entry.future is None and now >= entry.next_at:
                    entry.future = self._threads.submit(self._look, entry)
            pending = [entry.future for entry in entries if entry.future is not None]
        wait(pending, timeout=self._patience)
        return [Look(entry.store.key, entry.found, entry.error) for entry in entries]

    def close(self) -> None:
        """Ask nobody any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _look(self, entry: _Entry[Row]) -> None:
        began = time.monotonic()
        seconds = self._every
        try:
            if entry.store.hold():
                try:
                    entry.found, entry.error = self._ask(entry.store.opened()), None
                finally:
                    entry.store.release()
        except PysqlboxError as error:
            entry.found, entry.error = None, error.concerns(entry.store.key)
            seconds *= _SELDOM
        finally:
            now = time.monotonic()
            # What is dear is asked more seldom, as everywhere on the pages.
            entry.next_at = now + max(seconds, min(20 * (now - began), _SELDOM * self._every))
            entry.future = None


def named(stores: Stores, key: str) -> Deployment:
    """The deployment of a key that somebody else gave: NotFound if there is none, and nothing else of him."""
    try:
        return stores.get(key_text(key))
    except NotFound:
        raise NotFound(
            f"store: there is none of the key {key!r}; name one of those that are served"
        ) from None
    except InvalidArgument as error:
        if not 1 <= len(key) <= LONGEST:
            raise NotFound("store: there is none of this key; name one of those that are served") from None
        raise DatabaseUnavailable(
            f"the store cannot be used, for what the source gives must be a URL or a deployment: {error}"
        ) from error


@dataclass(frozen=True, slots=True)
class Totals:
    """The boxes of a store taken together."""

    ready: int
    in_flight: int
    dead: int
    done: int
    oldest_ready_seconds: float | None


def totals(db: Deployment) -> Totals:
    """Count what is in all boxes of a deployment."""
    rows = [db.box(name).stats()[-1] for name in db.boxes()]
    ages = [each.oldest_ready_seconds for each in rows if each.oldest_ready_seconds is not None]
    return Totals(
        sum(each.ready for each in rows), sum(each.in_flight for each in rows),
        sum(each.dead for each in rows), sum(each.done for each in rows), max(ages, default=None),
    )  # fmt: skip
