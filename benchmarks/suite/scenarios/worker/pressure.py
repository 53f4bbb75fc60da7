"""More messages than usual, for a moment or for as long as it lasts; how a worker comes through."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Sequence

import psycopg

from benchmarks.peers.runner import PeerFailedError
from benchmarks.peers.scripts.protocol import Task
from benchmarks.suite.contestants.workers import QUEUES, Queue
from benchmarks.suite.runner import Metric, Scenario
from benchmarks.suite.scenarios.worker.checks import problem
from benchmarks.suite.scenarios.worker.steady import percentile, wait_finished
from benchmarks.suite.server import Lab
from benchmarks.suite.store import CLIENT_CPU, P99, RATE, SERVER_CPU, Curve, Measured

BACK = "back_seconds"
KEPT = "kept"
BACKLOG = "backlog"
SETTLE_SECONDS = 1.0
SLOT_SECONDS = 0.1
NEAR = 2.0
"""Back is who is within twice the time from before, or within this many milliseconds."""
NEAR_MS = 10.0
TIMES = 10
TASK = Task(0.001, 16)


class Burst(Scenario[Queue]):
    """Ten times the rate for a while, then as before: how long until it is as before."""

    name = "burst"
    title = "A burst of ten times the usual rate"
    level = "worker"
    metrics = (
        Metric(BACK, "from the end of the burst until latency is as before", "s", "lower"),
        Metric(P99, "99th percentile during the burst", "ms", "lower"),
        Metric(RATE, "rate of the burst", "messages/s"),
    )
    variants = ("200/s, then 2,000/s",)
    contestants = tuple(queue for queue in QUEUES if queue.peer.takes_load)
    max_rounds = 1
    base = 200

    def expected_seconds(self, lab: Lab) -> float:
        """Before, during, after."""
        before, during, after = self._seconds(lab)
        return before + during + after + 5

    def measure(self, lab: Lab, contestant: Queue, variant: str) -> Measured:  # noqa: ARG002 - there is one
        """One producer all the time, another one for the burst."""
        before, during, after = self._seconds(lab)
        program, more = contestant.program, (TIMES - 1) * self.base
        steady, extra = int(self.base * (before + during + after)), int(more * during)
        with (
            contestant.database(lab) as url,
            psycopg.connect(url, autocommit=True) as watcher,
            program.worker(url, "steady", TASK) as worker,
        ):
            worker.wait_ready()
            worker.go()
            time.sleep(SETTLE_SECONDS)
            with program.producer(url, steady, 1000 / self.base) as producer:
                time.sleep(before)
                began = time.monotonic_ns()
                program.enqueue(url, extra, 1000 / more)
                ended = time.monotonic_ns()
                producer.wait()
            wait_finished(contestant, watcher)
            told = worker.stop()
        latencies = [(at, nanoseconds / 1e6) for _, nanoseconds, at in told["latencies"]]
        inside = [(at, latency) for at, latency in latencies if began <= at < ended]
        if not inside:
            raise PeerFailedError("no message arrived during the burst")
        values = {
            BACK: back(latencies, began, ended),
            P99: percentile(sorted(latency * 1e6 for _, latency in inside), 0.99),
            RATE: len(inside) / max((max(at for at, _ in inside) - min(at for at, _ in inside)) / 1e9, 1e-9),
        }
        wrong = problem(told["ids"], steady + extra)
        seconds = before + during + after
        curve = slots(latencies, min(at for at, _ in latencies))
        return Measured(
            values, messages=steady + extra, seconds=seconds, curves={"latency": curve}, problem=wrong
        )

    def describe(self, lab: Lab) -> str:
        """How long."""
        before, during, after = self._seconds(lab)
        return (
            f"{self.base}/s from one producer, for {during:g} s ten times as many with a second one; "
            f"handlers wait 1 ms, 16 at once; {before:g} s before and {after:g} s after it. Latency is "
            f"as before when a tenth of a second's median is within {NEAR:g} times that, or {NEAR_MS:g} ms."
        )

    @staticmethod
    def _seconds(lab: Lab) -> tuple[float, float, float]:
        return lab.seconds(3, 1), lab.seconds(10, 1), lab.seconds(5, 1)


class Oversupply(Scenario[Queue]):
    """Producers that never wait: whether a worker's rate stays while the backlog grows."""

    name = "oversupply"
    title = "Producers faster than the worker"
    level = "worker"
    metrics = (
        Metric(RATE, "messages handled meanwhile", "messages/s"),
        Metric(KEPT, "last third of the first", ""),
        Metric(BACKLOG, "left at the end", "messages", "lower"),
        Metric(CLIENT_CPU, "CPU of the worker", "µs/message handled", "lower"),
        Metric(SERVER_CPU, "CPU of the server", "µs/message handled", "lower"),
    )
    variants = ("2 producers, 1 worker",)
    contestants = tuple(queue for queue in QUEUES if queue.peer.takes_load)
    max_rounds = 1

    def expected_seconds(self, lab: Lab) -> float:
        """The time, and a moment."""
        return self._seconds(lab) + 6

    def measure(self, lab: Lab, contestant: Queue, variant: str) -> Measured:  # noqa: ARG002 - there is one
        """Until the time is over; what is left then stays."""
        program, seconds = contestant.program, self._seconds(lab)
        with (
            contestant.database(lab) as url,
            psycopg.connect(url, autocommit=True) as watcher,
            program.worker(url, "steady", TASK) as worker,
            contextlib.ExitStack() as stack,
        ):
            worker.wait_ready()
            worker.go()
            time.sleep(SETTLE_SECONDS)
            with lab.metered() as cost:
                before = worker.cpu_seconds()
                producers = [stack.enter_context(program.producer(url, 10**7, 0)) for _ in range(2)]
                deadline = time.monotonic() + 20
                while not worker.count and time.monotonic() < deadline:
                    worker.check()
                    time.sleep(0.02)
                began, first = time.monotonic(), worker.count
                counts = []
                while (now := time.monotonic()) < began + seconds:
                    counts.append((now - began, worker.count - first))
                    worker.check()
                    time.sleep(0.05)
                for producer in producers:
                    if not producer.running:
                        producer.wait()
                    producer.kill()
                handled, used = worker.count, worker.cpu_seconds() - before
            told = worker.stop()
            left = contestant.remaining(watcher)
        if not handled:
            raise PeerFailedError("no message was handled")
        values = {
            RATE: counts[-1][1] / counts[-1][0],
            KEPT: kept(counts),
            BACKLOG: float(left),
            CLIENT_CPU: used * 1e6 / handled,
            SERVER_CPU: cost.server_cpu * 1e6 / handled,
        }
        again = len(told["ids"]) - len(set(told["ids"]))
        wrong = f"{again} handled more than once" if again else None
        return Measured(
            values, messages=handled, seconds=seconds, curves={"handled": counts[:: 1 + len(counts) // 100]},
            problem=wrong,
        )  # fmt: skip

    def describe(self, lab: Lab) -> str:
        """How long."""
        return (
            f"Two producer processes that enqueue one by one as fast as they can for "
            f"{self._seconds(lab):g} s, one worker process whose handlers wait 1 ms, 16 at once."
        )

    @staticmethod
    def _seconds(lab: Lab) -> float:
        return lab.seconds(20, 2)


def slots(latencies: Sequence[tuple[int, float]], began: int) -> Curve:
    """Seconds, and the median latency in milliseconds of what came in each tenth of a second."""
    found: dict[int, list[float]] = {}
    for at, latency in latencies:
        found.setdefault(int((at - began) / 1e9 / SLOT_SECONDS), []).append(latency)
    return [(slot * SLOT_SECONDS, round(statistics.median(each), 3)) for slot, each in sorted(found.items())]


def back(latencies: Sequence[tuple[int, float]], began: int, ended: int) -> float:
    """Seconds after the burst from which on every slot is as it was before it."""
    before = [latency for at, latency in latencies if at < began]
    if not before:
        raise PeerFailedError("no message arrived before the burst")
    near = max(NEAR * statistics.median(before), NEAR_MS)
    after = slots([each for each in latencies if each[0] >= ended], ended)
    return max((second + SLOT_SECONDS for second, median in after if median > near), default=0.0)


def kept(counts: Sequence[tuple[float, int]]) -> float:
    """The rate of the last third over that of the first."""
    whole = counts[-1][0]

    def rate(low: float, high: float) -> float:
        inside = [each for each in counts if low * whole <= each[0] <= high * whole]
        (began, first), (ended, last) = inside[0], inside[-1]
        return (last - first) / max(ended - began, 1e-9)

    return rate(2 / 3, 1) / max(rate(0, 1 / 3), 1e-9)
