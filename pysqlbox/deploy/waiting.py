"""Who is in a deployment's way: seen from a second connection while the first waits for a lock.

Who waits for a table's exclusive lock makes everybody queue up behind it. So a deployment waits
``LOCK_SECONDS`` at a time, gives everything back, and tries again a little later.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pysqlbox.drivers import Target, driver_for, mssql
from pysqlbox.errors import DatabaseUnavailable, PysqlboxError
from pysqlbox.names import Dialect

#: How long a deployment waits for any one lock, and everybody behind it.
LOCK_SECONDS = 2.0
#: The first pause before it tries again; each is twice as long as the one before.
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 15.0

_LOOK_SECONDS = 0.2
#: The transaction gave up waiting, or was ended so that another one can go on.
_POSTGRES_CODES = frozenset({"55P03", "40P01"})
_MSSQL_WORDS = ("(1222)", "(1205)", "lock timeout", "Lock request time out", "deadlock")

_POSTGRES = """
    SELECT b.pid, a.usename, a.application_name, a.state, a.xact_start, a.query_start,
        (
            SELECT min(l.relation::regclass::text)
            FROM pg_catalog.pg_locks AS l
            WHERE l.pid = %(pid)s AND NOT l.granted
        )
    FROM (SELECT DISTINCT unnest(pg_catalog.pg_blocking_pids(%(pid)s))) AS b (pid)
    LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = b.pid
    ORDER BY a.xact_start, b.pid
"""
_MSSQL = """
    SELECT r.blocking_session_id, s.login_name, s.program_name, s.status,
        COALESCE(s.last_request_end_time, s.login_time), s.last_request_start_time, NULL
    FROM sys.dm_exec_requests AS r
    LEFT JOIN sys.dm_exec_sessions AS s ON s.session_id = r.blocking_session_id
    WHERE r.session_id = ? AND r.blocking_session_id > 0
"""


class Blocked(DatabaseUnavailable):
    """A lock was not to be had within LOCK_SECONDS; the transaction is over."""


def is_blocked(dialect: Dialect, error: BaseException) -> bool:
    """Whether a driver's exception says that a lock was not to be had."""
    if dialect == "postgres":
        return getattr(error, "sqlstate", None) in _POSTGRES_CODES
    text = " ".join(map(str, error.args))
    return any(word in text for word in _MSSQL_WORDS)


class Watcher:
    """Looks, on a connection of its own, whom a session waits for; keeps what it saw last."""

    def __init__(self, target: Target, session: int) -> None:
        self._target = target
        self._session = session
        self._lock = threading.Lock()
        self._seen: list[str] = []

    @property
    def seen(self) -> str:
        """Everybody who was in the way when it last looked, as a part of a sentence."""
        with self._lock:
            return " and ".join(self._seen) or "somebody who could not be looked up"

    def _look(self, stop: threading.Event) -> None:
        if stop.wait(_LOOK_SECONDS):
            return
        driver = driver_for(self._target.dialect)
        # Without a connection or the right to look the deployment goes on: it only cannot say who it was.
        with contextlib.suppress(PysqlboxError, driver.database_error()):
            connection = driver.connect(self._target, autocommit=True)
            try:
                while not stop.wait(_LOOK_SECONDS):
                    found = [_describe(*row) for row in self._rows(connection)]
                    if found:
                        with self._lock:
                            self._seen = found
            finally:
                connection.close()

    def _rows(self, connection: Any) -> list[Any]:
        if self._target.dialect == "mssql":
            return mssql.query(connection, _MSSQL, self._session)
        return list(connection.execute(_POSTGRES, {"pid": self._session}).fetchall())


@contextlib.contextmanager
def watching(target: Target, session: int) -> Iterator[Watcher]:
    """A watcher over a session, until the end of the block."""
    watcher = Watcher(target, session)
    stop = threading.Event()
    thread = threading.Thread(
        target=watcher._look, args=(stop,), name="pysqlbox-migrate-watcher", daemon=True
    )
    thread.start()
    try:
        yield watcher
    finally:
        stop.set()
        thread.join()


def _describe(
    pid: int, user: object, application: object, state: object, since: object, query: object, relation: object
) -> str:
    """One who is in the way; what a login may not see of others is null."""
    where = f", for {relation}" if relation else ""
    if not pid:
        return f"a prepared transaction (see pg_prepared_xacts){where}"
    known = [
        f"user {user}" if user else "",
        f"application {application}" if application else "",
        str(state or ""),
        f"since {_time(since)}" if since else "",
        f"last query began {_time(query)}" if query else "",
    ]
    return f"session {pid} ({', '.join(each for each in known if each) or 'no more is visible'}){where}"


def _time(value: object) -> str:
    if not isinstance(value, datetime):
        return str(value)
    utc = value.astimezone(UTC) if value.tzinfo else value
    return f"{utc:%Y-%m-%d %H:%M:%S}" + (" UTC" if value.tzinfo else "")
