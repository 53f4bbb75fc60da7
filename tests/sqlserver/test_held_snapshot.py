"""A snapshot that stays open keeps the versions of deleted rows; claims must not come to walk over them."""

from __future__ import annotations

import pytest

from tests.contract.support import OWNER, Box
from tests.support.database import Database

ROUNDS = 40
BATCH = 250
_READS = """
    SELECT TOP (1) last_logical_reads AS n FROM sys.dm_exec_procedure_stats
    WHERE database_id = DB_ID() AND object_id = OBJECT_ID(%s)
    ORDER BY last_execution_time DESC
    """


def _claim_reads(db: Database, box: Box) -> int:
    """The pages that the last claim read, nested routines' included."""
    return int(str(db.sql(_READS, f"{db.schema}.{box.name}_claim")[0]["n"]))


@pytest.mark.parametrize(
    "more",
    [{}, {"priority": 5}, {"priority": -5}, {"group_id": "hot"}, {"paused": True}, {"topics": True}],
    ids=str,
)
def test_a_claim_costs_the_same_at_the_end(box: Box, more: dict[str, object]) -> None:
    """Logical reads of claims that hand out equally many, early and after many rounds."""
    more = dict(more)
    topics = ["t"] if more.pop("topics", False) else None
    if more.pop("paused", False):
        box.call("pause", topic="elsewhere")
    costs: list[int] = []
    with box.db.session() as report:
        report.sql("SET TRANSACTION ISOLATION LEVEL SNAPSHOT")
        report.sql(f"SELECT count(*) AS n FROM {{schema}}.{box.name}_message")  # the snapshot begins here
        for _ in range(ROUNDS):
            made = box.fill(BATCH, **more)
            taken = box.take(OWNER, batch=BATCH, topics=topics)
            costs.append(_claim_reads(box.db, box))
            assert taken == made
            assert box.ack(OWNER, taken) == BATCH
        held = report.sql("SELECT @@TRANCOUNT AS n")[0]["n"]
        assert held == 1
        report.rollback()
    early = sum(costs[2:7]) / 5
    late = sum(costs[-5:]) / 5
    assert late < 2 * early + 500, costs


def test_an_empty_claim_stays_cheap(box: Box) -> None:
    """What polls an empty box all the time."""
    with box.db.session() as report:
        report.sql("SET TRANSACTION ISOLATION LEVEL SNAPSHOT")
        report.sql(f"SELECT count(*) AS n FROM {{schema}}.{box.name}_message")
        assert box.take() == []
        before = _claim_reads(box.db, box)
        for _ in range(ROUNDS // 2):
            taken = box.fill(BATCH)
            assert box.take(OWNER, batch=BATCH) == taken
            assert box.ack(OWNER, taken) == BATCH
        reads = []
        for _ in range(100):
            assert box.take() == []
            reads.append(_claim_reads(box.db, box))
        report.rollback()
    # Now and then a claim may look from the beginning: a mark may be wrong, and must not hide anything.
    assert sorted(reads)[50] < 2 * before + 200, (before, reads)
