"""Steps of joins: what it costs that messages are steps of one, of a hundred, or of none."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.suite.contestants.base import Ability, Load, SqlContestant
from benchmarks.suite.runner import Metric
from benchmarks.suite.scenarios.common import COSTS, RATE, SqlScenario
from benchmarks.suite.scenarios.drain import drain, less
from benchmarks.suite.server import Lab
from benchmarks.suite.store import Measured

JOINS = {"no joins": 0, "1 join": 1, "100 joins": 100}
BATCH = 50
SECONDS = 30
"""Far more than it takes: the last messages are a part of it."""


class Joins(SqlScenario):
    """Drain steps; no other queue here has them."""

    name: ClassVar[str] = "joins"
    title: ClassVar[str] = "Drain messages that are steps of joins"
    metrics: ClassVar[tuple[Metric, ...]] = (RATE, *COSTS)
    variants: ClassVar[tuple[str, ...]] = tuple(JOINS)
    needs: ClassVar[frozenset[Ability]] = frozenset({"joins"})

    def describe(self, lab: Lab) -> str:
        """How."""
        return (
            f"{_count(lab):,} messages by 2 connections in batches of {BATCH}, until all are finished"
            f"{less(self)}"
        )

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:
        """Until all are finished."""
        load = Load(_count(lab), batch=BATCH, joins=JOINS[variant])
        return drain(lab, contestant, load, 2, SECONDS, warm_up_seconds=0.0)


def _count(lab: Lab) -> int:
    return lab.size(20_000, 3000)
