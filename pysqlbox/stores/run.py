"""One run of a worker of many stores: which stores there are, and the threads that look after them."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from pysqlbox.errors import InvalidArgument, InvalidState, PysqlboxError
from pysqlbox.stores.care import Cares, StoreCare
from pysqlbox.stores.ears import listen
from pysqlbox.stores.exchange import StoresExchange
from pysqlbox.stores.keeper import StoresKeeper
from pysqlbox.stores.scheduler import StoresScheduler
from pysqlbox.stores.served import LeaningStore, StoreBox
from pysqlbox.stores.servers import Kept, ServedDatabase, Server, server_name
from pysqlbox.stores.store import Store
from pysqlbox.stores.strategies import Strategy
from pysqlbox.stores.survey import Survey
from pysqlbox.stores.watcher import Watcher
from pysqlbox.worker.caretaker import Chore
from pysqlbox.worker.database import WorkerConnection
from pysqlbox.worker.handlers import Handler
from pysqlbox.worker.handling import Handling
from pysqlbox.worker.health import BoxHealth, ListenerState
from pysqlbox.worker.joins import handle_join_wait
from pysqlbox.worker.lease_keeper import LIMIT_SECONDS, LeaseKeeper
from pysqlbox.worker.logs import StoreLog
from pysqlbox.worker.presence import presence
from pysqlbox.worker.scheduler import Scheduler
from pysqlbox.worker.served_box import JOIN_WAIT, ServedBox
from pysqlbox.worker.stalls import StallWatch
from pysqlbox.worker.timetable import Timetable
from pysqlbox.worker.worker_run import WorkerRun

if TYPE_CHECKING:
    from pysqlbox.boxes import AnyBox
    from pysqlbox.stores.stores import Stores

__all__ = ["StoresRun"]

_log = logging.getLogger("pysqlbox.worker")

#: After a source has failed at the start, it is asked again after a pause, which doubles up to the last.
START_PAUSE, LONGEST_START_PAUSE = 0.2, 5.0
#: How often the slow thread looks around.
CARE_SECONDS = 0.1
#: So long a worker that ends takes itself out of its stores' registers; those left over forget it in a day.
SIGN_OFF_SECONDS = 1.0
#: With more stores than this, schedules that somebody sets are noticed later.
SCHEDULED_STORES = 100
#: A budget that is too small for so long is told of, so often; at the start there may just be much to do.
CROWDED_SECONDS, COMPLAIN_SECONDS = 10.0, 60.0


class StoresRun(WorkerRun):
    """Serves boxes of whatever stores there are."""

    def __init__(
        self,
        stores: Stores,
        strategy: Strategy,
        connections: int,
        sweep_seconds: float,
        *arguments: Any,
        **options: Any,
    ) -> None:
        super().__init__(StoreLog("stores", {}), *arguments, **options)
        self._stores = stores
        self._strategy = strategy
        self._budget = connections
        self._sweep_seconds = sweep_seconds
        self._servers: dict[str, Server] = {}
        self._served: dict[int, LeaningStore] = {}
        self._cares: dict[LeaningStore, StoreCare] = {}
        self._version = -1
        self._ask_at, self._pause = 0.0, START_PAUSE
        self._watcher: Watcher | None = None
        self._silence_at = 0.0
        self._complain_at: dict[Server, float] = {}

    # Beginning

    def start(self) -> None:
        """Start the threads; stores are served as soon as each is there."""
        try:
            if JOIN_WAIT not in self._handlers:
                self._handlers.add(Handler(JOIN_WAIT, handle_join_wait), internal=True)
            for topic in self._handlers.check(self._settings.topics, JOIN_WAIT):
                self._log.warning("the handler of %r gets nothing: its topic is none of topics=", topic)
            with self._asking():
                self._ask(first=True)
                self._call_on_start()
        except BaseException:
            self._close_early()
            raise
        scheduler = StoresScheduler(self._strategy, threads=self._thread_count, coroutines=self._coroutines)
        self._muster(scheduler, set())
        self._launch(scheduler)
        with self._ending:
            if self._over.is_set():  # a stop() meanwhile has closed what there was; this is what came since
                self._close_stores()

    def _ask(self, *, first: bool = False) -> None:
        """Ask the source for the first time; until it answers there is nobody to serve."""
        try:
            self._stores.current()
        except Exception as error:  # the source is the caller's code
            if first and isinstance(error, InvalidArgument | InvalidState):
                raise
            self._log.error("the source of the stores fails, waiting for it: %s", error)
            self._ask_at = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, LONGEST_START_PAUSE)

    def _make_exchange(self, scheduler: Scheduler) -> StoresExchange:
        assert isinstance(scheduler, StoresScheduler)
        settings = self._settings
        self._watcher = Watcher(
            self._list_servers, scheduler, settings.listen
        )  # threads open what it watches
        self._bells.append(self._watcher.ring)
        return StoresExchange(
            scheduler, self._owner, settings.lease_seconds, self._worked_on, settings.boxes,
            self._make_boxes, self._opened,
        )  # fmt: skip

    def _make_keeper(self, scheduler: Scheduler, handling: Handling, exchange: Any) -> LeaseKeeper:
        return StoresKeeper(
            scheduler, self._threads, self._handlers, handling, exchange, self._coroutines, self._owner,
            self._settings, self._replace, self._report_silence, self._end_without_loop, self._log,
            StallWatch(scheduler, self._settings, self._held, self._lend), each_round=self._round,
        )  # fmt: skip

    def _start_helpers(self, scheduler: Scheduler) -> None:  # noqa: ARG002  # its parts know it
        watcher = self._watcher
        if watcher is not None:
            self._spawn_helper("watcher", watcher.run)
        self._spawn_helper("caretaker", self._take_care)

    # Stores that come and go; in the keeper's thread

    def _round(self, held: set[ServedBox]) -> None:
        scheduler = self._scheduler
        assert isinstance(scheduler, StoresScheduler)
        if scheduler.stopping:
            return
        self._muster(scheduler, held)
        self._complain()

    def _muster(self, scheduler: StoresScheduler, held: set[ServedBox]) -> None:
        stores = self._stores
        if stores.version == 0 and time.monotonic() >= self._ask_at:
            self._ask_at = float("inf")
            self._spawn("source", self._ask)
        stores.refresh_soon()
        if stores.version != self._version:
            self._version = stores.version
            self._follow(scheduler, stores.known())
        for store in scheduler.leaving:
            if not self._signs_off(store) and scheduler.remove_if_drained(store, held):
                self._served = {key: each for key, each in self._served.items() if each is not store}
                self._cares.pop(store, None)
                store.close()
                store.log.info("the store is not served any more")

    def _follow(self, scheduler: StoresScheduler, entries: Sequence[Store]) -> None:
        """Serve these stores, and those that are gone no longer."""
        wanted = {id(entry): entry for entry in entries if entry.deployment is not None}
        for identity, store in self._served.items():
            if identity not in wanted and not store.is_leaving:
                scheduler.leave(store)
        taken = {
            (store.deployment.target.dsn, store.deployment.schema): store
            for store in self._served.values()
            if not store.is_leaving
        }
        for position, (identity, entry) in enumerate(wanted.items()):
            known = self._served.get(identity)
            if known is not None and not known.is_leaving:
                known.position = position
                continue
            db = entry.deployment
            if db is None or known is not None:  # leaving, and back: as soon as it has left
                self._version = -1 if known is not None else self._version
                continue
            twin = taken.get((db.target.dsn, db.schema))
            if twin is not None:
                self._log.warning("store %r is %r under another key, which is served", entry.name, twin.key)
                continue
            if not entry.hold():
                continue
            store = self._add(entry, position)
            taken[db.target.dsn, db.schema] = store
            self._served[identity] = store
            scheduler.add_store(store)

    def _add(self, entry: Store, position: int) -> LeaningStore:
        db = entry.opened()
        name = server_name(db.target)
        server = self._servers.get(name)
        if server is None:
            server = self._servers[name] = Server(name, self._budget)
        database = server.databases.get(db.target.dsn)
        if database is None:
            database = ServedDatabase(server, db)
            server.databases = {**server.databases, db.target.dsn: database}
        store = LeaningStore(entry, db, database, self._owner)
        store.position = position
        if self._settings.listen and database.is_postgres:
            store.listen = self._listen
        store.boxes = [self._make_box(store, db.outbox, opens=True)]
        for box in store.boxes:
            database.boxes[f"{box.channel} opens"] = box  # so that the database is not forgotten meanwhile
        return store

    def _listen(self, kept: Kept) -> None:
        scheduler = self._scheduler
        if scheduler is not None:
            listen(kept, scheduler.wake)

    def _make_boxes(self, store: LeaningStore, boxes: list[AnyBox]) -> list[StoreBox]:
        made = [self._make_box(store, box) for box in boxes]
        place = store.place
        channels = {channel: box for channel, box in place.boxes.items() if box.store is not store}
        place.boxes = {**channels, **{box.channel: box for box in made}}
        settings = self._settings
        chores = presence(self._owner, settings, self._handlers, self._thread_count)
        timetables: list[Timetable] = []
        look = (settings.schedule_seconds or 0.0) * self._stretch
        for box in made:
            if settings.reap_seconds is not None:
                chores.append(Chore("reap", box.name, settings.reap_seconds, f"{box.name}_reap", {}))
            if settings.cleanup_seconds is not None:
                arguments: dict[str, object] = {"retention_seconds": settings.retention}
                chores.append(
                    Chore("cleanup", box.name, settings.cleanup_seconds, f"{box.name}_cleanup", arguments)
                )
            if settings.schedule_seconds is not None and box.queue.kind == "outbox":
                timetables.append(Timetable(box, look))
        scheduler = self._scheduler
        assert isinstance(scheduler, StoresScheduler)
        care = StoreCare(scheduler, store, self._owner, chores, timetables, self._stretch)
        self._cares = {**self._cares, store: care}
        return made

    def _make_box(self, store: LeaningStore, box: AnyBox, *, opens: bool = False) -> StoreBox:
        topics = self._settings.topics
        if topics is not None and box.kind == "outbox" and JOIN_WAIT not in topics:
            topics = (*topics, JOIN_WAIT)
        return StoreBox(
            box, self._handlers, self._settings,
            topics=topics, threads=self._thread_count, store=store,
            sweep_seconds=self._sweep_seconds, opens=opens,
        )  # fmt: skip

    def _opened(self, store: LeaningStore) -> None:
        """A store answers: its server's statistics are looked at from now on."""
        watcher = self._watcher
        if watcher is not None and store.place.is_postgres and watcher.wants(store.place.server):
            watcher.open(store.place)

    @property
    def _stretch(self) -> float:
        """How many times more seldom a store is looked after because there are so many."""
        return max(1.0, len(self._served) / SCHEDULED_STORES)

    # The slow thread

    def _take_care(self) -> None:
        scheduler = self._scheduler
        keeper = self._keeper
        assert isinstance(scheduler, StoresScheduler)
        assert isinstance(keeper, StoresKeeper)
        survey = Survey(scheduler, self._sweep_seconds)
        try:
            self._care_until_the_end(scheduler, keeper, survey)
        finally:
            until = time.monotonic() + SIGN_OFF_SECONDS
            for care in list(self._cares.values()):
                self._sign_off(care, until)

    def _care_until_the_end(self, scheduler: StoresScheduler, keeper: StoresKeeper, survey: Survey) -> None:
        known: dict[LeaningStore, StoreCare] = {}
        cares = Cares(())
        while not scheduler.pause(CARE_SECONDS):
            try:
                keeper.look_at_doubtful()
                for server in self._list_servers():
                    survey.look(server, self._report_silence)
                if self._cares is not known:
                    known = self._cares
                    cares = Cares(known.values())
                for care in cares.due(time.monotonic()) if not self._drain else ():
                    if scheduler.stopping:
                        return
                    self._care_for(care)
                    cares.put_back(care, time.monotonic() + CARE_SECONDS)
                for store in scheduler.leaving:
                    if store in known:
                        self._sign_off(known[store], time.monotonic() + SIGN_OFF_SECONDS)
            except Exception:  # noqa: BLE001  # the other stores must not pay for it
                self._log.exception("taking care: unexpected; going on")
                known = {}
                scheduler.pause(1.0)

    def _care_for(self, care: StoreCare) -> None:
        store = care.store
        if store.suspect or store.is_leaving or not care.prepare(time.monotonic()):
            return
        try:
            with store.helper_connection(5.0, self._report_silence) as connection:
                care.step(connection)
        except PysqlboxError as error:
            store.log.debug("no connection for chores: %s", error)

    def _signs_off(self, store: LeaningStore) -> bool:
        """Whether a store that is leaving still has this worker in its register, and can be told."""
        care = self._cares.get(store)
        return care is not None and care.is_registered and not store.suspect

    def _sign_off(self, care: StoreCare, until: float) -> None:
        store, seconds = care.store, until - time.monotonic()
        if not care.is_registered or store.suspect or seconds <= 0:
            return
        care.is_registered = False
        try:
            with store.helper_connection(seconds, self._report_silence) as connection:
                care.sign_off(connection)
        except PysqlboxError as error:
            store.log.debug("no connection to leave the register by: %s", error)

    # What is said of all

    def _report_silence(self) -> None:
        now = time.monotonic()
        if now >= self._silence_at:
            self._silence_at = now + 0.5
            for server in self._list_servers():
                for database in list(server.databases.values()):
                    database.calls.report_silence()

    def _complain(self) -> None:
        """Say so if the budget is too small for what is busy at once."""
        now = time.monotonic()
        for server in self._list_servers():
            if server.crowded_seconds < CROWDED_SECONDS or now < self._complain_at.get(server, 0.0):
                continue
            self._complain_at[server] = now + COMPLAIN_SECONDS
            self._log.warning(
                "%s: %d databases have been busy at once for %.0f s, more than connections=%d can serve:"
                " raise it, or each waits for its turn",
                server.name, server.busy_databases, server.crowded_seconds, server.budget,
            )  # fmt: skip

    def _list_servers(self) -> list[Server]:
        return list(self._servers.values())

    # Ending

    def _must_end_at(self, until: float) -> None:
        for server in self._list_servers():
            for database in list(server.databases.values()):
                database.calls.must_end_at = until

    def _lend(self, box: ServedBox) -> AbstractContextManager[WorkerConnection]:
        return box.store.helper_connection(LIMIT_SECONDS, self._report_silence)

    def _health_before(self, running: bool) -> list[BoxHealth]:  # noqa: ARG002  # no store is known
        return []

    def _hears(self, box: ServedBox) -> ListenerState:
        place = box.store.place if isinstance(box, StoreBox) else None
        return "listening" if place is not None and place.is_heard else "off"

    def _keeper_ended(self) -> None:
        """It has no connection of its own."""

    def _close_stores(self) -> None:
        for server in self._list_servers():
            server.close()
        for store in list(self._served.values()):
            store.entry.release()
        self._served.clear()
