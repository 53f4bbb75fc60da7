"""From just before the enqueue call to the handler's start, in different processes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import psycopg

from benchmarks.peers.runner import PeerFailedError
from benchmarks.suite.contestants.workers import QUEUES, Queue
from benchmarks.suite.runner import Metric, Scenario
from benchmarks.suite.scenarios.worker.checks import problem
from benchmarks.suite.server import Lab
from benchmarks.suite.store import CALL_P50, P50, P99, RATE, Curve, Measured

SETTLE_SECONDS = 1
WARM_UP = 2
"""Messages at the start that do not count: first statements, first connections."""
WORKER = "worker_percent"
DISTRIBUTION = "distribution"
ARRIVAL_SECONDS = 60
POLL_SECONDS = 0.01

P50_METRIC = Metric(P50, "median", "ms", "lower")
P99_METRIC = Metric(P99, "99th percentile", "ms", "lower")
CALL_METRIC = Metric(CALL_P50, "median of the enqueue call alone", "ms", "lower")


class LatencyIdle(Scenario[Queue]):
    """One message after another to a worker that has nothing else to do."""

    name = "latency_idle"
    title = "Latency when idle, a message every 50 ms"
    level = "worker"
    metrics = (
        P50_METRIC,
        P99_METRIC,
        CALL_METRIC,
        Metric(WORKER, "CPU of the worker", "% of a CPU", "lower"),
    )
    variants = ("1 process",)
    contestants = tuple(queue for queue in QUEUES if not queue.peer.drains_only)

    def expected_seconds(self, lab: Lab) -> float:
        """As long as the messages take to come, and a worker to start."""
        messages, milliseconds = self.pace(lab)
        return messages * milliseconds / 1000 + 4

    def measure(self, lab: Lab, contestant: Queue, variant: str) -> Measured:  # noqa: ARG002 - there is one
        """All of them."""
        messages, milliseconds = self.pace(lab)
        count = messages + WARM_UP
        with contestant.database(lab) as url, contestant.program.worker(url, "latency") as worker:
            worker.wait_ready()
            worker.go()
            time.sleep(SETTLE_SECONDS)
            began, cpu = time.monotonic(), worker.exact_cpu_seconds()
            calls = contestant.program.enqueue(url, count, milliseconds)
            seconds = time.monotonic() - began
            percent = 100 * (worker.exact_cpu_seconds() - cpu) / seconds
            time.sleep(SETTLE_SECONDS)
            told = worker.stop()
        arrived = [nanoseconds for number, nanoseconds, _ in told["latencies"] if number >= WARM_UP]
        values = {**_quantiles(arrived, calls[WARM_UP:]), WORKER: percent}
        return Measured(
            values,
            messages=messages,
            seconds=seconds,
            curves={DISTRIBUTION: distribution(arrived)},
            problem=problem(told["ids"], count),
        )

    def describe(self, lab: Lab) -> str:
        """How many."""
        messages, milliseconds = self.pace(lab)
        return (
            "From just before the enqueue call to the handler's start. One worker process, otherwise idle, "
            f"and one producer: {messages} messages a round, about {milliseconds:g} ms apart. Each "
            "percentile is of one round, and of the rounds the median is told."
        )

    def pace(self, lab: Lab) -> tuple[int, float]:
        """How many messages, and how many milliseconds apart."""
        return lab.size(300, 40), 50


class LatencySparse(LatencyIdle):
    """Where a worker that polls eagerly for a moment after each message has no advantage."""

    name = "latency_sparse"
    title = "Latency when idle, a message every second"
    max_rounds = 1

    def pace(self, lab: Lab) -> tuple[int, float]:
        """A few."""
        return lab.size(10, 3), 1000


class LatencyHalfLoad(Scenario[Queue]):
    """The same at half of what one producer process and one worker process get through together."""

    name = "latency_half_load"
    title = "Latency at half load"
    level = "worker"
    metrics = (P50_METRIC, P99_METRIC, CALL_METRIC, Metric(RATE, "load", "messages/s"))
    variants = ("half load",)
    contestants = LatencyIdle.contestants
    max_rounds = 2

    def expected_seconds(self, lab: Lab) -> float:
        """Flat out first."""
        return lab.seconds(3, 2) + 6

    def measure(self, lab: Lab, contestant: Queue, variant: str) -> Measured:  # noqa: ARG002 - there is one
        """First flat out, to see what full load is; then at half of that."""
        flat_out, seconds = lab.size(1000, 500), lab.seconds(3, 2)
        program = contestant.program
        with (
            contestant.database(lab) as url,
            psycopg.connect(url, autocommit=True) as watcher,
            program.worker(url, "latency") as worker,
        ):
            worker.wait_ready()
            worker.go()
            time.sleep(SETTLE_SECONDS)
            # Without the producer's start: what its calls took, and then what was left for the worker.
            full = sum(program.enqueue(url, flat_out, 0)) / 1e9
            ended = time.monotonic()
            _wait_finished(contestant, watcher)
            load = flat_out / (full + time.monotonic() - ended) / 2
            count = max(int(load * seconds), 50)
            calls = program.enqueue(url, count, 1000 / load)
            _wait_finished(contestant, watcher)
            told = worker.stop()
        arrived = [nanoseconds for _, nanoseconds, _ in told["latencies"][flat_out:]]
        return Measured(
            {**_quantiles(arrived, calls), RATE: load},
            messages=count,
            seconds=count / load,
            curves={DISTRIBUTION: distribution(arrived)},
            problem=problem(told["ids"], flat_out + count),
        )

    def describe(self, lab: Lab) -> str:
        """What half is."""
        return (
            "From just before the enqueue call to the handler's start, with one producer process that "
            "enqueues messages one by one at half of the rate that it and one worker process got through "
            f"just before, flat out; for {lab.seconds(3, 2):g} s. So every queue has a load of its own, told "
            "beside it."
        )


def distribution(nanoseconds: Sequence[float]) -> Curve:
    """Shares of the messages, and the milliseconds that so many did not exceed; at most 200 points."""
    ordered = sorted(nanoseconds)
    if not ordered:
        return []
    step = max(len(ordered) / 200, 1)
    places = sorted({min(int(i * step), len(ordered) - 1) for i in range(201)} | {len(ordered) - 1})
    return [((place + 1) / len(ordered), round(ordered[place] / 1e6, 4)) for place in places]


def _quantiles(arrived: Sequence[float], calls: Sequence[float]) -> dict[str, float]:
    if not arrived or not calls:
        raise PeerFailedError("no message arrived")
    ordered = sorted(arrived)
    return {
        P50: statistics.median(ordered) / 1e6,
        P99: ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))] / 1e6,
        CALL_P50: statistics.median(calls) / 1e6,
    }


def _wait_finished(queue: Queue, watcher: psycopg.Connection[Any]) -> None:
    deadline = time.monotonic() + ARRIVAL_SECONDS
    while queue.remaining(watcher):
        if time.monotonic() > deadline:
            raise PeerFailedError(f"messages were left after {ARRIVAL_SECONDS} s")
        time.sleep(POLL_SECONDS)
