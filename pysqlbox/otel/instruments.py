"""The tracer, the instruments, and the attributes that spans and metrics have in common."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from pysqlbox.otel import names

__all__ = ["Attributes", "Instruments", "error_type"]

Attributes = dict[str, str | int]

#: The conventions' advice for histograms of seconds.
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
#: Metrics name so many destinations; what comes later is counted without one.
MOST_DESTINATIONS = 100


class Instruments:
    """What spans and metrics are made with."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None,
        meter_provider: metrics.MeterProvider | None,
        version: str,
    ) -> None:
        self.tracer = trace.get_tracer("pysqlbox", version, tracer_provider, names.SCHEMA_URL)
        meter = metrics.get_meter("pysqlbox", version, meter_provider, names.SCHEMA_URL)
        self._operation = meter.create_histogram(
            names.OPERATION_DURATION,
            "s",
            "How long sending, receiving and settling took.",
            explicit_bucket_boundaries_advisory=_BOUNDS,
        )
        self._process = meter.create_histogram(
            names.PROCESS_DURATION,
            "s",
            "How long handlers took.",
            explicit_bucket_boundaries_advisory=_BOUNDS,
        )
        self._sent = meter.create_counter(names.SENT_MESSAGES, "{message}", "Messages that were sent.")
        self._consumed = meter.create_counter(
            names.CONSUMED_MESSAGES, "{message}", "Messages that were received."
        )
        self._destinations: set[str] = set()
        self._lock = threading.Lock()

    def start(
        self,
        attributes: Attributes,
        kind: SpanKind,
        *,
        context: Context | None = None,
        links: list[Link] | None = None,
        start_ns: int | None = None,
    ) -> Span:
        """A span that is named as the conventions want it."""
        name, destination = attributes[names.OPERATION_NAME], attributes.get(names.DESTINATION_NAME)
        return self.tracer.start_span(
            str(name) if destination is None else f"{name} {destination}",
            context,
            kind,
            attributes,
            links or (),
            start_time=start_ns,
        )

    def operated(self, attributes: Attributes, seconds: float, error: BaseException | None) -> None:
        """Measure an operation on the database."""
        self._operation.record(seconds, self._of_metric(attributes, error, with_type=True))

    def processed(self, attributes: Attributes, seconds: float, error: BaseException | None) -> None:
        """Measure a handler."""
        self._process.record(seconds, self._of_metric(attributes, error))

    def sent(self, attributes: Attributes, by_topic: Mapping[Any, int], error: BaseException | None) -> None:
        """Count messages that were sent, or should have been."""
        for topic, count in by_topic.items():
            self._sent.add(count, self._of_metric(attributes, error, topic=topic))

    def consumed(self, attributes: Attributes, by_topic: Mapping[Any, int]) -> None:
        """Count messages that were received."""
        for topic, count in by_topic.items():
            self._consumed.add(count, self._of_metric(attributes, None, topic=topic))

    def _of_metric(
        self,
        attributes: Attributes,
        error: BaseException | None,
        *,
        with_type: bool = False,
        topic: object = None,
    ) -> Attributes:
        """The attributes of bounded variety, without ids; those of a topic, if it is given."""
        kept = {
            names.MESSAGING_SYSTEM,
            names.OPERATION_NAME,
            names.DESTINATION_NAME,
            names.SERVER_ADDRESS,
            names.SERVER_PORT,
            names.BOX,
            names.STORE,
        }
        if with_type:
            kept.add(names.OPERATION_TYPE)
        found = {name: value for name, value in attributes.items() if name in kept}
        if topic is not None:
            found[names.DESTINATION_NAME] = str(topic)
        destination = found.get(names.DESTINATION_NAME)
        if destination is not None and not self._has_place(str(destination)):
            del found[names.DESTINATION_NAME]
        if error is not None:
            found[names.ERROR_TYPE] = error_type(error)
        return found

    def _has_place(self, destination: str) -> bool:
        if destination in self._destinations:
            return True
        with self._lock:
            if len(self._destinations) < MOST_DESTINATIONS:
                self._destinations.add(destination)
        return destination in self._destinations


def end_span(span: Span, error: BaseException | None, end_ns: int | None = None) -> None:
    """End a span; with what was raised, if anything was."""
    if error is not None:
        span.set_attribute(names.ERROR_TYPE, error_type(error))
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end(end_ns)


def error_type(error: BaseException) -> str:
    """The class of an error, as the conventions want it: of low cardinality."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
