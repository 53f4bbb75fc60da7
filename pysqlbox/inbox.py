"""The inbox: messages from elsewhere, taken in once per source and message id."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from pysqlbox.arguments import Delay, aware, given, integer, payload_text
from pysqlbox.arguments import delay as seconds
from pysqlbox.arguments import headers as header_dict
from pysqlbox.box import BoxMethods
from pysqlbox.drivers import Values
from pysqlbox.errors import InvalidArgument
from pysqlbox.messages import (
    AlreadyProcessed,
    InboxDeadLetter,
    InboxEnqueued,
    InboxMessage,
    ListedInboxMessage,
    StoredInboxMessage,
)
from pysqlbox.records import Records
from pysqlbox.steps import Awaiting, Blocking, Call, Described, Steps, routine
from pysqlbox.typed.publishing import ReceiveOptions, incoming
from pysqlbox.wording import counted

if TYPE_CHECKING:
    from pysqlbox.async_deployment import AsyncDeployment
    from pysqlbox.deployment import Deployment

__all__ = ["AsyncInbox", "Inbox", "InboxMethods"]

_RECORDS = Records(
    required=("topic", "source", "message_id", "payload"),
    optional=(
        "hash",
        "due_at",
        "group_id",
        "priority",
        "collapse_key",
        "expires_at",
        "headers",
        "received_at",
        "delay",
        "delay_seconds",
    ),
)


class InboxMethods(BoxMethods[InboxMessage, StoredInboxMessage, ListedInboxMessage, InboxDeadLetter]):
    """An inbox of a deployment."""

    kind: ClassVar = "inbox"
    message_type = InboxMessage
    stored_type = StoredInboxMessage
    listed_type = ListedInboxMessage
    dead_type = InboxDeadLetter
    claim_headers: ClassVar = 8
    stored_headers: ClassVar = 9
    listed_status: ClassVar = 3

    @routine
    def enqueue(
        self,
        topic: str,
        source: str,
        message_id: str,
        payload: Any,
        *,
        hash: bytes | None = None,
        due_at: datetime | None = None,
        group_id: str | None = None,
        priority: int | None = None,
        collapse_key: str | None = None,
        expires_at: datetime | None = None,
        headers: Mapping[str, object] | str | None = None,
        received_at: datetime | None = None,
        delay: Delay | None = None,
        connection: Any = None,
    ) -> Call[InboxEnqueued]:
        """Take a message in, once per source and message id; a repeated one updates what is not done.

        A payload that is not text goes through the deployment's serializer. ``delay`` is seconds or a
        timedelta from now by the server's clock, in place of ``due_at``.
        """
        arguments = self._arguments(
            topic, source, message_id, payload, hash, due_at, group_id, priority, collapse_key, expires_at,
            headers, received_at, delay,
        )  # fmt: skip
        read = partial(self._enqueued, topic, source, message_id)
        return Call(f"{self.name}_enqueue", arguments, connection, True, read)

    @routine
    def enqueue_many(
        self, messages: Iterable[Mapping[str, object]], *, connection: Any = None
    ) -> Call[list[InboxEnqueued]]:
        """Take many messages in, or none if one is wrong; the records' keys are the arguments of enqueue."""
        records = _RECORDS.read(messages, self.deployment.serializer)
        arguments = {"messages": records}
        return Call(f"{self.name}_enqueue_many", arguments, connection, True, self._enqueued_many)

    @routine
    def receive(
        self, value: object, *, connection: Any = None, **options: Unpack[ReceiveOptions]
    ) -> Described[InboxEnqueued]:
        """Enqueue an object as its class says; ``options`` go before what the class says.

        An inbox needs the sender's id of the message: the class's ``message_id``, else its deduplication id.
        """
        return InboxMethods.enqueue.steps(self, **incoming(value, options), connection=connection)

    @routine
    def receive_many(
        self, values: Iterable[object], *, source: str | None = None, connection: Any = None
    ) -> Described[list[InboxEnqueued]]:
        """Enqueue objects, which may be of different classes, in one call."""
        records = [incoming(value, {} if source is None else {"source": source}) for value in values]
        return InboxMethods.enqueue_many.steps(self, records, connection=connection)

    @routine
    def find(
        self, message_id: str, source: str, *, connection: Any = None
    ) -> Steps[StoredInboxMessage | None]:
        """A message by its sender's id, with its status and bookkeeping; None if there is none."""
        arguments: dict[str, object] = {"message_id": message_id, "source": source}
        rows = yield self._call("find", arguments, connection, repeat=True)
        found = self._stored(rows)
        return found[0] if found else None

    @routine
    def already_processed(
        self, message_id: str, source: str, *, hash: bytes | None = None, connection: Any = None
    ) -> Steps[AlreadyProcessed]:
        """Whether the message is done; on first sight it is noted as Seen. True in a condition if done."""
        arguments = given({"message_id": message_id, "source": source}, {"hash": _bytes(hash)})
        rows = yield self._call("already_processed", arguments, connection, repeat=True)
        found = AlreadyProcessed(*rows[0])
        self._log.debug(
            "message %r from %r: already processed %s, hash mismatch %s [%s]",
            message_id, source, found.already_processed, found.hash_mismatch, self.deployment.store,
        )  # fmt: skip
        return found

    @routine
    def mark_processing(self, message_id: str, source: str, *, connection: Any = None) -> Call[int]:
        """Note that the caller handles a Seen message; 1 if it is Processing now."""
        return self._mark("mark_processing", message_id, source, connection)

    @routine
    def mark_processed(self, message_id: str, source: str, *, connection: Any = None) -> Call[int]:
        """Note that a message is done; 0 if it is unknown, done or dead."""
        return self._mark("mark_processed", message_id, source, connection)

    @routine
    def mark_dead(self, message_id: str, source: str, *, connection: Any = None) -> Call[int]:
        """Note that a message is given up; 0 if it is unknown, done or dead."""
        return self._mark("mark_dead", message_id, source, connection)

    def _mark(self, step: str, message_id: str, source: str, connection: Any) -> Call[int]:
        return self._affected(step, {"message_id": message_id, "source": source}, connection)

    def _arguments(
        self,
        topic: str,
        source: str,
        message_id: str,
        payload: Any,
        hash: bytes | None,
        due_at: datetime | None,
        group_id: str | None,
        priority: int | None,
        collapse_key: str | None,
        expires_at: datetime | None,
        headers: Mapping[str, object] | str | None,
        received_at: datetime | None,
        delay: Delay | None,
    ) -> dict[str, object]:
        required: dict[str, object] = {
            "topic": topic,
            "source": source,
            "message_id": message_id,
            "payload": payload_text("payload", payload, self.deployment.serializer),
        }
        optional = {
            "hash": _bytes(hash),
            "due_at": aware("due_at", due_at),
            "group_id": group_id,
            "priority": integer("priority", priority),
            "collapse_key": collapse_key,
            "expires_at": aware("expires_at", expires_at),
            "headers": header_dict(headers),
            "received_at": aware("received_at", received_at),
            "delay_seconds": seconds("delay", delay),
        }
        return given(required, optional)

    def _enqueued(self, topic: str, source: str, message_id: str, rows: list[Values]) -> InboxEnqueued:
        row = rows[0]
        if self._log.isEnabledFor(logging.INFO):
            self._log.info(
                "enqueued %s: topic %r, source %r, message %r: %s [%s]",
                row[0], topic, source, message_id, row[1], self.deployment.store,
            )  # fmt: skip
        if row[2]:
            self._log.warning(
                "message %r from %r came with another hash than before [%s]",
                message_id,
                source,
                self.deployment.store,
            )
        return InboxEnqueued(*row)

    def _enqueued_many(self, rows: list[Values]) -> list[InboxEnqueued]:
        self._log.info("enqueued a batch of %s [%s]", counted(len(rows), "message"), self.deployment.store)
        return [InboxEnqueued(row[1], row[2], row[3], row[0]) for row in rows]


class Inbox(InboxMethods, Blocking):
    """An inbox of a deployment."""

    deployment: Deployment


class AsyncInbox(InboxMethods, Awaiting):
    """The same for asynchronous callers."""

    deployment: AsyncDeployment


def _bytes(value: bytes | None) -> bytes | None:
    if value is not None and not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidArgument("hash: must be bytes")
    return value
