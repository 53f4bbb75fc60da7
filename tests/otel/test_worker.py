"""Spans and metrics of a worker."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

import pysqlbox
from pysqlbox import DatabaseUnavailable, DeadLetter, Retry, otel
from pysqlbox.logs import JsonFormatter
from pysqlbox.worker.database import CallingConnection
from pysqlbox.worker.database_postgres import PostgresConnection
from tests.otel.conftest import MakeWorker
from tests.otel.told import (
    SPAN,
    TRACE,
    TRACEPARENT,
    Told,
    attribute,
    check_conventions,
    linked,
    span_id,
    trace_id,
)
from tests.worker.support import nothing, put, until

HEADERS = {"traceparent": TRACEPARENT, "tracestate": "vendor=1"}


def current() -> str:
    """The id of the span that is current here."""
    return format(trace.get_current_span().get_span_context().span_id, "016x")


@pytest.mark.parametrize("box", ["outbox", "inbox"])
def test_a_message_is_received_processed_and_settled(
    deployment: pysqlbox.Deployment, make: MakeWorker, told: Told, box: str
) -> None:
    worker = make(boxes=(box,))
    seen: list[str] = []
    worker.add_handler("t", lambda _message: seen.append(current()))
    put(deployment.box(box), headers=HEADERS)
    worker.drain(timeout=60)
    received, processed, settled = (told.span(kind) for kind in ("receive", "process", "settle"))
    assert [received.kind, processed.kind, settled.kind] == [
        SpanKind.CLIENT,
        SpanKind.CONSUMER,
        SpanKind.CLIENT,
    ]
    assert (received.name, processed.name, settled.name) == ("receive t", "process t", "settle")
    for span in (received, processed, settled):
        check_conventions(span)
        assert linked(span) == [SPAN], "whoever sent it, in any language"
        assert span.parent is None
        assert trace_id(span) != TRACE
        assert attribute(span, "messaging.pysqlbox.box") == box
        assert span.links[0].context.trace_state.get("vendor") == "1"
    assert seen == [span_id(processed)], "the handler runs within its span"
    assert attribute(processed, "messaging.pysqlbox.attempt") == 0
    assert [attribute(span, "messaging.batch.message_count") for span in (received, settled)] == [1, 1]
    assert received.start_time <= (received.end_time or 0) <= processed.start_time  # type: ignore[operator]


def test_the_parent_of_a_single_message_is_its_sender_if_asked_for(
    deployment: pysqlbox.Deployment, make: MakeWorker, told: Told
) -> None:
    otel.instrument(told.tracer_provider, told.meter_provider, parents=True)
    worker = make()
    worker.add_handler("t", nothing)

    @worker.batch_handler("batch")
    def _(_messages: list[Any]) -> None:
        """A batch has many senders."""

    put(deployment.outbox, headers=HEADERS)
    put(deployment.outbox, "batch", headers=HEADERS)
    worker.drain(timeout=60)
    single, batch = (
        told.span("process", messaging__destination__name="t"),
        told.span("process", messaging__destination__name="batch"),
    )
    assert single.parent is not None
    assert (format(single.parent.span_id, "016x"), trace_id(single)) == (SPAN, TRACE)
    assert batch.parent is None
    assert linked(single) == linked(batch) == [SPAN]


def test_a_batch_is_one_span_with_links_to_all(
    deployment: pysqlbox.Deployment, make: MakeWorker, told: Told
) -> None:
    worker = make(threads=1)

    @worker.batch_handler("batch")
    def _(_messages: list[Any]) -> None:
        """All of them are done."""

    spans = [f"{number:016x}" for number in range(1, 4)]
    for each in spans:
        put(deployment.outbox, "batch", headers={"traceparent": f"00-{TRACE}-{each}-01"})
    worker.drain(timeout=60)
    found = told.spans("process")
    assert sorted(each for span in found for each in linked(span)) == spans
    assert sum(int(str(attribute(span, "messaging.batch.message_count"))) for span in found) == 3
    for span in told.spans():
        check_conventions(span)


def test_headers_without_a_valid_context_are_no_link(
    deployment: pysqlbox.Deployment, make: MakeWorker, told: Told
) -> None:
    worker = make()
    worker.add_handler("t", nothing)
    otel.uninstrument()
    for headers in (None, {}, {"traceparent": "nonsense"}, {"traceparent": 7}, {"tracestate": "a=b"}):
        put(deployment.outbox, headers=headers)
    put(deployment.outbox, headers={"Traceparent": TRACEPARENT})
    otel.instrument(told.tracer_provider, told.meter_provider)
    worker.drain(timeout=60)
    assert sorted(linked(span) for span in told.spans("process")) == [[], [], [], [], [], [SPAN]]


def test_what_a_handler_raises_is_its_spans_error(
    deployment: pysqlbox.Deployment, make: MakeWorker, told: Told
) -> None:
    worker = make(max_attempts=1)

    @worker.handler("t")
    def _(_message: object) -> None:
        raise LookupError("no such order")

    worker.add_handler("given up", lambda _message: DeadLetter("no"))
    worker.add_handler("again", lambda _message: Retry(delay=600))
    for topic in ("t", "given up", "again"):
        put(deployment.outbox, topic)
    worker.drain(timeout=60)
    span = told.span("process", messaging__destination__name="t")
    assert span.status.status_code is StatusCode.ERROR
    assert attribute(span, "error.type") == "LookupError"
    assert [event.name for event in span.events] == ["exception"]
    outcomes = {span.name: attribute(span, "messaging.pysqlbox.outcome") for span in told.spans("process")}
    assert outcomes == {"process t": None, "process given up": "deadletter", "process again": "retry"}
    errors = {attributes.get("error.type") for attributes, _ in told.points("messaging.process.duration")}
    assert errors == {None, "LookupError"}


def test_coroutine_handlers_run_within_their_spans(
    deployment: pysqlbox.Deployment, make: MakeWorker, told: Told
) -> None:
    worker = make()
    seen: list[tuple[str, str]] = []

    @worker.handler("t")
    async def _(_message: object) -> None:
        before = current()
        await asyncio.sleep(0.01)
        seen.append((before, current()))

    for number in range(5):
        put(deployment.outbox, payload=str(number))
    worker.drain(timeout=60)
    ids = sorted(span_id(span) for span in told.spans("process"))
    assert sorted(seen) == [(each, each) for each in ids]
    assert len(ids) == 5
    assert all((span.end_time or 0) - (span.start_time or 0) >= 10_000_000 for span in told.spans("process"))


def test_a_transactional_handler_is_settled_within_its_span(
    deployment: pysqlbox.Deployment, make: MakeWorker, told: Told
) -> None:
    worker = make()

    @worker.handler("t", transactional=True)
    def _(_message: object, context: Any) -> None:
        assert context.connection is not None

    put(deployment.outbox)
    worker.drain(timeout=60)
    assert len(told.spans("process")) == 1
    assert attribute(told.span("process"), "error.type") is None


def test_middleware_is_within_the_span(deployment: pysqlbox.Deployment, make: MakeWorker, told: Told) -> None:
    worker = make()
    seen: list[str] = []

    @worker.middleware
    def _(_message: Any, _context: Any, call_next: Any) -> Any:
        seen.append(current())
        return call_next()

    worker.add_handler("t", nothing)
    put(deployment.outbox)
    worker.drain(timeout=60)
    assert seen == [span_id(told.span("process"))]


def test_metrics_are_the_conventions(deployment: pysqlbox.Deployment, make: MakeWorker, told: Told) -> None:
    worker = make()
    worker.add_handler("a", nothing)
    worker.add_handler("b", nothing)
    for topic in ("a", "a", "b"):
        put(deployment.outbox, topic)
    worker.drain(timeout=60)
    consumed = {
        attributes["messaging.destination.name"]: point.value
        for attributes, point in told.points("messaging.client.consumed.messages")
    }
    assert consumed == {"a": 2, "b": 1}
    handled = {
        attributes["messaging.destination.name"]: point.count
        for attributes, point in told.points("messaging.process.duration")
    }
    assert handled == {"a": 2, "b": 1}
    kinds = {
        attributes["messaging.operation.type"]
        for attributes, _ in told.points("messaging.client.operation.duration")
    }
    assert {"receive", "settle"} <= kinds


def test_a_schedules_message_is_sent_within_a_span(
    deployment: pysqlbox.Deployment, make: MakeWorker, told: Told
) -> None:
    worker = make(schedule_seconds=0.2)
    fired = threading.Event()
    worker.add_handler("tick", lambda _message: fired.set())
    deployment.schedules.set("often", "tick", "p", every=1, headers=HEADERS)
    worker.start()
    assert fired.wait(60)
    worker.stop()
    sent, *_ = told.spans("send", messaging__pysqlbox__schedule="often")
    check_conventions(sent)
    assert sent.name == "send tick"
    processed, *_ = told.spans("process")
    assert linked(processed) == [SPAN], "a schedule's headers are its messages'"
    assert attribute(sent, "messaging.message.id") == attribute(processed, "messaging.message.id")


def test_log_records_name_the_trace(
    deployment: pysqlbox.Deployment, make: MakeWorker, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pysqlbox")
    worker = make(max_attempts=1)

    @worker.handler("t")
    def _(message: Any) -> None:
        logging.getLogger("pysqlbox.example").info("within %s", message.topic)
        raise LookupError("no such order")

    worker.add_handler("other", nothing)
    identity = put(deployment.outbox)
    put(deployment.outbox, "other")
    worker.drain(timeout=60)
    span = told.span("process", messaging__destination__name="t")
    wanted = (trace_id(span), span_id(span))

    def ids_of(text: str) -> list[tuple[str | None, str | None]]:
        records = [record for record in caplog.records if text in record.getMessage()]
        return [
            (getattr(record, "otelTraceID", None), getattr(record, "otelSpanID", None)) for record in records
        ]

    assert ids_of("within t") == [wanted]
    assert ids_of(f"message {identity}, attempt 1: LookupError") == [wanted], "the worker's own account too"
    (failed,) = [record for record in caplog.records if "attempt 1: LookupError" in record.getMessage()]
    line = json.loads(JsonFormatter().format(failed))
    assert (line["trace_id"], line["span_id"]) == wanted, "as JSON too, in place of the sender's"
    other = told.span("process", messaging__destination__name="other")
    begun = [each for each in caplog.records if each.getMessage().startswith("outbox: other message")]
    assert {getattr(record, "otelTraceID", None) for record in begun} <= {None, trace_id(other)}


def test_nobody_watches_any_more(deployment: pysqlbox.Deployment, make: MakeWorker, told: Told) -> None:
    factory = logging.getLogRecordFactory()
    otel.uninstrument()
    assert logging.getLogRecordFactory() is not factory
    worker = make()
    worker.add_handler("t", nothing)
    put(deployment.outbox)
    worker.drain(timeout=60)
    assert told.spans() == []


def test_a_database_that_is_away_is_an_error_of_what_was_asked(
    deployment: pysqlbox.Deployment, make: MakeWorker, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make(threads=1)
    away = threading.Event()

    @worker.handler("t")
    def _(_message: object) -> None:
        away.set()

    def failing(real: Any) -> Any:
        def settle(*arguments: Any) -> Any:
            if away.is_set():
                away.clear()
                raise DatabaseUnavailable("it went away")
            return real(*arguments)

        return settle

    for connection in (CallingConnection, PostgresConnection):
        monkeypatch.setattr(connection, "settle", failing(connection.settle))
    put(deployment.outbox, headers=HEADERS)
    worker.start()
    until(
        lambda: (
            [span for span in told.spans("settle") if not span.status.is_ok]
            and deployment.outbox.stats()[-1].done
        ),
        30,
    )
    worker.stop()
    failed, *others = sorted(told.spans("settle"), key=lambda span: int(span.start_time or 0))
    assert attribute(failed, "error.type") == "pysqlbox.errors.DatabaseUnavailable"
    assert [linked(span) for span in (failed, *others)] == [[SPAN], [SPAN]], "it is settled in the end"
    check_conventions(failed)
