"""Putting messages in: one at a time, and many at once."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.suite.contestants.base import Ability, SqlContestant
from benchmarks.suite.runner import Metric
from benchmarks.suite.scenarios.common import CALLS, COSTS, RATE, SqlScenario, by, connections_of, work
from benchmarks.suite.server import Lab
from benchmarks.suite.store import Measured

PAYLOAD = 200
RECORDS = 1000
CONNECTIONS = (1, 4)


class EnqueueSingle(SqlScenario):
    """One message a call."""

    name: ClassVar[str] = "enqueue_single"
    title: ClassVar[str] = "Enqueue, one message a transaction"
    metrics: ClassVar[tuple[Metric, ...]] = (RATE, *CALLS, *COSTS)
    variants: ClassVar[tuple[str, ...]] = tuple(by(count) for count in CONNECTIONS)
    needs: ClassVar[frozenset[Ability]] = frozenset({"single"})

    def describe(self, lab: Lab) -> str:
        """How."""
        return f"{_seconds(lab):g} s into an empty queue, {PAYLOAD} bytes each, autocommit"

    def takes_part(self, contestant: SqlContestant, variant: str) -> bool:  # noqa: ARG002 - the interface
        """Those that differ in consuming only are one here."""
        return not contestant.sends_alike

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:
        """Until the time is over."""
        connections = connections_of(variant)
        with contestant.place(lab) as url:
            contender = contestant.single(url, PAYLOAD)
            return work(
                lab,
                contestant,
                contender,
                connections=connections,
                seconds=_seconds(lab),
                warm_up_seconds=0.1,
            ).measured()


class EnqueueBulk(SqlScenario):
    """A thousand messages a call."""

    name: ClassVar[str] = "enqueue_bulk"
    title: ClassVar[str] = f"Enqueue, {RECORDS} messages a transaction"
    metrics: ClassVar[tuple[Metric, ...]] = (RATE, *CALLS, *COSTS)
    variants: ClassVar[tuple[str, ...]] = tuple(by(count) for count in CONNECTIONS)
    needs: ClassVar[frozenset[Ability]] = frozenset({"bulk"})

    def describe(self, lab: Lab) -> str:
        """How."""
        return f"{_seconds(lab):g} s into an empty queue, {PAYLOAD} bytes each, {RECORDS} a call"

    def takes_part(self, contestant: SqlContestant, variant: str) -> bool:  # noqa: ARG002 - the interface
        """Those that differ in consuming only are one here."""
        return not contestant.sends_alike

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:
        """Until the time is over."""
        connections = connections_of(variant)
        with contestant.place(lab) as url:
            contender = contestant.bulk(url, PAYLOAD, RECORDS)
            return work(
                lab,
                contestant,
                contender,
                connections=connections,
                seconds=_seconds(lab),
                warm_up_seconds=0.1,
            ).measured()


def _seconds(lab: Lab) -> float:
    return lab.seconds(2, 0.5)
