"""Asks deployments for their figures, but never so often that monitoring becomes a load itself."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pysqlbox.errors import AccessDenied, PysqlboxError
from pysqlbox.messages import BoxMetrics
from pysqlbox.metrics.client import add_client, begin, deployments_of, labels_of
from pysqlbox.metrics.deployment import add_boxes
from pysqlbox.metrics.exposition import Families
from pysqlbox.metrics.topics import TOPICS, Chosen, topics_each
from pysqlbox.stores.stores import Stores

if TYPE_CHECKING:
    from pysqlbox.deployment import Deployment

__all__ = ["Exporter", "labels_of", "text"]

#: Asking takes up at most this part of one connection's time: whatever it took, the pause after it is longer.
SHARE = 0.1
#: A scrape waits so long for the database; then it says what was known before.
ANSWER_SECONDS = 5.0
#: What was known before is not told any more when it is older, and three times as old as it had to be.
STALE_SECONDS = 120.0
#: So many deployments are asked at once.
AT_ONCE = 8

_log = logging.getLogger("pysqlbox.metrics")


class _Source:
    """One deployment, its last answer, and the thread that fetches the next one."""

    def __init__(self, db: Deployment) -> None:
        self._db = weakref.ref(db)
        self._lock = threading.Lock()
        self._fetched = threading.Event()
        self._fetching = False
        self._asked = False
        self._next_at = 0.0
        self.rows: list[BoxMetrics] = []
        self.answered_at: float | None = None
        self.took = 0.0
        self.stale_seconds = STALE_SECONDS
        self.up = False
        self._denied = False
        self.chosen: dict[str, Chosen] = {}

    def begin(self) -> bool:
        """Whether it is time to fetch(), which the caller then must."""
        with self._lock:
            if self._fetching or time.monotonic() < self._next_at:
                return False
            self._fetching = True
            self._asked = False
            self._fetched.clear()
            return True

    def wait(self, deadline: float) -> bool | None:
        """Wait for the answer that is under way; whether the database has answered, if that is known."""
        if self._fetching and not self._fetched.wait(max(0.0, deadline - time.monotonic())):
            if self._asked:
                return False
            return self.up if self.answered_at is not None else None  # it is not its turn yet
        return self.up

    def fetch(self, share: float, *, close: bool) -> None:
        """Ask, so seldom that it takes up only this share; ``close`` leaves no connection behind."""
        db = self._db()
        close = close and db is not None and not db.pool.open
        self._asked = True
        began = time.monotonic()
        up = False
        try:
            if db is not None:
                self.rows = db.metrics()
                self.answered_at = time.monotonic()
                up = True
        except PysqlboxError as error:
            up = isinstance(error, AccessDenied)  # that is an answer, too
            if self.up or self.answered_at is None:
                if not (up and self._denied):
                    _log.warning("no figures: %s [%s]", error, "" if db is None else db.store)
                self._denied = up
        finally:
            now = time.monotonic()
            self.took = now - began
            with self._lock:
                self.up = up
                self._next_at = now + self.took * (1 / share - 1) if up else now
                self.stale_seconds = max(STALE_SECONDS, 3 * self.took / share)
                self._fetching = False
            self._fetched.set()
            if close and db is not None:
                db.pool.purge()


#: What was last asked of each deployment, by how many topics are shown.
_sources: weakref.WeakKeyDictionary[Deployment, dict[int | None, _Source]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _source(db: Deployment, topics: int | None) -> _Source:
    with _lock:
        return _sources.setdefault(db, {}).setdefault(topics, _Source(db))


class Exporter:
    """The metrics of one or many deployments, as text for Prometheus.

    Each scrape asks every deployment once, a few at a time, and waits a few seconds at most. A call that took
    long is not made again before ten times as long has gone by, times the number of deployments; meanwhile
    its last answer is told. Of Stores no connection stays open for it.
    """

    def __init__(
        self,
        dbs: Deployment | Stores | Iterable[Deployment] | Mapping[Any, Deployment],
        *,
        topics: int | None = TOPICS,
    ) -> None:
        """``topics``: how many topics of a box get series of their own; the others are one called ``other``.

        Many deployments share ALL_TOPICS among them. None shows every topic.
        """
        self._dbs = dbs
        self._topics = topics
        begin(dbs)

    def add_to(self, families: Families) -> None:
        """Add what is known of the deployments."""
        sources = [(db, _source(db, self._topics)) for db in deployments_of(self._dbs)]
        limit = topics_each(self._topics, len(sources))
        self._fetch([source for _, source in sources if source.begin()], len(sources))
        deadline = time.monotonic() + ANSWER_SECONDS
        for db, source in sources:
            labels = labels_of(db)
            up = source.wait(deadline)
            answering = families.get("pysqlbox_up", "gauge", "Whether the database has answered this scrape.")
            if up is not None:
                answering.add(up, labels)
            now, answered_at = time.monotonic(), source.answered_at
            if answered_at is not None and now - answered_at <= source.stale_seconds:
                age = families.get("pysqlbox_metrics_age_seconds", "gauge", "How old these figures are.")
                age.add(now - answered_at, labels)
                took = families.get(
                    "pysqlbox_metrics_query_seconds", "gauge", "How long the database took for them."
                )
                took.add(source.took, labels)
                with _lock:
                    add_boxes(families, source.rows, source.chosen, labels, limit)
            add_client(families, db, self._topics, len(sources))

    def __str__(self) -> str:
        families = Families()
        self.add_to(families)
        return str(families)

    def _fetch(self, wanted: list[_Source], among: int) -> None:
        """Fetch these in threads of their own; returns at once."""
        waiting = deque(sorted(wanted, key=lambda source: not source.up))  # who may be silent comes last
        share = SHARE / max(among, 1)
        close = isinstance(self._dbs, Stores)

        def fetch() -> None:
            while True:
                try:
                    source = waiting.popleft()
                except IndexError:
                    return
                source.fetch(share, close=close)

        for _ in range(min(AT_ONCE, len(wanted))):
            threading.Thread(target=fetch, name="pysqlbox-metrics", daemon=True).start()


def text(db: Deployment, *, topics: int | None = TOPICS) -> str:
    """The metrics of a deployment as Prometheus reads them, content type ``metrics.CONTENT_TYPE``.

    ``topics``: how many topics of a box get series of their own, the others being one called ``other``; None
    shows every topic. Whoever serves many deployments keeps an ``Exporter`` of them.
    """
    return str(Exporter((db,), topics=topics))
