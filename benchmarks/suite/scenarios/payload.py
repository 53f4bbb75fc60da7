"""Messages of several sizes, in and out."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.suite.contestants.base import Ability, SqlContestant
from benchmarks.suite.runner import Metric
from benchmarks.suite.scenarios.common import COSTS, RATE, SqlScenario, work
from benchmarks.suite.scenarios.cycle import cycle, standing
from benchmarks.suite.server import Lab
from benchmarks.suite.store import Measured

SIZES = {"200 B": (200, 500), "10 kB": (10_000, 100), "1 MB": (1_000_000, 4)}
"""Bytes of a message, and messages put in by one call."""
MEGABYTES = "megabytes_per_second"


class Payload(SqlScenario):
    """Put in, taken out."""

    name: ClassVar[str] = "payload"
    title: ClassVar[str] = "In and out by the size of a message"
    metrics: ClassVar[tuple[Metric, ...]] = (RATE, Metric(MEGABYTES, "payload", "MB/s"), *COSTS)
    variants: ClassVar[tuple[str, ...]] = tuple(SIZES)
    needs: ClassVar[frozenset[Ability]] = frozenset({"bulk", "drain"})

    def describe(self, lab: Lab) -> str:
        """How."""
        calls = ", ".join(f"{records} of {size}" for size, (_, records) in SIZES.items())
        return (
            f"one connection for {lab.seconds(1.5, 0.7):g} s: {calls} by one call, then taken out in batches "
            "of up to 50; texts that do not compress"
        )

    def takes_part(self, contestant: SqlContestant, variant: str) -> bool:  # noqa: ARG002 - the interface
        """Those that finish otherwise are the same but for that."""
        return contestant.name != "pgmq archive"

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:
        """Until the time is over."""
        size, records = SIZES[variant]
        with contestant.place(lab, contestant.load(standing(size, records))) as url:
            contender = cycle(contestant, url, size, records, min(records, 50))
            done = work(lab, contestant, contender, connections=1, seconds=lab.seconds(1.5, 0.7))
        return done.measured({MEGABYTES: done.messages * size / 1e6 / done.seconds})
