"""Classes of messages: what a class says about the messages that its objects become.

Either the class is declared ::

    @message("order.created", group_id="customer_id", dedup_key=lambda order: f"order-{order.id}")
    @dataclass
    class OrderCreated: ...

or it has the methods of the protocols below; a declared value goes before a method. Keys are inherited, the
topic is not: an undeclared subclass would otherwise be taken for its base.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar, runtime_checkable
from uuid import UUID
from weakref import WeakKeyDictionary

from pysqlbox.errors import InvalidArgument

__all__ = [
    "HasCollapseKey",
    "HasDeduplicationId",
    "HasExternalId",
    "HasGroupId",
    "HasReceivedAt",
    "declared_topic",
    "envelope_of",
    "message",
    "topic_of",
]

Class = TypeVar("Class", bound=type)
#: An attribute's name, or what computes the value from the object.
Source = str | Callable[[Any], Any]


@runtime_checkable
class HasGroupId(Protocol):
    """Its messages keep their order within a group."""

    def get_group_id(self) -> str | None:
        """The group_id of its message."""


@runtime_checkable
class HasDeduplicationId(Protocol):
    """A second message of the same id within the window is a duplicate."""

    def get_deduplication_id(self) -> str | None:
        """The dedup_key of its message; in an inbox the message_id, if it has no other."""


@runtime_checkable
class HasCollapseKey(Protocol):
    """A newer message replaces older ones of its key that nobody has claimed."""

    def get_collapse_key(self) -> str | None:
        """The collapse_key of its message."""


@runtime_checkable
class HasExternalId(Protocol):
    """It has an id of its own."""

    def get_id(self) -> UUID | str | None:
        """The message_id of its message."""


@runtime_checkable
class HasReceivedAt(Protocol):
    """A migrated message keeps the time it was first received."""

    def get_received_at(self) -> datetime | None:
        """The created_at of its message; in an inbox the received_at."""


@dataclass(frozen=True, slots=True)
class _Declaration:
    topic: str
    values: Mapping[str, Callable[[Any], Any]]


_declared: WeakKeyDictionary[type, _Declaration] = WeakKeyDictionary()

_METHODS: tuple[tuple[str, type, str], ...] = (
    ("group_id", HasGroupId, "get_group_id"),
    ("dedup_key", HasDeduplicationId, "get_deduplication_id"),
    ("collapse_key", HasCollapseKey, "get_collapse_key"),
    ("message_id", HasExternalId, "get_id"),
    ("received_at", HasReceivedAt, "get_received_at"),
)


def message(
    topic: str,
    *,
    group_id: Source | None = None,
    dedup_key: Source | None = None,
    collapse_key: Source | None = None,
    message_id: Source | None = None,
    correlation_id: Source | None = None,
    received_at: Source | None = None,
    expires_at: Source | None = None,
    due_at: Source | None = None,
    headers: Source | None = None,
    priority: int | Callable[[Any], int] | None = None,
    source: str | Callable[[Any], str] | None = None,
) -> Callable[[Class], Class]:
    """Declare a class of messages: its topic, and where its objects' keys come from.

    A text names an attribute, property or method of the object; only ``source``, an inbox's sender, and
    ``priority`` are taken as they stand. A class that somebody else wrote: ``message("topic")(TheirClass)``.
    """
    if not isinstance(topic, str) or not 0 < len(topic) <= 255:
        raise InvalidArgument("topic: must be text of 1 to 255 characters")
    sources: dict[str, Source | None] = {
        "group_id": group_id,
        "dedup_key": dedup_key,
        "collapse_key": collapse_key,
        "message_id": message_id,
        "correlation_id": correlation_id,
        "received_at": received_at,
        "expires_at": expires_at,
        "due_at": due_at,
        "headers": headers,
    }
    values = {name: _reader(name, given) for name, given in sources.items() if given is not None}
    values |= {
        name: given if callable(given) else _constant(given)
        for name, given in (("priority", priority), ("source", source))
        if given is not None
    }

    def declare(kind: Class) -> Class:
        if not isinstance(kind, type):
            raise InvalidArgument("message: must decorate a class")
        _declared[kind] = _Declaration(topic, values)
        return kind

    return declare


def declared_topic(kind: object) -> str | None:
    """The topic of a declared class; None for anything else."""
    found = _declared.get(kind) if isinstance(kind, type) else None
    return found.topic if found is not None else None


def topic_of(kind: type | str) -> str:
    """The topic that a class declares; a text is a topic already."""
    if isinstance(kind, str):
        return kind
    topic = declared_topic(kind)
    if topic is None:
        name = getattr(kind, "__qualname__", type(kind).__qualname__)
        raise InvalidArgument(f"topic: {name} declares none; decorate it with @message('…')")
    return topic


def envelope_of(value: object) -> dict[str, Any]:
    """Everything an object's class says about its message besides the topic; nothing that is None."""
    found: dict[str, Any] = {}
    for kind in type(value).__mro__:
        declaration = _declared.get(kind)
        for name, read in declaration.values.items() if declaration is not None else ():
            if name not in found:
                found[name] = read(value)
    for name, protocol, method in _METHODS:
        if name not in found and isinstance(value, protocol):
            found[name] = getattr(value, method)()
    return {name: given for name, given in found.items() if given is not None}


def _reader(name: str, given: Source) -> Callable[[Any], Any]:
    if callable(given):
        return given
    if not isinstance(given, str):
        raise InvalidArgument(f"{name}: must name an attribute or be callable")

    def read(value: Any) -> Any:
        try:
            found = getattr(value, given)
        except AttributeError as error:
            kind = type(value).__qualname__
            raise InvalidArgument(
                f"{name}: {kind} has no attribute {given!r}; name one that it has, or give a function"
            ) from error
        return found() if inspect.ismethod(found) else found

    return read


def _constant(given: object) -> Callable[[Any], Any]:
    return lambda _: given
