"""Spans and metrics of methods: what is sent, received and settled by hand, by callers that wait or await."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, SpanKind

from pysqlbox.otel import names
from pysqlbox.otel.context import creation_context, has_context, links_to, with_context
from pysqlbox.otel.describing import Operation, common, operation_of
from pysqlbox.otel.instruments import Instruments, end_span

if TYPE_CHECKING:
    from pysqlbox.steps import Call, Steps

__all__ = ["CREATE_AT_MOST", "watched_steps"]

#: In larger batches messages have no create spans: the send span's context is that of all of them.
CREATE_AT_MOST = 100


def watched_steps(instruments: Instruments, create_spans: bool, db: Any, steps: Steps[Any]) -> Steps[Any]:
    """The same steps, each call under a span of its own if it is a messaging operation.

    The span is the current one while the call is made, so what the driver's instrumentation tells is within it.
    """
    try:
        call = next(steps)
        while True:
            operation = operation_of(db, call)
            if operation is None:
                call = steps.send((yield call))
                continue
            watched = _Watched(instruments, operation, call, create_spans)
            try:
                with watched.current():
                    rows = yield call
            except GeneratorExit:
                watched.end(None, None)
                raise
            except BaseException as error:
                watched.end(None, error)
                call = steps.throw(error)
            else:
                watched.end(rows, None)
                _tell_follow_up(instruments, db, call, rows)
                call = steps.send(rows)
    except StopIteration as end:
        return end.value


class _Watched:
    """One call under way."""

    def __init__(self, instruments: Instruments, operation: Operation, call: Call, create_spans: bool) -> None:
        self._instruments = instruments
        self._operation = operation
        self._span: Span | None = None
        self._began_ns, self._began = time.time_ns(), time.perf_counter()
        if operation.type == "send":
            self._send(call, create_spans)
        elif operation.type == "settle":
            self._span = instruments.start(operation.attributes, SpanKind.CLIENT)
        # What a claim brings is known afterwards, so its span begins then, dated back.

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """While the call is made."""
        if self._span is None:
            yield
            return
        token = contexts.attach(trace.set_span_in_context(self._span))
        try:
            yield
        finally:
            contexts.detach(token)

    def end(self, rows: Sequence[Any] | None, error: BaseException | None) -> None:
        """It has answered, or failed."""
        instruments, operation = self._instruments, self._operation
        attributes, seconds = operation.attributes, time.perf_counter() - self._began
        if operation.type == "receive":
            self._received(rows or [], error)
        elif self._span is not None:
            if rows is not None and operation.type == "send":
                _tell_of_sent(self._span, operation, rows)
            end_span(self._span, error)
        if operation.type == "send":
            instruments.sent(attributes, operation.by_topic or {"join.wait": 1}, error)
        instruments.operated(attributes, seconds, error)

    def _send(self, call: Call, create_spans: bool) -> None:
        """Start the span, and put the creation context into what is sent and has none."""
        instruments, operation = self._instruments, self._operation
        records = operation.records
        own = [has_context(record.get("headers")) for record in records]
        without = [record for record, has_own in zip(records, own, strict=True) if not has_own]
        given = [
            creation_context(record["headers"]) for record, has_own in zip(records, own, strict=True) if has_own
        ]
        if operation.step == "enqueue_many" and create_spans and len(records) <= CREATE_AT_MOST:
            made = [self._create(record) for record in without]
            self._span = instruments.start(
                operation.attributes, SpanKind.CLIENT, links=links_to([*made, *given])
            )
            without = []
        else:
            kind = SpanKind.PRODUCER if without or not records else SpanKind.CLIENT
            self._span = instruments.start(operation.attributes, kind, links=links_to(given))
        context = trace.set_span_in_context(self._span, Context())
        if operation.step == "enqueue_many":
            for record in without:
                record["headers"] = with_context(record.get("headers"), context)
            call.arguments = {**call.arguments, "messages": records}
        elif without:
            headers = with_context(call.arguments.get("headers"), context)
            if headers is not None:
                call.arguments = {**call.arguments, "headers": headers}

    def _create(self, record: dict[str, Any]) -> SpanContext:
        """A span that is only there to be the message's creation context."""
        attributes = dict(self._operation.attributes)
        attributes.pop(names.BATCH_MESSAGE_COUNT, None)
        attributes |= {names.OPERATION_NAME: "create", names.OPERATION_TYPE: "create"}
        if isinstance(record.get("topic"), str):
            attributes[names.DESTINATION_NAME] = record["topic"]
        span = self._instruments.start(attributes, SpanKind.PRODUCER)
        record["headers"] = with_context(record.get("headers"), trace.set_span_in_context(span, Context()))
        span.end()
        return span.get_span_context()

    def _received(self, rows: Sequence[Any], error: BaseException | None) -> None:
        """A claim by hand: rows as they came, of an outbox or an inbox."""
        if not rows and error is None:
            return
        attributes = self._operation.attributes
        is_inbox = bool(rows) and len(rows[0]) == 16  # it has a source, a hash and one time more
        topics: dict[Any, int] = {}
        for row in rows:
            topic = row[3] if is_inbox else row[2]
            topics[topic] = topics.get(topic, 0) + 1
        attributes[names.BATCH_MESSAGE_COUNT] = len(rows)
        if len(topics) == 1:
            attributes[names.DESTINATION_NAME] = str(next(iter(topics)))
        links = links_to([creation_context(row[8 if is_inbox else 7]) for row in rows])
        span = self._instruments.start(attributes, SpanKind.CLIENT, links=links, start_ns=self._began_ns)
        end_span(span, error)
        self._instruments.consumed(attributes, topics)


def _tell_of_sent(span: Span, operation: Operation, rows: Sequence[Any]) -> None:
    """The message's id and outcome, where it is one message."""
    if operation.step != "enqueue" or not rows or not span.is_recording():
        return
    record, row = operation.records[0], rows[0]
    of_inbox = len(row) == 3 and isinstance(row[2], bool | int)
    message_id = record.get("message_id") if of_inbox else row[1]
    span.set_attribute(names.MESSAGE_ID, str(message_id))
    span.set_attribute(names.OUTCOME, str(row[1] if of_inbox else row[2]))
    if record.get("correlation_id") is not None:
        span.set_attribute(names.CONVERSATION_ID, str(record["correlation_id"]))


def _tell_follow_up(instruments: Instruments, db: Any, call: Call, rows: Sequence[Any]) -> None:
    """A join that was resolved has sent the message that follows it."""
    if call.routine != "join_resolve" or not rows or rows[0][4] is None:
        return
    attributes = common(db, "outbox", "send", "send") | {names.MESSAGE_ID: str(rows[0][4])}
    instruments.start(attributes, SpanKind.PRODUCER).end()
    instruments.sent(attributes, {None: 1}, None)
