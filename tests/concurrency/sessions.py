"""Sessions that wait for one another on purpose: a call in the background, and proof that it is blocked."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tests.contract.support import Caller
from tests.support.database import Database, Session

GATE = 4711
"""The advisory lock at which planted bugs wait whose moment no lock of the routine's own makes long."""
PATIENCE = 10.0
"""Seconds until something that must happen counts as never happening."""


class Background:
    """A call that runs in another thread, on a session that nobody else uses meanwhile."""

    def __init__(self, db: Database, session: Session, call: Callable[[Session], Any]) -> None:
        """Starts the call."""
        self._db = db
        self._pid = session.sql("SELECT pg_backend_pid() AS pid")[0]["pid"]
        self._pool = ThreadPoolExecutor(1)
        self._future: Future[Any] = self._pool.submit(call, session)

    def is_blocked(self, patience: float = PATIENCE) -> bool:
        """Waits until the call waits for a lock (true) or is over (false)."""
        until = time.monotonic() + patience
        while time.monotonic() < until and not self._future.done():
            rows = self._db.sql("SELECT cardinality(pg_blocking_pids(%s)) > 0 AS waits", self._pid)
            if rows[0]["waits"]:
                return True
            time.sleep(0.01)
        assert self._future.done(), "the call neither waits for a lock nor ends"
        return False

    def result(self) -> Any:
        """What the call answers, or its error."""
        try:
            return self._future.result(PATIENCE)
        finally:
            self._pool.shutdown(wait=False)


@contextlib.contextmanager
def sessions(db: Database, count: int) -> Iterator[list[Session]]:
    """Sessions that fail soon where they would wait for ever."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(db.session()) for _ in range(count)]
        for session in opened:
            session.sql("SET lock_timeout = '3s'")
            steady(session)
            session.commit()
        yield opened


def steady(caller: Caller) -> None:
    """Chance decides when a claim ticks; with this seed its first dozens of claims leave that to the test."""
    caller.sql("SELECT setseed(0.1)")


def hasty(session: Session) -> Session:
    """The session, made to fail at once where it would wait for a lock."""
    session.sql("SET LOCAL lock_timeout = '300ms'")
    return session


def patient(session: Session) -> Session:
    """The session, made to wait for a lock as long as the test may need on a busy machine."""
    session.sql("SET lock_timeout = '60s'")
    session.commit()
    return session


def tick(db: Database, box: str, times: int = 2) -> None:
    """Has the box move its low marks as far as they may go."""
    for _ in range(times):
        db.sql(f"SELECT {{schema}}._{box}_tick()")
