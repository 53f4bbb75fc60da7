"""A queue at work while somebody holds a snapshot open, so that dead rows cannot go: the rate over time."""

from __future__ import annotations

import statistics
from typing import ClassVar

from benchmarks.queue.scenarios.drain import held
from benchmarks.suite.contestants.base import Ability, SqlContestant
from benchmarks.suite.runner import Metric
from benchmarks.suite.scenarios.common import COSTS, RATE, SqlScenario, work
from benchmarks.suite.scenarios.cycle import cycle, standing
from benchmarks.suite.server import Lab
from benchmarks.suite.store import Measured

RECORDS, BATCH = 500, 50
FIRST, LAST = "first_rate", "last_rate"
KEPT = "kept"


class HeldSnapshot(SqlScenario):
    """The rate over time."""

    name: ClassVar[str] = "held_snapshot"
    title: ClassVar[str] = "In and out under a snapshot that is held open"
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(LAST, "throughput in the last tenth", "messages/s"),
        Metric(FIRST, "throughput in the first tenth", "messages/s"),
        Metric(KEPT, "last tenth of first", ""),
        RATE,
        *COSTS,
    )
    variants: ClassVar[tuple[str, ...]] = ("1 connection",)
    needs: ClassVar[frozenset[Ability]] = frozenset({"bulk", "drain"})

    def describe(self, lab: Lab) -> str:
        """How."""
        return (
            f"{_seconds(lab):g} s of {RECORDS} messages put in by one call, taken out in batches of "
            f"{BATCH} from a backlog of 20000, while a read-only transaction keeps its snapshot"
        )

    def expected_seconds(self, lab: Lab) -> float:
        """The time that it is followed, and a moment."""
        return _seconds(lab) + 5

    def takes_part(self, contestant: SqlContestant, variant: str) -> bool:  # noqa: ARG002 - the interface
        """The snapshot is held by a connection to PostgreSQL."""
        return contestant.family != "pysqlbox_T-SQL"

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:  # noqa: ARG002 - the interface
        """With the snapshot from before the first message."""
        seconds = _seconds(lab)
        with contestant.place(lab, standing(200, RECORDS)) as url, held(url):
            contender = cycle(contestant, url, 200, RECORDS, BATCH)
            done = work(lab, contestant, contender, connections=1, seconds=seconds)
        curve = done.curve(seconds / 60)
        tenth = max(len(curve) // 10, 1)
        first = statistics.mean(rate for _, rate in curve[:tenth])
        last = statistics.mean(rate for _, rate in curve[-tenth:])
        measured = done.measured({FIRST: first, LAST: last, KEPT: last / max(first, 1e-9)})
        return Measured(
            measured.values, measured.messages, measured.seconds, {"rate": curve}, measured.problem
        )


def _seconds(lab: Lab) -> float:
    return lab.seconds(lab.held_seconds, 4)
