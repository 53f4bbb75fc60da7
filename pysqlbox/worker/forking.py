"""A forked child has none of its parent's workers, only what they were told: there they begin anew."""

from __future__ import annotations

import os
import weakref
from typing import Any, NoReturn, Protocol

from pysqlbox.worker.logs import StoreLog

__all__ = ["EXIT_CODE", "Forking", "end_child", "keep_for_parent", "watch"]

#: What a child ends with that comes back from a handler.
EXIT_CODE = 70


class Forking(Protocol):
    """What must know of a fork."""

    def begin_anew(self) -> None:
        """This is a child: forget what belongs to the parent, locks that somebody may have held included."""


_watched: weakref.WeakSet[Any] = weakref.WeakSet()
#: What a child inherits and must not end: connections, say, that are its parent's.
_inherited: list[object] = []


def watch(it: Forking) -> None:
    """Tell it in a child that this is one."""
    _watched.add(it)


def keep_for_parent(it: object) -> None:
    """Let nobody collect it in this child."""
    _inherited.append(it)


def end_child(log: StoreLog) -> NoReturn:
    """For a child that comes back from the handler that has forked it.

    It ends at once: whatever it did on its way out, from a rollback to a release, would be its parent's.
    """
    log.error("a handler has forked, and the child came back from it: it ends here (end it by os._exit())")
    os._exit(EXIT_CODE)


def _after_fork() -> None:
    for each in list(_watched):
        each.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
