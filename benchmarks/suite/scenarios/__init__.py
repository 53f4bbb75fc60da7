"""All scenarios, in the order in which a round goes through them."""

from __future__ import annotations

from typing import Any

from benchmarks.suite.runner import Scenario
from benchmarks.suite.scenarios import sql, worker

ALL: tuple[Scenario[Any], ...] = (*sql.SCENARIOS, *worker.SCENARIOS)
