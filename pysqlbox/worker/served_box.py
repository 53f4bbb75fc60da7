"""One box that a worker serves: when to ask it again, how much to ask for, and what to tell it."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pysqlbox.worker.handlers import Handlers
from pysqlbox.worker.logs import log_of
from pysqlbox.worker.outage import pause_after
from pysqlbox.worker.outcomes import Outcomes
from pysqlbox.worker.settings import Settings

if TYPE_CHECKING:
    from pysqlbox.boxes import AnyBox
    from pysqlbox.worker.served_store import ServedStore

__all__ = ["JOIN_WAIT", "NEVER", "ServedBox"]

#: The topic of the messages that wait for joins; they wait however long it takes.
JOIN_WAIT = "join.wait"
#: How much handling one claim should bring each thread: short enough that nothing waits long behind it.
CLAIM_SECONDS = 0.02
#: What one thread gets through in less is not worth a second one.
QUICK_SECONDS = 0.005
#: A handler that takes longer than this may well wait for something, while another thread goes on.
QUICK_EACH = 0.0002
#: Handlers that get through so many in a moment are quick, however large the batches may be.
MANY = 50
#: What a box whose handlers are not timed yet is asked for.
FIRST_CLAIM = 4
#: The pause after a claim that brought one message, and half as much more for each other one, up to the most:
#: where few come there is time to ask often, and where many come one claim brings what several would.
EAGER_SECONDS, EAGER_MOST = 0.0004, 0.0015
#: Results wait this long for a claim to go with; without one so near they go at once.
RIDE_SECONDS = 0.003
#: After this long without work ask half as often.
DROWSY_AFTER = 5.0
#: A handler that takes this long was not merely interrupted: it counts at once.
SURELY_SLOW = 0.02
#: A claim that meets very many expired messages may come back empty; so that many must before a box sleeps.
EMPTY_CLAIMS = 15
#: What a claim may ask for.
MOST = 10_000
#: The time of what does not come by itself.
NEVER = float("inf")


class ServedBox:
    """What the worker knows of one box. The scheduler's lock guards the times and the counts."""

    def __init__(
        self,
        box: AnyBox,
        handlers: Handlers,
        settings: Settings,
        *,
        topics: Sequence[str] | None,
        threads: int,
        max_attempts: int | None,
        store: ServedStore,
    ) -> None:
        """``max_attempts``: the worker's, else the box's; None where this user may not read it."""
        self.queue = box
        self.store = store
        self.name: str = box.name
        key = box.deployment.store_key
        #: What figures are kept by.
        self.key = (None if key is None else str(key), self.name)
        self.log = log_of(box.deployment, box.name)
        self.handlers = handlers
        self.settings = settings
        self.topics = None if topics is None else list(topics)
        self.batch_size = batch_size = settings.batch_size
        self.threads = threads
        #: How much of what all threads may hold one of them may claim for itself.
        self.share = min(max(batch_size * (threads // min(2, threads)), batch_size), MOST)
        self.poll_seconds = settings.poll_seconds
        self.max_attempts = max_attempts
        self.outcomes = Outcomes()
        self.wakes = 0
        self.next_poll = 0.0
        #: Whether the last claim brought all that it asked for.
        self.full = False
        self.failures = 0  # how many calls in a row the database has not answered
        self.failed_at = 0.0  # when the first of these failed
        #: Since when the database has refused results for which another reason than theirs is likely.
        self.refused_at: float | None = None
        #: Until when this worker may hold messages that it knows nothing of: the answer to a claim was lost.
        self.doubtful_until = 0.0
        self.dry_claims = 0  # how many claims in a row have found nothing, while the worker drains
        self.last_work = time.monotonic()
        #: When something was last claimed or settled, and when a claim of all topics last brought nothing.
        self.moved_at = self.last_work
        self.emptied_at = 0.0
        #: By the wall clock, for people: the last claim that was answered, the last results that arrived.
        self.claimed_at: float | None = None
        self.settled_at: float | None = None
        self.stalled_since: float | None = None
        #: Whether nothing is asked until next_poll or until somebody wakes the worker.
        self.asleep = False
        #: When to get up again, once it is known that there is nothing to do until then.
        self.alarm: float | None = None
        self._empty_claims = 0
        #: How often it had been woken when the last claim was answered.
        self._wakes_before = 0
        self.dry_at = -1
        self._cost: float | None = None

    def gives_up(self, topic: str, attempt: int) -> bool:
        """Whether a message that has now failed this often is surely given up; else the database decides."""
        limit = self.max_attempts or 0
        return 0 < limit <= attempt and topic != JOIN_WAIT

    def limit_of(self, topic: str) -> int | None:
        """What the database is to decide by: None is the box's setting as it is then."""
        return 0 if topic == JOIN_WAIT else self.settings.max_attempts

    def claim_size(self, idle: int = 1, waiting: int = 0, slots: int = 0) -> int:
        """How many messages to ask for, where so many threads are idle and so many messages wait here.

        One for each idle thread, and what all threads get through in a short while. Where handlers take next
        to no time, a thread claims what others would have, who stay asleep: a claim costs the database much
        more than another message in it does. ``slots``: how many coroutine handlers more could begin.
        """
        if self.handlers.any_async:
            size = slots + (max(idle - waiting, 0) if self.handlers.any_sync else 0)
            return min(size, self.batch_size if self.handlers.any_batch else MOST)
        cost = self._cost
        if cost is None:
            return min(FIRST_CLAIM, self.batch_size)
        quick = int(QUICK_SECONDS / cost)
        if quick >= min(self.batch_size, MANY):
            return self.batch_size if self.handlers.any_batch else min(quick, self.share)
        size = max(idle, 1) + self.threads * int(CLAIM_SECONDS / cost) - waiting
        most = self.batch_size if self.handlers.any_batch else self.batch_size * self.threads
        return max(min(size, most, MOST), 0)

    def is_quick(self, count: int) -> bool:
        """Whether so many messages are known to keep a thread for no more than a moment."""
        cost = self._cost
        return cost is not None and cost <= QUICK_EACH and cost * count <= QUICK_SECONDS

    def note_cost(self, seconds: float, count: int = 1) -> None:
        """Remember how long a message takes, the latest weighing most; what is surely slow counts at once."""
        each = seconds / count
        self.moved_at = time.monotonic()
        cost = self._cost
        if cost is None or (each > SURELY_SLOW and each > 2 * cost):
            self._cost = max(each, 1e-9)
        else:
            self._cost = cost + (each - cost) * 0.125

    def claim_topics(self) -> list[str] | None:
        """The topics to claim, None for all; those whose handlers are all busy wait in the database."""
        busy = self.handlers.saturated()
        if not busy:
            return self.topics
        wanted = self.topics if self.topics is not None else self.handlers.topics()
        return [topic for topic in wanted if topic not in busy]

    def due_at(self, now: float) -> float:
        """When to talk to the database: for the next claim, or earlier to settle what is done."""
        if self.failures or not self.outcomes or self.next_poll - now <= RIDE_SECONDS:
            return self.next_poll
        return now

    def wake(self, now: float) -> None:
        """Somebody says that there is something, or the time has come."""
        if self.asleep:
            self.asleep = False
            self.last_work = now  # stay up for a while
            self._empty_claims = 0

    @property
    def is_drowsy(self) -> bool:
        """Whether it has been quiet for so long that the worker may go to sleep over it."""
        return (
            self.settings.idle == "sleep"
            and self._empty_claims >= EMPTY_CLAIMS
            and not self.outcomes
            and time.monotonic() - self.last_work >= DROWSY_AFTER
        )

    def note_claim(self, got: int, *, all_topics: bool) -> None:
        """A claim was answered."""
        self.claimed_at = time.time()
        if got:
            self.moved_at = time.monotonic()
            self._empty_claims = 0
        elif all_topics:
            self.emptied_at = time.monotonic()
            self._empty_claims += 1

    def note_settled(self) -> None:
        """Results have reached the database."""
        self.settled_at = time.time()
        self.moved_at = time.monotonic()

    def being_asked(self, now: float) -> None:
        """Nobody else is to ask meanwhile, unless there is surely more."""
        self.wake(now)
        if not self.full:
            self.next_poll = now + self.poll_seconds

    def ask_later(self, now: float) -> None:
        """Ask when somebody says so, or a poll is due."""
        self.full = False
        self.next_poll = now + self.poll_seconds

    def schedule(self, asked: int, got: int, now: float) -> None:
        """Set the time of the next claim by what this one brought."""
        self.full = got >= asked
        told, self._wakes_before = self.wakes != self._wakes_before, self.wakes
        if got:
            self.last_work = now
            pause = min(EAGER_SECONDS * (got + 1) / 2, EAGER_MOST)
            if got == 1 and told:  # of the next one we shall be told, too: this claim has seen to that
                pause = EAGER_MOST
            self.next_poll = now + (0.0 if self.full else pause)
            return
        if self.alarm is not None:
            self.asleep, self.next_poll, self.alarm = True, self.alarm, None
            return
        if self.asleep:  # it fell asleep while this claim was under way
            return
        quiet = now - self.last_work
        if quiet < DROWSY_AFTER:
            wait = min(max(quiet, EAGER_SECONDS), self.poll_seconds)
        else:
            wait = 2 * self.poll_seconds
        self.next_poll = now + wait

    def retreat(self, *, most: float = NEVER) -> None:
        """Leave the database alone for a while."""
        now = time.monotonic()
        if not self.failures:
            self.failed_at = now
        self.failures += 1
        pause = min(self._pause_after(self.failures, now - self.failed_at), most)
        self.next_poll = now + random.uniform(0.5, 1) * pause

    def _pause_after(self, failures: int, away: float) -> float:
        return pause_after(failures, away)
