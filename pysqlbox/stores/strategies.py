"""Which store is asked next, where several have something to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from pysqlbox.errors import InvalidArgument
from pysqlbox.stores.keys import key_text

__all__ = ["DrainFirst", "RoundRobin", "Strategy", "Weighted"]


class Strategy(Protocol):
    """Chooses among the stores that wait to be asked. Keys are text, in the order of the source.

    It is called by one thread at a time and must answer at once.
    """

    def choose(self, waiting: Sequence[str], going: Collection[str]) -> str | None:
        """Who of those that wait is asked; None: nobody, until one of those that are ``going`` has answered.

        A store is going while it is asked, and after it has answered with messages; never while it fails or
        is slow.
        """

    def answered(self, key: str, claimed: int) -> None:
        """A store has answered with so many messages."""


class RoundRobin:
    """One batch from each store in turn."""

    def __init__(self) -> None:
        self._turn = 0
        self._turns: dict[str, int] = {}

    def choose(self, waiting: Sequence[str], going: Collection[str]) -> str | None:  # noqa: ARG002  # takes turns
        """The one whose last turn is longest ago."""
        turns = self._turns
        found = min(waiting, key=lambda key: turns.get(key, 0))
        self._turn += 1
        if len(turns) > 2 * len(waiting) + 10_000:  # of stores that are gone
            turns.clear()
        turns[found] = self._turn
        return found

    def answered(self, key: str, claimed: int) -> None:
        """Nothing that changes the order."""

    def __repr__(self) -> str:
        return "RoundRobin()"


class DrainFirst:
    """One store until it has no more messages, then the next."""

    def __init__(self) -> None:
        self._current: str | None = None
        self._order = RoundRobin()

    def choose(self, waiting: Sequence[str], going: Collection[str]) -> str | None:
        """The one that is being drained; another only when that has nothing, fails or is slow."""
        if self._current in waiting:
            return self._current
        if self._current in going:
            return None
        self._current = self._order.choose(waiting, going)
        return self._current

    def answered(self, key: str, claimed: int) -> None:
        """A store that has nothing is drained."""
        if not claimed and key == self._current:
            self._current = None

    def __repr__(self) -> str:
        return "DrainFirst()"


class Weighted:
    """To a store of weight 3 three batches for each one of a store of weight 1."""

    def __init__(self, weights: Mapping[Any, float]) -> None:
        """``weights`` by key; those that are not named weigh 1."""
        for key, weight in weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < 1e9:
                raise InvalidArgument(f"weights: that of {key!r} must be a number above 0")
        self._weights = {key_text(key): float(weight) for key, weight in weights.items()}
        self._passed: dict[str, float] = {}
        self._now = 0.0

    def choose(self, waiting: Sequence[str], going: Collection[str]) -> str | None:  # noqa: ARG002  # takes turns
        """The one that is furthest behind its share; who was idle has not saved up any."""
        passed, now = self._passed, self._now
        found = min(waiting, key=lambda key: max(passed.get(key, 0.0), now))
        self._now = max(passed.get(found, 0.0), now)
        if len(passed) > 2 * len(waiting) + 10_000:  # of stores that are gone
            passed.clear()
        passed[found] = self._now + 1 / self._weights.get(found, 1.0)
        return found

    def answered(self, key: str, claimed: int) -> None:
        """Nothing that changes the shares."""

    def __repr__(self) -> str:
        return f"Weighted({self._weights})"
