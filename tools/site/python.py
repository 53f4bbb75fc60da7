"""The reference of the Python package: every public name, from its docstring and signature."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType

#: The modules that programs import from, in the order in which they are told.
MODULES = (
    ("pysqlbox", "What most programs need."),
    ("pysqlbox.typed", "Classes that carry what their messages need."),
    ("pysqlbox.worker", "Results, policies and the context of handlers."),
    ("pysqlbox.idempotent", "Once per key."),
    ("pysqlbox.logs", "Logs for machines."),
    ("pysqlbox.testing", "What tests of an application use."),
    ("pysqlbox.relays.webhook", "A ready handler that posts messages."),
    ("pysqlbox.relays.breaker", "When it leaves an endpoint alone."),
    ("pysqlbox.relays.signing", "Signatures of webhooks, for either side."),
    ("pysqlbox.relays.rabbitmq", "To RabbitMQ."),
    ("pysqlbox.relays.nats", "To NATS."),
    ("pysqlbox.relays.kafka", "To Kafka."),
    ("pysqlbox.relays.batches", "To any other broker."),
    ("pysqlbox.relays.cloudevents", "Messages as CloudEvents."),
    ("pysqlbox.contrib.rabbitmq", "From RabbitMQ, each delivery once."),
    ("pysqlbox.contrib.django", "Django."),
    ("pysqlbox.contrib.django.tasks", "A backend of django.tasks."),
    ("pysqlbox.contrib.alembic", "Migrations of Alembic."),
    ("pysqlbox.service", "The HTTP service, to mount."),
    ("pysqlbox.dashboard", "Its pages."),
    ("pysqlbox.metrics", "Prometheus, in a program of yours."),
    ("pysqlbox.otel", "OpenTelemetry."),
)


def pages() -> dict[str, str]:
    """One page, with a chapter for each module; a name stands where it is first met."""
    return {"python.md": "\n".join(_page())}


def _page() -> Iterator[str]:
    yield "# Python\n"
    seen: set[object] = set()
    for module_name, purpose in MODULES:
        module = importlib.import_module(module_name)
        names = [name for name in _public(module) if id(getattr(module, name)) not in seen]
        seen |= {id(getattr(module, name)) for name in names}
        if names:
            yield f"\n## {module_name} {{ #{module_name} }}\n\n{purpose}\n"
        for name in names:
            home = inspect.getmodule(getattr(module, name)) or module
            yield f"\n::: {home.__name__}.{name}\n    options:\n      heading_level: 3\n"


def _public(module: ModuleType) -> list[str]:
    """What a module offers, classes and functions only, in the order of their ranks."""
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    offered = {name: getattr(module, name) for name in names}
    told = [name for name, value in offered.items() if inspect.isclass(value) or inspect.isfunction(value)]
    return sorted(told, key=lambda name: _rank(offered[name]))


def _rank(value: object) -> int:
    """Functions, then classes with methods, then records, then errors."""
    if inspect.isfunction(value):
        return 0
    if inspect.isclass(value) and issubclass(value, BaseException):
        return 3
    return 2 if dataclasses.is_dataclass(value) else 1
