"""Of any number of concurrent tries for one key of the ledger exactly one acquires it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.concurrency import scenarios_ledger
from tests.support.database import Database

Scenario = Callable[[Database], None]


@pytest.mark.dialect("postgres")  # they look into PostgreSQL's locks and sessions
@pytest.mark.parametrize(
    "scenario", scenarios_ledger.POSTGRES_SCENARIOS, ids=lambda scenario: scenario.__name__
)
def test_ledger_race(scenario: Scenario, db: Database) -> None:
    """Whoever comes second waits for the first and decides on what that one has committed."""
    scenario(db)


@pytest.mark.parametrize("scenario", scenarios_ledger.SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_ledger_takeover(scenario: Scenario, db: Database) -> None:
    """Who lost a lease touches nothing any more."""
    scenario(db)


def test_contract_of_many_consumers_exactly_one_acquires_each_key(db: Database) -> None:
    """Sixteen connections, a thousand keys, new ones and expired ones."""
    if db.dialect == "postgres":
        scenarios_ledger.consumers_race_for_keys(db, keys=1000)
    else:
        scenarios_ledger.consumers_race_for_keys(db, keys=10, rivals=6)
