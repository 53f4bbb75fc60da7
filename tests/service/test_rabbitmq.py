"""The consumer of RabbitMQ, on a real broker."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import pysqlbox
from pysqlbox import service
from pysqlbox.idempotent import HttpLedger, Idempotent
from tests.service.broker import PROGRAM, broker
from tests.service.processes import PATIENCE, ROOT, until
from tests.service.support import live
from tests.support.database import Database

pika = pytest.importorskip("pika", reason="pika is not installed")
rabbitmq = pytest.importorskip("pysqlbox.contrib.rabbitmq", reason="pika is not installed")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The broker."""
    if not PROGRAM.exists():
        pytest.skip("rabbitmq-server is not installed")
    with broker() as found:
        yield found


class Queue:
    """A queue of the test's own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = f"orders-{uuid4()}"
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._channel.queue_declare(self.name, durable=True)

    def publish(self, message_id: str | None = "m-1", *, times: int = 1, **more: Any) -> None:
        """The same message, so many times."""
        properties = pika.BasicProperties(message_id=message_id, type="order.created", **more)
        for _ in range(times):
            self._channel.basic_publish("", self.name, b"s3cr3t", properties)

    @property
    def left(self) -> int:
        """Messages that nobody has taken."""
        return int(self._channel.queue_declare(self.name, passive=True).method.message_count)

    def close(self) -> None:
        """Remove it."""
        self._channel.queue_delete(self.name)
        self._connection.close()


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    """A queue that is empty."""
    made = Queue(url)
    yield made
    made.close()


@pytest.fixture
def once(deployment: pysqlbox.Deployment) -> Idempotent:
    """The rules of a consumer group."""
    return Idempotent(deployment, bus="rabbitmq", group="billing", lease=600, release_on_error=True)


@contextmanager
def consuming(
    once: Idempotent, queue: Queue, handler: Callable[[Any], object], **options: Any
) -> Iterator[None]:
    """A consumer in a thread."""
    options = {"retry_seconds": 0.05, **options}
    consumer = rabbitmq.Consumer(once, queue.url, queue.name, handler, **options)
    thread = threading.Thread(target=consumer.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        consumer.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()


def processed(once: Idempotent, message_id: str) -> bool:
    return once.is_processed(once.key("order.created", message_id))


def test_duplicates_are_acknowledged_and_skipped(once: Idempotent, queue: Queue) -> None:
    handled: list[Any] = []
    queue.publish("m-1", times=5)
    queue.publish("m-2", times=2)
    queue.publish("m-3", headers={"IdempotencyKey": "order-7"})
    queue.publish("m-4", headers={"IdempotencyKey": "order-7"})
    queue.publish("last")
    with consuming(once, queue, handled.append):
        until(lambda: processed(once, "last"), "not all was handled")
    assert [each.message_id for each in handled] == ["m-1", "m-2", "order-7", "last"]
    assert (handled[0].alias, handled[0].body) == ("order.created", b"s3cr3t")
    assert "s3cr3t" not in repr(handled[0])
    assert queue.left == 0
    assert once.is_processed("rabbitmq:billing:order.created:order-7")


def test_a_failure_is_not_marked_and_comes_again(once: Idempotent, queue: Queue) -> None:
    seen: list[bool] = []

    def handle(delivery: Any) -> None:
        assert not processed(once, "m-1")
        seen.append(delivery.redelivered)
        if len(seen) < 3:
            raise RuntimeError("not yet")

    queue.publish()
    with consuming(once, queue, handle):
        until(lambda: processed(once, "m-1"), "it was never handled")
    assert seen == [False, True, True]
    assert queue.left == 0


def test_the_brokers_policy_takes_what_failed(once: Idempotent, queue: Queue, url: str) -> None:
    dead = Queue(url)
    refused = Queue(url)
    try:
        name = f"limited-{uuid4()}"
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name}
        queue._channel.queue_declare(name, durable=True, arguments=arguments)
        refused.name, kept = name, refused.name
        refused.publish()
        with consuming(once, refused, lambda _: 1 / 0, requeue=False):
            until(lambda: dead.left == 1, "it never came to the dead letters")
        assert not processed(once, "m-1")
        queue._channel.queue_delete(name)
        refused.name = kept
    finally:
        dead.close()
        refused.close()


def test_two_consumers_at_once_handle_a_message_once(once: Idempotent, queue: Queue) -> None:
    handled: list[str] = []
    numbers = [f"m-{n}" for n in range(20)]
    for number in numbers:
        queue.publish(number, times=3)
    with (
        consuming(once, queue, lambda d: handled.append(d.message_id), threads=3),
        consuming(once, queue, lambda d: handled.append(d.message_id), threads=3),
    ):
        until(lambda: all(processed(once, each) for each in numbers), "not all was handled")
    assert sorted(handled) == sorted(numbers)


def test_a_message_that_another_handles_waits_for_it(once: Idempotent, queue: Queue) -> None:
    inside, leave = threading.Event(), threading.Event()
    handled: list[str] = []

    def slowly(delivery: Any) -> None:
        handled.append(delivery.message_id)
        inside.set()
        assert leave.wait(PATIENCE)

    queue.publish(times=2)
    with consuming(once, queue, slowly, threads=2):
        assert inside.wait(PATIENCE)
        leave.set()
        until(lambda: processed(once, "m-1"), "it was never handled")
    assert handled == ["m-1"]


@pytest.mark.parametrize("mode", ["hang", "unacknowledged"])
def test_a_killed_consumer(once: Idempotent, queue: Queue, db: Database, tmp_path: Path, mode: str) -> None:
    """Killed while it handles: handled again when the lease has ended. Between mark and ack: not again."""
    journal = tmp_path / "journal"
    command = [sys.executable, "-m", "tests.service.rabbit_program", db.url, db.schema, queue.url, queue.name]
    queue.publish()
    process = subprocess.Popen([*command, str(journal), mode], cwd=ROOT)
    try:
        until(lambda: journal.exists() and journal.read_text() != "", "it never began")
        if mode == "hang":
            process.kill()
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait(PATIENCE)
    handled: list[str] = []
    with consuming(once, queue, lambda d: handled.append(d.message_id)):
        queue.publish("other")
        until(lambda: processed(once, "other"), "the other was never handled")
        db.advance(601)
        until(lambda: processed(once, "m-1"), "it was never done")
        until(lambda: queue.left == 0, "it was never acknowledged")
    assert handled.count("m-1") == (1 if mode == "hang" else 0)


def test_a_consumer_without_a_database_uses_a_service(deployment: pysqlbox.Deployment, queue: Queue) -> None:
    handled: list[str] = []
    queue.publish(times=3)
    with live(service.app(deployment, dashboard=False)) as address, HttpLedger(address) as ledger:
        once = Idempotent(ledger, bus="rabbitmq", group="billing", lease=600)
        with consuming(once, queue, lambda d: handled.append(d.message_id)):
            until(lambda: processed(once, "m-1") and queue.left == 0, "it was never handled")
    assert handled == ["m-1"]


def test_a_message_without_an_id_is_handled_each_time(once: Idempotent, queue: Queue) -> None:
    handled: list[Any] = []
    queue.publish(None, times=2)
    with consuming(once, queue, handled.append):
        until(lambda: len(handled) == 2, "not all was handled")


def test_the_broker_is_waited_for(once: Idempotent, unused_port: int) -> None:
    consumer = rabbitmq.Consumer(once, f"amqp://127.0.0.1:{unused_port}/", "q", print)
    thread = threading.Thread(target=consumer.run, daemon=True)
    thread.start()
    assert thread.is_alive()
    consumer.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_bad_arguments(once: Idempotent) -> None:
    for wrong in ({"threads": 0}, {"threads": 2, "prefetch": 1}, {"retry_seconds": -1}):
        with pytest.raises(pysqlbox.InvalidArgument):
            rabbitmq.Consumer(once, "amqp://127.0.0.1/", "q", print, **wrong)
