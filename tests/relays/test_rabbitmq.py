"""The relay to RabbitMQ, against a real broker: confirmed, in order, and back when nobody would get it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pysqlbox
from tests.examples.support import free_port
from tests.service.broker import PROGRAM, broker
from tests.support.database import Database


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The broker."""
    pytest.importorskip("pika", reason="the extra pysqlbox[rabbitmq] is not installed")
    if not PROGRAM.exists():
        pytest.skip("rabbitmq-server is not installed")
    with broker() as found:
        yield found


@pytest.mark.dialect("postgres")
def test_batches_are_confirmed_in_the_order_of_their_groups(db: Database, url: str) -> None:
    """What the broker has confirmed is done; what no queue gets is tried again, its group behind it."""
    import pika

    from pysqlbox.relays.rabbitmq import RabbitMQ

    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare("order.placed", durable=True)
    with pysqlbox.connect(db.url, schema=db.schema) as deployment:
        outbox = deployment.outbox
        sent = [
            outbox.enqueue("order.placed", {"n": number}, group_id=f"g{number % 4}", headers={"a": "b"})
            for number in range(40)
        ]
        for number in range(3):
            outbox.enqueue("nobody.gets", {"n": number}, group_id="other")
        relay = RabbitMQ(url, source="/shop")
        worker = deployment.worker(threads=2)
        worker.on_stop(relay.close)
        for topic in ("order.placed", "nobody.gets"):
            worker.add_handler(topic, relay, batch=True)
        worker.drain(timeout=60)
        (total,) = (row for row in outbox.stats() if row.topic is None)
        assert (total.done, total.ready + total.scheduled, total.dead) == (40, 3, 0)

    by_group: dict[str, list[bytes]] = {}
    ids = set()
    for _ in range(40):
        _, properties, body = channel.basic_get("order.placed", auto_ack=True)
        by_group.setdefault(properties.headers["cloudEvents:subject"], []).append(body)
        ids.add(properties.message_id)
        assert (properties.delivery_mode, properties.content_type) == (2, "application/json")
        assert (properties.type, properties.headers["a"]) == ("order.placed", "b")
    assert ids == {str(each.message_id) for each in sent}
    assert by_group == {
        f"g{group}": [f'{{"n":{number}}}'.encode() for number in range(group, 40, 4)] for group in range(4)
    }
    connection.close()


def test_a_broker_that_is_away_costs_no_message() -> None:
    """The first is tried again, the others are handed back at once."""
    pytest.importorskip("pika", reason="the extra pysqlbox[rabbitmq] is not installed")
    from pysqlbox import Release, Retry
    from pysqlbox.relays.rabbitmq import RabbitMQ
    from tests.unit.test_relays import MESSAGE

    relay = RabbitMQ(f"amqp://127.0.0.1:{free_port()}/?connection_attempts=1", timeout=2)
    first, *others = relay([MESSAGE] * 3)
    assert isinstance(first, Retry)
    assert others == [Release(), Release()]
    relay.close()
