"""What a worker may be told to do with messages of topics that have no handler."""

from __future__ import annotations

from typing import Literal, get_args

from pysqlbox.errors import InvalidArgument

__all__ = ["UnknownTopicsPolicy", "checked_policy"]

#: Put them back for a while; try them again, counting attempts; give them up.
UnknownTopicsPolicy = Literal["snooze", "abandon", "dead"]


def checked_policy(value: str) -> UnknownTopicsPolicy:
    """A policy by its name."""
    if value not in get_args(UnknownTopicsPolicy):
        raise InvalidArgument('unknown_topics: must be "snooze", "abandon" or "dead"')
    return value  # type: ignore[return-value]  # it is one of them
