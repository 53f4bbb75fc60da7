"""Messages to RabbitMQ: published persistently, and acknowledged when the broker has confirmed them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from pysqlbox.errors import InvalidArgument
from pysqlbox.extras import needed_for
from pysqlbox.relays import cloudevents
from pysqlbox.relays.batches import Message
from pysqlbox.worker.results import Ack, Release, Result, Retry

with needed_for("the relay to RabbitMQ", "rabbitmq"):
    import pika
    from pika.exceptions import AMQPConnectionError, AMQPError, NackError, UnroutableError

__all__ = ["RabbitMQ"]


class RabbitMQ:
    """``worker.add_handler(topic, RabbitMQ("amqp://broker"), batch=True)``; ``worker.on_stop(relay.close)``.

    Each thread of the worker has a connection. A batch is published message by message, each confirmed, so
    that the messages of a group keep their order: behind one that the broker does not take, or that no queue
    would get, the rest of its group is handed back. The message_id goes along, by which consumers know what
    they are told twice.
    """

    def __init__(
        self,
        broker: str | pika.connection.Parameters,
        *,
        exchange: str = "",
        routing_key: Callable[[Message], str] | None = None,
        source: str | None = None,
        timeout: float = 10.0,
    ) -> None:
        """``routing_key``: the topic, if left out. ``source``: adds a CloudEvent's attributes as headers.

        ``timeout``: how many seconds the broker may keep a connection blocked.
        """
        if timeout <= 0:
            raise InvalidArgument("timeout: must be above 0")
        self._parameters = pika.URLParameters(broker) if isinstance(broker, str) else broker
        self._parameters.blocked_connection_timeout = timeout
        self._parameters.socket_timeout = timeout
        self._exchange = exchange
        self._routing_key = routing_key or (lambda message: message.topic)
        self._source = source
        self._own = threading.local()
        self._lock = threading.Lock()
        self._open: list[Any] = []

    def __call__(self, messages: Sequence[Message]) -> list[Result]:
        """Publish a batch; a result for each message, in their order."""
        results: list[Result] = []
        held: set[str] = set()
        for position, message in enumerate(messages):
            if message.group_id in held:
                results.append(Release())
                continue
            try:
                self._publish(message)
            except (NackError, UnroutableError) as error:
                results.append(Retry(error=f"{type(error).__name__}: the broker did not take it"))
                if message.group_id is not None:
                    held.add(message.group_id)
            except (AMQPError, OSError) as error:
                self._drop()
                results.append(Retry(error=f"{type(error).__name__}: {error}"))
                return results + [Release() for _ in messages[position + 1 :]]
            else:
                results.append(Ack())
        return results

    def close(self) -> None:
        """Close every connection, when the worker has ended; a later message connects again."""
        with self._lock:
            connections, self._open = self._open, []
        self._own = threading.local()
        for connection in connections:
            with contextlib.suppress(AMQPError, OSError):
                connection.close()

    def _publish(self, message: Message) -> None:
        channel, fresh = self._channel()
        try:
            self._send(channel, message)
        except AMQPConnectionError:
            if fresh:
                raise
            self._drop()  # it was idle for too long, say: the broker may have closed it
            self._send(self._channel()[0], message)

    def _send(self, channel: Any, message: Message) -> None:
        headers: dict[str, Any] = {}
        if self._source is not None:
            headers |= {
                f"cloudEvents:{name}": value
                for name, value in cloudevents.attributes(message, self._source).items()
            }
        for name, value in (message.headers or {}).items():
            if isinstance(value, str | int | bool):
                headers.setdefault(name, value)
        properties = pika.BasicProperties(
            message_id=str(message.message_id),
            type=message.topic,
            delivery_mode=pika.DeliveryMode.Persistent.value,
            content_type=cloudevents.content_type(message.payload),
            headers=headers,
        )
        # With confirmations on, this returns once the broker has taken the message, and raises else.
        channel.basic_publish(
            self._exchange, self._routing_key(message), message.payload.encode(), properties, mandatory=True
        )

    def _channel(self) -> tuple[Any, bool]:
        """This thread's channel, and whether it was opened now."""
        channel = getattr(self._own, "channel", None)
        if channel is not None and channel.is_open:
            return channel, False
        connection = pika.BlockingConnection(self._parameters)
        with self._lock:
            self._open.append(connection)
        channel = connection.channel()
        channel.confirm_delivery()
        self._own.connection, self._own.channel = connection, channel
        return channel, True

    def _drop(self) -> None:
        connection = getattr(self._own, "connection", None)
        self._own.connection = self._own.channel = None
        if connection is not None:
            with self._lock, contextlib.suppress(ValueError):
                self._open.remove(connection)
            with contextlib.suppress(AMQPError, OSError):
                connection.close()
