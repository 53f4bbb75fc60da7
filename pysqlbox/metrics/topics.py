"""Which topics get series of their own: a bounded number, and the same ones as long as they are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pysqlbox.calls import OTHER

__all__ = ["OTHER", "TOPICS", "Chosen"]

#: How many topics of a box get series of their own, unless asked otherwise.
TOPICS = 100
#: So many topics of one box of each are shown by name at most, over all deployments together.
ALL_TOPICS = 1000


class Chosen:
    """The topics of one box that are shown by name. One that is shown stays shown while it is there."""

    def __init__(self, limit: int | None = TOPICS) -> None:
        """``limit``: None shows every topic, 0 none; it may change."""
        self.limit = limit
        self._shown: set[str] = set()

    def label(self, weights: Mapping[str, float]) -> dict[str, str]:
        """The label of each topic; where not all find a place, the heaviest do."""
        if self.limit is None or len(weights) <= self.limit:
            self._shown = set(weights)
        else:
            kept = sorted(self._shown & weights.keys())[: self.limit]
            self._shown = set(kept)
            others = sorted(weights.keys() - self._shown, key=lambda topic: (-weights[topic], topic))
            self._shown.update(others[: self.limit - len(kept)])
        return {topic: topic if topic in self._shown else OTHER for topic in weights}


def summed(values: Iterable[float | None]) -> float:
    """A sum in which what is not there is nothing."""
    return sum(value for value in values if value is not None)


def longest(values: Iterable[float | None]) -> float:
    """The largest, 0 without any."""
    return max((value for value in values if value is not None), default=0.0)


def topics_each(topics: int | None, deployments: int) -> int | None:
    """How many topics of a box are shown by name where there are so many deployments."""
    return None if topics is None else min(topics, ALL_TOPICS // max(deployments, 1))
