"""What becomes of messages whose topic has no handler."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any

from pysqlbox.logs import about
from pysqlbox.worker.policies import UnknownTopicsPolicy
from pysqlbox.worker.results import DeadLetter, Release, Result, Retry
from pysqlbox.worker.served_box import ServedBox

__all__ = ["UnknownTopics"]

#: A message is put back for so many seconds, then for twice as long, and so on up to the last.
FIRST_SNOOZE, LONGEST_SNOOZE = 5.0, 300.0
#: A topic is warned of at most this often.
WARN_SECONDS = 60.0
#: Of so many messages the worker remembers how often it has put them back.
REMEMBERED = 10_000


class UnknownTopics:
    """Decides about them, and warns."""

    def __init__(self, policy: UnknownTopicsPolicy) -> None:
        self._policy = policy
        self._snoozes: OrderedDict[tuple[str, str, int], float] = OrderedDict()
        self._warned_at: dict[tuple[str, str, str], float] = {}

    def result(self, box: ServedBox, message: Any) -> Result:
        """What to answer for a message."""
        reason = f"no handler for topic {message.topic!r}"
        if self._policy == "dead":
            return DeadLetter(reason)
        if self._policy == "abandon":
            box.log.warning(
                "%s: no handler for topic %r, message %d waits", box.name, message.topic, message.id,
                extra=about(message),
            )  # fmt: skip
            return Retry(error=reason)
        self._warn(box, message)
        return Release(delay=self._next_snooze((box.queue.deployment.store, box.name, message.id)))

    def _next_snooze(self, key: tuple[str, str, int]) -> float:
        delay = min(2 * self._snoozes.pop(key, FIRST_SNOOZE / 2), LONGEST_SNOOZE)
        self._snoozes[key] = delay
        while len(self._snoozes) > REMEMBERED:
            self._snoozes.popitem(last=False)
        return delay

    def _warn(self, box: ServedBox, message: Any) -> None:
        key, now = (box.queue.deployment.store, box.name, message.topic), time.monotonic()
        if now - self._warned_at.get(key, -WARN_SECONDS) >= WARN_SECONDS:
            self._warned_at[key] = now
            box.log.warning(
                "%s: no handler for topic %r; its messages are put back (message %d)",
                box.name, message.topic, message.id, extra=about(message),
            )  # fmt: skip
