"""Every protocol in every order, or in a part of them where all would take too long.

All orders of a protocol run where they are few, on the embedded server; of the longer ones, and on other
servers, a part that is the same in every run. `PYSQLBOX_INTERLEAVINGS=all` runs all of them everywhere, and
`PYSQLBOX_INTERLEAVING='name: session session …'` one order again, as a failure prints it.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interleavings.protocols import PROTOCOLS
from tests.interleavings.scheduler import (
    ORDER_VARIABLE,
    Protocol,
    count,
    exhaust,
    run_again,
    sample,
)
from tests.interleavings.steps import COMMIT, alone, claim, put
from tests.interleavings.stops import stopping
from tests.interleavings.world import BrokenError
from tests.support.database import Database

pytestmark = pytest.mark.dialect("postgres")

EXHAUSTIVE_ENGINE = "pg18"
FEW = 90
"""Orders that are all run."""
PART = 20
"""Orders that are run of those with more."""
GLIMPSE = 6
"""Orders of each protocol on the other servers."""
AGAIN, _, AGAIN_ORDER = os.environ.get(ORDER_VARIABLE, "").partition(": ")
"""The one protocol to run, and its order, if there is one."""
NAMES = [AGAIN] if AGAIN else sorted(PROTOCOLS)
ORDER = re.compile(f"{ORDER_VARIABLE}='(.*): (.*)'")


@pytest.mark.parametrize("name", NAMES, ids=[name.replace(" ", "_") for name in NAMES])
def test_every_order(db: Database, name: str, tmp_path: Path) -> None:
    """Each message in exactly one place after each order, none handed to two, none stuck; nobody waits."""
    protocol = PROTOCOLS[name]
    with stopping(db, protocol, tmp_path):
        if name == AGAIN:
            run_again(db, protocol, AGAIN_ORDER.split(", "))
        elif os.environ.get("PYSQLBOX_INTERLEAVINGS") == "all" or (
            db.engine_id == EXHAUSTIVE_ENGINE and count(protocol) <= FEW
        ):
            assert exhaust(db, protocol) > 0
        else:
            assert sample(db, protocol, PART if db.engine_id == EXHAUSTIVE_ENGINE else GLIMPSE) > 0


def test_orders_are_all_different(db: Database) -> None:
    """Nothing waits in this one, so it has as many orders as there are merges of its statements."""
    protocol = Protocol(
        "plain",
        {"one": [put("m1"), COMMIT], "other": [put("m2"), COMMIT], "third": [alone(claim())]},
    )
    assert exhaust(db, protocol) == count(protocol) == 30
    alike = Protocol("alike", protocol.sessions, alike=[frozenset({"one", "other"})])
    assert exhaust(db, alike) == count(alike) == 15


def test_a_failure_names_its_order(db: Database) -> None:
    """What a failure prints is enough to run that order, and no other, again."""
    step = put("m1")
    sessions = {"one": [step, COMMIT], "the other": [replace(step, may_wait_for_key=frozenset()), COMMIT]}
    protocol = Protocol("impatient", sessions, box="inbox")
    with pytest.raises(BrokenError, match="the other: put m1 topic t waits for one") as failed:
        exhaust(db, protocol)
    name, order = ORDER.findall(str(failed.value))[0]
    assert (name, order) == ("impatient", "one, the other")
    with pytest.raises(BrokenError, match="the other: put m1 topic t waits for one"):
        run_again(db, protocol, order.split(", "))
    run_again(db, protocol, ["the other", "one", "the other", "one"])
