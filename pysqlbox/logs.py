"""Logs for machines: JSON, a line for each record, with what a record is about as fields.

Records of the package carry these as attributes, which other formatters may use as well. While a
JsonFormatter is there, an application's own records that are logged while a message is handled have them too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import traceback
import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pysqlbox.deployment_base import DeploymentBase

__all__ = ["JsonFormatter"]

#: What a record may be about, in the order in which it is written.
FIELDS = ("deployment", "schema", "store", "box", "topic", "id", "message_id", "attempt", "trace_id")
#: What every record has, which is not what it is about.
_USUAL = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
#: Where nobody writes a payload.
_PLAIN = frozenset({"time", "level", "logger", *FIELDS})
#: A piece of a payload that is shorter says nothing, and taking it out would take words out.
_SHORTEST_SECRET = 4
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-")
_INSTEAD = "[payload]"

_Excinfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class _Handled:
    """What is being handled: the fields of its records, and what must not show in them."""

    __slots__ = ("fields", "payloads")

    def __init__(self, fields: Mapping[str, object], payloads: list[str]) -> None:
        self.fields = fields
        self.payloads = payloads


_handled: ContextVar[_Handled | None] = ContextVar("pysqlbox_handled", default=None)
_formatters = 0


def of_deployment(db: DeploymentBase, box: str | None = None) -> dict[str, object]:
    """The fields of a record about a deployment, or one of its boxes, for ``extra=``."""
    fields: dict[str, object] = {"deployment": db.store, "schema": db.schema}
    if db.store_key is not None:
        fields["store"] = str(db.store_key)
    if box is not None:
        fields["box"] = box
    return fields


class DeploymentLog(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records are about a deployment, or one of its boxes."""

    def __init__(self, name: str, db: DeploymentBase, box: str | None = None) -> None:
        super().__init__(logging.getLogger(name), {})
        self._db = db
        self._box = box

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """The record's fields with those of the call; a deployment may get its key after it was made."""
        kwargs["extra"] = {**of_deployment(self._db, self._box), **(kwargs.get("extra") or {})}
        return msg, kwargs


def about(message: Any) -> dict[str, object]:
    """The fields of a record about a message, for ``extra=``: never its payload."""
    fields: dict[str, object] = {
        "topic": message.topic,
        "id": message.id,
        "message_id": str(message.message_id),
        "attempt": message.attempt,
    }
    trace = (message.headers or {}).get("traceparent")
    match = _TRACE.match(trace) if isinstance(trace, str) else None
    if match is not None:
        fields["trace_id"] = match[1]
    return fields


@contextlib.contextmanager
def handling(where: Mapping[str, object], messages: list[Any]) -> Iterator[None]:
    """Records meanwhile are about these messages, whoever writes them; of a batch, about its topic."""
    fields = {**where, **(about(messages[0]) if len(messages) == 1 else {"topic": messages[0].topic})}
    token = _handled.set(_Handled(fields, [message.payload or "" for message in messages]))
    try:
        yield
    finally:
        _handled.reset(token)


def _count(change: int) -> None:
    global _formatters
    _formatters += change


def is_watched() -> bool:
    """Whether somebody would see what ``handling`` notes."""
    return _formatters > 0


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON: time, level, logger, message, what it is about, and its exception.

    What else a record was given as ``extra=`` follows. Pieces of the payload that is being handled are taken
    out of messages and exceptions, which an application's own code may have put there.
    """

    def __init__(self) -> None:
        super().__init__()
        _count(1)
        weakref.finalize(self, _count, -1)

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        handled = _handled.get()
        known: dict[str, object] = {**(handled.fields if handled is not None else {}), **_extras(record)}
        _prefer_span(known)
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: known.pop(name) for name in FIELDS if known.get(name) is not None}
        line |= {name: value for name, value in known.items() if name not in FIELDS}
        if record.exc_info:
            line["exception"] = _exception(record.exc_info)
        elif record.exc_text:
            line["exception"] = {"stack": record.exc_text}
        if record.stack_info:
            line["stack"] = record.stack_info
        if handled is not None:
            # What the package itself says holds no payload; what it is told of by others may.
            is_ours = record.name.partition(".")[0] == "pysqlbox"
            names = [name for name in line if name == "exception" or not (is_ours or name in _PLAIN)]
            if names:
                secrets = _secrets(handled.payloads)
                line |= {name: _without(line[name], secrets) for name in names}
        return json.dumps(line, ensure_ascii=True, default=str)


def _prefer_span(known: dict[str, object]) -> None:
    """Where OpenTelemetry has marked the record its trace is the span's, not that of who sent the message."""
    trace, span = known.pop("otelTraceID", None), known.pop("otelSpanID", None)
    if trace not in (None, "0"):
        known |= {"trace_id": trace, "span_id": span}


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in record.__dict__.items() if name not in _USUAL}


def _exception(info: _Excinfo) -> dict[str, object]:
    kind, error, trace = info
    if kind is None or error is None:
        return {}
    return {
        "type": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
        "text": str(error),
        "stack": "".join(traceback.format_exception(kind, error, trace)),
    }


def _secrets(payloads: list[str]) -> list[str]:
    """Every text and number that payloads consist of, the longest first."""
    found: set[str] = set()
    for payload in payloads:
        found.add(payload)
        with contextlib.suppress(ValueError, RecursionError):
            _collect(json.loads(payload), found)
    return sorted((each for each in found if len(each) >= _SHORTEST_SECRET), key=len, reverse=True)


def _collect(value: Any, found: set[str]) -> None:
    if isinstance(value, Mapping):
        for each in value.values():
            _collect(each, found)
    elif isinstance(value, list):
        for each in value:
            _collect(each, found)
    elif isinstance(value, str):
        found |= {value, repr(value)[1:-1], json.dumps(value)[1:-1]}
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found.add(str(value))


def _without(value: object, secrets: list[str]) -> object:
    """A field without these texts."""
    if isinstance(value, Mapping):
        return {name: _without(each, secrets) for name, each in value.items()}
    text = found = value if isinstance(value, str) else str(value)
    for secret in secrets:
        found = found.replace(secret, _INSTEAD)
    return value if found == text else found
