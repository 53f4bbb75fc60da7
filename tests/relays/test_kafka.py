"""The relay to Kafka, against librdkafka's own cluster of mock brokers, which speaks Kafka's protocol."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

import pysqlbox
from pysqlbox import Ack, Release, Retry
from tests.examples.support import free_port
from tests.support.database import Database
from tests.unit.test_relays import MESSAGE

pytest.importorskip("confluent_kafka", reason="the extra pysqlbox[kafka] is not installed")

QUIET = {"log_level": 0}
PATIENCE = 60.0


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Three brokers, as long as their client lives."""
    from confluent_kafka import Producer

    owner = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 3, **QUIET})
    brokers = owner.list_topics(timeout=PATIENCE).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    owner.flush(0)


def kept(servers: str, topic: str, count: int) -> list[Any]:
    """What the brokers hold of a topic, at least so many."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", **QUIET})
    try:
        partitions = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        found: list[Any] = []
        deadline = time.monotonic() + PATIENCE
        while len(found) < count and time.monotonic() < deadline:
            found += [message for message in consumer.consume(count, timeout=0.2) if message.error() is None]
        return found + [each for each in consumer.consume(1, timeout=0.5) if each.error() is None]
    finally:
        consumer.close()


@pytest.mark.dialect("postgres")
def test_batches_are_confirmed_in_the_order_of_their_groups(db: Database, servers: str) -> None:
    """What the brokers have confirmed is done; what is too large is tried again, its group behind it."""
    from pysqlbox.relays.kafka import Kafka

    with pysqlbox.connect(db.url, schema=db.schema) as deployment:
        outbox = deployment.outbox
        sent = [
            outbox.enqueue("order.placed", {"n": number}, group_id=f"g{number % 4}", headers={"a": "b"})
            for number in range(40)
        ]
        outbox.enqueue("order.placed", "x" * 5000, group_id="other")
        outbox.enqueue("order.placed", {"n": "behind"}, group_id="other")
        relay = Kafka({"bootstrap.servers": servers, "message.max.bytes": 3000, **QUIET}, source="/shop")
        worker = deployment.worker(threads=2)
        worker.on_stop(relay.close)
        worker.add_handler("order.placed", relay, batch=True)
        worker.drain(timeout=PATIENCE)
        (total,) = (row for row in outbox.stats() if row.topic is None)
        assert (total.done, total.ready + total.scheduled, total.dead) == (40, 2, 0)
        large, behind = outbox.list("Ready")
        assert large.attempt >= 1, "tried again as often as a slow machine's drain lasts"
        assert behind.attempt == 0

    by_group: dict[str, list[bytes]] = defaultdict(list)
    partitions: dict[str, set[int]] = defaultdict(set)
    ids = set()
    messages = kept(servers, "order.placed", 40)
    for message in messages:
        headers = dict(message.headers())
        group = message.key().decode()
        by_group[group].append(message.value())
        partitions[group].add(message.partition())
        ids.add(headers["message_id"].decode())
        assert headers["ce_subject"].decode() == group
        assert (headers["ce_type"], headers["a"]) == (b"order.placed", b"b")
        assert headers["content-type"] == b"application/json"
    assert len(messages) == 40, "each once"
    assert ids == {str(each.message_id) for each in sent}
    assert by_group == {
        f"g{group}": [f'{{"n":{number}}}'.encode() for number in range(group, 40, 4)] for group in range(4)
    }
    assert {len(each) for each in partitions.values()} == {1}, "a group is in one partition"


def test_brokers_that_are_away_cost_no_message() -> None:
    """What nobody confirms in time is tried again, and its group is handed back."""
    from dataclasses import replace

    from pysqlbox.relays.kafka import Kafka

    relay = Kafka({"bootstrap.servers": f"127.0.0.1:{free_port()}", **QUIET}, timeout=1)
    grouped = replace(MESSAGE, group_id="g")
    first, second, alone = relay([grouped, grouped, replace(MESSAGE, group_id=None)])
    assert isinstance(first, Retry)
    assert "timed out" in str(first.error)
    assert second == Release()
    assert isinstance(alone, Retry)
    relay.close()


def test_topic_and_key_may_be_functions(servers: str) -> None:
    """And a relay that was closed makes a new producer."""
    from pysqlbox.relays.kafka import Kafka

    relay = Kafka(
        {"bootstrap.servers": servers, **QUIET},
        topic=lambda message: f"shop.{message.topic}",
        key=lambda message: str(message.message_id),
    )
    assert relay([MESSAGE]) == [Ack()]
    relay.close()
    assert relay([MESSAGE]) == [Ack()]
    found = kept(servers, f"shop.{MESSAGE.topic}", 2)
    assert {each.key() for each in found} == {str(MESSAGE.message_id).encode()}
    assert [each.value().decode() for each in found] == [MESSAGE.payload] * 2
