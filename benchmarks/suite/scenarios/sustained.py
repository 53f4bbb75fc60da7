"""A queue at work for hours, with the upkeep that its documentation wants: rate and size over time."""

from __future__ import annotations

import threading
import time
from typing import ClassVar

from benchmarks.suite.contestants.base import Ability, SqlContestant
from benchmarks.suite.runner import Metric
from benchmarks.suite.scenarios.common import COSTS, RATE, SqlScenario, work
from benchmarks.suite.scenarios.cycle import cycle, standing
from benchmarks.suite.server import Lab
from benchmarks.suite.store import Measured

RECORDS, BATCH = 500, 50
UPKEEP_SECONDS = 10.0
SIZE = "final_megabytes"


class Sustained(SqlScenario):
    """Rate and size over time."""

    name: ClassVar[str] = "sustained"
    title: ClassVar[str] = "In and out for hours, with upkeep"
    metrics: ClassVar[tuple[Metric, ...]] = (
        RATE,
        Metric(SIZE, "the database at the end", "MB", "lower"),
        *COSTS,
    )
    variants: ClassVar[tuple[str, ...]] = ("2 connections",)
    max_rounds: ClassVar[int | None] = 1
    opt_in: ClassVar[bool] = True
    needs: ClassVar[frozenset[Ability]] = frozenset({"bulk", "drain"})

    def describe(self, lab: Lab) -> str:
        """How."""
        return (
            f"{_seconds(lab):g} s each by two connections (pgq: one), {RECORDS} messages put in by a call, "
            f"taken out in batches of {BATCH}; upkeep and the size of it all every {UPKEEP_SECONDS:g} s; "
            "pysqlbox keeps what is done for a minute; `curves` has rate and size"
        )

    def takes_part(self, contestant: SqlContestant, variant: str) -> bool:  # noqa: ARG002 - the interface
        """Sizes are read from PostgreSQL; bare tables and archives that nobody cleans up only grow."""
        return contestant.name in ("pysqlbox", "pysqlbox settle", "pgmq", "pgq", "delete skip locked")

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:  # noqa: ARG002 - the interface
        """With a thread that keeps it up and measures it."""
        seconds = _seconds(lab)
        connections = 2 if "parallel" in contestant.can else 1
        with contestant.place(lab, standing(200, RECORDS)) as url:
            keeper = _Keeper(contestant, url, min(UPKEEP_SECONDS, seconds / 5))
            keeper.start()
            contender = cycle(contestant, url, 200, RECORDS, BATCH)
            done = work(lab, contestant, contender, connections=connections, seconds=seconds)
            keeper.end()
        measured = done.measured({SIZE: keeper.sizes[-1][1] if keeper.sizes else 0.0}, keeper.problem)
        curves = {"rate": done.curve(seconds / 120), "megabytes": keeper.sizes}
        return Measured(measured.values, measured.messages, measured.seconds, curves, measured.problem)


class _Keeper(threading.Thread):
    """Calls for upkeep and looks at the size, every so often."""

    def __init__(self, contestant: SqlContestant, url: str, interval: float) -> None:
        super().__init__(daemon=True)
        self._contestant, self._url, self._interval = contestant, url, interval
        self._over = threading.Event()
        self.sizes: list[tuple[float, float]] = []
        self.problem: str | None = None

    def run(self) -> None:
        """Until it is told to end; upkeep that fails is the measurement's problem."""
        began = time.monotonic()
        while not self._over.wait(self._interval):
            try:
                self._contestant.maintain(self._url)
                size = self._contestant.size(self._url) / 1e6
            except Exception as error:  # noqa: BLE001 - a thread has nobody to raise it to
                self.problem = f"upkeep: {error}"
                return
            self.sizes.append((time.monotonic() - began, size))

    def end(self) -> None:
        """Wait for the last round."""
        self._over.set()
        self.join()


def _seconds(lab: Lab) -> float:
    return lab.seconds(lab.hours * 3600, 5)
