"""What the methods of a deployment do to messages: send, receive, settle; and how often, for who measures it.

Nothing is counted before ``measure()`` of a deployment; until then a call costs the look whether it is.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

__all__ = [
    "OTHER",
    "CallCounts",
    "Histogram",
    "Operation",
    "operation_of",
    "topic_column",
    "topics_of_claimed",
]

Kind = Literal["send", "receive", "settle"]

_ROUTINE = re.compile(
    r"(?P<box>(?!(?:ledger|join)_)[a-z0-9_]+)_"
    r"(?P<step>enqueue|enqueue_many|enqueue_payloads|claim|ack|abandon|retry|release|fail|settle)"
)
_KINDS: Mapping[str, Kind] = {
    "enqueue": "send",
    "enqueue_many": "send",
    "enqueue_payloads": "send",
    "claim": "receive",
}
#: How many columns a claim of an inbox has; an outbox's has two less.
_INBOX_COLUMNS = 16
#: Up to how many seconds a call took.
CALL_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
#: So many topics are told apart; those that come later are one, by this name.
MOST_TOPICS, OTHER = 10_000, "other"


class Operation(NamedTuple):
    """What a routine does to the messages of a box."""

    box: str
    step: str
    kind: Kind


@lru_cache(maxsize=1000)
def operation_of(routine: str) -> Operation | None:
    """The operation that a routine is; None if it neither sends, nor receives, nor settles."""
    if routine == "join_wait":
        return Operation("outbox", routine, "send")
    match = _ROUTINE.fullmatch(routine)
    return match and Operation(match["box"], match["step"], _KINDS.get(match["step"], "settle"))


def topics_of_claimed(rows: Sequence[Any]) -> Counter[str]:
    """How many messages of each topic a claim has brought: its rows, of an outbox or an inbox."""
    return Counter(row[topic_column(row)] for row in rows)


def topic_column(row: Sequence[Any]) -> int:
    """Where a claim's row has its topic; the headers are five columns on."""
    return 3 if len(row) == _INBOX_COLUMNS else 2


class Histogram:
    """How many values there were up to each bound, and above all of them; and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """One value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add_all(self, other: Histogram) -> None:
        """The values of another one with the same bounds."""
        self.counts = [own + theirs for own, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


class CallCounts:
    """What one deployment's methods have sent, received and settled, and how long that took.

    A call within a transaction of the caller's counts when it was made, whether or not that commits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: set[tuple[str, str | None]] = set()
        #: By box, topic (None where the database chose it) and error, if the call failed.
        self._sent: Counter[tuple[str, str | None, str | None]] = Counter()
        #: By box and topic.
        self._consumed: Counter[tuple[str, str | None]] = Counter()
        #: By box, kind of operation, and error.
        self._seconds: dict[tuple[str, Kind, str | None], Histogram] = {}

    def called(
        self,
        routine: str,
        arguments: Mapping[str, object],
        rows: Sequence[Any],
        seconds: float,
        error: BaseException | None,
    ) -> None:
        """A routine was called by a method."""
        operation = operation_of(routine)
        if operation is None:
            if routine == "join_resolve" and rows and rows[0][4] is not None:
                self.sent("outbox", None)  # the message that follows the join
            return
        box, step, kind = operation
        failure = None if error is None else type(error).__name__
        with self._lock:
            self._note(box, kind, seconds, failure)
            if kind == "send":
                for topic, number in _sent_topics(step, arguments):
                    self._sent[box, self._named(box, topic), failure] += number
            elif kind == "receive":
                for topic, number in topics_of_claimed(rows).items():
                    self._consumed[box, self._named(box, topic)] += number

    def exchanged(
        self, box: str, *, settled: bool, received: bool, seconds: float, error: BaseException | None
    ) -> None:
        """A worker has settled, or claimed, or both in one call; its messages it counts itself."""
        failure = None if error is None else type(error).__name__
        with self._lock:
            if settled:
                self._note(box, "settle", seconds, failure)
            if received or (error is not None and not settled):
                self._note(box, "receive", seconds, failure)

    def sent(self, box: str, topic: str | None) -> None:
        """A message was sent by the way."""
        with self._lock:
            self._sent[box, self._named(box, topic), None] += 1

    def taken(
        self,
    ) -> tuple[
        dict[tuple[str, str | None, str | None], int],
        dict[tuple[str, str | None], int],
        dict[tuple[str, Kind, str | None], Histogram],
    ]:
        """What was sent, what was received, and how long calls took, as of now."""
        with self._lock:
            seconds = {}
            for key, found in self._seconds.items():
                seconds[key] = Histogram(found.bounds)
                seconds[key].add_all(found)
            return dict(self._sent), dict(self._consumed), seconds

    def _note(self, box: str, kind: Kind, seconds: float, failure: str | None) -> None:
        found = self._seconds.get((box, kind, failure))
        if found is None:
            found = self._seconds[box, kind, failure] = Histogram(CALL_BOUNDS)
        found.add(seconds)

    def _named(self, box: str, topic: str | None) -> str | None:
        """The topic, as long as there are not too many."""
        if (box, topic) in self._topics:
            return topic
        if len(self._topics) >= MOST_TOPICS:
            return OTHER
        self._topics.add((box, topic))
        return topic


def _sent_topics(step: str, arguments: Mapping[str, object]) -> Iterable[tuple[str | None, int]]:
    """How many messages of each topic a call sends; arguments may be whatever a caller gave."""
    if step == "join_wait":
        return [("join.wait", 1)]
    if step == "enqueue_many":
        records = arguments.get("messages")
        found = records if isinstance(records, Sequence) and not isinstance(records, str) else ()
        return Counter(_topic(record.get("topic")) for record in found if isinstance(record, Mapping)).items()
    number = 1
    if step == "enqueue_payloads":
        payloads = arguments.get("payloads")
        number = len(payloads) if isinstance(payloads, Sequence) else 0
    return [(_topic(arguments.get("topic")), number)]


def _topic(value: object) -> str | None:
    return value if isinstance(value, str) else None
