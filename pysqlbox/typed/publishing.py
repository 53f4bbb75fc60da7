"""Objects in place of topic and payload: what an outbox publishes and an inbox receives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack
from uuid import UUID

from pysqlbox.arguments import Delay
from pysqlbox.errors import InvalidArgument
from pysqlbox.typed.declaring import envelope_of, topic_of

if TYPE_CHECKING:
    from pysqlbox.messages import Enqueued, InboxEnqueued

__all__ = ["PublishOptions", "Publishing", "ReceiveOptions", "Receiving"]


class PublishOptions(TypedDict, total=False):
    """What a call may say otherwise than the class does; None takes a key away."""

    topic: str
    correlation_id: str | None
    due_at: datetime | None
    message_id: UUID | None
    group_id: str | None
    priority: int
    dedup_key: str | None
    collapse_key: str | None
    expires_at: datetime | None
    headers: Mapping[str, Any] | None
    created_at: datetime | None
    delay: Delay | None


class ReceiveOptions(TypedDict, total=False):
    """What a call may say otherwise than the class does; None takes a key away."""

    topic: str
    source: str
    message_id: str | UUID
    hash: bytes | None
    due_at: datetime | None
    group_id: str | None
    priority: int
    collapse_key: str | None
    expires_at: datetime | None
    headers: Mapping[str, Any] | None
    received_at: datetime | None
    delay: Delay | None


class _Outbox(Protocol):
    """What Publishing needs of its queue."""

    @property
    def enqueue(self) -> Callable[..., Enqueued]: ...

    @property
    def enqueue_many(self) -> Callable[..., list[Enqueued]]: ...

    @property
    def enqueue_async(self) -> Callable[..., Awaitable[Enqueued]]: ...

    @property
    def enqueue_many_async(self) -> Callable[..., Awaitable[list[Enqueued]]]: ...


class _Inbox(Protocol):
    """What Receiving needs of its queue."""

    @property
    def enqueue(self) -> Callable[..., InboxEnqueued]: ...

    @property
    def enqueue_many(self) -> Callable[..., list[InboxEnqueued]]: ...

    @property
    def enqueue_async(self) -> Callable[..., Awaitable[InboxEnqueued]]: ...

    @property
    def enqueue_many_async(self) -> Callable[..., Awaitable[list[InboxEnqueued]]]: ...


class Publishing:
    """An outbox's methods that take an object of a declared class."""

    def publish(
        self: _Outbox, value: object, *, connection: Any = None, **options: Unpack[PublishOptions]
    ) -> Enqueued:
        """Enqueue an object as its class says; ``options`` go before what the class says."""
        return self.enqueue(**_outgoing(value, options), connection=connection)

    def publish_many(self: _Outbox, values: Iterable[object], *, connection: Any = None) -> list[Enqueued]:
        """Enqueue objects, which may be of different classes, in one call."""
        records = [_outgoing(value, {}) for value in values]
        return self.enqueue_many(records, connection=connection)

    async def publish_async(
        self: _Outbox, value: object, *, connection: Any = None, **options: Unpack[PublishOptions]
    ) -> Enqueued:
        """publish for asyncio."""
        return await self.enqueue_async(**_outgoing(value, options), connection=connection)

    async def publish_many_async(
        self: _Outbox, values: Iterable[object], *, connection: Any = None
    ) -> list[Enqueued]:
        """publish_many for asyncio."""
        records = [_outgoing(value, {}) for value in values]
        return await self.enqueue_many_async(records, connection=connection)


class Receiving:
    """An inbox's methods that take an object of a declared class."""

    def receive(
        self: _Inbox, value: object, *, connection: Any = None, **options: Unpack[ReceiveOptions]
    ) -> InboxEnqueued:
        """Enqueue an object as its class says; ``options`` go before what the class says.

        An inbox needs the sender's id of the message: the class's ``message_id``, else its deduplication id.
        """
        return self.enqueue(**_incoming(value, options), connection=connection)

    def receive_many(
        self: _Inbox, values: Iterable[object], *, source: str | None = None, connection: Any = None
    ) -> list[InboxEnqueued]:
        """Enqueue objects, which may be of different classes, in one call."""
        records = [_incoming(value, {} if source is None else {"source": source}) for value in values]
        return self.enqueue_many(records, connection=connection)

    async def receive_async(
        self: _Inbox, value: object, *, connection: Any = None, **options: Unpack[ReceiveOptions]
    ) -> InboxEnqueued:
        """receive for asyncio."""
        return await self.enqueue_async(**_incoming(value, options), connection=connection)

    async def receive_many_async(
        self: _Inbox, values: Iterable[object], *, source: str | None = None, connection: Any = None
    ) -> list[InboxEnqueued]:
        """receive_many for asyncio."""
        records = [_incoming(value, {} if source is None else {"source": source}) for value in values]
        return await self.enqueue_many_async(records, connection=connection)


def _outgoing(value: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an outbox's enqueue."""
    envelope = envelope_of(value)
    envelope.pop("source", None)
    if (created_at := envelope.pop("received_at", None)) is not None:
        envelope["created_at"] = created_at
    return _arguments(value, envelope, options)


def _incoming(value: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an inbox's enqueue."""
    envelope = envelope_of(value)
    envelope.pop("correlation_id", None)
    dedup_key = envelope.pop("dedup_key", None)
    arguments = _arguments(value, {"message_id": dedup_key, **envelope}, options)
    for name in ("source", "message_id"):
        if arguments.get(name) is None:
            raise InvalidArgument(
                f"{name}: {type(value).__qualname__} says none, and neither does the call: give {name}="
            )
    arguments["message_id"] = str(arguments["message_id"])
    return arguments


def _arguments(value: object, envelope: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    topic = options["topic"] if "topic" in options else topic_of(type(value))
    given = {**envelope, **options, "topic": topic, "payload": value}
    if options.get("delay") is not None and "due_at" not in options:
        given.pop("due_at", None)  # the class's: the call says another time
    return {name: item for name, item in given.items() if item is not None or name == "payload"}
