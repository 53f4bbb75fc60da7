"""A worker's own connections: each thread keeps one, with everything on it prepared."""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pysqlbox.deploy.names import quote_identifier
from pysqlbox.drivers import driver_for
from pysqlbox.errors import AccessDenied, PysqlboxError

if TYPE_CHECKING:
    from pysqlbox.box import Box
    from pysqlbox.queue import Queue

__all__ = ["Outcomes", "Session", "open_session"]


class Outcomes:
    """What became of messages, in the shape that settle takes: all the acknowledged are one record."""

    __slots__ = ("_lock", "acked", "others")

    def __init__(self) -> None:
        self.acked: list[int] = []
        self.others: list[dict[str, object]] = []
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self.acked or self.others)

    def __len__(self) -> int:
        return len(self.acked) + len(self.others)

    def add(
        self,
        identity: int,
        result: str,
        error: str | None = None,
        delay: float | None = None,
        max_attempts: int | None = None,
    ) -> None:
        """Note one that was not simply acknowledged."""
        record: dict[str, object] = {"id": identity, "result": result}
        if error is not None:
            record["error"] = storable(error)
        if delay is not None:
            record["delay_seconds"] = delay
        if max_attempts is not None:
            record["max_attempts"] = max_attempts
        self.others.append(record)

    def take(self) -> Outcomes:
        """Hand over everything noted so far, and go on empty; a thread may be adding or taking meanwhile."""
        taken = Outcomes()
        with self._lock:
            count, other_count = len(self.acked), len(self.others)
            taken.acked, taken.others = self.acked[:count], self.others[:other_count]
            del self.acked[:count], self.others[:other_count]
        return taken

    def give_back(self, taken: Outcomes) -> None:
        """Put back what could not be settled."""
        with self._lock:
            self.acked[:0] = taken.acked
            self.others[:0] = taken.others

    def parts(self) -> list[Outcomes]:
        """The acknowledged, and each of the others by itself."""
        parts = []
        for acked, others in [(self.acked, []), *(([], [record]) for record in self.others)]:
            part = Outcomes()
            part.acked, part.others = acked, others
            parts.append(part)
        return parts

    def __repr__(self) -> str:
        others = ", ".join(f"{record['result']} of message {record['id']}" for record in self.others)
        return f"Outcomes({len(self.acked)} acknowledged{', ' if others else ''}{others})"

    def as_json(self) -> str:
        """The argument of settle."""
        records: list[str] = []
        if self.acked:
            records.append('{"result":"ack","ids":[' + ",".join(map(str, self.acked)) + "]}")
        records += [json.dumps(record, ensure_ascii=False) for record in self.others]
        return "[" + ",".join(records) + "]"


def storable(error: object) -> str:
    """A handler's reason as text that every database takes: no NUL, no half of a surrogate pair."""
    return str(error).replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


class Session(Protocol):
    """One connection of a worker, opened again when it was lost."""

    def settle(
        self,
        queue: Queue,
        owner: uuid.UUID,
        outcomes: Outcomes,
        claim: int,
        lease_seconds: int,
        topics: Sequence[str] | None,
    ) -> list[Any]:
        """Settle and claim in one round trip; the claimed messages."""

    def call(self, routine: str, arguments: Mapping[str, object]) -> list[dict[str, object]]:
        """Any other routine."""

    def setting(self, queue: Queue, name: str) -> str | None:
        """A setting of a box; None where this user may not read it."""

    def close(self) -> None:
        """Close the connection, if one is open."""


def open_session(box: Box, lock_seconds: float | None = None) -> Session:
    """A session of the box's dialect; it connects when it is first used.

    ``lock_seconds``: how long a call may wait for somebody's lock on PostgreSQL, where no other end is set.
    """
    if box.target.dialect == "postgres":
        from pysqlbox.worker.session_postgres import PostgresSession

        return PostgresSession(box, lock_seconds)
    return CallingSession(box)


class CallingSession:
    """A session that uses nothing but the driver's ordinary calls."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._driver = driver_for(box.target.dialect)
        self._connection: Any = None

    def settle(
        self,
        queue: Queue,
        owner: uuid.UUID,
        outcomes: Outcomes,
        claim: int,
        lease_seconds: int,
        topics: Sequence[str] | None,
    ) -> list[Any]:
        """Settle and claim in one round trip; the claimed messages."""
        if not outcomes:
            if not claim:
                return []
            arguments = {
                "owner_token": owner, "lease_seconds": lease_seconds, "batch_size": claim, "topics": topics,
            }  # fmt: skip
            rows = self.call(f"{queue.name}_claim", arguments)
        else:
            arguments = {
                "owner_token": owner,
                "outcomes": outcomes.as_json(),
                "claim_batch": claim,
                "lease_seconds": lease_seconds,
                "topics": topics,
            }
            rows = self.call(f"{queue.name}_settle", arguments)
        message_type = queue.message_type
        return [message_type(**_with_headers(row)) for row in rows]

    def call(self, routine: str, arguments: Mapping[str, object]) -> list[dict[str, object]]:
        """Any routine; a connection that fails is closed, the next call opens another."""
        if self._connection is None:
            self._connection = self._driver.connect(self._box.target, autocommit=True)
        try:
            return self._driver.call(self._connection, self._box.schema, routine, arguments)
        except PysqlboxError:
            self.close()
            raise

    def setting(self, queue: Queue, name: str) -> str | None:
        """A setting of a box; None where this user may not read it."""
        from pysqlbox.drivers import mssql

        if self._connection is None:
            self._connection = self._driver.connect(self._box.target, autocommit=True)
        table = ".".join(
            quote_identifier("mssql", part) for part in (self._box.schema, f"{queue.name}_settings")
        )
        try:
            rows = mssql.query(self._connection, f"SELECT value FROM {table} WHERE name = ?", name)
        except self._driver.database_error() as error:
            mapped = self._driver.map_error(error)
            if isinstance(mapped, AccessDenied):
                return None
            self.close()
            raise mapped from error
        return str(rows[0][0]) if rows else None

    def close(self) -> None:
        """Close the connection, if one is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(self._driver.database_error()):
                connection.close()


def _with_headers(row: dict[str, object]) -> dict[str, Any]:
    headers = row.get("headers")
    return {**row, "headers": json.loads(headers)} if isinstance(headers, str) else row
