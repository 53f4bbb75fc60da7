"""What ``instrument()`` puts in place: calls, workers and log records under one roof."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry import trace

import pysqlbox
from pysqlbox.otel.calls import Watched
from pysqlbox.otel.handling import Handled, just_handled
from pysqlbox.otel.instruments import Instruments

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["Telemetry"]


class Telemetry(Handled):
    """A Watcher that tells OpenTelemetry."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        *,
        parents: bool,
        create_spans: bool,
    ) -> None:
        super().__init__(Instruments(tracer_provider, meter_provider, pysqlbox.__version__), parents)
        self._create_spans = create_spans
        self._factory: Any = None

    def calling(self, db: Any, routine: str, arguments: Mapping[str, object]) -> Watched:
        """A routine is about to be called."""
        return Watched(self._instruments, self._create_spans, db, routine, arguments)

    def mark_log_records(self) -> None:
        """Give the package's log records the ids of the span that they belong to."""
        before = logging.getLogRecordFactory()

        def make(*arguments: Any, **named: Any) -> logging.LogRecord:
            record = before(*arguments, **named)
            if record.name.partition(".")[0] == "pysqlbox":
                _mark(record)
            return record

        self._factory = make, before
        logging.setLogRecordFactory(make)

    def close(self) -> None:
        """Leave log records alone again, unless somebody else came after us."""
        if self._factory is not None and logging.getLogRecordFactory() is self._factory[0]:
            logging.setLogRecordFactory(self._factory[1])


def _mark(record: logging.LogRecord) -> None:
    """The current span's ids; else those of the span of the message that the record tells of.

    By the names that OpenTelemetry's own instrumentation of logging gives them.
    """
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        handled = just_handled.get()
        if handled is None or not isinstance(record.args, tuple):
            return
        if not any(type(each) is int and each in handled[1] for each in record.args):
            return
        context = handled[0]
    if context.is_valid:
        record.otelTraceID = format(context.trace_id, "032x")
        record.otelSpanID = format(context.span_id, "016x")
