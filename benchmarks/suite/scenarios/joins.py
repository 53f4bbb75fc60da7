"""Steps of joins: what it costs that messages are steps of one, of a hundred, or of none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from benchmarks.queue.boxes import SCHEMA
from benchmarks.queue.scenarios.joins import attach
from benchmarks.suite.contestants.base import Ability, Load, SqlContestant, connect
from benchmarks.suite.runner import Metric
from benchmarks.suite.scenarios.common import COSTS, RATE, SqlScenario, check, work
from benchmarks.suite.server import Lab
from benchmarks.suite.store import Measured

JOINS = {"no joins": 0, "1 join": 1, "100 joins": 100}
BATCH = 50


class Joins(SqlScenario):
    """Drain steps."""

    name: ClassVar[str] = "joins"
    title: ClassVar[str] = "Drain messages that are steps of joins"
    metrics: ClassVar[tuple[Metric, ...]] = (RATE, *COSTS)
    variants: ClassVar[tuple[str, ...]] = tuple(JOINS)
    needs: ClassVar[frozenset[Ability]] = frozenset({"joins"})

    @property
    def contestants(self) -> Sequence[SqlContestant]:
        """No other queue here has them."""
        return super().contestants

    def describe(self, lab: Lab) -> str:
        """How."""
        return f"{_count(lab)} messages by 2 connections in batches of {BATCH}, until all are finished"

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:
        """Until all are finished."""
        joined, count = JOINS[variant], _count(lab)

        def build(url: str) -> None:
            contestant.build(url, Load(count))
            if joined:
                with connect(url) as connection:
                    attach(connection, SCHEMA, count, joined, BATCH)

        with lab.database(f"{contestant.family} joins {joined}", build) as url:
            contender = contestant.drain(url, BATCH)
            done = work(lab, contestant, contender, connections=2, seconds=30)
            return done.measured(problem=check(contestant, url, count, done, 2 * BATCH))


def _count(lab: Lab) -> int:
    return lab.size(20_000, 3000)
