"""A consumer of RabbitMQ that handles each message once, however often the broker delivers it.

    once = Idempotent(db, bus="rabbitmq", group="billing", lease=60, release_on_error=True)
    # or Idempotent(HttpLedger(url, token), …)
    Consumer(once, "amqp://broker", "orders", handle).run()

The key of a message is ``{bus}:{group}:{alias}:{id}``: the id is its header ``IdempotencyKey``, else its
message id; one that has neither is handled each time it comes, with a warning. One that is processed is
acknowledged and skipped. After a success the key is marked, then the message acknowledged. After a failure
nothing is marked: the message goes back to the broker, whose policy (delivery limit, dead-letter exchange)
decides. One that somebody else is handling goes back as well.

If a consumer is killed between the mark and the acknowledgement, its message is delivered again, and
skipped; before the mark, it is handled again, at the latest when the lease of ``once`` ends. The lease must
be longer than a handler takes.

Needs the extra ``pysqlbox[rabbitmq]``.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pysqlbox.errors import InvalidArgument
from pysqlbox.extras import needed_for
from pysqlbox.idempotent import Busy, Idempotent

with needed_for("the consumer of RabbitMQ", "rabbitmq"):
    import pika
    from pika.exceptions import (
        AMQPError,
        ChannelClosedByBroker,
        ProbableAccessDeniedError,
        ProbableAuthenticationError,
    )

__all__ = ["ID_HEADER", "Consumer", "Delivery"]

ID_HEADER = "IdempotencyKey"
"""The header whose value goes before the message id."""

_LONGEST_PAUSE = 30.0
#: The broker is there, and has said no: no such queue, no such user, no right.
_REFUSALS = (ChannelClosedByBroker, ProbableAccessDeniedError, ProbableAuthenticationError)
_log = logging.getLogger("pysqlbox.rabbitmq")


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the broker handed over."""

    alias: str
    message_id: str | None
    body: bytes = field(repr=False)
    headers: Mapping[str, Any] = field(repr=False)
    routing_key: str
    redelivered: bool
    properties: Any = field(repr=False)
    """pika's ``BasicProperties``."""


Handler = Callable[[Delivery], object]


class Consumer:
    """Takes messages from one queue, ``threads`` of them at once, and acknowledges each when it is handled.

    It connects again when the broker goes away; what was not acknowledged by then is delivered again.
    """

    def __init__(
        self,
        once: Idempotent,
        broker: str | pika.connection.Parameters,
        queue: str,
        handler: Handler,
        *,
        alias: str | Callable[[Any, Any], str] | None = None,
        threads: int = 1,
        prefetch: int | None = None,
        retry_seconds: float = 1.0,
        requeue: bool = True,
    ) -> None:
        """``alias`` names the kind of message, or finds it out from pika's method and properties; without one
        it is the message's type, else its routing key.

        ``prefetch``, ten for each thread unless given, is how many messages it has at most: with those that
        wait to go back, which must not keep the others away.

        A message that failed goes back after ``retry_seconds``; with ``requeue=False`` it is rejected, which
        drops it unless the queue has a dead-letter exchange. Busy ones always go back.
        """
        if threads < 1:
            raise InvalidArgument("threads: must be at least 1")
        if prefetch is not None and prefetch < threads:
            raise InvalidArgument("prefetch: must be at least threads")
        if retry_seconds < 0:
            raise InvalidArgument("retry_seconds: must be at least 0")
        self._once = once
        self._parameters = pika.URLParameters(broker) if isinstance(broker, str) else broker
        self._queue = queue
        self._handler = handler
        self._alias = alias
        self._threads = threads
        self._prefetch = 10 * threads if prefetch is None else prefetch
        self._retry_seconds = retry_seconds
        self._requeue = requeue
        self._stopping = threading.Event()

    def run(self) -> None:
        """Consume until ``stop``; handlers that run then may end."""
        pause = 1.0
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._consume()
            except (AMQPError, OSError) as error:
                if time.monotonic() - began > _LONGEST_PAUSE:
                    pause = 1.0
                what = "refuses" if isinstance(error, _REFUSALS) else "is away"
                _log.warning("queue %r: the broker %s, again in %g s: %r", self._queue, what, pause, error)
                self._stopping.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def stop(self) -> None:
        """Take nothing more; from any thread, or from a signal handler."""
        self._stopping.set()

    def _consume(self) -> None:
        """One connection, from its beginning to its end."""
        connection = pika.BlockingConnection(self._parameters)
        running: set[Future[None]] = set()
        with ThreadPoolExecutor(self._threads, thread_name_prefix="pysqlbox-rabbitmq") as pool:
            try:
                channel = connection.channel()
                channel.basic_qos(prefetch_count=self._prefetch)
                tag = channel.basic_consume(
                    self._queue, functools.partial(self._take, connection, pool, running), auto_ack=False
                )
                while not self._stopping.is_set():
                    connection.process_data_events(time_limit=0.2)
                channel.basic_cancel(tag)
                pool.shutdown(wait=False, cancel_futures=True)  # what has not begun goes back to the broker
                while running:
                    connection.process_data_events(time_limit=0.05)
                connection.process_data_events(time_limit=0)
            finally:
                if connection.is_open:
                    connection.close()

    def _take(
        self,
        connection: Any,
        pool: ThreadPoolExecutor,
        running: set[Future[None]],
        channel: Any,
        method: Any,
        properties: Any,
        body: bytes,
    ) -> None:
        """Called in the connection's thread, which goes on answering the broker's heartbeats."""
        future = pool.submit(self._work, connection, channel, method, properties, body)
        running.add(future)
        future.add_done_callback(running.discard)

    def _work(self, connection: Any, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """Called in a thread of the pool; only the connection's own thread may touch the channel."""
        settle = self._settle(method, properties, body)
        try:
            connection.add_callback_threadsafe(
                functools.partial(settle, connection, channel, method.delivery_tag)
            )
        except AMQPError:
            _log.warning("queue %r: the connection ended before a message was settled", self._queue)

    def _settle(self, method: Any, properties: Any, body: bytes) -> Callable[[Any, Any, int], None]:
        """Handle a message unless it was handled, and answer what becomes of it."""
        try:
            delivery = self._read(method, properties, body)
            if delivery.message_id is None:
                _log.warning("queue %r: a message has neither %s nor message id", self._queue, ID_HEADER)
                self._handler(delivery)
                return _ack
            key = self._once.key(delivery.alias, delivery.message_id)
            with self._once.attempt(key, handler=getattr(self._handler, "__qualname__", None)) as mine:
                if mine:
                    self._handler(delivery)
            return _ack
        except Busy as busy:
            _log.info("%s; it goes back", busy)
            return functools.partial(_give_back, after=self._retry_seconds or 0.05, requeue=True)
        except Exception:  # noqa: BLE001  # whatever a handler raises, the broker decides
            what = "it goes back" if self._requeue else "it is rejected"
            _log.exception("queue %r: a message failed, %s", self._queue, what)
            return functools.partial(_give_back, after=self._retry_seconds, requeue=self._requeue)

    def _read(self, method: Any, properties: Any, body: bytes) -> Delivery:
        headers = properties.headers or {}
        given = headers.get(ID_HEADER)
        identity = properties.message_id if given is None or given == "" else given
        if isinstance(identity, bytes):
            identity = identity.decode("utf-8", "backslashreplace")
        alias = self._alias(method, properties) if callable(self._alias) else self._alias
        return Delivery(
            alias or properties.type or method.routing_key,
            None if identity is None or identity == "" else str(identity),
            body, headers, method.routing_key, method.redelivered, properties,
        )  # fmt: skip


def _ack(connection: Any, channel: Any, tag: int) -> None:
    del connection
    if channel.is_open:
        channel.basic_ack(tag)


def _give_back(connection: Any, channel: Any, tag: int, *, after: float, requeue: bool) -> None:
    """A message that failed stays this consumer's for a moment, so that it does not come back at once."""

    def nack() -> None:
        if channel.is_open:
            channel.basic_nack(tag, requeue=requeue)

    connection.call_later(after, nack)
