"""Upkeep apart from workers: once, by cron say, or again and again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, Self

from pysqlbox.arguments import Delay, text_list
from pysqlbox.deployment import Deployment
from pysqlbox.errors import AccessDenied, InvalidArgument, InvalidState, PysqlboxError
from pysqlbox.names import StoreKey
from pysqlbox.stores.each import AT_ONCE, report
from pysqlbox.stores.reports import StoreUpkeep
from pysqlbox.stores.store import Store
from pysqlbox.stores.stores import Stores
from pysqlbox.worker.handlers import seconds
from pysqlbox.worker.settings import lifetime, whole

__all__ = ["Upkeep"]

#: The longest retention there is, in seconds: more than thirty years.
_FOR_EVER = 1_000_000_000
_log = logging.getLogger("pysqlbox.upkeep")

#: Workers that have not said anything for longer have ended, or will say anew who they are.
_SILENT_SECONDS = 86_400.0


class Upkeep:
    """Reaps leases; deletes what was done long ago, dead letters past their lifetime, old keys and entries.

    Everything goes in short transactions, and several at once do no harm. Keys of deduplication that are past
    their window go with what was done.
    """

    def __init__(
        self,
        source: Deployment | Stores,
        *,
        every: Delay = 300,
        retention: Delay | None = timedelta(days=7),
        dead_retention: Delay | None = None,
        ledger_retention: Delay | None = timedelta(days=30),
        audit_retention: Delay | None = timedelta(days=365),
        batch_size: int = 1000,
        restart_delay: Delay = 30,
        parallel: int = AT_ONCE,
        leases: bool = True,
        cleaning: bool = True,
    ) -> None:
        """``every``: the pause between two rounds; ``restart_delay``: the one after a round that failed.

        ``retention``: how long done messages stay, ``dead_retention`` dead letters, ``ledger_retention`` keys
        of the ledger and ``audit_retention`` the audit log; None keeps them for ever. ``batch_size``: how
        many in one transaction.
        ``parallel``: how many stores at once. ``leases``: also take back those that have run out.
        ``cleaning``: clean up boxes too, as old keys of deduplication need it even if messages stay for ever.
        """
        if not isinstance(source, Deployment | Stores):
            raise InvalidArgument(f"source: must be a Deployment or Stores, not {type(source).__name__}")
        self._source = source
        self._every = _pause("every", every)
        self._restart_delay = _pause("restart_delay", restart_delay)
        self._retention = _lifetime("retention", retention)
        self._dead_retention = _lifetime("dead_retention", dead_retention)
        self._ledger_retention = _lifetime("ledger_retention", ledger_retention)
        self._audit_retention = _lifetime("audit_retention", audit_retention)
        self._batch_size = whole("batch_size", batch_size, 1, 10_000)
        self._parallel = whole("parallel", parallel, 1, 1000)
        self._leases = leases
        self._cleaning = cleaning
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def run_once(
        self,
        boxes: Iterable[str] | None = None,
        *,
        keys: Iterable[StoreKey] | None = None,
        ledger: bool | None = None,
    ) -> list[StoreUpkeep]:
        """Go on until nothing is left to do: a report for each store, or one for the deployment.

        Of all boxes and what a deployment has one of (ledger, audit log, register of workers), or of those
        boxes named, and the others if ``ledger`` says so; of all stores, or of those with these ``keys``. A
        store that fails is in its report; a single deployment's error is raised.
        """
        return self._round(boxes, keys, threading.Event(), ledger)

    def start(self) -> None:
        """Go on in a thread until stop()."""
        with self._lock:
            if self.is_running:
                raise InvalidState("the upkeep runs already: stop() it first")
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._stop,), name="pysqlbox-upkeep", daemon=True
            )
            self._thread.start()

    def stop(self, timeout: Delay | None = 30.0) -> bool:
        """End after the transaction that runs; whether that was within the timeout."""
        limit = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        with self._lock:
            thread = self._thread
            self._stop.set()
        if thread is not None:
            thread.join(limit)
        return not self.is_running

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._thread is not None and self._thread.is_alive()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Upkeep({self._source!r})"

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            failed = False
            try:
                reports = self._round(None, None, stop)
            except Exception as error:  # noqa: BLE001  # also a source's own error; the next round may do better
                _log.error("upkeep failed, again in %g s: %s", self._restart_delay, error)
                failed = True
            else:
                for each in reports:
                    if not each.ok:
                        failed = True
                        _log.error("upkeep failed, again in %g s: %s", self._restart_delay, each.error)
            stop.wait(self._restart_delay if failed else self._every)

    def _round(
        self,
        boxes: Iterable[str] | None,
        keys: Iterable[StoreKey] | None,
        stop: threading.Event,
        ledger: bool | None = None,
    ) -> list[StoreUpkeep]:
        names = text_list("boxes", boxes)
        with_ledger = names is None if ledger is None else ledger
        source = self._source
        if isinstance(source, Deployment):
            if keys is not None:
                raise InvalidArgument("keys: must be None, a deployment has no keys")
            return [
                StoreUpkeep(source.store_key, True, counts=self._care_for(source, names, with_ledger, stop))
            ]

        def care(store: Store) -> StoreUpkeep:
            return StoreUpkeep(
                store.key, True, counts=self._care_for(store.opened(), names, with_ledger, stop)
            )

        return report(source.current(keys), self._parallel, care, StoreUpkeep)

    def _care_for(
        self, db: Deployment, names: list[str] | None, ledger: bool, stop: threading.Event
    ) -> dict[str, int]:
        counts: dict[str, int] = {}
        failed: PysqlboxError | None = None
        for label, step in self._steps(db, db.boxes() if names is None else names, ledger):
            try:
                counts[label] = self._until_done(step, stop)
            except PysqlboxError as error:  # one box must not cost the others
                failed = failed or error
        if failed is not None:
            raise failed
        return counts

    def _steps(
        self, db: Deployment, names: Iterable[str], ledger: bool
    ) -> Iterator[tuple[str, Callable[[], int]]]:
        size = self._batch_size
        for name in names:
            box: Any = db.box(name)
            if self._leases:
                yield f"{name} leases", partial(box.reap, size)
            if self._cleaning:
                retention = _FOR_EVER if self._retention is None else self._retention
                yield f"{name} done", partial(box.cleanup, retention, batch_size=size)
            if self._dead_retention is not None:
                yield f"{name} dead", partial(box.cleanup_dead, self._dead_retention, batch_size=size)
        if ledger and self._ledger_retention is not None:
            yield "ledger", partial(db.ledger.cleanup, self._ledger_retention, batch_size=size)
        if ledger and self._audit_retention is not None:
            yield "audit", partial(_audit_cleanup, db, self._audit_retention, size)
        if ledger and self._retention is not None:
            yield "workers", partial(db.register.cleanup, _SILENT_SECONDS, batch_size=size)

    def _until_done(self, step: Callable[[], int], stop: threading.Event) -> int:
        total = 0
        while not stop.is_set():
            affected = step()
            total += affected
            if affected < self._batch_size:
                break
            time.sleep(0)  # whoever waits for the interpreter comes first
        return total


def _audit_cleanup(db: Deployment, retention: float, size: int) -> int:
    """Forget what is old in the audit log, where this login may: it takes an operator's role."""
    try:
        return db.audit.cleanup(retention, batch_size=size)
    except AccessDenied as error:
        _log.info("the audit log is left to others: %s [%s]", error, db.store)
        return 0


def _pause(name: str, value: Delay) -> float:
    found = seconds(name, value)
    if found is None:
        raise InvalidArgument(f"{name}: must be above 0")
    return found


def _lifetime(name: str, value: Delay | None) -> float | None:
    return None if value is None else lifetime(name, value)
