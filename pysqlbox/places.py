"""Places: the numbers that deployments may be given, which their ids and drawn message_ids then carry.

The ids of place N run from ``(N << 40) + 1``. A message_id that was drawn for such an id, a uuid of
version 7, has the place in its eleventh byte, under a bit that is always set. A deployment without a number
draws as place 0 does.
"""

from __future__ import annotations

from uuid import UUID

from pysqlbox.errors import InvalidArgument

__all__ = ["PLACES", "check_place", "first_id", "last_id", "parse_place", "place_of"]

PLACES = 128
_BITS = 40


def first_id(place: int) -> int:
    """The first id of a place."""
    return (place << _BITS) + 1


def last_id(place: int) -> int:
    """The last id of a place: drawing another one fails."""
    return (place + 1 << _BITS) - 1


def place_of(value: int | UUID) -> int:
    """The place that an id or a drawn message_id carries; in what others made it is chance."""
    if isinstance(value, UUID):
        return (value.int >> _BITS) % PLACES
    place = value >> _BITS
    if not 0 <= place < PLACES:
        raise InvalidArgument("id: must be one that a deployment has drawn; no place has this")
    return place


def check_place(place: object) -> int | None:
    """A place as it was given, or none."""
    if place is None:
        return None
    if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < PLACES:
        raise InvalidArgument(f"place: must be a whole number from 0 to {PLACES - 1}")
    return place


def parse_place(text: str | None) -> int | None:
    """A place written in digits."""
    if text is not None and not (text.isascii() and text.isdigit()):
        raise InvalidArgument(f"place: must be a whole number from 0 to {PLACES - 1}")
    return check_place(None if text is None else int(text))
