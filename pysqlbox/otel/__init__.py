"""OpenTelemetry: spans and metrics of what is sent, received, handled and settled (the extra ``otel``).

``instrument()`` once at the start, or ``opentelemetry-instrument`` around the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pysqlbox import watching
from pysqlbox.errors import DriverMissing

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["Instrumentor", "instrument", "uninstrument"]


def instrument(
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    *,
    parents: bool = False,
    create_spans: bool = True,
    log_records: bool = True,
) -> None:
    """Watch every deployment and worker of this process, from the next call and message on.

    Without providers it takes the global ones. ``parents``: the span in which a single message is handled is
    the child of the context that the message carries, and not only linked to it. ``create_spans``: each
    message of a small batch has a span of its own as its context. ``log_records``: the package's log records
    get ``otelTraceID`` and ``otelSpanID``, as opentelemetry-instrumentation-logging calls them.
    """
    try:
        from pysqlbox.otel.watcher import Telemetry
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise DriverMissing("OpenTelemetry is not installed: pip install 'pysqlbox[otel]'") from error
    uninstrument()
    telemetry = Telemetry(tracer_provider, meter_provider, parents=parents, create_spans=create_spans)
    watching.watcher = telemetry
    if log_records:
        telemetry.mark_log_records()


def uninstrument() -> None:
    """Watch no more."""
    telemetry, watching.watcher = watching.watcher, None
    if telemetry is not None:
        telemetry.close()


class Instrumentor:
    """What ``opentelemetry-instrument`` looks for."""

    def instrument(self, **options: Any) -> None:
        """Watch; of the options only the providers are taken."""
        instrument(options.get("tracer_provider"), options.get("meter_provider"))

    def uninstrument(self, **options: Any) -> None:
        """Watch no more."""
        del options
        uninstrument()
