"""What a worker may be told to do with topics that have no handler, and while there is nothing to do."""

from __future__ import annotations

from typing import Literal, get_args

from pysqlbox.errors import InvalidArgument

__all__ = ["IdlePolicy", "UnknownTopicsPolicy", "checked_idle", "checked_policy"]

#: Put them back for a while; try them again, counting attempts; give them up.
UnknownTopicsPolicy = Literal["snooze", "abandon", "dead"]

#: Ask again and again; ask nothing until somebody wakes the worker, or something falls due.
IdlePolicy = Literal["poll", "sleep"]


def checked_idle(value: str) -> IdlePolicy:
    """A policy by its name."""
    if value not in get_args(IdlePolicy):
        raise InvalidArgument('idle: must be "poll" or "sleep"')
    return value  # type: ignore[return-value]  # it is one of them


def checked_policy(value: str) -> UnknownTopicsPolicy:
    """A policy by its name."""
    if value not in get_args(UnknownTopicsPolicy):
        raise InvalidArgument('unknown_topics: must be "snooze", "abandon" or "dead"')
    return value  # type: ignore[return-value]  # it is one of them
