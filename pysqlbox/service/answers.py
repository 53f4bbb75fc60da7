"""What the routines answer, as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

__all__ = ["camel_case", "fields_of", "json_bytes"]


def json_bytes(value: object) -> bytes:
    """A value as JSON in UTF-8."""
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "backslashreplace"
    )


def fields_of(value: Any, *, without: Collection[str] = ()) -> dict[str, Any]:
    """A dataclass as a dict, in the order of its fields."""
    names = (field.name for field in dataclasses.fields(value))
    return {name: getattr(value, name) for name in names if name not in without}


def camel_case(name: str) -> str:
    """``lease_until`` as ``leaseUntil``."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _plain(value: object) -> object:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return float(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return fields_of(value)
    raise TypeError(type(value).__name__)
