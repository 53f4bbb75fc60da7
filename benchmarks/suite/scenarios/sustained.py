"""A queue at work for hours, with the upkeep that its documentation wants: rate and sizes over time."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import ClassVar, Self

from benchmarks.suite.contestants.base import Ability, SqlContestant
from benchmarks.suite.runner import Metric
from benchmarks.suite.scenarios.common import COSTS, RATE, SqlScenario, work
from benchmarks.suite.scenarios.cycle import cycle, standing
from benchmarks.suite.server import Lab
from benchmarks.suite.store import SIZE, SIZE_OF, Curve, Measured

RECORDS, BATCH = 500, 50
UPKEEP_SECONDS = 10.0
TABLES = 6
"""So many of the largest tables are told one by one; the others together."""
FINAL, LARGEST = "final_megabytes", "largest_megabytes"


class Sustained(SqlScenario):
    """Rate and size over time."""

    name: ClassVar[str] = "sustained"
    title: ClassVar[str] = "In and out without a pause, with upkeep"
    metrics: ClassVar[tuple[Metric, ...]] = (
        RATE,
        Metric(FINAL, "tables at the end", "MB", "lower"),
        Metric(LARGEST, "tables at most", "MB", "lower"),
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
            f"taken out in batches of {BATCH}; upkeep, and the tables' sizes with their indexes, every "
            f"{_interval(lab):g} s; pysqlbox keeps what is done for a minute; the curves have rate and sizes"
        )

    def expected_seconds(self, lab: Lab) -> float:
        """The time that it is followed, and a moment."""
        return _seconds(lab) + 5

    def takes_part(self, contestant: SqlContestant, variant: str) -> bool:  # noqa: ARG002 - the interface
        """Sizes are read from PostgreSQL; bare tables and archives that nobody cleans up only grow."""
        return contestant.name in (
            "pysqlbox",
            "pysqlbox settle",
            "pgmq",
            "pgq",
            "pgque",
            "delete skip locked",
        )

    def measure(self, lab: Lab, contestant: SqlContestant, variant: str) -> Measured:  # noqa: ARG002 - the interface
        """With a thread that keeps it up and measures it."""
        seconds = _seconds(lab)
        connections = 2 if "parallel" in contestant.can else 1
        with contestant.place(lab, standing(200, RECORDS)) as url:
            contender = cycle(contestant, url, 200, RECORDS, BATCH)
            with Keeper(contestant, url, _interval(lab)) as keeper:
                done = work(lab, contestant, contender, connections=connections, seconds=seconds)
        curves = keeper.curves()
        sizes = {}
        if SIZE in curves:
            sizes = {FINAL: curves[SIZE][-1][1], LARGEST: max(size for _, size in curves[SIZE])}
        measured = done.measured(sizes, keeper.problem)
        curves = {"rate": done.curve(max(seconds / 120, 0.5)), **curves}
        return Measured(measured.values, measured.messages, measured.seconds, curves, measured.problem)


class Keeper(threading.Thread):
    """Calls for upkeep and looks at the size, every so often."""

    def __init__(self, contestant: SqlContestant, url: str, interval: float) -> None:
        super().__init__(daemon=True)
        self._contestant, self._url, self._interval = contestant, url, interval
        self._over = threading.Event()
        self._sizes: list[tuple[float, dict[str, int]]] = []
        self.problem: str | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        """Until it is told to end; upkeep that fails is the measurement's problem."""
        began = time.monotonic()
        try:
            over = False
            while True:
                sizes = self._contestant.sizes(self._url)
                self._sizes.append((time.monotonic() - began, sizes))
                if over:
                    return
                over = self._over.wait(self._interval)
                self._contestant.maintain(self._url)
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise it to
            self.problem = f"upkeep: {error}"

    def curves(self) -> dict[str, Curve]:
        """Megabytes over time: of all tables, and of the largest."""
        if not self._sizes:
            return {}
        most: dict[str, int] = {}
        for _, sizes in self._sizes:
            for name, size in sizes.items():
                most[name] = max(most.get(name, 0), size)
        large = sorted(most, key=lambda name: -most[name])[:TABLES]
        curves: dict[str, Curve] = {
            SIZE: [(at, sum(sizes.values()) / 1e6) for at, sizes in self._sizes],
            **{
                SIZE_OF + name: [(at, sizes.get(name, 0) / 1e6) for at, sizes in self._sizes]
                for name in large
            },
        }
        if len(most) > len(large):
            others = f"{len(most) - len(large)} others"
            curves[SIZE_OF + others] = [
                (at, sum(size for name, size in sizes.items() if name not in large) / 1e6)
                for at, sizes in self._sizes
            ]
        return curves


def _interval(lab: Lab) -> float:
    return min(UPKEEP_SECONDS, _seconds(lab) / 5)


def _seconds(lab: Lab) -> float:
    return lab.seconds(lab.hours * 3600, 5)
