"""What the tests of the worker share: putting messages in, waiting for something, counting what is open."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pysqlbox
from tests.support.database import Database

OWNER = UUID("11111111-1111-4111-8111-111111111111")
"""A worker of the test's own, beside the one it tests."""
PATIENCE = 1.0
"""By how much everybody waits longer, or shorter where the worker is known to be broken."""
_numbers = itertools.count(1)


def put(box: pysqlbox.Outbox | pysqlbox.Inbox, topic: str = "t", payload: Any = "p", **options: Any) -> int:
    """Enqueues one message in a box of either kind; its id."""
    if isinstance(box, pysqlbox.Inbox):
        return box.enqueue(topic, "tests", str(next(_numbers)), payload, **options).id
    return box.enqueue(topic, payload, **options).id


def put_many(
    box: pysqlbox.Outbox | pysqlbox.Inbox, count: int, topic: str = "t", **options: Any
) -> list[int]:
    """Enqueues many at once, whose payloads are their numbers; their ids."""
    records: list[dict[str, Any]] = [{"topic": topic, "payload": str(n), **options} for n in range(count)]
    if isinstance(box, pysqlbox.Inbox):
        for record in records:
            record |= {"source": "tests", "message_id": str(next(_numbers))}
    return [made.id for made in box.enqueue_many(records)]


def status(box: pysqlbox.Outbox | pysqlbox.Inbox, identity: int) -> str:
    """A message's status, in the outbox's words."""
    words = {"Seen": "Ready", "Processing": "Ready", "Dead": "Failed"}
    stored = box.get(identity)
    if stored.status == "Processing" and stored.owner_token is not None:
        return "InProgress"
    return words.get(stored.status, stored.status)


def nothing(_message: Any) -> None:
    """A handler that does nothing."""


def until(condition: Callable[[], object], seconds: float = 10.0, what: str = "") -> None:
    """Waits until a condition holds; fails the test if it does not come."""
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} seconds: {what or condition}"
        time.sleep(0.01)


def comes(event: threading.Event, seconds: float = 10.0) -> bool:
    """Whether somebody sets the event in that time."""
    return event.wait(seconds * PATIENCE)


def threads() -> list[str]:
    """The worker's threads that are alive."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("pysqlbox-"))


def connections(db: Database) -> int:
    """How many other connections the database of a test has (PostgreSQL)."""
    rows = db.sql(
        "SELECT count(*) AS n FROM pg_stat_activity"
        " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    return int(str(rows[0]["n"]))


@dataclass(slots=True)
class Call:
    """One call of a handler."""

    id: int
    topic: str
    payload: str
    attempt: int
    thread: str
    began: float
    ended: float = 0.0


@dataclass
class Calls:
    """Notes the calls of handlers; ``most`` is how many there were at once."""

    all: list[Call] = field(default_factory=list)
    most: int = 0
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, message: Any) -> Call:
        """A handler begins."""
        call = Call(
            message.id, message.topic, message.payload, message.attempt,
            threading.current_thread().name, time.monotonic(),
        )  # fmt: skip
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            self.all.append(call)
        return call

    def end(self, call: Call) -> None:
        """A handler ends."""
        with self._lock:
            self._now -= 1
        call.ended = time.monotonic()

    def handler(self, *answers: Any, sleep: float = 0.0) -> Callable[[Any], Any]:
        """A handler that gives these answers in turn and the last from then on; exceptions are raised."""
        turn = itertools.count()

        def handle(message: Any) -> Any:
            call = self.begin(message)
            try:
                if sleep:
                    time.sleep(sleep)
                answer = answers[min(next(turn), len(answers) - 1)] if answers else None
                if isinstance(answer, BaseException):
                    raise answer
                return answer
            finally:
                self.end(call)

        return handle

    @property
    def ids(self) -> list[int]:
        """The messages in the order in which their handlers began."""
        return [call.id for call in self.all]

    def of(self, identity: int) -> list[Call]:
        """The calls for one message."""
        return [call for call in self.all if call.id == identity]
