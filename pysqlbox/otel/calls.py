"""Spans and metrics of methods: what is sent, received and settled by hand, by callers that wait or await."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, SpanKind

from pysqlbox.calls import topic_column, topics_of_claimed
from pysqlbox.otel import names
from pysqlbox.otel.context import creation_context, has_context, links_to, with_context
from pysqlbox.otel.describing import Operation, common, operation_of
from pysqlbox.otel.instruments import Instruments, end_span

__all__ = ["CREATE_AT_MOST", "Watched"]

#: In larger batches messages have no create spans: the send span's context is that of all of them.
CREATE_AT_MOST = 100


class Watched:
    """One call, under a span of its own if it is a messaging operation.

    The span is the current one while the call is made, so what the driver's instrumentation tells is within.
    """

    def __init__(
        self,
        instruments: Instruments,
        create_spans: bool,
        db: Any,
        routine: str,
        arguments: Mapping[str, object],
    ) -> None:
        self.arguments = arguments
        self._instruments = instruments
        self._db = db
        self._routine = routine
        self._rows: Sequence[Any] = ()
        self._span: Span | None = None
        self._token: Any = None
        self._began_ns, self._began = time.time_ns(), time.perf_counter()
        self._operation = operation = operation_of(db, routine, arguments)
        if operation is None:
            return
        if operation.type == "send":
            self._send(operation, create_spans)
        elif operation.type == "settle":
            self._span = instruments.start(operation.attributes, SpanKind.CLIENT)
        # What a claim brings is known afterwards, so its span begins then, dated back.

    def __enter__(self) -> Self:
        if self._span is not None:
            self._token = contexts.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            contexts.detach(self._token)
        if self._operation is not None:
            self._end(self._operation, error)
        elif error is None and self._routine == "join_resolve":
            self._tell_follow_up()

    def answered(self, rows: list[Any]) -> list[Any]:
        """Its answer, which is handed on."""
        self._rows = rows
        return rows

    def _end(self, operation: Operation, error: BaseException | None) -> None:
        seconds = time.perf_counter() - self._began
        if operation.type == "receive":
            self._received(operation, error)
        elif self._span is not None:
            if error is None:
                _tell_of_sent(self._span, operation, self._rows)
            end_span(self._span, error)
        if operation.type == "send":
            self._instruments.sent(operation.attributes, operation.by_topic, error)
        self._instruments.operated(operation.attributes, seconds, error)

    def _send(self, operation: Operation, create_spans: bool) -> None:
        """Start the span, and put the creation context into what is sent and has none."""
        start, records = self._instruments.start, operation.records
        own = [has_context(record.get("headers")) for record in records]
        without = [record for record, has_own in zip(records, own, strict=True) if not has_own]
        given = [
            creation_context(record["headers"])
            for record, has_own in zip(records, own, strict=True)
            if has_own
        ]
        is_batch = operation.step == "enqueue_many"
        if is_batch and create_spans and len(records) <= CREATE_AT_MOST:
            made: list[SpanContext | None] = [self._create(operation, record) for record in without]
            self._span = start(operation.attributes, SpanKind.CLIENT, links=links_to([*made, *given]))
        else:
            kind = SpanKind.PRODUCER if without or not records else SpanKind.CLIENT
            self._span = start(operation.attributes, kind, links=links_to(given))
            context = trace.set_span_in_context(self._span, Context())
            if is_batch:
                for record in without:
                    record["headers"] = with_context(record.get("headers"), context)
            elif without:
                headers = with_context(self.arguments.get("headers"), context)
                if headers is not None:
                    self.arguments = {**self.arguments, "headers": headers}
        if is_batch and records:
            self.arguments = {**self.arguments, "messages": records}

    def _create(self, operation: Operation, record: dict[str, Any]) -> SpanContext:
        """A span that is only there to be the message's creation context."""
        attributes = dict(operation.attributes)
        attributes.pop(names.BATCH_MESSAGE_COUNT, None)
        attributes |= {names.OPERATION_NAME: "create", names.OPERATION_TYPE: "create"}
        if isinstance(record.get("topic"), str):
            attributes[names.DESTINATION_NAME] = record["topic"]
        span = self._instruments.start(attributes, SpanKind.PRODUCER)
        record["headers"] = with_context(record.get("headers"), trace.set_span_in_context(span, Context()))
        span.end()
        return span.get_span_context()

    def _received(self, operation: Operation, error: BaseException | None) -> None:
        """A claim by hand: rows as they came, of an outbox or an inbox."""
        rows, attributes = self._rows, operation.attributes
        if not rows and error is None:
            return
        topics = topics_of_claimed(rows)
        attributes[names.BATCH_MESSAGE_COUNT] = len(rows)
        if len(topics) == 1:
            attributes[names.DESTINATION_NAME] = str(next(iter(topics)))
        links = links_to([creation_context(row[topic_column(row) + 5]) for row in rows])
        span = self._instruments.start(attributes, SpanKind.CLIENT, links=links, start_ns=self._began_ns)
        end_span(span, error)
        self._instruments.consumed(attributes, topics)

    def _tell_follow_up(self) -> None:
        """A join that was resolved has sent the message that follows it."""
        if not self._rows or self._rows[0][4] is None:
            return
        attributes = common(self._db, "outbox", "send", "send") | {names.MESSAGE_ID: str(self._rows[0][4])}
        self._instruments.start(attributes, SpanKind.PRODUCER, start_ns=self._began_ns).end()
        self._instruments.sent(attributes, {None: 1}, None)


def _tell_of_sent(span: Span, operation: Operation, rows: Sequence[Any]) -> None:
    """The message's id and outcome, where it is one message."""
    if operation.step not in ("enqueue", "join_wait") or not rows or not span.is_recording():
        return
    row = rows[0]
    if operation.step == "join_wait":
        span.set_attribute(names.MESSAGE_ID, str(row[1]))
        return
    record = operation.records[0]
    of_inbox = "source" in record
    span.set_attribute(names.MESSAGE_ID, str(record.get("message_id") if of_inbox else row[1]))
    span.set_attribute(names.OUTCOME, str(row[1] if of_inbox else row[2]))
    if record.get("correlation_id") is not None:
        span.set_attribute(names.CONVERSATION_ID, str(record["correlation_id"]))
