"""Argument and result values, the same in both dialects."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

from pysqlbox.errors import InvalidArgument

#: How JSON writes a NUL; it may also be a backslash before "u0000".
_MAY_BE_NUL = "\\u0000"


def check_text(name: str, text: str) -> None:
    """Refuse text that a server does not store as it is: PostgreSQL no NUL, none of them half a character."""
    if "\0" in text:
        raise InvalidArgument(f"{name}: must not hold a NUL character, which databases cannot store")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidArgument(
                f"{name}: must not hold half a character (a lone surrogate), which is no text"
            ) from None


def to_utc(name: str, value: datetime) -> datetime:
    """An aware time in UTC; a naive one is refused, since nobody knows whose clock it means."""
    if value.tzinfo is None:
        raise InvalidArgument(f"{name}: must be an aware datetime")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidArgument(f"{name}: must be of the years 1 to 9999 in UTC") from None


def to_json(name: str, value: object) -> str:
    """JSON text of a mapping or a list; uuid, time, Decimal and bytes (as hex) are written as text.

    Text in it that cannot be stored is refused; in a record the error names the key, which is an argument.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{name}: must hold only what JSON can express") from error
    if _MAY_BE_NUL in text or not text.isascii():
        for key, each in _texts(name, value):
            check_text(key, each)
    return text


def _texts(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Every text within a value, with the argument that it belongs to."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        is_record = name in RECORD_ARGUMENTS
        for key, each in value.items():
            yield name, str(key)
            yield from _texts(str(key) if is_record else name, each)
    elif is_list(value):
        for each in cast("Sequence[object]", value):
            yield from _texts(name, each)


#: The arguments that are sets of records, which an empty list alone does not tell.
RECORD_ARGUMENTS = frozenset({"messages", "outcomes"})


def is_records(name: str, value: object) -> bool:
    """Whether an argument is a mapping or a list of mappings."""
    if name in RECORD_ARGUMENTS and is_list(value):
        return True
    if isinstance(value, Mapping):
        return True
    return is_list(value) and any(isinstance(item, Mapping) for item in value)  # type: ignore[attr-defined]  # is_list: a Sequence


def is_list(value: object) -> bool:
    """Whether a value is a list of some kind, and not text or bytes."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)


def from_database(value: Any) -> object:
    """One result value: aware UTC times and bytes, whatever the driver made of them."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value


def _plain(value: object) -> object:
    if isinstance(value, uuid.UUID | Decimal):
        return str(value)
    if isinstance(value, datetime):
        return to_utc("record", value).isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(type(value).__name__)
