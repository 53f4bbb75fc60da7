"""The SQL level: statements and routines, without any worker around them."""

from __future__ import annotations

from typing import Any

from benchmarks.suite.runner import Scenario
from benchmarks.suite.scenarios.disk import Disk
from benchmarks.suite.scenarios.drain import Backlog, DrainRoutine, HalfDelayed
from benchmarks.suite.scenarios.enqueue import EnqueueBulk, EnqueueSingle
from benchmarks.suite.scenarios.fifo import FifoHot, FifoMany
from benchmarks.suite.scenarios.held import HeldPaths, HeldSnapshot, HeldWriter
from benchmarks.suite.scenarios.joins import Joins
from benchmarks.suite.scenarios.payload import Payload
from benchmarks.suite.scenarios.sustained import Sustained
from benchmarks.suite.scenarios.waiting import Waiting

SCENARIOS: tuple[Scenario[Any], ...] = (
    EnqueueSingle(),
    EnqueueBulk(),
    DrainRoutine(),
    HalfDelayed(),
    FifoMany(),
    FifoHot(),
    Joins(),
    Payload(),
    Backlog(),
    HeldSnapshot(),
    HeldWriter(),
    HeldPaths(),
    Waiting(),
    Disk(),
    Sustained(),
)
