"""What the threads of a worker share: who may claim, what is left over, and when to end.

Few threads claim at a time. A thread that finds its handlers quick keeps claiming by itself, settling one
batch and claiming the next in one call; handing messages from thread to thread would cost more than the
database does. As soon as its handlers take long, its turn to claim goes to the next thread, so all of them
come to work. What waits behind a handler that unexpectedly takes long is moved to whoever is free.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pysqlbox.worker.lanes import Lane
from pysqlbox.worker.rest import Rest

if TYPE_CHECKING:
    from pysqlbox.worker.hand import Hand

__all__ = ["Crew", "Work", "copy_of"]


@dataclass(slots=True)
class Work:
    """A message, or a list of messages to handle together or in order, with its lane and lease."""

    lane: Lane
    item: Any
    leased_at: float

    def ids(self) -> list[int]:
        """The ids of the messages."""
        return [message.id for message in self.messages()]

    def messages(self) -> list[Any]:
        """The messages."""
        return self.item if isinstance(self.item, list) else [self.item]


def copy_of(message: Any) -> tuple[int, datetime]:
    """What tells a message as claimed once from the same message claimed again."""
    return message.id, message.locked_until


#: A group that the database puts off, because its row was locked, it looks at again after 0.2 seconds.
GROUP_SECONDS = 0.25
#: A claim that meets very many expired messages answers early, and empty, though others lie behind them; so a
#: drain believes only so many empty claims in a row.
DRY_CLAIMS = 15
#: When a thread is due that waits to be woken.
NEVER = float("inf")
#: How many quick threads claim at the same time: one waits for the database while another one runs Python.
TURNS = 2


class Crew:
    """The shared state, under one lock."""

    def __init__(self, lanes: Sequence[Lane], *, threads: int) -> None:
        self.lanes = list(lanes)
        self.turns = min(TURNS, threads)
        self.stopping = False
        self.draining = False
        self.groups_seen = False
        self.lost: set[tuple[int, datetime]] = set()
        self._changed = Rest()
        self._ended = threading.Event()
        self._claiming = 0
        self._busy = 0
        self._watched_until = NEVER
        self._progress = 0
        self._confirmed = -1
        self._over: deque[Work] = deque()

    def next(self, hand: Hand) -> Work | Lane | None:
        """What a thread is to do: work left over, a lane to claim from (with a turn), or nothing more."""
        with self._changed:
            while not self.stopping:
                if self._over:
                    self._begin(hand)
                    work = self._over.popleft()
                    if self._over or self._watched_until == NEVER:
                        self._changed.notify()
                    return work
                due = NEVER
                if self._claiming < self.turns:
                    now = time.monotonic()
                    lane = min(self.lanes, key=lambda lane: lane.next_poll)
                    if lane.next_poll <= now:
                        lane.next_poll = now + lane.poll_seconds
                        self._claiming += 1
                        hand.has_turn = True
                        self._begin(hand)
                        return lane
                    due = lane.next_poll
                self._wait(hand, due)
            return None

    def finished(self, hand: Hand) -> None:
        """A thread has done what next() gave it, unless it was written off before."""
        with self._changed:
            self._release(hand)
            if self.draining:
                self._end_if_dry()

    def write_off(self, hand: Hand) -> bool:
        """Reckon no longer with a thread whose handler does not come back; False if it has just come back."""
        with self._changed:
            if not hand.at_work:
                return False
            hand.written_off = True
            self._release(hand)
            return True

    def claimed(self, lane: Lane, asked: int, got: int, progress: int, wakes: int) -> None:
        """Note what a claim brought; another thread is woken if there may be more."""
        with self._changed:
            now = time.monotonic()
            lane.schedule(asked, got, now)
            if lane.wakes != wakes:
                lane.next_poll = now  # what somebody announced during the claim it may not have seen
            if got:
                self._progress += 1
                lane.dry_claims = 0
            elif self.draining and lane.dry_claims < DRY_CLAIMS:
                lane.dry_claims += 1
                lane.next_poll = now
            else:
                lane.dry_at = progress
            # Who has found nothing comes back and watches the clock itself.
            if got and self._claiming < self.turns and lane.next_poll < self._watched_until:
                self._changed.notify()

    def settled(self) -> None:
        """Note that messages were settled: what waited behind them may be claimable."""
        with self._changed:
            self._progress += 1

    @property
    def progress(self) -> int:
        """A number that grows with everything that may make more messages claimable."""
        return self._progress

    def take_turn(self, hand: Hand) -> bool:
        """Get a turn to claim, if there is one."""
        with self._changed:
            if self._claiming >= self.turns or hand.written_off:
                return False
            self._claiming += 1
            hand.has_turn = True
            return True

    def give_turn(self, hand: Hand) -> None:
        """Let another thread claim."""
        with self._changed:
            if hand.has_turn:
                hand.has_turn = False
                self._claiming -= 1
                self._changed.notify()

    def other_lane_is_due(self, lane: Lane) -> bool:
        """Whether a thread should leave its lane for another one."""
        if len(self.lanes) == 1:
            return False
        now = time.monotonic()
        return any(other is not lane and other.next_poll <= now for other in self.lanes)

    def hand_over(self, work: Work) -> None:
        """Leave work to whoever is free."""
        with self._changed:
            self._over.append(work)
            self._changed.notify()

    def left_over(self) -> list[Work]:
        """The work that nobody has taken up yet, for the lease keeper."""
        with self._changed:
            return list(self._over)

    def take_left_over(self) -> list[Work]:
        """The same, and it is now the caller's."""
        with self._changed:
            found = list(self._over)
            self._over.clear()
            return found

    def wake(self, name: str | None = None) -> None:
        """Somebody says that a box, or any, has something; a box that is due for longer still comes first."""
        now = time.monotonic()
        with self._changed:
            for lane in self.lanes:
                if name is None or lane.name == name:
                    lane.wakes += 1
                    lane.next_poll = min(lane.next_poll, now)
            self._changed.notify()

    def stop(self) -> None:
        """Nothing more is claimed or begun."""
        with self._changed:
            self._end()

    def drain(self) -> None:
        """Stop as soon as nothing is left that could be claimed now."""
        with self._changed:
            self.draining = True
            self._end_if_dry()

    def pause(self, seconds: float) -> bool:
        """Wait, at most until the end of the worker; True if that has come."""
        return self._ended.wait(seconds)

    @property
    def busy(self) -> int:
        """How many threads are at work."""
        return self._busy

    def _begin(self, hand: Hand) -> None:
        hand.at_work = True
        self._busy += 1

    def _release(self, hand: Hand) -> None:
        if hand.at_work:
            hand.at_work = False
            self._busy -= 1
        if hand.has_turn:
            hand.has_turn = False
            self._claiming -= 1
            if hand.written_off:  # it does not come back to see what is due
                self._changed.notify()

    def _wait(self, hand: Hand, due: float) -> None:
        """Wait for a change. One waiting thread watches the clock; the others only wait to be woken."""
        if due >= self._watched_until:
            self._changed.wait(hand.rank)
            return
        self._watched_until = due
        try:
            self._changed.wait(hand.rank, due - time.monotonic())
        finally:
            if self._watched_until == due:
                self._watched_until = NEVER

    def _end(self) -> None:
        self.stopping = True
        self._ended.set()
        self._changed.notify_all()

    def _end_if_dry(self) -> None:
        if self._busy or self._over or self.stopping:
            return
        now = time.monotonic()
        if all(lane.dry_at == self._progress for lane in self.lanes):
            if not self.groups_seen or self._confirmed == self._progress:
                self._end()
                return
            # A group in whose midst somebody was is looked at by the database again a little later; so do we.
            self._confirmed = self._progress
            for lane in self.lanes:
                lane.dry_at = -1
                lane.next_poll = now + GROUP_SECONDS
            self._changed.notify()
            return
        for lane in self.lanes:
            if lane.dry_at not in (-1, self._progress):
                lane.next_poll = min(lane.next_poll, now)
        self._changed.notify()
