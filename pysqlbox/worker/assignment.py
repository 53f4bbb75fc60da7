"""An assignment: what one thread is to handle, a message, a FIFO group's messages in order, or a batch.

Where handlers are quick, one has many messages that nothing but the claim holds together; as soon as one of
them takes long it is split, and the others go to other threads.

It owns its messages from the claim to their results. Whoever wants one of them (the thread that handles it,
the lease keeper when its time is up, the stop) asks the assignment, which gives each of them away once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pysqlbox.worker.handlers import Handler
    from pysqlbox.worker.served_box import ServedBox

__all__ = ["STUCK_SECONDS", "Assignment"]

#: A handler that has run so long is not quick: nothing waits behind it.
STUCK_SECONDS = 0.005


class Assignment:
    """Messages under one lease. A message waits, is being handled, or has been taken; never two of these."""

    __slots__ = (
        "_current",
        "_lock",
        "_together",
        "_waiting",
        "began_at",
        "box",
        "handler",
        "leased_at",
        "loose",
        "lost",
        "overrun",
    )

    def __init__(
        self,
        box: ServedBox,
        messages: Iterable[Any],
        leased_at: float,
        *,
        together: bool = False,
        loose: bool = False,
    ) -> None:
        """``together``: the messages are one batch; otherwise they are handled one after the other.

        ``loose``: none of them has to wait for another.
        """
        self.box = box
        #: When the lease was asked for; it holds from later on.
        self.leased_at = leased_at
        #: Whether the handler did not end in time.
        self.overrun = False
        #: The ids of messages that this worker holds no more: their lease ran out, or they were cancelled.
        self.lost: set[int] = set()
        self.began_at = 0.0
        self.handler: Handler | None = None
        self.loose = loose
        self._waiting = deque(messages)
        self._current: list[Any] | None = None
        self._together = together
        self._lock = threading.Lock()

    @property
    def head(self) -> Any | None:
        """The message that would be handled next."""
        waiting = self._waiting
        return waiting[0] if waiting else None

    @property
    def begins_with_coroutine(self) -> bool:
        """Whether the handler of what comes next is a coroutine function."""
        head = self.head
        handler = None if head is None else self.box.handlers.by_topic.get(head.topic)
        return handler is not None and handler.is_async

    @property
    def handled(self) -> list[Any]:
        """The messages that are being handled now."""
        return self._current or []

    def begin(self, handler: Handler) -> list[Any] | None:
        """Take what is to be handled next; None if somebody else has taken it."""
        with self._lock:
            waiting = self._waiting
            if not waiting:
                return None
            if self._together:
                found = list(waiting)
                waiting.clear()
            else:
                found = [waiting.popleft()]
            self._current = found
            self.handler = handler
            self.began_at = monotonic()
            return found

    def next_quick(self, by_topic: Mapping[str, Handler], lease_seconds: float) -> Any | None:
        """End with the message that was being handled, if any, and begin the next of loose ones.

        None if there is none, or if things are not as they were hoped; then ``overrun`` tells whether the
        former had been taken away.
        """
        lock = self._lock
        lock.acquire()  # "with" takes twice as long, and there is nothing here but this
        try:
            if self.overrun:
                return None
            now, waiting, began_at = monotonic(), self._waiting, self.began_at
            if (
                waiting
                and (now - began_at <= STUCK_SECONDS or not began_at)
                and now - self.leased_at <= lease_seconds
                and not self.lost
            ):
                message = waiting[0]
                handler = by_topic.get(message.topic)
                if handler is not None and handler.simple:
                    self._current = [waiting.popleft()]
                    self.handler = handler
                    self.began_at = now
                    return message
            self._current = None
            return None
        finally:
            lock.release()

    def split(self) -> list[Assignment]:
        """What has not been begun of loose messages, as an assignment each."""
        found = [Assignment(self.box, [message], self.leased_at) for message in self.take_waiting()]
        for each in found:
            each.lost = self.lost
        return found

    def finish(self) -> bool:
        """The handler has come back; False if its messages have been taken away, so its answer is void."""
        with self._lock:
            found, self._current = self._current, None
            return found is not None

    def take_overrun(self, seconds: float) -> list[Any]:
        """Take what has been handled for longer than so many seconds; empty if it has just come back."""
        with self._lock:
            found = self._current
            if found is None or monotonic() - self.began_at <= seconds:
                return []
            self._current = None
            self.overrun = True
            return found

    def take_handled(self) -> list[Any]:
        """Take what is being handled, for a worker that waits no longer."""
        return self.take_overrun(-1.0)

    def take_waiting(self) -> list[Any]:
        """Take what has not been begun."""
        with self._lock:
            found = list(self._waiting)
            self._waiting.clear()
            return found

    def held(self) -> list[Any]:
        """The messages that are still here."""
        with self._lock:
            return [*(self._current or ()), *self._waiting]

    def lose(self, identities: Collection[int]) -> int:
        """Note that the database has given messages away; how many of them are still here."""
        with self._lock:
            here = {message.id for message in (*(self._current or ()), *self._waiting)}
            gone = here.intersection(identities) - self.lost
            self.lost |= gone
            return len(gone)

    def is_lost(self, message: Any) -> bool:
        """Whether somebody else may have the message: by the database or the clock its lease is over."""
        return message.id in self.lost or monotonic() - self.leased_at > self.box.settings.lease_seconds

    def __repr__(self) -> str:
        return f"Assignment({len(self.handled)} handled, {len(self._waiting)} waiting)"
