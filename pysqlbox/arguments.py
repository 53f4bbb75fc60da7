"""What the methods do to their arguments before the database sees them: only what Python's types ask for."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pysqlbox.errors import InvalidArgument

if TYPE_CHECKING:
    from pysqlbox.serializer import Serializer

__all__ = [
    "Delay",
    "Ids",
    "aware",
    "delay",
    "given",
    "headers",
    "id_list",
    "integer",
    "outcome_list",
    "payload_text",
    "text_list",
    "time_ordered_uuid",
    "uuid_list",
    "uuid_of",
    "whole_seconds",
]

#: A length of time: seconds or a timedelta.
Delay = float | timedelta
#: Ids of messages, in any order.
Ids = Iterable[int]


def given(required: dict[str, object], optional: Mapping[str, object]) -> dict[str, object]:
    """The required arguments, and of the optional ones those that are not None."""
    for name, value in optional.items():
        if value is not None:
            required[name] = value
    return required


def aware(name: str, value: object) -> datetime | None:
    """A time that says which moment it means."""
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None or value.utcoffset() is None:
        raise InvalidArgument(f"{name}: must be an aware datetime")
    return value


def integer(name: str, value: int | None) -> int | None:
    """A whole number; None goes on."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise InvalidArgument(f"{name}: must be a whole number")
    return value


def uuid_of(name: str, value: UUID | str | None) -> UUID | None:
    """A uuid, also as its text; None goes on."""
    if value is None or isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidArgument(f"{name}: must be a uuid") from None


def uuid_list(name: str, value: Iterable[UUID | str | None] | None) -> list[UUID | None] | None:
    """Uuids as a list; None goes on, so that the routine refuses it."""
    if value is None:
        return None
    if isinstance(value, str | bytes | UUID):
        raise InvalidArgument(f"{name}: must be a list of uuids")
    return [uuid_of(name, each) for each in value]


def delay(name: str, value: Delay | None) -> object:
    """Seconds of a length of time."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if value is not None:
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        if not is_number or (not isinstance(value, int) and not math.isfinite(value)):
            raise InvalidArgument(f"{name}: must be seconds or a timedelta")
    return value


def whole_seconds(name: str, value: Delay | None) -> object:
    """Whole seconds of a length of time."""
    seconds = delay(name, value)
    if isinstance(seconds, float):
        if not seconds.is_integer():
            raise InvalidArgument(f"{name}: must be whole seconds")
        return int(seconds)
    return seconds


def id_list(name: str, value: Ids | None) -> list[int] | None:
    """Ids as a list; None goes on, so that the routine refuses it."""
    if value is None:
        return None
    if isinstance(value, str | bytes | int):
        raise InvalidArgument(f"{name}: must be a list of ids")
    ids = list(value)
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in ids):
        raise InvalidArgument(f"{name}: must be a list of ids")
    return ids


def text_list(name: str, value: Iterable[str] | None) -> list[str] | None:
    """Topics as a list; one topic alone is refused, as it would be taken letter by letter."""
    if value is None:
        return None
    if isinstance(value, str | bytes):
        raise InvalidArgument(f"{name}: must be a list of topics")
    texts = list(value)
    if not all(isinstance(each, str) for each in texts):
        raise InvalidArgument(f"{name}: must be a list of topics")
    return texts


def headers(value: Mapping[str, object] | str | None) -> dict[str, object] | None:
    """Headers as a dict; text must be a JSON object."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise InvalidArgument("headers: must be a JSON object") from None
    if not isinstance(value, Mapping):
        raise InvalidArgument("headers: must be a mapping, or the text of a JSON object")
    return dict(value)


def payload_text(name: str, value: Any, serializer: Serializer) -> str | None:
    """A payload as text; None goes on, so that the routine decides."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise InvalidArgument(f"{name}: must not be bytes; decode them, or encode them as text")
    return serializer.dumps(value)


def payload_texts(name: str, values: Iterable[Any] | None, serializer: Serializer) -> list[str | None] | None:
    """Payloads as texts; one text alone is refused, as it would be taken letter by letter."""
    if values is None:
        return None
    if isinstance(values, str | bytes | bytearray | memoryview | Mapping):
        raise InvalidArgument(f"{name}: must be a list of payloads")
    return [payload_text(name, value, serializer) for value in values]


def outcome_list(value: Iterable[Mapping[str, object]] | None) -> list[dict[str, object]] | None:
    """Records of settle, with delays in seconds."""
    if value is None:
        return None
    if isinstance(value, str | bytes | Mapping):
        raise InvalidArgument("outcomes: must be a list of mappings")
    records = []
    for each in value:
        if not isinstance(each, Mapping):
            raise InvalidArgument("outcomes: must be a list of mappings")
        record = dict(each)
        wait = record.get("delay_seconds")
        if isinstance(wait, timedelta):
            record["delay_seconds"] = wait.total_seconds()
        records.append(record)
    return records


def time_ordered_uuid(place: int = 0) -> UUID:
    """A new uuid that begins with the time (version 7), so that indexes stay compact, and carries a place."""
    value = time.time_ns() // 1_000_000 << 80 | int.from_bytes(os.urandom(10))
    return UUID(
        int=value & ~(0xF << 76 | 0x3 << 62 | 0xFF << 40) | 0x7 << 76 | 0x2 << 62 | (0x80 | place) << 40
    )
