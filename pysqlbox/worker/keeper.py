"""The lease keeper: one thread that watches the others.

It extends the leases of whatever takes long, moves what waits behind a slow handler to free threads, settles
what such a thread had finished before, and writes off a thread whose handler has overrun its time.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from pysqlbox.errors import PysqlboxError
from pysqlbox.worker.crew import Crew, Work, copy_of
from pysqlbox.worker.hand import SETTLE_SECONDS, Hand
from pysqlbox.worker.handlers import Handlers
from pysqlbox.worker.lanes import Lane
from pysqlbox.worker.sessions import Outcomes, Session
from pysqlbox.worker.settings import Settings

__all__ = ["Keeper"]

TICK_SECONDS = 0.05
#: A handler that runs longer than this keeps nothing waiting behind it.
STUCK_SECONDS = 0.05
#: The part of a lease after which it is extended.
EXTEND_AT = 1 / 3


class Keeper:
    """Watches the threads; ``replace`` starts another one in place of one that was written off."""

    def __init__(
        self,
        crew: Crew,
        hands: list[Hand],
        session: Session,
        owner: uuid.UUID,
        settings: Settings,
        handlers: Handlers,
        replace: Callable[[], None],
    ) -> None:
        self._crew = crew
        self._hands = hands
        self._session = session
        self._owner = owner
        self._settings = settings
        self._handlers = handlers
        self._replace = replace
        self._quiet_until = 0.0

    def run(self) -> None:
        """Until the worker stops, and on until the last handler of a stopping worker has ended."""
        try:
            while not (self._crew.pause(TICK_SECONDS) and self._crew.busy == 0):
                if self._crew.stopping:
                    time.sleep(TICK_SECONDS)
                self._tick(time.monotonic())
        finally:
            self._session.close()

    def _tick(self, now: float) -> None:
        try:
            for hand in list(self._hands):
                self._look(hand, now)
            self._extend_all(now)
        except Exception:  # noqa: BLE001  # without this thread every lease would run out
            self._crew.lanes[0].log.exception("the lease keeper: unexpected; going on")
            self._crew.pause(1.0)

    def _look(self, hand: Hand, now: float) -> None:
        current, since = hand.current, hand.busy_since
        handler, lane = hand.handler, hand.lane
        if not since or handler is None or lane is None or hand.written_off:
            return
        ran = now - since
        if ran > STUCK_SECONDS:
            if not self._crew.stopping:
                self._move_on(hand, lane)
            self._crew.give_turn(hand)  # after that: what is here is done before more is claimed
        if ran > SETTLE_SECONDS and hand.outcomes:
            self._settle(lane, hand.outcomes)
        timeout = handler.timeout or self._settings.handler_timeout
        if timeout is not None and ran > timeout and hand.busy_since == since:
            self._write_off(hand, lane, timeout, current)

    def _move_on(self, hand: Hand, lane: Lane) -> None:
        while hand.local:
            try:
                item = hand.local.popleft()
            except IndexError:  # the thread came back and took the last one
                return
            self._crew.hand_over(Work(lane, item, hand.leased_at))

    def _write_off(self, hand: Hand, lane: Lane, timeout: float, current: list[Any]) -> None:
        messages = hand.take_away(current)
        if not messages:
            return
        self._move_on(hand, lane)
        outcomes = hand.outcomes.take()
        reason = f"the handler did not end within {timeout:g} seconds"
        for message in messages:
            lane.log.error("%s: %s message %d: %s", lane.name, message.topic, message.id, reason)
            if lane.gives_up(message.topic, message.attempt + 1):
                hand.tally.dead += 1
                outcomes.add(message.id, "fail", reason)
            else:
                hand.tally.retried += 1
                delay = self._settings.delay_or_none(lane.log, message.attempt + 1, None)
                outcomes.add(message.id, "retry", reason, delay, lane.limit_of(message.topic))
        for message in hand.take_waiting():  # the rest of its group
            hand.tally.released += 1
            outcomes.add(message.id, "release")
        self._settle(lane, outcomes)
        self._replace()

    def _settle(self, lane: Lane, outcomes: Outcomes) -> None:
        taken = outcomes.take()
        try:
            self._session.settle(lane.queue, self._owner, taken, 0, self._settings.lease_seconds, None)
        except PysqlboxError as error:
            outcomes.give_back(taken)
            lane.log.warning("%s: cannot settle now: %s", lane.name, error)
        else:
            self._crew.settled()

    def _extend_all(self, now: float) -> None:
        if now < self._quiet_until:
            return
        due = now - self._settings.lease_seconds * EXTEND_AT
        by_lane: dict[int, tuple[Lane, list[Any]]] = {}
        holders: list[Hand | Work] = []
        for holder, lane, messages in self._holders():
            if holder.leased_at <= due and messages:
                by_lane.setdefault(id(lane), (lane, []))[1].extend(messages)
                holders.append(holder)
        for lane, asked in by_lane.values():
            try:
                self._extend(lane, asked)
            except PysqlboxError as error:
                lane.log.warning("%s: cannot extend %d leases now: %s", lane.name, len(asked), error)
                self._quiet_until = now + 1.0
                return
        for holder in holders:
            holder.leased_at = max(holder.leased_at, now)

    def _holders(self) -> Iterable[tuple[Any, Lane, list[Any]]]:
        for hand in list(self._hands):
            lane = hand.lane
            if lane is not None and not hand.written_off:
                yield hand, lane, hand.held()
        for work in [*self._crew.left_over(), *self._handlers.parked()]:
            yield work, work.lane, work.messages()

    def _extend(self, lane: Lane, messages: list[Any]) -> None:
        ordered = sorted({message.id for message in messages})
        for first in range(0, len(ordered), 1000):
            asked = ordered[first : first + 1000]
            rows = self._session.call(
                f"{lane.name}_extend",
                {"owner_token": self._owner, "ids": asked, "lease_seconds": self._settings.lease_seconds},
            )
            lost = set(asked) - {int(str(row["id"])) for row in rows}
            if not lost:
                continue
            # What was settled while we asked is not held any more either; only what is still here was lost.
            here = {copy_of(held) for _, other, found in self._holders() if other is lane for held in found}
            gone = here & {copy_of(message) for message in messages if message.id in lost}
            if gone:
                lane.log.warning("%s: lost the lease of %d messages", lane.name, len(gone))
                self._crew.lost |= gone
