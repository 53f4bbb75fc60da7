"""What a worker of many stores knows of each of them, and of their boxes."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pysqlbox.boxes import AnyBox
from pysqlbox.stores.servers import Kept, ServedDatabase
from pysqlbox.stores.store import Store
from pysqlbox.worker.database import WorkerConnection
from pysqlbox.worker.handlers import Handlers
from pysqlbox.worker.logs import log_of
from pysqlbox.worker.outage import doubled
from pysqlbox.worker.served_box import NEVER, ServedBox
from pysqlbox.worker.served_store import ServedStore
from pysqlbox.worker.settings import Settings
from pysqlbox.worker.transactions import Transactions

if TYPE_CHECKING:
    from pysqlbox.deployment import Deployment

__all__ = ["LeaningStore", "StoreBox"]

#: The longest pause after failures.
LONGEST_PAUSE = 60.0
#: A store that has failed gets so long to connect and to answer, and more with each failure.
FIRST_LIMIT, LONGEST_LIMIT = 3.0, 30.0
#: After work, a box is asked again so soon: a bit later than the shortest interval between two hints.
AFTERWARDS = (0.03, 0.3)
#: How long a transactional handler waits for a connection.
TRANSACTION_WAIT_SECONDS = 30.0
#: Where one question tells which boxes of a database are to be asked, each is asked so much more seldom.
SURVEYED = 30.0
#: A box of a database into which nothing is written is asked all the same after so many sweeps.
PUT_OFF = 30
#: One of whose messages a survey tells as soon as they are there, after so many times the time of SURVEYED.
TOLD_BY_NUMBERS = 10
#: The numbers of messages, read at each sweep, are believed for so many sweeps.
NUMBERS_SWEEPS = 2.0
#: A call that has taken so long makes a store a slow one.
SLOW_SECONDS = 1.0


class _Slots:
    """The connections of transactional handlers, within the budget of the server."""

    def __init__(self, database: ServedDatabase, schema: str) -> None:
        self._database = database
        self._schema = schema

    @contextlib.contextmanager
    def connection(self) -> Iterator[Any]:
        """A psycopg or pyodbc connection in autocommit."""
        database = self._database
        with database.server.lend(
            database, schema=self._schema, raw=True, wait_seconds=TRANSACTION_WAIT_SECONDS
        ) as kept:
            if kept.raw is not None and not database.driver.is_alive(
                kept.raw, time.monotonic() - kept.used_at
            ):
                with contextlib.suppress(database.driver.database_error()):
                    kept.raw.close()
                kept.raw = None
            if kept.raw is None:
                kept.raw = database.driver.connect(database.target, autocommit=True, reused=True)
            yield kept.raw
            if not database.driver.reset(kept.raw):
                kept.raw = None

    def close(self) -> None:
        """The server closes them."""


class LeaningStore(ServedStore):
    """A store that leans on the connections to its server."""

    def __init__(self, store: Store, db: Deployment, database: ServedDatabase, owner: UUID) -> None:
        self.entry = store
        self.key = store.name
        self.deployment = db
        self.place = database
        self.database = database.calls
        self.transactions = Transactions(db, owner, 1, pool=_Slots(database, db.schema))
        self.log = log_of(db)
        self.boxes: list[StoreBox] = []
        #: Where it stands in the source.
        self.position = 0
        #: How many threads talk to it now; since when the one does that has taken too long.
        self.visits = 0
        self.failures = 0
        self.is_slow = False
        #: Whether it has ever answered.
        self.is_known = False
        self.is_leaving = False
        #: Whether its last claim brought messages.
        self.has_more = False
        #: Makes a connection one that is told of what comes.
        self.listen: Callable[[Kept], None] | None = None
        self._helping = threading.local()

    @property
    def suspect(self) -> bool:
        """Whether asking it may take long."""
        return bool(self.failures) or self.is_slow or not self.is_known or not self.place.server.is_answering

    @contextlib.contextmanager
    def connection(self) -> Iterator[WorkerConnection]:
        """One of the connections to its database."""
        limit = min(FIRST_LIMIT * 2 ** min(self.failures, 5), LONGEST_LIMIT) if self.suspect else None
        with self._lent(limit, None, 1.0) as connection:
            if self.listen is not None:
                self.listen(self._helping.kept)
            yield connection

    @contextlib.contextmanager
    def helper_connection(self, limit: float, meanwhile: Callable[[], None]) -> Iterator[WorkerConnection]:
        """The same for the lease keeper, whose calls are shorter."""
        with self._lent(limit, meanwhile, limit) as connection:
            yield connection

    @contextlib.contextmanager
    def _lent(
        self, limit: float | None, meanwhile: Callable[[], None] | None, wait_seconds: float
    ) -> Iterator[WorkerConnection]:
        place, schema = self.place, self.deployment.schema
        with place.server.lend(
            place, schema=schema, limit=limit, meanwhile=meanwhile, wait_seconds=wait_seconds
        ) as kept:
            assert kept.worker is not None
            kept.worker.schema = schema
            self._helping.kept = kept
            yield kept.worker

    @property
    def lent(self) -> Any:
        """The connection that this thread was lent last."""
        return self._helping.kept

    def close_helper(self) -> None:
        """There is none of its own."""

    def close(self) -> None:
        """Nothing is served here any more."""
        place = self.place
        place.boxes = {channel: box for channel, box in place.boxes.items() if box.store is not self}
        if not place.boxes:
            place.server.forget(place)
        self.entry.release()


class StoreBox(ServedBox):
    """One box of a store. Most of the time it waits for a sign of work."""

    store: LeaningStore

    def __init__(
        self,
        box: AnyBox,
        handlers: Handlers,
        settings: Settings,
        *,
        topics: Sequence[str] | None,
        threads: int,
        store: LeaningStore,
        sweep_seconds: float,
        opens: bool = False,
    ) -> None:
        """``opens``: it stands for a store whose boxes are not known yet."""
        super().__init__(
            box, handlers, settings,
            topics=topics, threads=threads, max_attempts=settings.max_attempts, store=store,
        )  # fmt: skip
        self.opens = opens
        self.channel = f"{box.deployment.schema}.{box.name}"
        self.sweep_seconds = sweep_seconds
        #: How many claims in a row have found nothing; at first as if that had been so.
        self.empties = len(AFTERWARDS)
        #: When a message becomes due, or a lease ends.
        self.due = NEVER
        self.is_due_known = False
        #: When the last claim began, and the last of those that proved that nothing waits.
        self.began_at = self.empty_at = float("-inf")
        #: Where a survey tells of each box by itself: when messages last came, and when a schedule was set.
        self.written_at = self.planned_at = float("-inf")
        #: When a survey last saw what was drawn for it, which tells of what statistics do not tell yet.
        self.drawn_at = float("-inf")
        #: Whether topics were left out of the last claim, whose handlers had no place.
        self.is_partial = False
        #: Where it is kept while nothing is to be done: see the scheduler.
        self.cold_at: float | None = None
        self.idle_looks = 0

    def claim_topics(self) -> list[str] | None:
        """As any box; whether something was left out is remembered."""
        found = super().claim_topics()
        self.is_partial = found is not self.topics
        return found

    def due_at(self, now: float) -> float:
        """When to talk to the database; about a store that is leaving, only to settle."""
        if self.store.is_leaving:
            return (self.next_poll if self.failures else now) if self.outcomes else NEVER
        return super().due_at(now)

    def being_asked(self, now: float) -> None:
        """As any box; when that was is remembered."""
        super().being_asked(now)
        self.began_at = now

    def schedule(self, asked: int, got: int, now: float) -> None:
        """Set the time of the next claim by what this one brought."""
        if got:
            self.empties = 0
            self.empty_at = float("-inf")
            super().schedule(asked, got, now)
            return
        self.empty_at = self.began_at if self.is_due_known and not self.is_partial else float("-inf")
        self.full = False
        self.empties += 1
        self.next_poll = min(now + self._pause(), max(self.due, now))

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has come for so long that due times are worth asking for."""
        return self.empties >= len(AFTERWARDS)

    def put_off(self, now: float) -> bool:
        """Put off the next claim, whose time has come, if the last one found nothing and nothing was written
        into its database since; whether it was. Now and then it is asked all the same.
        """
        if not self._is_told(now):
            return False
        self.next_poll = min(now + self._sweep(), self.due)
        return True

    def is_unplanned(self, since: float, now: float) -> bool:
        """Whether nobody has set a schedule since then, as far as statistics tell."""
        place = self.store.place
        if place.is_surveyed:
            return self.planned_at < since
        return place.is_postgres and place.server.is_watched and place.is_unchanged(since, now)

    def _is_told(self, now: float) -> bool:
        place = self.store.place
        if self.failures or self.outcomes or self.store.is_leaving or self.due <= now:
            return False
        if self._is_numbered(now):
            return now - self.empty_at < TOLD_BY_NUMBERS * self._sweep()
        return (
            place.is_postgres and place.server.is_watched
            and now - self.empty_at < PUT_OFF * self._sweep()
            and place.is_unchanged(self.empty_at, now, self.written_at if place.is_surveyed else None)
        )  # fmt: skip

    def _is_numbered(self, now: float) -> bool:
        """Whether a survey tells of each of its messages, and of none since the last claim found nothing."""
        return (
            self.store.place.is_surveyed
            and now - self.drawn_at < NUMBERS_SWEEPS * self.sweep_seconds
            and self.written_at < self.empty_at
        )

    def _pause(self) -> float:
        shortest = self.settings.poll_seconds
        if self.empties <= len(AFTERWARDS):
            return min(AFTERWARDS[self.empties - 1], shortest)
        server = self.store.place.server
        sweep = self._sweep()
        if server.is_over or self._is_numbered(time.monotonic()):
            return sweep
        if not self.store.place.is_postgres or not server.is_watched:
            return min(2 * shortest, sweep)
        # It is told of what comes, so these only make sure, less and less often.
        return min(2.0 ** min(self.empties - len(AFTERWARDS), 10) * shortest, sweep)

    def _sweep(self) -> float:
        """The time between two claims of which nobody has to tell; not the same for all, nor each time."""
        stretch = SURVEYED if self.store.place.is_surveyed else 1.0
        return self.sweep_seconds * stretch * random.uniform(0.8, 1.0)

    def _pause_after(self, failures: int, away: float) -> float:  # noqa: ARG002  # others do not notice
        """Twice as long after each failure: there are other stores to ask meanwhile."""
        return doubled(failures, LONGEST_PAUSE)
