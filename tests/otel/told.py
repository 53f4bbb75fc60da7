"""What the SDK has collected: spans that are over, and the points of metrics."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
"""A context as a sender in any language writes it."""
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"


@cache
def conventions() -> dict[str, Any]:
    """The published names."""
    text = Path(__file__).with_name("messaging_conventions_1_44.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


class Told:
    """The providers of a test, and what they were told."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meter_provider = MeterProvider([self._reader])
        self.tracer = self.tracer_provider.get_tracer("tests")

    def close(self) -> None:
        """Nothing more."""
        self.tracer_provider.shutdown()
        self.meter_provider.shutdown()

    def spans(self, kind: str | None = None, **attributes: object) -> list[ReadableSpan]:
        """Spans that are over, of an operation type, with these attributes (with dots for underscores)."""
        wanted = {name.replace("__", "."): value for name, value in attributes.items()}
        return [
            span
            for span in self._spans.get_finished_spans()
            if (kind is None or attribute(span, "messaging.operation.type") == kind)
            and all(attribute(span, name) == value for name, value in wanted.items())
        ]

    def span(self, kind: str, **attributes: object) -> ReadableSpan:
        """The only one of that kind."""
        (found,) = self.spans(kind, **attributes)
        return found

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """The attributes and the point of each series of a metric; an empty list if nothing was measured."""
        data = self._reader.get_metrics_data()
        return [
            (dict(point.attributes or {}), point)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


def attribute(span: ReadableSpan, name: str) -> object:
    """One attribute; None without it."""
    return (span.attributes or {}).get(name)


def linked(span: ReadableSpan) -> list[str]:
    """The span ids that a span links to."""
    return [format(link.context.span_id, "016x") for link in span.links]


def context_of(span: ReadableSpan) -> SpanContext:
    """A span's own context."""
    context = span.get_span_context()
    assert context is not None
    return context


def span_id(span: ReadableSpan) -> str:
    """A span's own id."""
    return format(context_of(span).span_id, "016x")


def trace_id(span: ReadableSpan) -> str:
    """The id of a span's trace."""
    return format(context_of(span).trace_id, "032x")


def check_conventions(span: ReadableSpan) -> None:
    """Whether a span is one of the conventions', as they describe it."""
    kind = str(attribute(span, "messaging.operation.type"))
    described = conventions()["spans"][f"messaging.{kind}.{span.kind.name.lower()}"]
    found = set(span.attributes or {})
    own = {name for name in found if name.startswith("messaging.pysqlbox.")}
    assert found - own <= described["attributes"].keys(), span.name
    required = {name for name, level in described["attributes"].items() if level == "required"}
    assert required <= found
    assert attribute(span, "messaging.system") == "pysqlbox"
    destination = attribute(span, "messaging.destination.name")
    name = str(attribute(span, "messaging.operation.name"))
    assert span.name == (name if destination is None else f"{name} {destination}")
    assert kind in conventions()["operation_types"]
