"""Talking to the database about a box: what is done goes there, what is to be done comes back."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pysqlbox import watching
from pysqlbox.errors import AccessDenied, DatabaseUnavailable, InvalidArgument, PysqlboxError, SchemaMismatch
from pysqlbox.worker.alarm import alarm
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.database import WorkerConnection
from pysqlbox.worker.outcomes import Outcomes
from pysqlbox.worker.plan import plan
from pysqlbox.worker.scheduler import Scheduler
from pysqlbox.worker.served_box import NEVER, ServedBox

if TYPE_CHECKING:
    from pysqlbox.worker.worker_thread import WorkerThread

__all__ = ["AWAY", "Exchange"]

#: What says that a database is not there now, or not as it should be: results wait for it.
AWAY = (DatabaseUnavailable, AccessDenied, SchemaMismatch)
REFUSED = "settle or claim refused"

#: After the database has refused a call as such, the box is left alone for so long.
REFUSED_SECONDS = 1.0
#: A claim looks for leases that have run out only if nobody has for 0.2 seconds.
LATE_SECONDS = 0.25
#: While the worker ends, the last results wait no longer than this for another try.
LAST_PAUSE = 0.3


class Exchange:
    """Settles and claims in one call, on one of the few connections that the threads share."""

    def __init__(
        self,
        scheduler: Scheduler,
        owner: uuid.UUID,
        lease_seconds: int,
        held: Callable[[], Iterable[Assignment]],
    ) -> None:
        """``held`` answers what this worker works on."""
        self._scheduler = scheduler
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._held = held

    def run(self, thread: WorkerThread, box: ServedBox) -> None:
        """Settle what is done and claim what can be done; what comes is handed to the scheduler."""
        scheduler = self._scheduler
        topics = box.claim_topics()
        claim = 0 if scheduler.stopping else self._claim_size(box)
        if topics is not None and not topics:
            claim = 0
        progress, wakes = scheduler.progress, box.wakes
        outcomes = box.outcomes.take()
        asked_at = time.monotonic()
        try:
            with box.store.connection() as connection:
                messages = self._settle(connection, box, outcomes, claim, topics)
                if claim:
                    self._claimed(box, connection, messages)
        except PysqlboxError as error:
            self._failed(box, outcomes, error)
            scheduler.end_turn(thread)
            return
        self._succeeded(box, outcomes)
        if not claim:
            scheduler.asked_nothing(thread, box, wakes)
            return
        box.log.debug("%s: claimed %d of %d", box.name, len(messages), claim)
        box.note_claim(len(messages), all_topics=topics == box.topics)
        if box.is_drowsy:
            self._set_alarm(box)
        thread.tally.lost += self._note_lost(box, messages)
        if thread.tally.figures is not None:
            came_at = "first_seen_at" if box.queue.kind == "inbox" else "created_at"
            thread.tally.figures.claimed(box.key, messages, self._lease_seconds, came_at)
        assignments, grouped = plan(box, messages, asked_at)
        if grouped:
            scheduler.groups_seen = True
        scheduler.answered(
            thread, box, assignments, asked=claim, got=len(messages), progress=progress, wakes=wakes
        )

    def _claimed(self, box: ServedBox, connection: WorkerConnection, messages: list[Any]) -> None:
        """What else there is to be asked now, for those who have several deployments."""

    def _set_alarm(self, box: ServedBox) -> None:
        """Find out until when there is nothing to do; while that cannot be told the worker stays up."""
        try:
            with box.store.connection() as connection:
                box.alarm = alarm(box, connection)
        except PysqlboxError as error:
            box.log.warning("%s: does not sleep, for it cannot see when to get up: %s", box.name, error)

    def _note_lost(self, box: ServedBox, messages: list[Any]) -> int:
        """What this worker has claimed again no older assignment holds any more; how many they were."""
        again = {message.id for message in messages if message.attempt}
        lost = 0
        for assignment in self._held() if again else ():
            if assignment.box is box and (gone := assignment.lose(again)):
                box.log.warning("%s: a message was claimed again while its handler runs", box.name)
                lost += gone
        return lost

    def _claim_size(self, box: ServedBox) -> int:
        scheduler = self._scheduler
        return box.claim_size(scheduler.idle_threads(), len(scheduler.ready), scheduler.free_slots())

    def settle(self, box: ServedBox, connection: WorkerConnection | None = None) -> None:
        """Only settle what is done; what cannot be settled now stays for later."""
        with self._scheduler.delivery():
            outcomes = box.outcomes.take()
            if not outcomes:
                return
            try:
                with contextlib.nullcontext(connection) if connection else box.store.connection() as used:
                    self._settle(used, box, outcomes, 0, None)
            except PysqlboxError as error:
                self._failed(box, outcomes, error, connection)
            else:
                self._succeeded(box, outcomes)

    def _settle(
        self,
        connection: WorkerConnection,
        box: ServedBox,
        outcomes: Outcomes,
        claim: int,
        topics: list[str] | None,
    ) -> list[Any]:
        """The call itself, told to whoever watches."""
        watcher, counts = watching.watcher, box.queue.deployment.counts
        if watcher is None and counts is None:
            return self._ask(connection, box, outcomes, claim, topics)
        began = time.monotonic()
        messages: list[Any] = []
        failure: PysqlboxError | None = None
        try:
            messages = self._ask(connection, box, outcomes, claim, topics)
        except PysqlboxError as error:
            failure = error
            raise
        finally:
            took = time.monotonic() - began
            if watcher is not None:
                watcher.exchanged(box, outcomes, messages, took, failure)
            if counts is not None:
                counts.exchanged(
                    box.name, settled=bool(outcomes), received=bool(messages), seconds=took, error=failure
                )
        return messages

    def _ask(
        self,
        connection: WorkerConnection,
        box: ServedBox,
        outcomes: Outcomes,
        claim: int,
        topics: list[str] | None,
    ) -> list[Any]:
        try:
            return connection.settle(box.queue, self._owner, outcomes, claim, self._lease_seconds, topics)
        except PysqlboxError:
            if claim and connection.calls.lost:
                box.doubtful_until = time.monotonic() + self._lease_seconds + LATE_SECONDS
            raise

    def _succeeded(self, box: ServedBox, outcomes: Outcomes) -> None:
        box.refused_at = None
        if box.failures:
            box.failures = 0
            away = time.monotonic() - box.failed_at
            box.log.info("%s: the database answers again, after %.1f s", box.name, away)
        if outcomes:
            box.note_settled()
            self._scheduler.settled()
            if box.asleep:  # what is to be tried again has a due time that it does not know of
                self._scheduler.wake(box)

    def _failed(
        self,
        box: ServedBox,
        outcomes: Outcomes,
        error: PysqlboxError,
        connection: WorkerConnection | None = None,
    ) -> None:
        """Keep the results; after an outage everything is sent again, after a refusal each by itself."""
        if isinstance(error, AWAY):
            box.outcomes.give_back(outcomes)
            if not box.failures:
                what = "the database does not answer" if isinstance(error, DatabaseUnavailable) else REFUSED
                box.log.error("%s: %s: %s", box.name, what, error)
            self._retreat(box)
            return
        box.log.error("%s: %s: %s", box.name, REFUSED, error)
        box.next_poll = time.monotonic() + REFUSED_SECONDS
        with contextlib.nullcontext(connection) if connection else box.store.connection() as used:
            self._settle_parts(box, outcomes, used)

    def _retreat(self, box: ServedBox) -> None:
        box.retreat(most=LAST_PAUSE if self._scheduler.stopping else NEVER)

    def _settle_parts(self, box: ServedBox, outcomes: Outcomes, connection: WorkerConnection) -> None:
        """What is wrong with one result must not cost the others, nor must what is wrong with none of them.

        A full disk, say, refuses them all, however they are put; then they stay, but no longer than a lease:
        what nobody else is spoiled by is left to that.
        """
        refused: list[tuple[Outcomes, PysqlboxError]] = []
        parts, level, settled = outcomes.parts(), 0, False
        while parts:
            halves: list[Outcomes] = []
            for part in parts:
                try:
                    self._settle(connection, box, part, 0, None)
                except AWAY:
                    box.outcomes.give_back(part)
                except PysqlboxError as error:
                    if len(part) > 1 and (settled or level == 0):
                        halves += part.halves()
                    else:
                        refused.append((part, error))
                else:
                    settled = True
                    self._scheduler.settled()
            parts, level = halves, level + 1
        now = time.monotonic()
        if settled or not refused:
            box.refused_at = None
        elif box.refused_at is None:
            box.refused_at = now
        keeping = box.refused_at is not None and now - box.refused_at < self._lease_seconds
        kept = False
        for part, reason in refused:
            if keeping and not isinstance(reason, InvalidArgument):
                box.outcomes.give_back(part)
                kept = True
            else:
                box.log.error("%s: %r is left to its lease: %s", box.name, part, reason)
        if kept:
            self._retreat(box)
