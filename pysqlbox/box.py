"""What outboxes and inboxes have in common: the worker's steps, and operating."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar
from uuid import UUID

from pysqlbox.arguments import (
    Delay,
    Ids,
    aware,
    delay,
    given,
    id_list,
    integer,
    outcome_list,
    text_list,
    uuid_of,
    whole_seconds,
)
from pysqlbox.drivers import Values
from pysqlbox.logs import DeploymentLog
from pysqlbox.messages import DeadCause, DeadLetterCause, Extended, Group, Retried, TopicStats, WorkerSeen
from pysqlbox.names import Kind
from pysqlbox.steps import Call, Named, Steps, routine
from pysqlbox.wording import counted

if TYPE_CHECKING:
    from pysqlbox.deployment_base import DeploymentBase

__all__ = ["BoxMethods", "rows_with_headers"]

Message = TypeVar("Message")
Stored = TypeVar("Stored")
Listed = TypeVar("Listed")
Dead = TypeVar("Dead")

#: A list, in the annotations of a class that has a method of that name.
_List = list

#: What settle takes of each message: id or ids, result, and error, delay_seconds or max_attempts.
Outcome = Mapping[str, Any]


def rows_with_headers(rows: list[Values], position: int) -> list[Values]:
    """Rows whose headers, at a position, are decoded."""
    return [
        row if row[position] is None else (*row[:position], json.loads(row[position]), *row[position + 1 :])
        for row in rows
    ]


class BoxMethods(Named, Generic[Message, Stored, Listed, Dead]):
    """One box of a deployment. Every method is the routine of its name, in one step.

    ``connection=`` takes the caller's open connection, so that the step joins the caller's transaction.
    """

    kind: ClassVar[Kind]
    message_type: type[Message]
    stored_type: type[Stored]
    listed_type: type[Listed]
    dead_type: type[Dead]
    #: Where the headers are among the columns of a claim, and of a stored message.
    claim_headers: ClassVar[int]
    stored_headers: ClassVar[int]
    #: Where the status is among the columns of a list.
    listed_status: ClassVar[int]

    def __init__(self, db: DeploymentBase, name: str) -> None:
        super().__init__(db, name)
        self._log = DeploymentLog(f"pysqlbox.{name}", db, name)

    @routine
    def claim(
        self,
        owner_token: UUID,
        *,
        lease_seconds: Delay = 30,
        batch_size: int = 50,
        topics: Iterable[str] | None = None,
        connection: Any = None,
    ) -> Call[_List[Message]]:
        """Take up to ``batch_size`` messages under a lease, in claim order; ``topics`` limits it to those."""
        arguments: dict[str, object] = {
            "owner_token": uuid_of("owner_token", owner_token),
            "lease_seconds": whole_seconds("lease_seconds", lease_seconds),
            "batch_size": integer("batch_size", batch_size),
        }
        given(arguments, {"topics": text_list("topics", topics)})
        return Call(f"{self.name}_claim", arguments, connection, False, partial(self._claimed, owner_token))

    @routine
    def ack(self, owner_token: UUID, ids: Ids, *, connection: Any = None) -> Call[int]:
        """Make messages Done; answers how many of them this owner still held."""
        arguments = _held(owner_token, ids)
        return self._affected("ack", arguments, connection)

    @routine
    def abandon(
        self,
        owner_token: UUID,
        ids: Ids,
        *,
        last_error: str | None = None,
        delay_seconds: Delay | None = None,
        connection: Any = None,
    ) -> Call[int]:
        """Give messages back for another try, after a delay or under the box's backoff; counts an attempt."""
        arguments = _held(owner_token, ids)
        optional = {"last_error": last_error, "delay_seconds": delay("delay_seconds", delay_seconds)}
        return self._affected("abandon", given(arguments, optional), connection)

    @routine
    def retry(
        self,
        owner_token: UUID,
        ids: Ids,
        *,
        last_error: str | None = None,
        delay_seconds: Delay | None = None,
        max_attempts: int | None = None,
        connection: Any = None,
    ) -> Steps[Retried]:
        """Give messages back like abandon, but give up those whose attempts thereby reach ``max_attempts``.

        None is the box's setting, 0 no limit.
        """
        arguments = _held(owner_token, ids)
        optional = {
            "last_error": last_error,
            "delay_seconds": delay("delay_seconds", delay_seconds),
            "max_attempts": integer("max_attempts", max_attempts),
        }
        rows = yield self._call("retry", given(arguments, optional), connection, repeat=True)
        return Retried(*rows[0])

    @routine
    def release(
        self,
        owner_token: UUID,
        ids: Ids,
        *,
        delay_seconds: Delay | None = None,
        connection: Any = None,
    ) -> Call[int]:
        """Hand messages back, at once or after a delay; no attempt counted."""
        arguments = _held(owner_token, ids)
        optional = {"delay_seconds": delay("delay_seconds", delay_seconds)}
        return self._affected("release", given(arguments, optional), connection)

    @routine
    def fail(self, owner_token: UUID, ids: Ids, error: str, *, connection: Any = None) -> Call[int]:
        """Give messages up, for a reason that is kept."""
        arguments = _held(owner_token, ids) | {"error": error}
        return self._affected("fail", arguments, connection)

    @routine
    def extend(
        self, owner_token: UUID, ids: Ids, lease_seconds: Delay = 30, *, connection: Any = None
    ) -> Steps[_List[Extended]]:
        """Prolong leases from now on; answers those that this owner still holds."""
        arguments = _held(owner_token, ids) | {"lease_seconds": whole_seconds("lease_seconds", lease_seconds)}
        rows = yield self._call("extend", arguments, connection, repeat=True)
        return [Extended(*row) for row in rows]

    @routine
    def settle(
        self,
        owner_token: UUID,
        outcomes: Iterable[Outcome],
        *,
        claim_batch: int = 0,
        lease_seconds: Delay = 30,
        topics: Iterable[str] | None = None,
        connection: Any = None,
    ) -> Call[_List[Message]]:
        """Settle a mixed batch, and take the next ``claim_batch`` messages in the same step.

        An outcome is a mapping with ``id`` or ``ids``, ``result`` (ack, abandon, retry, release, fail),
        ``error``, ``delay_seconds`` and ``max_attempts``.
        """
        arguments: dict[str, object] = {
            "owner_token": uuid_of("owner_token", owner_token),
            "outcomes": outcome_list(outcomes),
        }
        if claim_batch != 0:
            arguments["claim_batch"] = integer("claim_batch", claim_batch)
            arguments["lease_seconds"] = whole_seconds("lease_seconds", lease_seconds)
            given(arguments, {"topics": text_list("topics", topics)})
        read = partial(self._claimed, owner_token) if claim_batch else _nothing
        return Call(f"{self.name}_settle", arguments, connection, claim_batch == 0, read)

    @routine
    def reap(self, batch_size: int = 1000, *, connection: Any = None) -> Steps[int]:
        """Take back leases that have run out; answers how many."""
        affected = yield from self._affected(
            "reap", {"batch_size": integer("batch_size", batch_size)}, connection
        )
        self._log.info("reaped %s [%s]", counted(affected, "expired lease"), self.deployment.store)
        return affected

    @routine
    def get(self, id: int, *, connection: Any = None) -> Steps[Stored]:
        """A message with its status and bookkeeping; NotFound if there is none."""
        rows = yield self._call("get", {"id": integer("id", id)}, connection, repeat=True)
        return self._stored(rows)[0]

    @routine
    def list(
        self,
        status: str,
        *,
        topic: str | None = None,
        limit: int = 100,
        after_id: int = 0,
        group_id: str | None = None,
        connection: Any = None,
    ) -> Steps[_List[Listed]]:
        """Messages in one status, by id from behind ``after_id`` on, without payloads and headers.

        All of them, or those of a topic or a group; to find those the database may be asked several times.
        """
        wanted = integer("limit", limit)
        optional = {"topic": topic, "group_id": group_id}
        found: _List[Values] = []
        behind: object = integer("after_id", after_id)
        while True:
            room = wanted - len(found) if isinstance(wanted, int) else wanted
            arguments = given({"status": status, "limit": room, "after_id": behind}, optional)
            rows = yield self._call("list", arguments, connection, repeat=True)
            # A page that ended before it was full says so in a row that has nothing but an id.
            goes_on = bool(rows) and rows[-1][self.listed_status] is None
            found += rows[:-1] if goes_on else rows
            if not goes_on or len(found) == wanted:
                return [self.listed_type(*row) for row in found]
            behind = rows[-1][0]

    @routine
    def dead_letters(
        self, *, limit: int = 100, after_id: int = 0, topic: str | None = None, connection: Any = None
    ) -> Steps[_List[Dead]]:
        """Messages that were given up, have expired or were cancelled, by id, from behind ``after_id`` on."""
        arguments = given(
            {"limit": integer("limit", limit), "after_id": integer("after_id", after_id)}, {"topic": topic}
        )
        rows = yield self._call("dead_letters", arguments, connection, repeat=True)
        return [self.dead_type(*row) for row in rows_with_headers(rows, self.stored_headers)]

    @routine
    def dead_causes(self, *, limit: int = 100, connection: Any = None) -> Steps[_List[DeadCause]]:
        """The messages that died last by topic and cause, most first; one fault is one of them."""
        rows = yield self._call("dead_causes", {"limit": integer("limit", limit)}, connection, repeat=True)
        return [DeadCause(*row) for row in rows]

    @routine
    def dead_letter_causes(
        self, *, limit: int = 100, after_id: int = 0, topic: str | None = None, connection: Any = None
    ) -> Steps[_List[DeadLetterCause]]:
        """Dead messages, each with its cause, by id, from behind ``after_id`` on; see dead_causes."""
        arguments = given(
            {"limit": integer("limit", limit), "after_id": integer("after_id", after_id)}, {"topic": topic}
        )
        rows = yield self._call("dead_letter_causes", arguments, connection, repeat=True)
        return [DeadLetterCause(*row) for row in rows]

    @routine
    def workers(self, *, limit: int = 100, connection: Any = None) -> Steps[_List[WorkerSeen]]:
        """Who holds leases of the box, or was done with something within the last minutes."""
        rows = yield self._call("workers", {"limit": integer("limit", limit)}, connection, repeat=True)
        return [_worker_seen(row) for row in rows]

    @routine
    def groups(
        self, *, limit: int = 100, only_blocked: bool = False, connection: Any = None
    ) -> Steps[_List[Group]]:
        """FIFO groups that have messages, those first that their head has held up longest."""
        arguments: dict[str, object] = {"limit": integer("limit", limit), "only_blocked": only_blocked}
        rows = yield self._call("groups", arguments, connection, repeat=True)
        return [Group(*row) for row in rows]

    @routine
    def replay(self, ids: Ids, *, connection: Any = None) -> Steps[int]:
        """Make dead messages claimable again, from attempt 0; InvalidState if one of them is not dead."""
        rows = yield self._call("replay", {"ids": id_list("ids", ids)}, connection)
        self._log.info("replayed %s [%s]", counted(rows[0][0], "dead message"), self.deployment.store)
        return int(rows[0][0])

    @routine
    def discard(self, ids: Ids, *, connection: Any = None) -> Steps[int]:
        """Delete dead messages."""
        affected = yield from self._affected("discard", {"ids": id_list("ids", ids)}, connection)
        self._log.info("discarded %s [%s]", counted(affected, "dead message"), self.deployment.store)
        return affected

    @routine
    def cancel(self, ids: Ids, *, reason: str | None = None, connection: Any = None) -> Steps[int]:
        """Call off messages that are not over yet, waiting or leased; answers how many."""
        arguments = given({"ids": id_list("ids", ids)}, {"reason": reason})
        affected = yield from self._affected("cancel", arguments, connection)
        self._log.info("cancelled %s [%s]", counted(affected, "message"), self.deployment.store)
        return affected

    @routine
    def reschedule(self, ids: Ids, due_at: datetime | None = None, *, connection: Any = None) -> Call[int]:
        """Give waiting messages a new due time, now without one; answers how many were waiting."""
        arguments = given({"ids": id_list("ids", ids)}, {"due_at": aware("due_at", due_at)})
        return self._affected("reschedule", arguments, connection)

    @routine
    def next_due(self, *, connection: Any = None) -> Steps[datetime | None]:
        """When a delayed message or a lease that ends next wants somebody to claim; None if none does."""
        rows = yield self._call("next_due", {}, connection, repeat=True)
        found: datetime | None = rows[0][0]
        return found

    @routine
    def cleanup(
        self, retention_seconds: Delay, *, batch_size: int = 1000, connection: Any = None
    ) -> Steps[int]:
        """Delete messages done longer ago than the retention, up to a batch; answers how many."""
        return self._clean("cleanup", retention_seconds, batch_size, connection)

    @routine
    def cleanup_dead(
        self, retention_seconds: Delay, *, batch_size: int = 1000, connection: Any = None
    ) -> Steps[int]:
        """Delete messages dead for longer than the retention, up to a batch; answers how many."""
        return self._clean("cleanup_dead", retention_seconds, batch_size, connection)

    @routine
    def pause(self, topic: str | None = None, *, connection: Any = None) -> Call[int]:
        """Stop handing out a topic, or the whole box; 0 if it was paused already."""
        return self._affected("pause", given({}, {"topic": topic}), connection)

    @routine
    def resume(self, topic: str | None = None, *, connection: Any = None) -> Call[int]:
        """Hand out a topic, or the whole box, again; 0 if it was not paused."""
        return self._affected("resume", given({}, {"topic": topic}), connection)

    @routine
    def stats(self, *, connection: Any = None) -> Steps[_List[TopicStats]]:
        """Counts by topic, and of the whole box last, whose topic is None."""
        rows = yield self._call("stats", {}, connection, repeat=True)
        return [TopicStats(*row) for row in rows]

    @routine
    def configure(self, name: str, value: object, *, connection: Any = None) -> Steps[str]:
        """Change a setting of the box; answers the value as it is kept."""
        if isinstance(value, bool):
            value = "on" if value else "off"
        arguments: dict[str, object] = {"name": name, "value": None if value is None else str(value)}
        rows = yield self._call("configure", arguments, connection, repeat=True)
        return str(rows[0][1])

    def _clean(self, step: str, retention_seconds: Delay, batch_size: int, connection: Any) -> Steps[int]:
        arguments: dict[str, object] = {
            "retention_seconds": delay("retention_seconds", retention_seconds),
            "batch_size": integer("batch_size", batch_size),
        }
        affected = yield from self._affected(step, arguments, connection)
        self._log.info("%s removed %s [%s]", step, counted(affected, "message"), self.deployment.store)
        return affected

    def _claimed(self, owner_token: object, rows: _List[Values]) -> _List[Message]:
        if self._log.isEnabledFor(logging.DEBUG):
            self._log.debug(
                "claimed %s for %s [%s]", counted(len(rows), "message"), owner_token, self.deployment.store
            )
        return [self.message_type(*row) for row in rows_with_headers(rows, self.claim_headers)]

    def _stored(self, rows: _List[Values]) -> _List[Stored]:
        return [self.stored_type(*row) for row in rows_with_headers(rows, self.stored_headers)]


def _nothing(_rows: list[Values]) -> list[Any]:
    return []


def _worker_seen(row: Values) -> WorkerSeen:
    """A row of the routine; SQL Server's topics come as JSON."""
    seen = WorkerSeen(*row)
    topics: Any = seen.topics
    return replace(seen, topics=json.loads(topics)) if isinstance(topics, str) else seen


def _held(owner_token: UUID, ids: Ids) -> dict[str, object]:
    """The arguments that say whose messages are meant, and which."""
    return {"owner_token": uuid_of("owner_token", owner_token), "ids": id_list("ids", ids)}
