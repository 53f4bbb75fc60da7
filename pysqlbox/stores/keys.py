"""Keys of stores: text, UUIDs or whole numbers, the same wherever their text is the same."""

from __future__ import annotations

from uuid import UUID

from pysqlbox.errors import InvalidArgument

__all__ = ["key_text"]

LONGEST = 255


def key_text(key: object) -> str:
    """A key as text: a UUID and its usual text, 7 and "7", mean the same store."""
    if isinstance(key, bool) or not isinstance(key, str | UUID | int):
        raise InvalidArgument(f"key: must be str, UUID or int, not {type(key).__name__}")
    text = str(key)
    if not 1 <= len(text) <= LONGEST:
        raise InvalidArgument(f"key: must have 1 to {LONGEST} characters")
    return text
