"""What the consumer of RabbitMQ says of a broker that it cannot consume from; there is none here."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import pysqlbox
from pysqlbox.idempotent import Idempotent

pika = pytest.importorskip("pika", reason="the extra pysqlbox[rabbitmq] is not installed")

from pysqlbox.contrib.rabbitmq import Consumer  # noqa: E402  # needs pika


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (pika.exceptions.AMQPConnectionError(), "the broker is away"),
        (ConnectionRefusedError(111, "Connection refused"), "the broker is away"),
        (pika.exceptions.ConnectionClosedByBroker(320, "CONNECTION_FORCED"), "the broker is away"),
        (pika.exceptions.ChannelClosedByBroker(404, "NOT_FOUND - no queue 'orders'"), "the broker refuses"),
        (pika.exceptions.ProbableAuthenticationError("guest"), "the broker refuses"),
    ],
)
def test_a_broker_that_refuses_is_not_called_away(
    error: Exception, told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    db = pysqlbox.connect("postgresql://nobody@127.0.0.1:1/none")
    consumer = Consumer(Idempotent(db, bus="rabbitmq", group="billing"), "amqp://broker", "orders", print)

    def connect(_parameters: Any) -> Any:
        consumer.stop()  # after this one try
        raise error

    monkeypatch.setattr(pika, "BlockingConnection", connect)
    with caplog.at_level(logging.WARNING, "pysqlbox.rabbitmq"):
        consumer.run()
    (line,) = caplog.messages
    assert line.startswith(f"queue 'orders': {told}, again in 1 s: ")
    db.close()
