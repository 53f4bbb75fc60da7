"""Notices that nothing moves although messages wait, and says so once.

Nothing is asked of the database for it unless something is wrong: a claim of all the box's topics that came
back empty has shown that nothing waits that may be handed out, and what is claimed or settled moves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from pysqlbox.errors import AccessDenied, PysqlboxError
from pysqlbox.wording import counted
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.database import WorkerConnection
from pysqlbox.worker.scheduler import Scheduler
from pysqlbox.worker.served_box import ServedBox
from pysqlbox.worker.settings import Settings

__all__ = ["StallWatch", "is_stuck"]

#: How often it looks at what the worker remembers, and how often at most it asks the database.
LOOK_SECONDS, ASK_SECONDS = 1.0, 30.0
#: Of how many boxes it asks at one look: where thousands wait for a slow database, it would only add to that.
ASKS_AT_ONCE = 3


class StallWatch:
    """Looks at each box of one run of a worker, whenever the lease keeper comes by."""

    def __init__(
        self,
        scheduler: Scheduler,
        settings: Settings,
        held: Callable[[ServedBox], Iterable[Assignment]],
        lend: Callable[[ServedBox], AbstractContextManager[WorkerConnection]],
    ) -> None:
        """``held`` answers what this worker holds of a box, ``lend`` a connection whose calls are short."""
        self._scheduler = scheduler
        self._settings = settings
        self._held = held
        self._lend = lend
        self._next_look = 0.0
        self._next_ask: dict[ServedBox, float] = {}
        #: When what was suspicious at the last look had last moved.
        self._suspected: dict[ServedBox, float] = {}
        self._stalled: set[ServedBox] = set()
        self._asks_left = 0

    def look(self) -> None:
        """Look, if it is time to."""
        now = time.monotonic()
        if self._settings.stall_seconds is None or now < self._next_look or self._scheduler.stopping:
            return
        self._next_look = now + LOOK_SECONDS
        # A box of which nobody expects anything is not to be asked for the sake of this either.
        boxes = {*self._scheduler.active_boxes(), *self._stalled}
        self._asks_left = ASKS_AT_ONCE
        for box in sorted(boxes, key=lambda box: self._next_ask.get(box, 0.0)):
            self._look_at(box, now, self._settings.stall_seconds)

    def _look_at(self, box: ServedBox, now: float, seconds: float) -> None:
        held = list(self._held(box))
        handled = [each for each in held if each.handled]
        timeouts = [each.handler.timeout for each in handled if each.handler and each.handler.timeout]
        patience = max([seconds, self._settings.handler_timeout or 0.0, *timeouts])
        moved_at = box.moved_at
        if box.asleep or now - max(moved_at, box.emptied_at) <= patience:
            self._suspected.pop(box, None)
            if box.stalled_since is not None:
                box.stalled_since = None
                self._stalled.discard(box)
                box.log.info("%s: it moves again", box.name)
            return
        if box.stalled_since is not None or box.failures or now < self._next_ask.get(box, 0.0):
            return
        if self._suspected.get(box) != moved_at:  # between two handlers, perhaps: look again
            self._suspected[box] = moved_at
            return
        if not self._asks_left:
            return
        self._asks_left -= 1
        self._next_ask[box] = now + ASK_SECONDS
        waiting, oldest = self._waiting(box)
        for each in held:
            not_begun = len(each.held()) - len(each.handled)
            if not_begun > 0:
                waiting, oldest = waiting + not_begun, max(oldest, now - each.leased_at)
        if waiting:
            box.stalled_since = time.time() - (now - box.moved_at)
            self._stalled.add(box)
            box.log.error(
                "%s: nothing has moved for %.0f s, though %s, the oldest for %.0f s: %s",
                box.name, now - box.moved_at, counted(waiting, "message waits", "messages wait"), oldest,
                self._reason(handled, now),
            )  # fmt: skip

    def _waiting(self, box: ServedBox) -> tuple[int, float]:
        """How many messages the worker could claim if it came to that, and how long the oldest waits."""
        try:
            with self._lend(box) as connection:
                rows = connection.call(f"{box.name}_stats", {})
        except AccessDenied as error:
            box.log.debug("%s: cannot tell whether messages wait: %s", box.name, error)
            return 0, 0.0
        except PysqlboxError as error:
            box.log.warning("%s: cannot tell whether messages wait: %s", box.name, error)
            return 0, 0.0
        ours = [
            row
            for row in rows
            if row["topic"] is not None and (box.topics is None or row["topic"] in box.topics)
        ]
        ages = [float(str(row["oldest_ready_seconds"])) for row in ours if row["ready"]]
        return sum(int(str(row["ready"])) for row in ours), max(ages, default=0.0)

    def _reason(self, handled: list[Assignment], now: float) -> str:
        if not handled:
            return "no handler runs, and claims bring nothing or are refused"
        longest = min(handled, key=lambda each: each.began_at)
        messages = longest.handled or longest.held()
        which = f" ({messages[0].topic} message {messages[0].id})" if messages else ""
        how_many = counted(len(handled), "handler runs", "handlers run")
        return f"{how_many}, the longest for {now - longest.began_at:.0f} s{which}"


def is_stuck(assignment: Assignment, settings: Settings) -> bool:
    """Whether a handler has overrun its time, or has none and has run for longer than anybody expects."""
    if assignment.overrun:
        return True
    handler = assignment.handler
    limit = (handler.timeout if handler is not None else None) or settings.handler_timeout
    limit = limit or settings.stall_seconds
    return bool(assignment.handled) and limit is not None and time.monotonic() - assignment.began_at > limit
