"""Sessions that wait for one another on purpose, and what the server says of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from pysqlbox.drivers import connect, parse_url
from tests.support.database import Database, Session

PATIENCE = 30.0
"""Seconds until something that must happen counts as never happening."""


def session_id(session: Session) -> int:
    """The server's number of a session."""
    return int(str(session.sql("SELECT @@SPID AS id")[0]["id"]))


class Background:
    """A call that runs in another thread, on a session that nobody else uses meanwhile."""

    def __init__(self, db: Database, session: Session, call: Callable[[Session], Any]) -> None:
        """Starts the call."""
        self._db = db
        self._id = session_id(session)
        session.rollback()
        self._pool = ThreadPoolExecutor(1)
        self._future: Future[Any] = self._pool.submit(call, session)

    def is_blocked(self) -> bool:
        """Waits until the call waits for another session (true) or is over (false)."""
        until = time.monotonic() + PATIENCE
        query = "SELECT blocking_session_id AS id FROM sys.dm_exec_requests WHERE session_id = %s"
        while time.monotonic() < until and not self._future.done():
            if any(row["id"] for row in self._db.sql(query, self._id)):
                return True
            time.sleep(0.02)
        assert self._future.done(), "the call neither waits for another session nor ends"
        return False

    def result(self) -> Any:
        """What the call answers, or its error."""
        try:
            return self._future.result(PATIENCE)
        finally:
            self._pool.shutdown(wait=False)


@contextlib.contextmanager
def hurried(db: Database, seconds: int) -> Iterator[Session]:
    """A session in autocommit whose calls the client cuts off after so many seconds."""
    target = replace(parse_url(db.url), query_timeout=seconds)
    connection = connect(target, autocommit=True)
    try:
        yield Session(db.dialect, db.schema, connection)
    finally:
        connection.close()


def at_level(session: Session, level: str) -> Session:
    """The session at an isolation level, for its next transactions; waiting soon fails."""
    session.sql(f"SET TRANSACTION ISOLATION LEVEL {level}")
    session.sql("SET LOCK_TIMEOUT 3000")
    session.commit()
    return session
