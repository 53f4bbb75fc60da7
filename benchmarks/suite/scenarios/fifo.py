"""FIFO groups: many of them, and one that everything is in."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.suite.contestants.base import Ability, Load, SqlContestant
from benchmarks.suite.runner import Metric
from benchmarks.suite.scenarios.common import CALLS, COSTS, RATE, SqlScenario
from benchmarks.suite.scenarios.drain import drain, less
from benchmarks.suite.server import Lab
from benchmarks.suite.store import Measured

BATCH = 50


class FifoMany(SqlScenario):
    """Groups of ten."""

    name: ClassVar[str] = "fifo_many"
    title: ClassVar[str] = "Drain many FIFO groups of ten messages"
    metrics: ClassVar[tuple[Metric, ...]] = (RATE, *CALLS, *COSTS)
    variants: ClassVar[tuple[str, ...]] = ("2 connections",)
    needs: ClassVar[frozenset[Ability]] = frozenset({"groups"})

    def describe(self, lab: Lab) -> str:
        """How."""
        return (
            f"{_groups(lab):,} groups by turns, by 2 connections in batches of {BATCH}, for "
            f"{_seconds(lab):g} s{less(self)}"
        )

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:  # noqa: ARG002 - the interface
        """Until the time is over, or all is gone."""
        load = Load(10 * _groups(lab), groups=_groups(lab), batch=BATCH)
        return drain(lab, contestant, load, 2, _seconds(lab))


class FifoHot(SqlScenario):
    """One group."""

    name: ClassVar[str] = "fifo_hot"
    title: ClassVar[str] = "Drain one FIFO group that everything is in"
    metrics: ClassVar[tuple[Metric, ...]] = (RATE, *CALLS, *COSTS)
    variants: ClassVar[tuple[str, ...]] = ("1 connection",)
    needs: ClassVar[frozenset[Ability]] = frozenset({"groups"})

    def describe(self, lab: Lab) -> str:
        """How."""
        return (
            f"{10 * _groups(lab):,} messages, by one connection in batches of {BATCH}, for "
            f"{_seconds(lab):g} s{less(self)}"
        )

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:  # noqa: ARG002 - the interface
        """Until the time is over, or all is gone."""
        load = Load(10 * _groups(lab), groups=1, batch=BATCH)
        return drain(lab, contestant, load, 1, _seconds(lab))


def _groups(lab: Lab) -> int:
    return lab.size(5000, 500)


def _seconds(lab: Lab) -> float:
    return lab.seconds(1.5, 0.5)
