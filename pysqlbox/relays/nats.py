"""Messages to NATS: published to a JetStream, and acknowledged when the stream has kept them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pysqlbox.extras import needed_for
from pysqlbox.relays import cloudevents
from pysqlbox.relays.batches import Message, Relay

with needed_for("the relay to NATS", "nats"):
    import nats

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

__all__ = ["Nats"]


class Nats(Relay):
    """``worker.add_handler(topic, Nats("nats://localhost"), batch=True)``; ``worker.on_stop(relay.close)``.

    The message_id goes along as ``Nats-Msg-Id``, by which a stream drops what it is told twice within its
    window. A stream must take the subject, else nothing confirms the message, and it is tried again.
    """

    def __init__(
        self,
        servers: str | list[str],
        *,
        subject: Callable[[Message], str] | None = None,
        source: str | None = None,
        timeout: float = 10.0,
        **options: Any,
    ) -> None:
        """``subject``: the topic, if it is left out. ``source``: adds a CloudEvent's attributes as headers.

        Other options are those of ``nats.connect``.
        """
        super().__init__(self._send, timeout=timeout)
        self._servers = servers
        self._subject = subject or (lambda message: message.topic)
        self._source = source
        self._options = options
        self._connecting = asyncio.Lock()
        self._client: Client | None = None
        self._stream: JetStreamContext | None = None

    async def close(self) -> None:
        """Says good-bye; a later message connects again."""
        client, self._client, self._stream = self._client, None, None
        if client is not None:
            await client.close()

    async def _send(self, message: Message) -> None:
        headers = {"Nats-Msg-Id": str(message.message_id)}
        if self._source is not None:
            headers |= cloudevents.binary(message, self._source)
            headers["content-type"] = cloudevents.content_type(message.payload)
        for name, value in (message.headers or {}).items():
            if isinstance(value, str) and value.isprintable():
                headers.setdefault(name, value)
        stream = self._stream or await self._connect()
        await stream.publish(self._subject(message), message.payload.encode(), headers=headers)

    async def _connect(self) -> JetStreamContext:
        async with self._connecting:
            if self._stream is None:
                self._client = await nats.connect(self._servers, **{"name": "pysqlbox", **self._options})
                self._stream = self._client.jetstream()
            return self._stream
