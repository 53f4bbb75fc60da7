"""What must never happen: the races of claims, keys and groups, played step by step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.concurrency import (
    scenarios_bounds,
    scenarios_claims,
    scenarios_groups,
    scenarios_keys,
    scenarios_marks,
    scenarios_runs,
)
from tests.concurrency.sessions import steady
from tests.support.database import Database

Scenario = Callable[[Database], None]


@pytest.mark.dialect("postgres")  # they look into PostgreSQL's locks, sequences and sessions
@pytest.mark.parametrize(
    "scenario",
    [
        *scenarios_claims.SCENARIOS,
        *scenarios_marks.SCENARIOS,
        *scenarios_bounds.SCENARIOS,
        *scenarios_runs.SCENARIOS,
        *scenarios_groups.SCENARIOS,
        *scenarios_keys.POSTGRES_SCENARIOS,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_race(scenario: Scenario, db: Database) -> None:
    """Nothing is lost, doubled, overtaken or held twice."""
    steady(db)
    scenario(db)


@pytest.mark.parametrize(
    "scenario",
    [
        scenarios_claims.takeover_ack,
        scenarios_claims.takeover_abandon,
        scenarios_claims.takeover_retry,
        scenarios_claims.takeover_release,
        scenarios_claims.takeover_fail,
        scenarios_claims.takeover_extend,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_takeover(scenario: Scenario, db: Database) -> None:
    """Who lost a lease touches nothing any more."""
    scenario(db)


@pytest.mark.parametrize("scenario", scenarios_keys.SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_keys(scenario: Scenario, db: Database) -> None:
    """One key, one message, however many enqueue it at once."""
    scenario(db)
