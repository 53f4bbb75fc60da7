"""A lane: one box that a worker serves, when to ask it again, and how much to ask for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pysqlbox.worker.handlers import Handlers
from pysqlbox.worker.logs import log_of

if TYPE_CHECKING:
    from pysqlbox.queue import Queue

#: The topic of the messages that wait for joins; they wait however long it takes.
JOIN_WAIT = "join.wait"
#: How much handling one claim should bring: short enough that nothing waits long behind it.
CLAIM_SECONDS = 0.02
#: What one thread gets through in less is not worth a second one.
QUICK_SECONDS = 0.005
#: What a box whose handlers are not timed yet is asked for.
FIRST_CLAIM = 4
#: The shortest pause between two claims that find nothing; each pause after it is twice as long.
EAGER_SECONDS = 0.002
#: After this long without work ask half as often.
DROWSY_AFTER = 5.0


#: What a claim may ask for.
MOST = 10_000


class Lane:
    """What the worker knows of one box; guarded by the crew's lock, except for the cost, a float only set."""

    def __init__(
        self,
        queue: Queue,
        handlers: Handlers,
        *,
        topics: Sequence[str] | None,
        batch_size: int,
        share: int | None = None,
        poll_seconds: float,
        max_attempts: int | None,
        own_max_attempts: int | None = None,
    ) -> None:
        """``share``: how much of what all threads may hold one of them may claim for itself.

        ``max_attempts`` is None where this user may not read the box's setting, ``own_max_attempts`` where
        the worker has no limit of its own.
        """
        self.queue = queue
        self.name = queue.name
        self.log = log_of(queue.box)
        self.handlers = handlers
        self.topics = None if topics is None else list(topics)
        self.batch_size = batch_size
        self.share = batch_size if share is None else min(max(share, batch_size), MOST)
        self.poll_seconds = poll_seconds
        self.max_attempts = max_attempts
        self.own_max_attempts = own_max_attempts
        self.wakes = 0
        self.next_poll = 0.0
        self.dry_claims = 0  # how many claims in a row have found nothing, while the worker drains
        self.last_work = time.monotonic()
        self.dry_at = -1
        self._cost: float | None = None

    def gives_up(self, topic: str, attempt: int) -> bool:
        """Whether a message that has now failed this often is surely given up; else the database decides."""
        limit = self.max_attempts or 0
        return 0 < limit <= attempt and topic != JOIN_WAIT

    def limit_of(self, topic: str) -> int | None:
        """What the database is to decide by: None is the box's setting as it is then."""
        return 0 if topic == JOIN_WAIT else self.own_max_attempts

    def claim_size(self) -> int:
        """As many messages as are handled in a short while, at most the batch size.

        Where handlers take next to no time, a thread claims what others would have, who stay asleep: a claim
        costs the database much more than another message in it does.
        """
        cost = self._cost
        if cost is None:
            return min(FIRST_CLAIM, self.batch_size)
        if cost * self.batch_size > CLAIM_SECONDS:
            return max(1, int(CLAIM_SECONDS / cost))
        if self.handlers.any_batch or cost * self.batch_size >= QUICK_SECONDS:
            return self.batch_size
        return self.share if cost * self.share <= QUICK_SECONDS else int(QUICK_SECONDS / cost)

    def is_slow(self, count: int) -> bool:
        """Whether so many messages are known to keep a thread for more than a moment."""
        return self._cost is not None and self._cost * count > QUICK_SECONDS

    def note_cost(self, seconds: float, count: int) -> None:
        """Remember how long a message takes, the latest batches weighing most; slower counts at once."""
        each = seconds / count
        cost = self._cost
        self._cost = each if cost is None or each > 2 * cost else 0.75 * cost + 0.25 * each

    def claim_topics(self) -> list[str] | None:
        """The topics to claim, None for all; those whose handlers are all busy wait in the database."""
        busy = self.handlers.saturated()
        if not busy:
            return self.topics
        wanted = self.topics if self.topics is not None else self.handlers.topics()
        return [topic for topic in wanted if topic not in busy]

    def schedule(self, asked: int, got: int, now: float) -> None:
        """Set the time of the next claim by what this one brought."""
        if got:
            self.last_work = now
            self.next_poll = now if got >= asked else now + EAGER_SECONDS
            return
        quiet = now - self.last_work
        if quiet < DROWSY_AFTER:
            wait = min(max(quiet, EAGER_SECONDS), self.poll_seconds)
        else:
            wait = 2 * self.poll_seconds
        self.next_poll = now + wait
