"""What Prometheus is told of a worker."""

from __future__ import annotations

import contextlib
import socket
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

import pysqlbox
from pysqlbox import DeadLetter, InvalidArgument, Release, Retry, metrics
from pysqlbox.metrics import server
from tests.contract.support import OWNER
from tests.metrics.conftest import MakeWorker
from tests.metrics.reading import Sample, read, value
from tests.support.database import Database
from tests.worker.support import nothing, until

OUTCOMES = ("acked", "retried", "released", "dead")


def settled(samples: list[Sample], topic: str, box: str = "outbox") -> list[float]:
    """How many messages of a topic were settled in each way."""
    name = "pysqlbox_worker_settled_messages_total"
    return [value(samples, name, box=box, topic=topic, outcome=outcome) for outcome in OUTCOMES]


def told(worker: pysqlbox.Worker, **options: Any) -> list[Sample]:
    """What a scrape of the worker alone says."""
    return read(str(metrics.WorkerExporter(worker, deployment=False, **options)))


def test_every_outcome_is_counted_by_topic(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    worker = make(max_attempts=5)
    exporter = metrics.WorkerExporter(worker, deployment=False)
    answers = {
        "ack": None,
        "retry": Retry(delay=600),
        "release": Release(delay=600),
        "dead": DeadLetter("no"),
    }

    def register(topic: str, answer: Any) -> None:
        worker.add_handler(topic, lambda _message: answer)

    for topic, answer in answers.items():
        register(topic, answer)

    @worker.handler("raises")
    def _(_message: object) -> None:
        raise RuntimeError("no")

    @worker.batch_handler("batch")
    def _(messages: list[object]) -> list[pysqlbox.Result | None]:
        return [Retry(delay=600), *[None] * (len(messages) - 1)]

    @worker.handler("whole", transactional=True)
    def _(_message: object) -> None:
        """It is done in its own transaction."""

    for topic in (*answers, "raises", "batch", "whole"):
        deployment.outbox.enqueue_payloads(topic, ["p"] * 3)
    deployment.outbox.enqueue("grouped", "p", group_id="g")
    worker.add_handler("grouped", nothing)
    worker.drain(timeout=60)
    samples = read(str(exporter))
    assert settled(samples, "ack") == [3, 0, 0, 0]
    assert settled(samples, "retry") == [0, 3, 0, 0]
    assert settled(samples, "release") == [0, 0, 3, 0]
    assert settled(samples, "dead") == [0, 0, 0, 3]
    assert settled(samples, "raises")[:1] == [0]
    assert settled(samples, "raises")[1] >= 3
    assert settled(samples, "whole") == [3, 0, 0, 0]
    assert settled(samples, "grouped") == [1, 0, 0, 0]
    acked, retried, *others = settled(samples, "batch")
    calls = value(samples, "pysqlbox_worker_handling_seconds_count", topic="batch")
    assert (retried, acked + retried, others) == (calls, 3, [0, 0]), (
        "a batch's first comes back, and counts once"
    )
    for topic in (*answers, "whole"):
        assert value(samples, "pysqlbox_worker_consumed_messages_total", topic=topic) == 3
        assert value(samples, "pysqlbox_worker_handling_seconds_count", topic=topic) == 3
        assert value(samples, "pysqlbox_worker_waiting_seconds_count", topic=topic) == 3
    assert value(samples, "pysqlbox_worker_running") == 0
    stats = worker.stats()
    sums = [
        sum(settled(samples, topic)[n] for topic in (*answers, "raises", "batch", "whole", "grouped"))
        for n in range(4)
    ]
    assert sums == [stats.acked, stats.retried, stats.released, stats.dead], "the same as its own account"


def test_quick_messages_are_counted_one_by_one(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    worker = make()
    exporter = metrics.WorkerExporter(worker, deployment=False)
    worker.add_handler("quick", nothing)
    for _ in range(3):
        deployment.outbox.enqueue_payloads("quick", ["p"] * 400)
        worker.drain(timeout=60)
    samples = read(str(exporter))
    assert settled(samples, "quick") == [1200, 0, 0, 0]
    assert value(samples, "pysqlbox_worker_handling_seconds_count", topic="quick") == 1200
    assert value(samples, "pysqlbox_worker_handling_seconds_bucket", topic="quick", le="+Inf") == 1200


def test_how_long_messages_waited_goes_by_the_servers_clock(
    deployment: pysqlbox.Deployment, make: MakeWorker, db: Database
) -> None:
    outbox = deployment.outbox
    outbox.enqueue("now", "p")
    outbox.enqueue("later", "p", delay=1000)
    (dead,) = outbox.claim(OWNER, topics=["now"])
    outbox.fail(OWNER, [dead.id], "it was dead for long")
    db.advance(4000)
    outbox.replay([dead.id])
    outbox.enqueue("now", "p")
    worker = make(boxes=("outbox",))
    exporter = metrics.WorkerExporter(worker, deployment=False)
    worker.add_handler("now", nothing)
    worker.add_handler("later", nothing)
    worker.drain(timeout=60)
    samples = read(str(exporter))
    name = "pysqlbox_worker_waiting_seconds"
    assert 3000 <= value(samples, f"{name}_sum", topic="later") < 3100, "from its due time on"
    assert value(samples, f"{name}_bucket", topic="later", le="1800") == 0
    assert value(samples, f"{name}_bucket", topic="later", le="3600") == 1
    assert value(samples, f"{name}_count", topic="now") == 1, "what was dead did not wait"
    assert value(samples, "pysqlbox_worker_consumed_messages_total", topic="now") == 2


def test_how_long_handlers_took(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    worker = make()
    exporter = metrics.WorkerExporter(worker, deployment=False)
    worker.add_handler("slow", lambda _message: time.sleep(0.06))
    deployment.outbox.enqueue_payloads("slow", ["p"] * 2)
    worker.drain(timeout=60)
    samples = read(str(exporter))
    assert value(samples, "pysqlbox_worker_handling_seconds_bucket", topic="slow", le="0.05") == 0
    assert value(samples, "pysqlbox_worker_handling_seconds_sum", topic="slow") >= 0.12


def test_lost_leases_are_counted(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    worker = make(lease_seconds=1)
    cancelled = []

    @worker.handler("t")
    def handle(message: Any, context: Any) -> None:
        deployment.outbox.cancel([message.id])
        until(lambda: context.cancelled, 20, "the loss is noticed")
        cancelled.append(message.id)

    del handle
    deployment.outbox.enqueue("t", "p")
    worker.start()
    until(lambda: cancelled, 20)
    assert worker.stats().lost_leases == 1
    assert value(told(worker), "pysqlbox_worker_lost_leases_total") == 1


def test_topics_without_a_place_are_one(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    worker = make(unknown_topics="dead")
    exporter = metrics.WorkerExporter(worker, topics=3, deployment=False)
    for number in range(10):
        deployment.outbox.enqueue_payloads(f"t{number}", ["p"] * (20 - number))
    worker.drain(timeout=60)
    samples = read(str(exporter))
    shown = {
        each.labels["topic"] for each in samples if each.name == "pysqlbox_worker_consumed_messages_total"
    }
    assert shown == {"t0", "t1", "t2", metrics.OTHER}
    assert sum(settled(samples, metrics.OTHER)) == sum(20 - number for number in range(3, 10))


def test_nothing_is_kept_unless_somebody_asks(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    worker = make()
    worker.add_handler("t", nothing)
    deployment.outbox.enqueue("t", "p")
    worker.drain(timeout=60)
    assert worker.figures() == {}
    worker.measure()
    deployment.outbox.enqueue("t", "p")
    worker.drain(timeout=60)
    assert [(*key, figures.acked) for key, figures in worker.figures().items()] == [
        ((None, "outbox"), "t", 1)
    ]


def test_a_running_worker_is_asked_over_http(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    worker = make()
    worker.add_handler("t", nothing)
    worker.start()
    with metrics.serving(("127.0.0.1", 0), metrics.WorkerExporter(worker).__str__) as port:
        address = f"http://127.0.0.1:{port}"
        deployment.outbox.enqueue("t", "p")

        def scrape() -> list[Sample]:
            with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
                assert answer.headers["Content-Type"] == metrics.CONTENT_TYPE
                return read(answer.read().decode())

        def is_told() -> bool:
            names = [each.name for each in scrape() if each.labels.get("topic") == "t"]
            return "pysqlbox_worker_consumed_messages_total" in names

        until(is_told, 30)
        samples = scrape()
        assert value(samples, "pysqlbox_worker_running") == 1
        assert value(samples, "pysqlbox_up") == 1, "of its deployment too"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/other", timeout=30)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{address}/metrics", timeout=30)


def test_clients_that_never_end_take_no_more_than_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are let go after a while, others are sent away meanwhile, and then everybody is served again."""
    monkeypatch.setattr(server, "AT_ONCE", 3)
    monkeypatch.setattr(server._Handler, "timeout", 1.0)
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(metrics.serving(("127.0.0.1", 0), lambda: "told\n"))
        address = ("127.0.0.1", port)
        for _ in range(3):
            stack.enter_context(socket.create_connection(address)).sendall(b"GET /met")
        late = stack.enter_context(socket.create_connection(address))
        late.settimeout(30)
        assert late.recv(10) == b""

        def is_served() -> bool:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer,
            ):
                return bool(answer.read() == b"told\n")
            return False

        until(is_served, 30)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9464", ("", 9464)),
        (":9464", ("", 9464)),
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("[::1]:9464", ("::1", 9464)),
        ("metrics.example:0", ("metrics.example", 0)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert metrics.address_of(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", ":65536", "::1:9464", ":-1", "1:2:3", "a b:"])
def test_what_is_no_address_is_said(text: str) -> None:
    with pytest.raises(InvalidArgument, match="metrics: must be a port or host:port"):
        metrics.address_of(text)
