"""The creation context of a message in its headers, as W3C Trace Context has it, whoever wrote it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

__all__ = ["creation_context", "has_context", "links_to", "with_context"]

_PROPAGATOR = TraceContextTextMapPropagator()
_KEYS = ("traceparent", "tracestate")


def has_context(headers: object) -> bool:
    """Whether the sender has put a context of its own there."""
    return isinstance(headers, Mapping) and any(str(key).lower() == "traceparent" for key in headers)


def with_context(headers: object, context: Context) -> object:
    """Headers with the context in them; headers that are no mapping are left to whoever refuses them."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context)
    if not carrier or not (headers is None or isinstance(headers, Mapping)):
        return headers
    return {**(headers or {}), **carrier}


def creation_context(headers: object) -> SpanContext | None:
    """The context that a message carries; None if it has none, or one that is no valid one."""
    if isinstance(headers, str):
        try:
            headers = json.loads(headers)
        except ValueError:
            return None
    if not isinstance(headers, Mapping):
        return None
    carrier: dict[str, Any] = {}
    for key, value in headers.items():
        name = str(key).lower()
        if name in _KEYS and isinstance(value, str):
            carrier[name] = value
    if "traceparent" not in carrier:
        return None
    found = trace.get_current_span(_PROPAGATOR.extract(carrier, Context())).get_span_context()
    return found if found.is_valid else None


def links_to(contexts: list[SpanContext | None], most: int = 128) -> list[Link]:
    """Links to what is there, each once, as many as a span keeps."""
    unique = {(each.trace_id, each.span_id): each for each in contexts if each is not None}
    return [Link(each) for each in list(unique.values())[:most]]
