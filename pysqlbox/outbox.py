"""The outbox: messages written in the transaction of the change they tell of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar
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
from pysqlbox.box import Box
from pysqlbox.drivers import Values
from pysqlbox.messages import (
    Enqueued,
    ListedOutboxMessage,
    OutboxDeadLetter,
    OutboxMessage,
    StoredOutboxMessage,
)
from pysqlbox.records import Records
from pysqlbox.schedules import Scheduling
from pysqlbox.typed.publishing import Publishing

__all__ = ["Outbox"]

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


class Outbox(
    Box[OutboxMessage, StoredOutboxMessage, ListedOutboxMessage, OutboxDeadLetter],
    Scheduling,
    Publishing,
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
    ) -> Enqueued:
        """Write a message, in the caller's transaction if a connection is given: it is there if that commits.

        A payload that is not text goes through the deployment's serializer. ``delay`` is seconds or a
        timedelta from now by the server's clock, in place of ``due_at``.
        """
        arguments = self._arguments(
            topic, payload, correlation_id, due_at, message_id, group_id, priority, dedup_key, collapse_key,
            expires_at, headers, created_at, delay,
        )  # fmt: skip
        if connection is None:
            row = self._enqueue(arguments)
        else:
            row = self._call("enqueue", arguments, connection)[0]
        return self._enqueued(topic, correlation_id, row)

    async def enqueue_async(
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
    ) -> Enqueued:
        """enqueue for asynchronous callers; without a connection it runs in a thread of its own."""
        arguments = self._arguments(
            topic, payload, correlation_id, due_at, message_id, group_id, priority, dedup_key, collapse_key,
            expires_at, headers, created_at, delay,
        )  # fmt: skip
        if connection is None:
            row = await asyncio.to_thread(self._enqueue, arguments)
        else:
            row = (
                await self.deployment.call_async(f"{self.name}_enqueue", arguments, connection=connection)
            )[0]
        return self._enqueued(topic, correlation_id, row)

    def enqueue_many(
        self, messages: Iterable[Mapping[str, object]], *, connection: Any = None
    ) -> list[Enqueued]:
        """Write many messages, or none if one is wrong; the records' keys are the arguments of enqueue."""
        records = _RECORDS.read(messages, self.deployment.serializer)
        rows = self._call("enqueue_many", {"messages": records}, connection, repeat=_all_named(records))
        return self._enqueued_many(rows)

    async def enqueue_many_async(
        self, messages: Iterable[Mapping[str, object]], *, connection: Any = None
    ) -> list[Enqueued]:
        """enqueue_many for asynchronous callers; without a connection it runs in a thread of its own."""
        records = _RECORDS.read(messages, self.deployment.serializer)
        arguments = {"messages": records}
        if connection is None:
            repeat = _all_named(records)
            rows = await asyncio.to_thread(self._call, "enqueue_many", arguments, None, repeat=repeat)
        else:
            rows = await self.deployment.call_async(
                f"{self.name}_enqueue_many", arguments, connection=connection
            )
        return self._enqueued_many(rows)

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
    ) -> list[Enqueued]:
        """Write many messages that differ only in their payloads: the quickest way in."""
        arguments = self._shared(topic, payloads, correlation_id, due_at, priority, expires_at, headers)
        return self._enqueued_payloads(self._call("enqueue_payloads", arguments, connection))

    async def enqueue_payloads_async(
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
    ) -> list[Enqueued]:
        """enqueue_payloads for asynchronous callers; without a connection it runs in a thread of its own."""
        arguments = self._shared(topic, payloads, correlation_id, due_at, priority, expires_at, headers)
        if connection is None:
            rows = await asyncio.to_thread(self._call, "enqueue_payloads", arguments, None)
        else:
            name = f"{self.name}_enqueue_payloads"
            rows = await self.deployment.call_async(name, arguments, connection=connection)
        return self._enqueued_payloads(rows)

    def find(self, message_id: UUID, *, connection: Any = None) -> StoredOutboxMessage | None:
        """A message by its message_id, with its status and bookkeeping; None if there is none."""
        found = self._stored(
            self._call("find", {"message_id": uuid_of("message_id", message_id)}, connection, repeat=True)
        )
        return found[0] if found else None

    def _enqueue(self, arguments: dict[str, object]) -> Values:
        """Enqueue in a transaction of its own, under an id drawn here, so that it may be tried twice."""
        drawn = None
        if "message_id" not in arguments:
            arguments["message_id"] = drawn = time_ordered_uuid(self.deployment.drawing_place())
        row = self._call("enqueue", arguments, None, repeat=True)[0]
        if row[2] == "duplicate" and row[1] == drawn:  # of the first try, whose answer was lost
            return (*row[:2], "created")
        return row

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

    def _enqueued(self, topic: str, correlation_id: str | None, row: Values) -> Enqueued:
        if self._log.isEnabledFor(logging.INFO):
            self._log.info(
                "enqueued %s: topic %r, message %s, correlation %r: %s [%s]",
                row[0], topic, row[1], correlation_id, row[2], self.deployment.store,
            )  # fmt: skip
        return Enqueued(*row)

    def _enqueued_many(self, rows: list[Values]) -> list[Enqueued]:
        self._log.info("enqueued a batch of %s messages [%s]", len(rows), self.deployment.store)
        return [Enqueued(row[1], row[2], row[3], row[0]) for row in rows]

    def _enqueued_payloads(self, rows: list[Values]) -> list[Enqueued]:
        self._log.info("enqueued a batch of %s messages [%s]", len(rows), self.deployment.store)
        return [Enqueued(row[1], row[2], "created", row[0]) for row in rows]


def _all_named(records: list[dict[str, object]] | None) -> bool:
    """Whether every record has a message_id of its caller's, so that writing it twice writes it once.

    None is drawn for the others: it would double what a batch costs the database.
    """
    return records is not None and all(record.get("message_id") is not None for record in records)
