"""Spans and metrics of methods: sending, and receiving and settling by hand."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

import pysqlbox
from pysqlbox import InvalidArgument, Retries, otel
from tests.contract.support import OWNER
from tests.otel.conftest import MakeWorker
from tests.otel.told import (
    SPAN,
    TRACEPARENT,
    Told,
    attribute,
    check_conventions,
    context_of,
    linked,
    span_id,
    trace_id,
)
from tests.support.database import Database
from tests.worker.support import nothing


def parent_of(message: Any) -> str:
    """The span id that a message's headers carry."""
    return str(message.headers["traceparent"]).split("-")[2]


def test_a_message_carries_the_span_that_sent_it(deployment: pysqlbox.Deployment, told: Told) -> None:
    with told.tracer.start_as_current_span("request") as request:
        sent = deployment.outbox.enqueue("t", "p", correlation_id="c", headers={"mine": 1})
    span = told.span("send")
    check_conventions(span)
    assert (span.name, span.kind) == ("send t", SpanKind.PRODUCER)
    assert span.parent is not None
    assert span.parent.span_id == request.get_span_context().span_id
    assert attribute(span, "messaging.message.id") == str(sent.message_id)
    assert attribute(span, "messaging.message.conversation_id") == "c"
    assert attribute(span, "messaging.pysqlbox.outcome") == "created"
    (message,) = deployment.outbox.claim(OWNER)
    assert message.headers is not None
    assert message.headers["mine"] == 1
    assert str(message.headers["traceparent"]).startswith(f"00-{trace_id(span)}-{span_id(span)}-0")


def test_a_message_into_an_inbox_too(deployment: pysqlbox.Deployment, told: Told) -> None:
    deployment.inbox.enqueue("t", "tests", "m-1", "p")
    span = told.span("send")
    check_conventions(span)
    assert attribute(span, "messaging.message.id") == "m-1"
    assert attribute(span, "messaging.pysqlbox.outcome") == "created"
    (message,) = deployment.inbox.claim(OWNER)
    assert parent_of(message) == span_id(span)
    received = told.span("receive")
    assert (linked(received), received.name) == ([span_id(span)], "receive t")


def test_a_context_of_the_senders_own_is_left_as_it_is(deployment: pysqlbox.Deployment, told: Told) -> None:
    deployment.outbox.enqueue("t", "p", headers={"TraceParent": TRACEPARENT})
    span = told.span("send")
    check_conventions(span)
    assert (span.kind, linked(span)) == (SpanKind.CLIENT, [SPAN])
    (message,) = deployment.outbox.claim(OWNER)
    assert message.headers == {"TraceParent": TRACEPARENT}


def test_a_batch_has_a_span_for_each_message(deployment: pysqlbox.Deployment, told: Told) -> None:
    records = [{"topic": topic, "payload": "p"} for topic in ("a", "a", "b")]
    own = {"topic": "c", "payload": "p", "headers": {"traceparent": TRACEPARENT}}
    deployment.outbox.enqueue_many([*records, own])
    created, sent = told.spans("create"), told.span("send")
    for span in (*created, sent):
        check_conventions(span)
    assert sorted(span.name for span in created) == ["create a", "create a", "create b"]
    assert (sent.name, sent.kind) == ("send", SpanKind.CLIENT)
    assert attribute(sent, "messaging.batch.message_count") == 4
    assert sorted(linked(sent)) == sorted([*(span_id(span) for span in created), SPAN])
    messages = deployment.outbox.claim(OWNER)
    assert sorted(parent_of(message) for message in messages) == sorted(linked(sent))
    assert all("traceparent" not in record for record in records), "the caller's records are the caller's"


@pytest.mark.parametrize("how", ["large", "without create spans", "payloads"])
def test_or_one_span_for_all(deployment: pysqlbox.Deployment, told: Told, how: str) -> None:
    if how == "without create spans":
        otel.instrument(told.tracer_provider, told.meter_provider, create_spans=False)
    count = 101 if how == "large" else 3
    if how == "payloads":
        deployment.outbox.enqueue_payloads("t", ["p"] * count)
    else:
        deployment.outbox.enqueue_many([{"topic": "t", "payload": "p"} for _ in range(count)])
    span = told.span("send")
    check_conventions(span)
    assert (span.name, span.kind) == ("send t", SpanKind.PRODUCER)
    assert told.spans("create") == []
    messages = deployment.outbox.claim(OWNER, batch_size=200)
    assert [parent_of(message) for message in messages] == [span_id(span)] * count
    (point,) = [point for _, point in told.points("messaging.client.sent.messages")]
    assert point.value == count


def test_a_trace_goes_from_the_request_to_the_last_message(
    deployment: pysqlbox.Deployment, make: MakeWorker, told: Told
) -> None:
    worker = make()
    worker.add_handler("order", lambda _message: deployment.outbox.enqueue("mail", "p") and None)
    worker.add_handler("mail", nothing)
    deployment.outbox.enqueue("order", "p")
    worker.drain(timeout=60)
    first, second = (told.span("send", messaging__destination__name=topic) for topic in ("order", "mail"))
    order, mail = (told.span("process", messaging__destination__name=topic) for topic in ("order", "mail"))
    assert linked(order) == [span_id(first)]
    assert second.parent is not None
    assert (format(second.parent.span_id, "016x"), trace_id(second)) == (span_id(order), trace_id(order))
    assert linked(mail) == [span_id(second)]


def test_as_children_it_is_one_trace(deployment: pysqlbox.Deployment, make: MakeWorker, told: Told) -> None:
    otel.instrument(told.tracer_provider, told.meter_provider, parents=True)
    worker = make()
    worker.add_handler("order", lambda _message: deployment.outbox.enqueue("mail", "p") and None)
    worker.add_handler("mail", nothing)
    deployment.outbox.enqueue("order", "p")
    worker.drain(timeout=60)
    assert len({trace_id(span) for span in (*told.spans("send"), *told.spans("process"))}) == 1


def test_settling_by_hand_is_told_by_its_name(deployment: pysqlbox.Deployment, told: Told) -> None:
    outbox = deployment.outbox
    outbox.enqueue_payloads("t", ["p"] * 6)
    ids = [message.id for message in outbox.claim(OWNER)]
    outbox.ack(OWNER, ids[:2])
    outbox.abandon(OWNER, ids[2:3])
    outbox.retry(OWNER, ids[3:4])
    outbox.release(OWNER, ids[4:5])
    outbox.fail(OWNER, ids[5:], "no")
    outbox.settle(OWNER, [])
    spans = told.spans("settle")
    for span in spans:
        check_conventions(span)
    assert [span.name for span in spans] == ["ack", "abandon", "retry", "release", "fail", "settle"]
    counts = [attribute(span, "messaging.batch.message_count") for span in spans]
    assert counts == [2, 1, 1, 1, 1, None]


def test_what_is_no_messaging_has_no_span(deployment: pysqlbox.Deployment, told: Told) -> None:
    deployment.outbox.stats()
    deployment.doctor()
    deployment.metrics()
    claim = deployment.ledger.try_begin("key", owner="me")
    assert claim.lease_id is not None
    deployment.ledger.release("key", claim.lease_id)
    assert deployment.outbox.claim(OWNER) == []
    assert told.spans() == []


def test_an_error_is_told(deployment: pysqlbox.Deployment, told: Told) -> None:
    with pytest.raises(InvalidArgument):
        deployment.outbox.enqueue("", "p")
    span = told.span("send")
    assert span.status.status_code is StatusCode.ERROR
    assert attribute(span, "error.type") == "pysqlbox.errors.InvalidArgument"
    ((attributes, point),) = told.points("messaging.client.sent.messages")
    assert (attributes["error.type"], point.value) == ("pysqlbox.errors.InvalidArgument", 1)


def test_a_database_that_is_away_is_told(told: Told) -> None:
    away = pysqlbox.connect("postgresql://127.0.0.1:1/nowhere", retries=Retries(attempts=1))
    with away, pytest.raises(pysqlbox.DatabaseUnavailable):
        away.outbox.enqueue("t", "p", message_id=OWNER)
    (span,) = told.spans("send")
    assert attribute(span, "server.address") == "127.0.0.1"
    assert attribute(span, "server.port") == 1
    check_conventions(span)


def test_joins_are_told(deployment: pysqlbox.Deployment, make: MakeWorker, told: Told) -> None:
    joins, outbox = deployment.joins, deployment.outbox
    done = threading.Event()
    worker = make()
    worker.add_handler("step", nothing)
    worker.add_handler("after", lambda _message: done.set())
    join = joins.start("tenant", 1)
    joins.attach(join, outbox.enqueue("step", "p").message_id)
    joins.wait(join, on_complete_topic="after", on_complete_payload="p")
    worker.start()
    assert done.wait(30)
    worker.stop()
    waiting = told.span("send", messaging__destination__name="join.wait")
    check_conventions(waiting)
    assert waiting.kind is SpanKind.CLIENT, "its message carries no context"
    resolving = told.span("process", messaging__destination__name="join.wait")
    (follow_up,) = [
        span
        for span in told.spans("send")
        if span.parent and span.parent.span_id == context_of(resolving).span_id
    ]
    after = told.span("process", messaging__destination__name="after")
    assert attribute(follow_up, "messaging.message.id") == attribute(after, "messaging.message.id")


@pytest.mark.dialect("postgres")
def test_asynchronous_callers_too(deployment: pysqlbox.Deployment, told: Told, db: Database) -> None:
    async def send() -> None:
        async with pysqlbox.connect_async(db.url, schema=db.schema) as awaited:
            with told.tracer.start_as_current_span("request"):
                await awaited.outbox.enqueue("t", "p")

    asyncio.run(send())
    span = told.span("send")
    check_conventions(span)
    assert span.parent is not None
    (message,) = deployment.outbox.claim(OWNER)
    assert parent_of(message) == span_id(span)


def test_without_a_provider_headers_stay_as_they_are(deployment: pysqlbox.Deployment, told: Told) -> None:
    """The API alone makes no contexts, so there is none to carry."""
    otel.instrument()
    try:
        deployment.outbox.enqueue("t", "p", headers={"mine": 1})
        (message,) = deployment.outbox.claim(OWNER)
        assert message.headers == {"mine": 1}
    finally:
        otel.uninstrument()
    assert told.spans() == []
