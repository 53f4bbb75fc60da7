"""What must never happen to joins: steps lost or counted twice, waits forgotten, follow-ups doubled.

`PYSQLBOX_JOIN_ROUNDS` plays the rounds of many workers more or less often than in the suite;
`PYSQLBOX_STRESS_SECONDS` makes the mix of everything run longer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.concurrency import scenarios_join_ends, scenarios_joins, stress_joins
from tests.concurrency.chaos_joins import run_chaos
from tests.concurrency.invariants import check, drain
from tests.support.database import Database

Scenario = Callable[[Database], None]

ROUNDS = int(os.environ.get("PYSQLBOX_JOIN_ROUNDS", "50"))
SECONDS = float(os.environ.get("PYSQLBOX_STRESS_SECONDS", "4"))


@pytest.mark.dialect("postgres")  # they look into PostgreSQL's locks and sessions
@pytest.mark.parametrize(
    "scenario",
    [*scenarios_joins.POSTGRES_SCENARIOS, *scenarios_join_ends.POSTGRES_SCENARIOS],
    ids=lambda scenario: scenario.__name__,
)
def test_join_race(scenario: Scenario, db: Database) -> None:
    """Whichever transaction is open, nothing of a join is lost, doubled or waited for without need."""
    scenario(db)


@pytest.mark.parametrize("scenario", scenarios_joins.SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_join_counting(scenario: Scenario, db: Database) -> None:
    """Once per message and join."""
    scenario(db)


def test_obx_028_obx_041_counters_of_joins_are_exact_under_many_workers(db: Database) -> None:
    """Two hundred steps of five joins, settled from eight connections, over and over."""
    # Babelfish takes seconds for what a new connection does first.
    stress_joins.many_workers_end_many_steps(db, ROUNDS if db.dialect == "postgres" else 2)


def test_contract_many_resolves_at_once_enqueue_one_follow_up(db: Database) -> None:
    """Sixteen connections resolve the same joins at the same moments."""
    if db.dialect == "postgres":
        stress_joins.many_resolve_at_once(db)
    else:
        stress_joins.many_resolve_at_once(db, connections=6, rounds=3)


@pytest.mark.dialect("postgres")  # T-SQL marks all by one statement, in the order of its index
def test_steps_are_marked_in_the_order_of_their_ids(db: Database) -> None:
    """Whoever waits for the first of several holds none of the others, in whatever order they came."""
    join_id = db.one("join_start", tenant_id="t", expected_steps=2)["join_id"]
    steps = [db.one("outbox_enqueue", topic="t", payload="p") for _ in range(2)]
    for step in steps:
        db.call("join_attach", join_id=join_id, message_id=step["message_id"])
    first, second = (step["id"] for step in steps)
    lock = "SELECT FROM {schema}.join_member WHERE id = %s FOR UPDATE NOWAIT"
    waiting = "SELECT pid FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
    with db.session() as holder, db.session() as marker, ThreadPoolExecutor(1) as pool:
        holder.sql(lock, first)
        pid = marker.sql("SELECT pg_backend_pid() AS pid")[0]["pid"]
        marking = pool.submit(marker.sql, "SELECT {schema}._join_mark(%s, 'completed')", [second, first])
        try:
            while not db.sql(waiting, pid):
                assert not marking.done()
            with db.session() as other:
                other.sql(lock, second)
        finally:
            holder.rollback()
            marking.result(60)
            marker.rollback()


@pytest.mark.dialect("postgres")  # Babelfish's connections take too long to open for so many
def test_all_routines_of_joins_at_once(db: Database) -> None:
    """Twelve connections mix everything; any error, a deadlock above all, fails, and the books agree."""
    calls = run_chaos(db, SECONDS)
    print(f"\n{db.engine_id}: {sum(calls.values())} steps in {SECONDS:.0f} s: {dict(calls.most_common())}")
    check(db, "outbox")
    drain(db, "outbox")
    stuck = db.sql(
        "SELECT j.join_id FROM {schema}.outbox_joins AS j"
        " WHERE j.status = 'Pending' AND j.completed_steps + j.failed_steps = j.expected_steps"
    )
    for row in stuck:
        assert db.one("join_resolve", join_id=row["join_id"])["status"] != "Pending"
    check(db, "outbox")
