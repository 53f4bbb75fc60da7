"""Every routine on every connection at once: no error, and in the end every message is accounted for.

`PYSQLBOX_STRESS_SECONDS` makes it run longer than the few seconds of the suite.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.concurrency.accounting import check_accounts, drop_accounts, keep_accounts
from tests.concurrency.invariants import check, drain
from tests.concurrency.stress import run_stress
from tests.support.database import Database

SECONDS = float(os.environ.get("PYSQLBOX_STRESS_SECONDS", "6"))
BOXES = ("outbox", "inbox")


@pytest.fixture
def accounts(db: Database) -> Iterator[None]:
    """The ledgers of both boxes."""
    for box in BOXES:
        drop_accounts(db, box)
        keep_accounts(db, box)
    yield
    for box in BOXES:
        drop_accounts(db, box)


@pytest.mark.dialect("postgres")  # the ledger is kept by its triggers
@pytest.mark.usefixtures("accounts")
def test_all_routines_at_once(db: Database) -> None:
    """Sixteen connections mix everything; any error, a deadlock above all, fails."""
    calls = run_stress(db, SECONDS)
    print(f"\n{db.engine_id}: {sum(calls.values())} steps in {SECONDS:.0f} s: {dict(calls.most_common())}")
    for box in BOXES:
        check(db, box)
        drain(db, box)
        check_accounts(db, box)
