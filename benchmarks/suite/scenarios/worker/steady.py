"""Messages that come at a steady rate, and handlers that take their time: from enqueue to handler."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import psycopg

from benchmarks.common.machine import machine_cpu, process_cpu
from benchmarks.peers.runner import PeerFailedError
from benchmarks.peers.scripts.protocol import Task
from benchmarks.suite.contestants.workers import QUEUES, Queue
from benchmarks.suite.runner import Metric, Scenario
from benchmarks.suite.scenarios.worker.checks import problem
from benchmarks.suite.scenarios.worker.drain import OTHERS
from benchmarks.suite.scenarios.worker.latency import DISTRIBUTION, distribution
from benchmarks.suite.server import Lab
from benchmarks.suite.store import CLIENT_CPU, P50, P99, RATE, SERVER_CPU, Measured

P999 = "p999_ms"
SETTLED = "settled_ms"
SETTLE_SECONDS = 1.0
SAMPLE_SECONDS = 0.1
FLUSH_SECONDS = 10.0
LATE = 0.9
"""A load that was missed by more than this share was not the one that is asked about."""


OURS = ("pysqlbox", "pysqlbox (coroutines)")


@dataclass(frozen=True)
class Load:
    """A handler of so many milliseconds, so many messages a second, so many handlers at once."""

    milliseconds: int
    rate: int
    workers: int

    @property
    def variant(self) -> str:
        """Its name."""
        return f"{self.milliseconds} ms, {self.rate:,}/s, {self.workers} workers"

    @property
    def task(self) -> Task:
        """What handlers do."""
        return Task(self.milliseconds / 1000, self.workers)


LOADS = {
    load.variant: load
    for load in (
        Load(1, 100, 1),
        Load(1, 500, 16),
        Load(1, 2000, 64),
        Load(10, 500, 16),
        Load(100, 500, 64),
    )
}
ROOM = 0.8
"""Handlers that would be busy for more than this share of the time are no load that anybody plans for."""
GRID = {
    load.variant: load
    for milliseconds, rate, workers in product((1, 10, 100), (100, 500, 2000), (1, 16, 64, 128))
    if rate * milliseconds / 1000 <= ROOM * workers
    for load in (Load(milliseconds, rate, workers),)
}
"""Every load that so many handlers can bear."""


class Steady(Scenario[Queue]):
    """What applications have: some load, far from what the queue could do."""

    name = "steady"
    title = "Latency under a steady load"
    level = "worker"
    metrics = (
        Metric(P99, "99th percentile", "ms", "lower"),
        Metric(P50, "median", "ms", "lower"),
        Metric(P999, "99.9th percentile", "ms", "lower"),
        Metric(SETTLED, "from the call to the end in the tables, mean", "ms", "lower"),
        Metric(CLIENT_CPU, "CPU of the worker", "µs/message", "lower"),
        Metric(SERVER_CPU, "CPU of the server, enqueue included", "µs/message", "lower"),
        Metric(RATE, "load", "messages/s"),
        Metric(OTHERS, "CPU taken by others", "% of the machine", "lower"),
    )
    variants: ClassVar[tuple[str, ...]] = tuple(LOADS)
    contestants = tuple(queue for queue in QUEUES if queue.peer.takes_load)
    max_rounds: ClassVar[int | None] = 2

    def expected_seconds(self, lab: Lab) -> float:
        """The load, and what is around it."""
        return self._seconds(lab) + 4

    def measure(self, lab: Lab, contestant: Queue, variant: str) -> Measured:
        """One producer, one worker; the mean time to the end is the mean number of unfinished by the rate."""
        load, seconds = GRID[variant], self._seconds(lab)
        program, count = contestant.program, int(load.rate * seconds)
        unfinished: list[int] = []
        with (
            contestant.database(lab) as url,
            psycopg.connect(url, autocommit=True) as watcher,
            program.worker(url, "steady", load.task) as worker,
        ):
            worker.wait_ready()
            worker.go()
            time.sleep(SETTLE_SECONDS)
            with lab.metered() as cost:
                before, machine = worker.cpu_seconds(), machine_cpu()
                own = process_cpu(os.getpid(), with_ended_children=True)
                with program.producer(url, count, 1000 / load.rate) as producer:
                    while producer.running:
                        worker.check()
                        time.sleep(SAMPLE_SECONDS)
                        if worker.count:
                            unfinished.append(contestant.remaining(watcher))
                    calls = producer.wait()
                wait_finished(contestant, watcher)
                used, after = worker.cpu_seconds() - before, machine_cpu()
                own = process_cpu(os.getpid(), with_ended_children=True) - own
            told = worker.stop()
        spent = used + own + cost.server_cpu
        others = max(after[0] - machine[0] - spent, 0) / (after[1] - machine[1])
        return measured(told, count, cost.server_cpu, used, unfinished, others, len(calls), load.rate)

    def describe(self, lab: Lab) -> str:
        """How long."""
        return (
            f"One producer process that enqueues one by one at that rate for {self._seconds(lab):g} s, one "
            "worker process whose handlers wait as long as is told, as many at once as there are workers. "
            "From just before the enqueue call to the handler's start; each percentile is of one round, and "
            "of the rounds the median is told."
        )

    @staticmethod
    def _seconds(lab: Lab) -> float:
        return lab.seconds(5, 1.5)


class SteadyGrid(Steady):
    """The same for every load, of pysqlbox alone."""

    name = "steady_grid"
    title = "Latency under a steady load, every load"
    variants = tuple(GRID)
    contestants = tuple(queue for queue in Steady.contestants if queue.name in OURS)
    max_rounds = 1
    opt_in = True


def measured(
    told: dict[str, Any],
    count: int,
    server_cpu: float,
    worker_cpu: float,
    unfinished: Sequence[int],
    others: float,
    calls: int,
    wanted: float,
) -> Measured:
    """Percentiles, costs and the load that was reached; the first tenth of the messages warms up."""
    latencies = sorted(told["latencies"], key=lambda each: each[2])
    counted = latencies[len(latencies) // 10 :]
    if not counted:
        raise PeerFailedError("no message arrived")
    arrived = sorted(nanoseconds for _, nanoseconds, _ in counted)
    span = max(latencies[-1][2] - latencies[0][2], 1) / 1e9
    rate = calls / span
    values = {
        P50: percentile(arrived, 0.5),
        P99: percentile(arrived, 0.99),
        P999: percentile(arrived, 0.999),
        CLIENT_CPU: worker_cpu * 1e6 / count,
        SERVER_CPU: server_cpu * 1e6 / count,
        RATE: rate,
        OTHERS: 100 * others,
    }
    if unfinished:
        values[SETTLED] = sum(unfinished) / len(unfinished) / rate * 1000
    wrong = problem(told["ids"], count)
    if wrong is None and rate < LATE * wanted:
        wrong = f"one producer reached {rate:,.0f} messages/s"
    return Measured(
        values, messages=count, seconds=span, curves={DISTRIBUTION: distribution(arrived)}, problem=wrong
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Of nanoseconds in order, in milliseconds."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e6


def wait_finished(queue: Queue, watcher: psycopg.Connection[Any], seconds: float = FLUSH_SECONDS) -> None:
    """Until the database knows of every message's end, or the time is over."""
    deadline = time.monotonic() + seconds
    while queue.remaining(watcher) and time.monotonic() < deadline:
        time.sleep(0.02)
