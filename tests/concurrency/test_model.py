"""Thousands of random steps on a box and on its model in plain Python.

`PYSQLBOX_MODEL_EXAMPLES` runs more of them, and then random ones instead of the same every time.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.concurrency.machine import BoxMachine
from tests.concurrency.machines import InboxMachine, OutboxMachine
from tests.support.deployed import Deployed
from tests.support.engines import Engine

LONG = "PYSQLBOX_MODEL_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("PYSQLBOX_MODEL_EXAMPLES", "12"))


@pytest.mark.parametrize("machine", [OutboxMachine, InboxMachine], ids=["outbox", "inbox"])
def test_model(machine: type[BoxMachine], deployed: Deployed, engine: Engine) -> None:
    """The database does what the model does."""
    bound = type("Bound", (machine,), {"fresh": staticmethod(deployed.fresh)})
    run_state_machine_as_test(
        bound,
        settings=settings(
            max_examples=EXAMPLES if engine.dialect == "postgres" or LONG else 3,
            stateful_step_count=60,
            derandomize=not LONG,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
