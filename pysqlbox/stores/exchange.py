"""Talking to many stores, where what one of them does not answer or refuses costs the others nothing."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from pysqlbox.deployment_base import known_version
from pysqlbox.errors import DatabaseUnavailable, PysqlboxError, SchemaMismatch
from pysqlbox.inbox import Inbox
from pysqlbox.outbox import Outbox
from pysqlbox.stores.scheduler import ROOM_SECONDS, StoresScheduler
from pysqlbox.stores.served import SLOW_SECONDS, LeaningStore, StoreBox
from pysqlbox.stores.servers import NoRoom
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.database import WorkerConnection
from pysqlbox.worker.exchange import AWAY, Exchange
from pysqlbox.worker.outcomes import Outcomes
from pysqlbox.worker.served_box import NEVER, ServedBox

if TYPE_CHECKING:
    from pysqlbox.boxes import AnyBox
    from pysqlbox.worker.database_postgres import PostgresConnection
    from pysqlbox.worker.worker_thread import WorkerThread

__all__ = ["StoresExchange"]

#: How often the server's clock is compared with ours.
CLOCK_SECONDS = 30.0

MakeBoxes = Callable[[LeaningStore, "list[AnyBox]"], "list[StoreBox]"]


class StoresExchange(Exchange):
    """Settles and claims, opens stores, and keeps away from those that fail."""

    def __init__(
        self,
        scheduler: StoresScheduler,
        owner: uuid.UUID,
        lease_seconds: int,
        held: Callable[[], Iterable[Assignment]],
        names: Iterable[str],
        make_boxes: MakeBoxes,
        opened: Callable[[LeaningStore], None],
    ) -> None:
        """``names``: of the boxes to serve in each store; ``opened`` is told of one that is known now."""
        super().__init__(scheduler, owner, lease_seconds, held)
        self._stores = scheduler
        self._names = list(names)
        self._make_boxes = make_boxes
        self._opened = opened

    def run(self, thread: WorkerThread, box: ServedBox) -> None:
        """As with one deployment; and a store that was never asked is looked at first."""
        each = cast(StoreBox, box)
        began = time.monotonic()
        try:
            if each.opens:
                self._open(each)
                self._stores.end_turn(thread)
            else:
                super().run(thread, box)
        finally:
            each.store.is_slow = time.monotonic() - began > SLOW_SECONDS
            self._stores.visit_ends(thread, each)

    def _claim_size(self, box: ServedBox) -> int:
        return 0 if cast(StoreBox, box).store.is_leaving else super()._claim_size(box)

    def _open(self, box: StoreBox) -> None:
        """Find out whether the store is what it should be, and which boxes it has."""
        store = box.store
        try:
            with store.connection() as connection:
                boxes = self._find_boxes(store, connection)
                if store.place.is_postgres and store.place.name is None:
                    store.place.name = cast("PostgresConnection", connection).database_name()
        except PysqlboxError as error:
            self._failed(box, Outcomes(), error)
            return
        self._succeeded(box, Outcomes())
        store.is_known = True
        self._opened(store)
        self._stores.replace_boxes(store, self._make_boxes(store, boxes))

    def _find_boxes(self, store: LeaningStore, connection: WorkerConnection) -> list[AnyBox]:
        db = store.deployment
        version = int(str(connection.call("schema_version", {})[0]["version"] or 0))
        if version > known_version():
            raise SchemaMismatch(
                f"{db.target}: schema {db.schema!r} has version {version}, newer than this release knows:"
                " use a newer pysqlbox"
            )
        found: list[AnyBox] = []
        for name in self._names:
            if name in ("outbox", "inbox"):
                found.append(db.outbox if name == "outbox" else db.inbox)
            elif connection.has_routine(f"{name}_already_processed"):
                found.append(Inbox(db, name))
            elif connection.has_routine(f"{name}_enqueue"):
                found.append(Outbox(db, name))
            else:
                store.log.warning("there is no box %r here", name)
        return found

    # While the connection is there

    def _claimed(self, box: ServedBox, connection: WorkerConnection, messages: list[Any]) -> None:
        """A box that stays empty tells when it will not be."""
        each = cast(StoreBox, box)
        store = each.store
        if messages:
            store.place.worked_at = time.monotonic()
            store.place.has_untold |= each.is_quiet  # whoever is told of something is not quiet
            each.due, each.is_due_known = NEVER, False
            return
        each.is_due_known = False
        try:
            if each.is_quiet:
                each.due = self._next_due(each, connection)
                each.is_due_known = True
        except PysqlboxError as error:  # the claim itself went well
            each.log.debug("%s: when it is due is not known: %s", each.name, error)

    def _next_due(self, box: StoreBox, connection: WorkerConnection) -> float:
        """When a message becomes due or a lease ends, by our clock."""
        place = box.store.place
        now = time.monotonic()
        if box.queue.kind == "outbox" and now - place.compared_at > CLOCK_SECONDS:
            place.compared_at = now
            (clock,) = connection.call(f"{box.name}_schedule_next", {})
            place.ahead = _aware(clock["now_at"]).timestamp() - time.time()
        (row,) = connection.call(f"{box.name}_next_due", {})
        if row["due_at"] is None:
            return NEVER
        left = _aware(row["due_at"]).timestamp() - place.ahead - time.time()
        return time.monotonic() + max(left, 0.05)

    # How it went

    def _succeeded(self, box: ServedBox, outcomes: Outcomes) -> None:
        store = cast(StoreBox, box).store
        store.place.server.is_answering = True
        if store.failures:
            store.failures = 0
            store.log.info("the store answers again")
            for each in store.boxes:
                each.failures = 0
                each.next_poll = min(each.next_poll, time.monotonic())
        if outcomes:
            self._scheduler.settled()

    def _failed(
        self,
        box: ServedBox,
        outcomes: Outcomes,
        error: PysqlboxError,
        connection: WorkerConnection | None = None,
    ) -> None:
        """Keep the results, and leave the whole store alone for a while."""
        each = cast(StoreBox, box)
        store = each.store
        if isinstance(error, NoRoom):
            box.outcomes.give_back(outcomes)
            box.next_poll = time.monotonic() + ROOM_SECONDS
            return
        if isinstance(error, AWAY) or not outcomes:
            box.outcomes.give_back(outcomes)
            self._leave_alone(store, each, error)
            return
        box.log.error("%s: settle or claim refused: %s", box.name, error)
        with contextlib.nullcontext(connection) if connection else box.store.connection() as used:
            self._settle_parts(box, outcomes, used)
        self._leave_alone(store, each, error)

    def _leave_alone(self, store: LeaningStore, box: StoreBox, error: PysqlboxError) -> None:
        if not store.failures:
            store.log.error("the store is left alone for a while: %s", error)
        else:
            store.log.debug("the store still fails: %s", error)
        store.failures += 1
        if isinstance(error, DatabaseUnavailable):
            store.place.server.is_answering = False  # until somebody there does
            store.place.server.drop_free(store.place)  # or each that was lost would be found out by itself
        box.failures = store.failures - 1
        if self._scheduler.stopping:
            box.retreat(most=0.3)
        else:
            box.retreat()
        for each in store.boxes:
            each.failures, each.next_poll = store.failures, box.next_poll


def _aware(value: object) -> datetime:
    """A time of the database, which is UTC whether it says so or not."""
    assert isinstance(value, datetime)
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
