"""The worker level: whole worker processes of several queues, with their own clients."""

from __future__ import annotations

from typing import Any

from benchmarks.suite.runner import Scenario
from benchmarks.suite.scenarios.worker.chaos import Chaos
from benchmarks.suite.scenarios.worker.drain import ManyCoroutines, Transactional, WorkerDrain
from benchmarks.suite.scenarios.worker.idle import IdleCost
from benchmarks.suite.scenarios.worker.latency import LatencyHalfLoad, LatencyIdle, LatencySparse
from benchmarks.suite.scenarios.worker.mixed import Mixed
from benchmarks.suite.scenarios.worker.pressure import Burst, Oversupply
from benchmarks.suite.scenarios.worker.steady import Steady, SteadyGrid

SCENARIOS: tuple[Scenario[Any], ...] = (
    WorkerDrain(),
    Transactional(),
    ManyCoroutines(),
    LatencyIdle(),
    LatencyHalfLoad(),
    LatencySparse(),
    Steady(),
    SteadyGrid(),
    Burst(),
    Oversupply(),
    Mixed(),
    Chaos(),
    IdleCost(),
)
