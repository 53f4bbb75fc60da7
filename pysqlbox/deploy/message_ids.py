"""How PostgreSQL draws a message_id from a message's id, and reads the id from it again.

A drawn message_id is a time-ordered uuid (version 7): milliseconds, chance, and in its last twelve digits the
id under a bit that is always set. So it is unique without an index, and the primary key finds its message.
"""

from __future__ import annotations

__all__ = ["drawn_id", "drawn_message_id", "message_id_stem"]

_BIT = 1 << 47  # ids end there: at a million a second in four years, at a thousand in four thousand
_RANDOM = "to_hex({0} + (random() * {1})::integer)"


def message_id_stem(now_at: str) -> str:
    """The text of a message_id's first twenty digits, for any number of messages of one call at that time."""
    # Eleven digits until 2527; extract would calculate in numeric, which takes longer.
    milliseconds = f"'0' || to_hex((date_part('epoch', {now_at}) * 1000)::bigint)"
    version = _RANDOM.format(0x7000, 0x0FFF)
    variant = _RANDOM.format(0x8000, 0x3FFF)
    return f"({milliseconds} || {version} || {variant})"


def drawn_message_id(number: str, stem: str) -> str:
    """The message_id of the message with this id."""
    return f"({stem} || to_hex({_BIT} | {number}))::uuid"


def drawn_id(message_id: str) -> str:
    """The id of the message if its message_id was drawn; of another's any number."""
    return f"(('x' || right({message_id}::text, 12))::bit(48)::bigint & {_BIT - 1})"
