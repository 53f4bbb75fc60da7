"""What Prometheus is told of those who send, receive and settle by the methods of a deployment."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import pysqlbox
from pysqlbox import calls, metrics
from pysqlbox.worker import Worker
from tests.contract.support import OWNER
from tests.metrics.conftest import MakeWorker
from tests.metrics.reading import Sample, read, value
from tests.support.database import Database
from tests.worker.support import until

SENT, CONSUMED = "pysqlbox_client_sent_messages_total", "pysqlbox_client_consumed_messages_total"
SECONDS = "pysqlbox_client_operation_seconds"


def series(samples: list[Sample], name: str) -> dict[tuple[str, ...], float]:
    """The samples of a metric by the values of their labels."""
    return {tuple(each.labels.values()): each.value for each in samples if each.name == name}


def test_whatever_is_sent_is_counted_by_box_and_topic(deployment: pysqlbox.Deployment, db: Database) -> None:
    told = metrics.ClientExporter(deployment)
    outbox = deployment.outbox
    outbox.enqueue("a", "p")
    outbox.enqueue_many([{"topic": topic, "payload": "p"} for topic in ("a", "b", "b")])
    outbox.enqueue_payloads("c", ["p"] * 5)
    deployment.inbox.enqueue("a", "tests", "1", "p")
    deployment.box("orders", kind="inbox").enqueue("o", "tests", "1", "p")
    with deployment.transaction() as connection:
        outbox.enqueue("a", "p", connection=connection)
    with db.session() as session:
        outbox.enqueue("a", "p", connection=session.connection)
        session.commit()
    assert series(read(str(told)), SENT) == {
        ("outbox", "a"): 4, ("outbox", "b"): 2, ("outbox", "c"): 5, ("inbox", "a"): 1, ("orders", "o"): 1,
    }  # fmt: skip
    for exporter in (metrics.Exporter(deployment), metrics.text(deployment)):
        assert series(read(str(exporter)), SENT)[("outbox", "c")] == 5, "the others tell it too"


def test_what_is_claimed_and_settled_by_hand_is_counted(deployment: pysqlbox.Deployment) -> None:
    told = metrics.ClientExporter(deployment)
    outbox, inbox = deployment.outbox, deployment.inbox
    outbox.enqueue_payloads("a", ["p"] * 3)
    outbox.enqueue("b", "p")
    inbox.enqueue("i", "tests", "1", "p")
    ids = [each.id for each in outbox.claim(OWNER)]
    outbox.ack(OWNER, ids[:1])
    outbox.retry(OWNER, ids[1:2], last_error="no")
    outbox.fail(OWNER, ids[2:], "no")
    assert len(inbox.claim(OWNER)) == 1
    samples = read(str(told))
    assert series(samples, CONSUMED) == {("outbox", "a"): 3, ("outbox", "b"): 1, ("inbox", "i"): 1}
    assert series(samples, f"{SECONDS}_count") == {
        ("outbox", "send"): 2, ("inbox", "send"): 1, ("outbox", "receive"): 1, ("inbox", "receive"): 1,
        ("outbox", "settle"): 3,
    }  # fmt: skip
    assert 0 < value(samples, f"{SECONDS}_sum", box="outbox", operation="settle") < 60


def test_a_call_that_failed_is_told_by_its_error(deployment: pysqlbox.Deployment) -> None:
    told = metrics.ClientExporter(deployment)
    with pytest.raises(pysqlbox.InvalidArgument):
        deployment.outbox.enqueue("t" * 256, "p")
    with pytest.raises(pysqlbox.InvalidArgument):
        deployment.outbox.claim(OWNER, batch_size=0)
    samples = read(str(told))
    assert {key[2] for key in series(samples, SENT)} == {"InvalidArgument"}
    assert value(samples, f"{SECONDS}_count", operation="receive", error="InvalidArgument") == 1


def test_those_who_await_are_counted_too(db: Database) -> None:
    async def send() -> str:
        async with pysqlbox.connect_async(db.url, schema=db.schema) as opened:
            told = metrics.ClientExporter(opened)
            await opened.outbox.enqueue("a", "p")
            await opened.outbox.enqueue_payloads("a", ["p"] * 2)
            async with opened.transaction() as connection:
                await opened.outbox.enqueue("b", "p", connection=connection)
            assert len(await opened.outbox.claim(OWNER)) == 4
            return str(told)

    samples = read(asyncio.run(send()))
    assert series(samples, SENT) == {("outbox", "a"): 3, ("outbox", "b"): 1}
    assert series(samples, CONSUMED) == {("outbox", "a"): 3, ("outbox", "b"): 1}
    assert value(samples, "pysqlbox_pool_size") >= 1


def test_a_worker_tells_what_it_sends_and_how_long_its_calls_take(
    deployment: pysqlbox.Deployment, make: MakeWorker
) -> None:
    worker: Worker = make(schedule_seconds=0.1)
    told = metrics.WorkerExporter(worker, deployment=False)

    @worker.handler("ask")
    def ask(_message: Any, context: Any) -> None:
        context.deployment.outbox.enqueue("answer", "p")

    @worker.handler("answer")
    def answer(_message: Any) -> None: ...

    @worker.handler("each")
    def each(_message: Any) -> None: ...

    @worker.handler("follow")
    def follow(_message: Any) -> None: ...

    del ask, answer, each, follow
    join = deployment.joins.start("tenant", 1)
    deployment.outbox.enqueue("ask", "p")
    (message,) = deployment.outbox.list("Ready")
    deployment.joins.attach(join, message.message_id)
    deployment.joins.wait(join, on_complete_topic="follow")
    deployment.schedules.set(
        "s", "each", "p", every=3600, next_at=deployment.outbox.get(message.id).created_at
    )
    worker.start()
    until(
        lambda: worker.stats().acked >= 5, 60, "the question, its answer, the schedule, the join and its end"
    )
    worker.stop()
    samples = read(str(told))
    assert value(samples, SENT, box="outbox", topic="ask") == 1
    assert value(samples, SENT, topic="answer") == 1
    assert value(samples, SENT, topic="join.wait") == 1
    assert value(samples, SENT, topic="each") == 1, "what a schedule sends"
    whole = sum(found for key, found in series(samples, SENT).items())
    assert whole == 5, "and the one that follows the join, whose topic only the database knows"
    assert value(samples, f"{SECONDS}_count", operation="settle") >= 1
    assert value(samples, f"{SECONDS}_count", operation="receive") >= 1
    assert CONSUMED not in {sample.name for sample in samples}, "the worker tells that itself"


def test_stores_are_told_apart(db: Database) -> None:
    with pysqlbox.Stores({"eu": db.url}, schema=db.schema) as stores:
        stores.get("eu").outbox.enqueue("before", "p")
        told = metrics.ClientExporter(stores)
        assert SENT not in str(told), "from the first scrape on"
        stores.get("eu").outbox.enqueue("t", "p")
        assert series(read(str(told)), SENT) == {("eu", "outbox", "t"): 1}


def test_topics_are_bounded_as_series_and_in_memory(
    deployment: pysqlbox.Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MOST_TOPICS", 6)
    told = metrics.ClientExporter(deployment, topics=3)
    deployment.outbox.enqueue_many(
        [{"topic": f"t{number}", "payload": "p"} for number in range(10) for _ in range(20 - number)]
    )
    found = series(read(str(told)), SENT)
    assert found == {
        ("outbox", "t0"): 20, ("outbox", "t1"): 19, ("outbox", "other"): sum(20 - n for n in range(2, 10)),
    }  # fmt: skip
    assert deployment.counts is not None
    assert len(deployment.counts.taken()[0]) == 7


def test_nothing_is_counted_unless_somebody_asks(
    deployment: pysqlbox.Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: pytest.fail("a clock was read"))
    deployment.outbox.enqueue("t", "p")
    assert deployment.counts is None


@pytest.mark.parametrize(
    "messages", [None, "text", 7, [None, 7, "x"], [{}], [{"topic": 7}], [{"topic": None}]], ids=str
)
def test_whatever_a_caller_gives_is_counted_without_harm(messages: Any) -> None:
    """The database says what is wrong with it; counting never raises in its place."""
    counts = calls.CallCounts()
    for routine in ("outbox_enqueue_many", "outbox_enqueue", "outbox_enqueue_payloads", "outbox_settle"):
        counts.called(routine, {"messages": messages, "topic": messages, "payloads": messages}, (), 0.1, None)
    counts.called("outbox_stats", {}, (), 0.1, None)
    counts.called("ledger_release", {}, (), 0.1, None)
    assert {key[1] for key in counts.taken()[2]} == {"send", "settle"}
