"""One run of a worker of one deployment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pysqlbox.errors import DatabaseUnavailable
from pysqlbox.unreachable import TELL_SECONDS
from pysqlbox.worker.caretaker import LOCK_SECONDS, Caretaker, Chore
from pysqlbox.worker.exchange import Exchange
from pysqlbox.worker.handlers import Handler
from pysqlbox.worker.handling import Handling
from pysqlbox.worker.health import BoxHealth, DatabaseState, ListenerState
from pysqlbox.worker.joins import handle_join_wait
from pysqlbox.worker.lease_keeper import LIMIT_SECONDS, LeaseKeeper
from pysqlbox.worker.lent_connection import LentConnection, lend
from pysqlbox.worker.logs import log_of
from pysqlbox.worker.outage import pause_after
from pysqlbox.worker.presence import presence
from pysqlbox.worker.scheduler import TURNS, Scheduler
from pysqlbox.worker.served_box import JOIN_WAIT, ServedBox
from pysqlbox.worker.served_store import ServedStore
from pysqlbox.worker.stalls import StallWatch
from pysqlbox.worker.timetable import Timetable
from pysqlbox.worker.transactions import Transactions
from pysqlbox.worker.worker_run import WorkerRun

if TYPE_CHECKING:
    from pysqlbox.deployment import Deployment
    from pysqlbox.worker.listener import Listener

__all__ = ["DeploymentRun"]


class DeploymentRun(WorkerRun):
    """Serves boxes of one deployment, which must be there before anything begins."""

    def __init__(self, db: Deployment, *arguments: Any, **options: Any) -> None:
        super().__init__(log_of(db), *arguments, **options)
        self._db = db
        self._listener: Listener | None = None
        threads = self._thread_count
        self._store = ServedStore(db, Transactions(db, self._owner, threads), min(TURNS, threads))

    def start(self) -> None:
        """Start the threads; if the database is down, as soon as it is there."""
        try:
            for topic in self._handlers.check(self._settings.topics, JOIN_WAIT):
                self._log.warning("the handler of %r gets nothing: its topic is none of topics=", topic)
            with self._asking():
                boxes = self._load_boxes()
        except DatabaseUnavailable as error:
            self._log.error("the database cannot be reached, waiting for it: %s", error)
            self._helpers.append(self._spawn("starter", self._wait_for_database))
        except BaseException:
            self._close_early()
            raise
        else:
            try:
                with self._asking():
                    self._call_on_start()
            except BaseException:
                self._close_early()
                raise
            self._launch(self._schedule(boxes))

    def _wait_for_database(self) -> None:
        since = time.monotonic()
        try:
            boxes = self._loaded_in_the_end(since)
            if boxes is not None:
                self._log.info("the database can be reached, after %.1f s", time.monotonic() - since)
                self._call_on_start()
                self._launch(self._schedule(boxes))
        except BaseException as error:  # noqa: BLE001  # it may be a hook's: whoever waits gets to hear of it
            self._log.error("the worker has not started: %s", error, exc_info=error)
            self.failure = error
            self._stopping.set()

    def _loaded_in_the_end(self, since: float) -> list[ServedBox] | None:
        """The boxes, as soon as the database can be reached; None if the worker is stopped first."""
        failures, told_at = 1, since
        while not self._stopping.wait(pause_after(failures, time.monotonic() - since)):
            failures += 1
            try:
                return self._load_boxes()
            except DatabaseUnavailable as error:
                now = time.monotonic()
                if now - told_at >= TELL_SECONDS:
                    told_at = now
                    self._log.error("the database cannot be reached for %.0f s now: %s", now - since, error)
        return None

    def _load_boxes(self) -> list[ServedBox]:
        settings = self._settings
        boxes = []
        connection = self._store.database.open()
        try:
            for name in settings.boxes:
                box = self._db.box(name)
                attempts = settings.max_attempts
                if attempts is None:
                    setting = connection.setting(box, "max_attempts")
                    attempts = None if setting is None else int(setting)
                topics = settings.topics
                if box.kind == "outbox":
                    if JOIN_WAIT not in self._handlers:
                        self._handlers.add(Handler(JOIN_WAIT, handle_join_wait), internal=True)
                    if topics is not None and JOIN_WAIT not in topics:
                        topics = (*topics, JOIN_WAIT)
                boxes.append(
                    ServedBox(
                        box, self._handlers, settings, topics=topics,
                        threads=self._thread_count, max_attempts=attempts, store=self._store,
                    )
                )  # fmt: skip
        finally:
            connection.close()
        return boxes

    def _schedule(self, boxes: list[ServedBox]) -> Scheduler:
        return Scheduler(boxes, threads=self._thread_count, coroutines=self._coroutines)

    def _make_exchange(self, scheduler: Scheduler) -> Exchange:
        return Exchange(scheduler, self._owner, self._settings.lease_seconds, self._worked_on)

    def _make_keeper(self, scheduler: Scheduler, handling: Handling, exchange: Exchange) -> LeaseKeeper:
        silence = self._store.database.report_silence
        stalls = StallWatch(
            scheduler, self._settings, self._held,
            lambda box: box.store.helper_connection(LIMIT_SECONDS, silence),
        )  # fmt: skip
        return LeaseKeeper(
            scheduler, self._threads, self._handlers, handling, exchange, self._coroutines, self._owner,
            self._settings, self._replace, silence, self._end_without_loop, self._log, stalls,
        )  # fmt: skip

    def _start_helpers(self, scheduler: Scheduler) -> None:
        if self._drain:
            return
        if self._settings.listen and self._db.target.dialect == "postgres":
            from pysqlbox.worker.listener import Listener

            listener = Listener(
                self._store.database, scheduler, partial(lend, self._store, scheduler),
                self._settings.poll_seconds,
            )  # fmt: skip
            self._listener = listener
            self._bells.append(listener.stop)
            self._spawn_helper("listener", listener.run)
        chores, timetables = list(self._chores()), list(self._timetables(scheduler))
        if chores or timetables:
            caretaker = Caretaker(
                scheduler,
                LentConnection(self._store, scheduler, LOCK_SECONDS),
                self._owner,
                chores,
                timetables,
                scheduler.boxes[0].log,
                may_sleep=self._settings.idle == "sleep",
            )
            self._spawn_helper("caretaker", caretaker.run)

    def _chores(self) -> Iterator[Chore]:
        settings = self._settings
        yield from presence(self._owner, settings, self._handlers, self._thread_count)
        for name in settings.boxes:
            if settings.reap_seconds is not None:
                yield Chore("reap", name, settings.reap_seconds, f"{name}_reap", {})
            if settings.cleanup_seconds is not None:
                arguments: dict[str, object] = {"retention_seconds": settings.retention}
                yield Chore("cleanup", name, settings.cleanup_seconds, f"{name}_cleanup", arguments)

    def _timetables(self, scheduler: Scheduler) -> Iterator[Timetable]:
        seconds = self._settings.schedule_seconds
        if seconds is not None:
            for box in scheduler.boxes:
                if box.queue.kind == "outbox":
                    yield Timetable(box, seconds)

    def _health_before(self, running: bool) -> list[BoxHealth]:
        database: DatabaseState = "away" if self._helpers else "unknown"
        return [
            BoxHealth(
                store=self._db.store, box=name, running=running, last_claim_at=None, last_settle_at=None,
                in_flight=0, stuck_handlers=0, database=database,
                listener="off" if self._listener is None else self._listener.state, asleep=False,
                stalled_since=None,
            )
            for name in self._settings.boxes
        ]  # fmt: skip

    def _hears(self, box: ServedBox) -> ListenerState:  # noqa: ARG002  # one listener hears for all
        return "off" if self._listener is None else self._listener.state

    def _keeper_ended(self) -> None:
        self._store.close_helper()

    def _must_end_at(self, until: float) -> None:
        """Nothing waits for the database longer than that."""
        self._store.database.must_end_at = until

    def _close_stores(self) -> None:
        self._store.close()
