"""What a scenario gets to work with."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.machine import cpu_seconds
from benchmarks.common.server import Server
from benchmarks.queue.boxes import CANDIDATE, SCHEMA, deploy
from benchmarks.queue.contenders import Connection
from benchmarks.queue.figures import Figure, Spread, Verdict, ratios
from benchmarks.queue.pool import Pool

CONNECTIONS = 4


@dataclass(frozen=True)
class Context:
    """The server, how much to do, and where progress is told."""

    server: Server
    quick: bool
    candidate: Path | None
    progress: Callable[[str], None]

    def size(self, full: int, quick: int) -> int:
        """How many: the first, or in a hurry the second."""
        return quick if self.quick else full

    @contextlib.contextmanager
    def database(self, name: str, boxes: Sequence[str]) -> Iterator[str]:
        """A database with boxes of these names, twice if there is a candidate to compare with."""
        with self.server.database(f"pysqlbox_bench_{name}") as conninfo:
            for schema in self.schemas:
                deploy(conninfo, boxes, schema=schema, root=self.candidate if schema == CANDIDATE else None)
            yield conninfo

    @property
    def schemas(self) -> list[str]:
        """Where boxes are: the release's schema, and the candidate's if there is one."""
        return [SCHEMA, CANDIDATE] if self.candidate else [SCHEMA]

    def pool(self, size: int = CONNECTIONS) -> Pool:
        """Client processes."""
        return Pool(size, is_local=self.server.is_local)


@dataclass
class Timing:
    """Repeated calls on one connection: the seconds of each, and the CPU seconds that its backend took."""

    seconds: list[float]
    server_cpu: list[float]

    @property
    def median_micros(self) -> float:
        """The median call in µs."""
        return statistics.median(self.seconds) * 1e6

    def figure(self, what: str) -> Figure:
        """As a line of the table; the CPU time is per call."""
        cpu = statistics.median(self.server_cpu) * 1e6 if self.server_cpu else None
        return Figure(what, "µs a call", Spread.of([seconds * 1e6 for seconds in self.seconds]), cpu)


class Stopwatch:
    """Times single calls of one backend, by the clock and by the CPU."""

    def __init__(self, connection: Connection, *, is_local: bool) -> None:
        self._backend = connection.info.backend_pid if is_local else None
        self._seconds: list[float] = []
        self._cpu: list[float] = []

    def time(self, call: Callable[[], object]) -> None:
        """Make the call and take its time."""
        before = cpu_seconds(self._backend) if self._backend else None
        began = time.perf_counter()
        call()
        self._seconds.append(time.perf_counter() - began)
        after = cpu_seconds(self._backend) if self._backend else None
        if before is not None and after is not None:
            self._cpu.append(after - before)

    def reset(self) -> None:
        """Forget what was taken so far: the warm-up is over."""
        self._seconds.clear()
        self._cpu.clear()

    def result(self) -> Timing:
        """What was measured."""
        return Timing(self._seconds, self._cpu)


def compare_calls(what: str, timing: Timing, against: Timing, bar: float | None) -> list[Verdict]:
    """Ratios of median call times, and of the backend's CPU time, which a busy machine disturbs less."""
    verdicts = [Verdict(what, _median_ratio(timing.seconds, against.seconds), bar, "<=")]
    if timing.server_cpu and against.server_cpu:
        cpu = _median_ratio(timing.server_cpu, against.server_cpu)
        verdicts.append(Verdict(f"{what}, by backend CPU alone", cpu))
    return verdicts


def _median_ratio(values: Sequence[float], against: Sequence[float]) -> Spread:
    """Ratio of two medians, with its spread over ten consecutive parts of the run."""
    overall = statistics.median(values) / statistics.median(against)
    parts = ratios(_part_medians(values), _part_medians(against))
    low, high = Spread.of(parts).low, Spread.of(parts).high
    return Spread(overall, min(low, overall), max(high, overall), len(values))


def _part_medians(values: Sequence[float], parts: int = 10) -> list[float]:
    size = len(values) / parts
    return [
        statistics.median(values[int(i * size) : max(int(i * size) + 1, int((i + 1) * size))])
        for i in range(parts)
    ]
