"""The outbox: messages written in the transaction of the change they tell of."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Unpack
from uuid import UUID

from pysqlbox.arguments import (
    Delay,
    aware,
    given,
    integer,
    payload_text,
    payload_texts,
    time_ordered_uuid,
    uuid_of,
)
from pysqlbox.arguments import delay as seconds
from pysqlbox.arguments import headers as header_dict
from pysqlbox.box import BoxMethods
from pysqlbox.drivers import Values
from pysqlbox.messages import (
    Enqueued,
    ListedOutboxMessage,
    OutboxDeadLetter,
    OutboxMessage,
    StoredOutboxMessage,
)
from pysqlbox.records import Records
from pysqlbox.schedules import SchedulingMethods
from pysqlbox.steps import Awaiting, Blocking, Call, Described, Steps, routine
from pysqlbox.typed.publishing import PublishOptions, outgoing
from pysqlbox.wording import counted

if TYPE_CHECKING:
    from pysqlbox.async_deployment import AsyncDeployment
    from pysqlbox.deployment import Deployment

__all__ = ["AsyncOutbox", "Outbox", "OutboxMethods"]

_RECORDS = Records(
    required=("topic", "payload"),
    optional=(
        "correlation_id",
        "due_at",
        "message_id",
        "group_id",
        "priority",
        "dedup_key",
        "collapse_key",
        "expires_at",
        "headers",
        "created_at",
        "delay",
        "delay_seconds",
    ),
)


class OutboxMethods(
    BoxMethods[OutboxMessage, StoredOutboxMessage, ListedOutboxMessage, OutboxDeadLetter], SchedulingMethods
):
    """An outbox of a deployment."""

    kind: ClassVar = "outbox"
    message_type = OutboxMessage
    stored_type = StoredOutboxMessage
    listed_type = ListedOutboxMessage
    dead_type = OutboxDeadLetter
    claim_headers: ClassVar = 7
    stored_headers: ClassVar = 9
    listed_status: ClassVar = 2

    @routine
    def enqueue(
        self,
        topic: str,
        payload: Any,
        *,
        correlation_id: str | None = None,
        due_at: datetime | None = None,
        message_id: UUID | None = None,
        group_id: str | None = None,
        priority: int | None = None,
        dedup_key: str | None = None,
        collapse_key: str | None = None,
        expires_at: datetime | None = None,
        headers: Mapping[str, object] | str | None = None,
        created_at: datetime | None = None,
        delay: Delay | None = None,
        connection: Any = None,
    ) -> Described[Enqueued]:
        """Write a message, in the caller's transaction if a connection is given: it is there if that commits.

        A payload that is not text goes through the deployment's serializer. ``delay`` is seconds or a
        timedelta from now by the server's clock, in place of ``due_at``.
        """
        arguments = self._arguments(
            topic, payload, correlation_id, due_at, message_id, group_id, priority, dedup_key, collapse_key,
            expires_at, headers, created_at, delay,
        )  # fmt: skip
        if connection is not None or "message_id" in arguments:
            read = partial(self._enqueued, topic, correlation_id, None)
            return Call(f"{self.name}_enqueue", arguments, connection, True, read)
        if self.deployment.place is None:
            return self._enqueue_first(topic, correlation_id, arguments)
        return self._enqueue(topic, correlation_id, arguments, self.deployment.place)

    @routine
    def enqueue_many(
        self, messages: Iterable[Mapping[str, object]], *, connection: Any = None
    ) -> Call[list[Enqueued]]:
        """Write many messages, or none if one is wrong; the records' keys are the arguments of enqueue."""
        records = _RECORDS.read(messages, self.deployment.serializer)
        arguments = {"messages": records}
        return Call(
            f"{self.name}_enqueue_many", arguments, connection, _all_named(records), self._enqueued_many
        )

    @routine
    def enqueue_payloads(
        self,
        topic: str,
        payloads: Iterable[Any],
        *,
        correlation_id: str | None = None,
        due_at: datetime | None = None,
        priority: int | None = None,
        expires_at: datetime | None = None,
        headers: Mapping[str, object] | str | None = None,
        connection: Any = None,
    ) -> Call[list[Enqueued]]:
        """Write many messages that differ only in their payloads: the quickest way in."""
        arguments = self._shared(topic, payloads, correlation_id, due_at, priority, expires_at, headers)
        return Call(f"{self.name}_enqueue_payloads", arguments, connection, False, self._enqueued_payloads)

    @routine
    def find(self, message_id: UUID, *, connection: Any = None) -> Steps[StoredOutboxMessage | None]:
        """A message by its message_id, with its status and bookkeeping; None if there is none."""
        arguments: dict[str, object] = {"message_id": uuid_of("message_id", message_id)}
        found = self._stored((yield self._call("find", arguments, connection, repeat=True)))
        return found[0] if found else None

    @routine
    def publish(
        self, value: object, *, connection: Any = None, **options: Unpack[PublishOptions]
    ) -> Described[Enqueued]:
        """Enqueue an object as its class says; ``options`` go before what the class says."""
        return OutboxMethods.enqueue.steps(self, **outgoing(value, options), connection=connection)

    @routine
    def publish_many(self, values: Iterable[object], *, connection: Any = None) -> Described[list[Enqueued]]:
        """Enqueue objects, which may be of different classes, in one call."""
        records = [outgoing(value, {}) for value in values]
        return OutboxMethods.enqueue_many.steps(self, records, connection=connection)

    def _enqueue(
        self, topic: str, correlation_id: str | None, arguments: dict[str, object], place: int
    ) -> Call[Enqueued]:
        """Enqueue in a transaction of its own, under an id drawn here, so that it may be tried twice."""
        arguments["message_id"] = drawn = time_ordered_uuid(place)
        read = partial(self._enqueued, topic, correlation_id, drawn)
        return Call(f"{self.name}_enqueue", arguments, None, True, read)

    def _enqueue_first(
        self, topic: str, correlation_id: str | None, arguments: dict[str, object]
    ) -> Steps[Enqueued]:
        place = yield from self.deployment.draw_place()
        return (yield from self._enqueue(topic, correlation_id, arguments, place))

    def _arguments(
        self,
        topic: str,
        payload: Any,
        correlation_id: str | None,
        due_at: datetime | None,
        message_id: UUID | None,
        group_id: str | None,
        priority: int | None,
        dedup_key: str | None,
        collapse_key: str | None,
        expires_at: datetime | None,
        headers: Mapping[str, object] | str | None,
        created_at: datetime | None,
        delay: Delay | None,
    ) -> dict[str, object]:
        optional = {
            "correlation_id": correlation_id,
            "due_at": aware("due_at", due_at),
            "message_id": uuid_of("message_id", message_id),
            "group_id": group_id,
            "priority": integer("priority", priority),
            "dedup_key": dedup_key,
            "collapse_key": collapse_key,
            "expires_at": aware("expires_at", expires_at),
            "headers": header_dict(headers),
            "created_at": aware("created_at", created_at),
            "delay_seconds": seconds("delay", delay),
        }
        text = payload_text("payload", payload, self.deployment.serializer)
        return given({"topic": topic, "payload": text}, optional)

    def _shared(
        self,
        topic: str,
        payloads: Iterable[Any],
        correlation_id: str | None,
        due_at: datetime | None,
        priority: int | None,
        expires_at: datetime | None,
        headers: Mapping[str, object] | str | None,
    ) -> dict[str, object]:
        optional = {
            "correlation_id": correlation_id,
            "due_at": aware("due_at", due_at),
            "priority": integer("priority", priority),
            "expires_at": aware("expires_at", expires_at),
            "headers": header_dict(headers),
        }
        texts = payload_texts("payloads", payloads, self.deployment.serializer)
        return given({"topic": topic, "payloads": texts}, optional)

    def _enqueued(
        self, topic: str, correlation_id: str | None, drawn: UUID | None, rows: list[Values]
    ) -> Enqueued:
        row = rows[0]
        if drawn is not None and row[2] == "duplicate" and row[1] == drawn:  # the first try's answer was lost
            row = (*row[:2], "created")
        if self._log.isEnabledFor(logging.INFO):
            self._log.info(
                "enqueued %s: topic %r, message %s, correlation %r: %s [%s]",
                row[0], topic, row[1], correlation_id, row[2], self.deployment.store,
            )  # fmt: skip
        return Enqueued(*row)

    def _enqueued_many(self, rows: list[Values]) -> list[Enqueued]:
        self._log.info("enqueued a batch of %s [%s]", counted(len(rows), "message"), self.deployment.store)
        return [Enqueued(row[1], row[2], row[3], row[0]) for row in rows]

    def _enqueued_payloads(self, rows: list[Values]) -> list[Enqueued]:
        self._log.info("enqueued a batch of %s [%s]", counted(len(rows), "message"), self.deployment.store)
        return [Enqueued(row[1], row[2], "created", row[0]) for row in rows]


class Outbox(OutboxMethods, Blocking):
    """An outbox of a deployment."""

    deployment: Deployment


class AsyncOutbox(OutboxMethods, Awaiting):
    """The same for asynchronous callers."""

    deployment: AsyncDeployment


def _all_named(records: list[dict[str, object]] | None) -> bool:
    """Whether every record has a message_id of its caller's, so that writing it twice writes it once.

    None is drawn for the others: it would double what a batch costs the database.
    """
    return records is not None and all(record.get("message_id") is not None for record in records)
