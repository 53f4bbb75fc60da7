"""What a worker costs that has nothing to do."""

from __future__ import annotations

import time

from benchmarks.common.machine import server_cpu
from benchmarks.suite.contestants.workers import Queue
from benchmarks.suite.runner import Metric, Scenario
from benchmarks.suite.scenarios.worker.latency import WORKER, LatencyIdle
from benchmarks.suite.server import Lab
from benchmarks.suite.store import Measured

SERVER = "server_percent"
STATEMENTS = "statements_per_second"


class IdleCost(Scenario[Queue]):
    """CPU time and statements of a worker that waits."""

    name = "idle_cost"
    title = "Cost of an idle worker"
    level = "worker"
    metrics = (
        Metric(WORKER, "CPU of the worker", "% of a CPU", "lower"),
        Metric(SERVER, "CPU of the server", "% of a CPU", "lower"),
        Metric(STATEMENTS, "statements", "1/s", "lower"),
    )
    variants = ("1 process",)
    contestants = LatencyIdle.contestants
    max_rounds = 1

    def expected_seconds(self, lab: Lab) -> float:
        """Settling, and watching."""
        return lab.seconds(6, 1) + self._seconds(lab) + 3

    def measure(self, lab: Lab, contestant: Queue, variant: str) -> Measured:  # noqa: ARG002 - there is one
        """A while."""
        databases = lab.databases
        with (
            contestant.database(lab, counting=True) as url,
            contestant.program.worker(url, "idle") as worker,
        ):
            worker.wait_ready()
            worker.go()
            time.sleep(lab.seconds(6, 1))
            statements = databases.statements(url)
            began, worker_cpu, database_cpu = (
                time.monotonic(),
                worker.exact_cpu_seconds(),
                server_cpu(lab.postmaster),
            )
            time.sleep(self._seconds(lab))
            worker_cpu = worker.exact_cpu_seconds() - worker_cpu
            database_cpu = server_cpu(lab.postmaster) - database_cpu
            seconds = time.monotonic() - began
            now = databases.statements(url)
            worker.check()
            worker.stop()
        values = {WORKER: 100 * worker_cpu / seconds, SERVER: 100 * database_cpu / seconds}
        if now is not None and statements is not None:
            values[STATEMENTS] = (now - statements) / seconds
        return Measured(values, seconds=seconds)

    def describe(self, lab: Lab) -> str:
        """How long."""
        return (
            f"One worker process with nothing to do, for {self._seconds(lab):g} s, a while after its start."
        )

    @staticmethod
    def _seconds(lab: Lab) -> float:
        return lab.seconds(8, 3)
