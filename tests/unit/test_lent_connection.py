"""A helper's calls, on one of the connections that the threads share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from pysqlbox.worker.lent_connection import LentConnection


class World:
    """A store, its scheduler and a connection, which note what is held while a call is made."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.held: list[str] = []
        self.during: list[str] = []

    @contextlib.contextmanager
    def _holding(self, what: str) -> Iterator[Any]:
        self.held.append(what)
        try:
            yield self
        finally:
            self.held.remove(what)

    def lent_turn(self) -> Any:
        return self._holding("turn")

    def connection(self) -> Any:
        return self._holding("connection")

    def limited_locks(self, seconds: float) -> Any:
        return self._holding(f"{seconds} s for locks")

    def call(self, routine: str, arguments: Any) -> Any:
        self.during = list(self.held)
        return [{"routine": routine, **arguments}]


@pytest.mark.parametrize(("turns", "turn"), [(1, []), (2, ["turn"]), (3, ["turn"])])
def test_a_helper_takes_a_turn_of_the_threads_unless_there_is_but_one(turns: int, turn: list[str]) -> None:
    """That one it would take from whoever handles. And a lock of somebody's it does not wait for long."""
    world: Any = World(turns)
    lent = LentConnection(world, world, 2.5)
    assert lent.call("outbox_reap", {"a": 1}) == [{"routine": "outbox_reap", "a": 1}]
    assert world.during == [*turn, "connection", "2.5 s for locks"]
    assert world.held == []
    lent.close()
