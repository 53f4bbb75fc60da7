"""Messages to Kafka: acknowledged when the brokers have confirmed them, those of a group in their order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from pysqlbox.errors import InvalidArgument
from pysqlbox.extras import needed_for
from pysqlbox.relays import cloudevents
from pysqlbox.relays.batches import Message
from pysqlbox.worker.results import Ack, Release, Result, Retry

with needed_for("the relay to Kafka", "kafka"):
    from confluent_kafka import KafkaException, Producer

__all__ = ["Kafka"]

#: For how long after its own time limit the client may be silent about a message.
_GRACE = 5.0


class Kafka:
    """``worker.add_handler(topic, Kafka("broker:9092"), batch=True)``; ``worker.on_stop(relay.close)``.

    One idempotent producer for all threads of the worker. A message's key is its group, so that a group is in
    one partition; its messages go one after the other, each once the one before is confirmed, all others of a
    batch side by side. Behind one that the brokers do not take, the rest of its group is handed back.
    """

    def __init__(
        self,
        servers: str | Mapping[str, Any],
        *,
        topic: Callable[[Message], str] | None = None,
        key: Callable[[Message], str | None] | None = None,
        source: str | None = None,
        timeout: float = 10.0,
    ) -> None:
        """``servers``: the bootstrap servers, or librdkafka's whole configuration (security, compression …).

        ``topic``: the message's, if left out; ``key``: its group. ``source``: adds a CloudEvent's attributes
        as headers. ``timeout``: how many seconds the brokers may take to confirm a message.
        """
        if timeout <= 0:
            raise InvalidArgument("timeout: must be above 0")
        given = {"bootstrap.servers": servers} if isinstance(servers, str) else dict(servers)
        self._settings = {
            "linger.ms": 0,  # a batch is handed over at once, and waits for its confirmations
            **given,
            "enable.idempotence": True,  # which includes acks=all, and keeps the order within a partition
            "message.timeout.ms": int(timeout * 1000),
        }
        self._topic = topic or (lambda message: message.topic)
        self._key = key or (lambda message: message.group_id)
        self._source = source
        self._timeout = timeout
        self._lock = threading.Lock()
        self._producer: Any = None

    def __call__(self, messages: Sequence[Message]) -> list[Result]:
        """Publish a batch; a result for each message, in their order."""
        results: list[Result] = [Release()] * len(messages)
        lanes: dict[str | int, list[int]] = {}
        for position, message in enumerate(messages):
            lanes.setdefault(message.group_id or position, []).append(position)
        going = [iter(lane) for lane in lanes.values()]
        while going:
            heads = [(lane, position) for lane in going for position in islice(lane, 1)]
            errors = self._publish([messages[position] for _, position in heads])
            for (_, position), error in zip(heads, errors, strict=True):
                results[position] = Ack() if error is None else Retry(error=error)
            going = [lane for (lane, _), error in zip(heads, errors, strict=True) if error is None]
        return results

    def close(self) -> None:
        """Forget the producer, when the worker has ended; a later message makes a new one."""
        self._drop(self._producer)

    def _publish(self, messages: Sequence[Message]) -> list[str | None]:
        """Hand messages over and wait for what becomes of each: None, or what was wrong."""
        producer = self._connected()
        answers: list[str | None] = ["KafkaError: the client said nothing of it"] * len(messages)
        left = set(range(len(messages)))

        def told(position: int) -> Callable[[Any, Any], None]:
            def tell(error: Any, _: Any) -> None:
                answers[position] = None if error is None else f"KafkaError: {error}"
                left.discard(position)
                if error is not None and error.fatal():
                    self._drop(producer)

            return tell

        for position, message in enumerate(messages):
            key = self._key(message)
            try:
                producer.produce(
                    self._topic(message),
                    message.payload.encode(),
                    None if key is None else key.encode(),
                    headers=self._headers(message),
                    on_delivery=told(position),
                )
            except (KafkaException, BufferError) as error:  # too large, say: it never left this process
                answers[position] = f"{type(error).__name__}: {error}"
                left.discard(position)
                if isinstance(error, KafkaException) and error.args[0].fatal():
                    self._drop(producer)
        deadline = time.monotonic() + self._timeout + _GRACE
        while left and time.monotonic() < deadline:
            producer.poll(0.05)  # serves the confirmations of whoever uses this producer
        return answers

    def _headers(self, message: Message) -> list[tuple[str, bytes]]:
        headers = {"message_id": str(message.message_id)}
        if self._source is not None:
            found = cloudevents.attributes(message, self._source)
            headers |= {f"ce_{name}": value for name, value in found.items()}
            headers["content-type"] = cloudevents.content_type(message.payload)
        for name, value in (message.headers or {}).items():
            if isinstance(value, str):
                headers.setdefault(name, value)
        return [(name, value.encode()) for name, value in headers.items()]

    def _connected(self) -> Any:
        with self._lock:
            if self._producer is None:
                self._producer = Producer(self._settings)
            return self._producer

    def _drop(self, producer: Any) -> None:
        """After a fatal error a producer takes nothing any more."""
        with self._lock:
            if self._producer is producer:
                self._producer = None
