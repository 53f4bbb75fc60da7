"""The lease keeper of many stores, and the slow one beside it for stores that may take long to answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from pysqlbox.errors import PysqlboxError
from pysqlbox.stores.scheduler import StoresScheduler
from pysqlbox.stores.served import SLOW_SECONDS, StoreBox
from pysqlbox.wording import counted
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.lease_keeper import LeaseKeeper
from pysqlbox.worker.served_box import ServedBox

__all__ = ["StoresKeeper"]

#: How often it puts boxes away that are quiet, and looks which stores there are.
ROUND_SECONDS = 0.25
#: How long it leaves a store alone whose leases it could not extend.
AGAIN_SECONDS = 1.0


class StoresKeeper(LeaseKeeper):
    """Extends and settles for the stores that answer; leaves the others to whoever has time for them."""

    #: Stores come, go and fall silent also while nothing is at work.
    nap_seconds = ROUND_SECONDS

    def __init__(self, *arguments: Any, each_round: Callable[[set[ServedBox]], None], **options: Any) -> None:
        """``each_round`` is called a few times a second, with the boxes whose messages are held."""
        super().__init__(*arguments, **options)
        self._stores = cast(StoresScheduler, self._scheduler)
        self._each_round = each_round
        self._next_round = 0.0
        self._again_at: dict[ServedBox, float] = {}

    def _tick(self) -> None:
        super()._tick()
        now = time.monotonic()
        if now < self._next_round:
            return
        self._next_round = now + ROUND_SECONDS
        for thread in list(self._threads):
            if thread.has_turn and not thread.hanging and now - thread.turn_began > SLOW_SECONDS:
                box = thread.asked
                if self._stores.hangs_in_call(thread):
                    self._replace()
                if box is not None:
                    cast(StoreBox, box).store.is_slow = True
        held = {assignment.box for assignment in self._held()}
        self._stores.cool(held)
        self._each_round(held)

    def look_at_doubtful(self) -> None:
        """Do for the stores that may take long what the keeper does for the others; in another thread."""
        for box in self._stores.active_boxes():
            if not cast(StoreBox, box).store.suspect:
                continue
            due = [each for each in self._held() if each.box is box and self._is_due(each)]
            if due and time.monotonic() >= self._again_at.get(box, 0.0):
                self._again_at.pop(box, None)
                try:
                    super()._extend_box(box, due)
                except PysqlboxError as error:
                    self._again_at[box] = time.monotonic() + AGAIN_SECONDS
                    box.log.debug("%s: cannot extend %s yet: %s", box.name, counted(len(due), "lease"), error)
            if box.outcomes and box.next_poll <= time.monotonic():
                super()._settle_box(box)

    def _settle_box(self, box: ServedBox) -> None:
        if not cast(StoreBox, box).store.suspect or self._scheduler.stopping:
            super()._settle_box(box)

    def _extend_box(self, box: ServedBox, due: list[Assignment]) -> None:
        store = cast(StoreBox, box).store
        if store.suspect or time.monotonic() < self._again_at.get(box, 0.0):
            return
        try:
            super()._extend_box(box, due)
        except PysqlboxError as error:
            # The others go on; whoever talks to the store next finds out what it is.
            self._again_at[box] = time.monotonic() + AGAIN_SECONDS
            store.is_slow = True
            box.log.warning("%s: cannot extend %s now: %s", box.name, counted(len(due), "lease"), error)
