"""A queue at work beside connections that wait for messages, as those of many workers do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import ClassVar

from benchmarks.suite.contestants.base import Ability, SqlContestant, connect
from benchmarks.suite.runner import Metric
from benchmarks.suite.scenarios.common import CALLS, COSTS, RATE, SqlScenario, work
from benchmarks.suite.scenarios.cycle import Cycle, standing
from benchmarks.suite.server import Lab
from benchmarks.suite.store import SERVER_CPU, Measured

PAYLOAD, BATCH = 200, 50
WAITING = {f"{count} waiting": count for count in (1, 16, 128)}
NOBODYS_CHANNEL = "nobody notifies"


class Waiting(SqlScenario):
    """What the others' waiting costs the one that works."""

    name: ClassVar[str] = "waiting"
    title: ClassVar[str] = "In and out one by one, beside connections that wait"
    metrics: ClassVar[tuple[Metric, ...]] = (
        next(metric for metric in COSTS if metric.name == SERVER_CPU),
        RATE,
        *CALLS,
        *(metric for metric in COSTS if metric.name != SERVER_CPU),
    )
    variants: ClassVar[tuple[str, ...]] = tuple(WAITING)
    max_rounds: ClassVar[int | None] = 1
    needs: ClassVar[frozenset[Ability]] = frozenset({"single", "drain", "parallel"})

    def describe(self, lab: Lab) -> str:
        """How."""
        return (
            f"{lab.seconds(3, 1):g} s in which one connection puts a message in by one call and takes one "
            "batch out, while so many others are connected that listen where the queue notifies, and have "
            "taken once"
        )

    def takes_part(self, contestant: SqlContestant, variant: str) -> bool:  # noqa: ARG002 - the interface
        """Those that wait are connections to PostgreSQL; those that differ in consuming only are one here."""
        return contestant.family != "pysqlbox_T-SQL" and not contestant.sends_alike

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:
        """Until the time is over."""
        with (
            contestant.place(lab, standing(PAYLOAD, BATCH)) as url,
            waiting(contestant, url, WAITING[variant]),
        ):
            contender = Cycle(
                contestant.name, url, contestant.single(url, PAYLOAD), contestant.drain(url, BATCH)
            )
            return work(
                lab, contestant, contender, connections=1, seconds=lab.seconds(3, 1), warm_up_seconds=0.2
            ).measured()


@contextlib.contextmanager
def waiting(contestant: SqlContestant, url: str, count: int) -> Iterator[None]:
    """So many connections that have done a worker's first step and listen now."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(connect(url))
            connection.execute(f'LISTEN "{contestant.channel or NOBODYS_CHANNEL}"'.encode())
            contestant.drain(url, 1).session(connection)()
        yield
