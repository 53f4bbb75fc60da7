"""The plans that the server makes: hot tables are sought, never scanned, and a routine has one plan."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest

import pysqlbox
from tests.contract.support import OWNER, Box
from tests.sqlserver.plans import Scan, scans, scans_of
from tests.support.database import Database

HOT = re.compile(r"(outbox|inbox)_(message|ready|lease|scheduled|done|dead|group_member|dedup|collapse|seen)")


def _whole_life(box: Box, count: int) -> None:
    """Every step of the hot path, on tables that hold something."""
    for turn in range(3):
        box.fill(count)
        box.put(group_id=f"g{turn}")
        box.put(priority=3)
        box.put(collapse_key="c")
        taken = box.take(batch=count)
        assert box.ack(OWNER, taken[:-4]) == len(taken) - 4
        box.abandon(OWNER, taken[-4:-3])
        box.release(OWNER, taken[-3:-2])
        box.fail(OWNER, taken[-2:-1])
        box.extend(OWNER, taken[-1:])
        box.settle(OWNER, [{"id": taken[-1], "result": "ack"}], claim_batch=5)
        box.reap()
        box.take(topics=["t"])


@pytest.mark.parametrize("count", [20, 400])
def test_no_hot_table_is_scanned(box: Box, count: int) -> None:
    """Neither by plans that were made when the tables were empty nor by those for full ones."""
    if count > 20:
        box.fill(5000)
    box.db.sql("DBCC FREEPROCCACHE WITH NO_INFOMSGS")  # other tests' plans, and those of operating routines
    _whole_life(box, count)
    found = [scan for scan in scans(box.db) if HOT.fullmatch(scan.table)]
    assert found == []


def test_the_control_finds_a_scan(box: Box) -> None:
    """A planted routine that reads all of a hot table."""
    name = f"planted_{box.name}"
    box.db.sql(
        f"CREATE OR ALTER PROCEDURE {{schema}}.{name} AS"
        f" SELECT COUNT(*) AS n FROM {{schema}}.{box.name}_ready WHERE expires_at IS NOT NULL"
    )
    try:
        box.db.call(name)
        assert any(scan.routine == name and scan.table == f"{box.name}_ready" for scan in scans(box.db))
    finally:
        box.db.sql(f"DROP PROCEDURE {{schema}}.{name}")


def test_a_routine_has_one_plan_whatever_the_lengths(server: Database) -> None:
    """Fifty enqueues and acks with texts of fifty lengths leave one text each in the cache."""
    server.sql("DBCC FREEPROCCACHE WITH NO_INFOMSGS")
    with pysqlbox.connect(server.url, schema=server.schema) as db:
        for length in range(50):
            sent = db.outbox.enqueue("t" * (1 + length), "p" * 97 * length, message_id=uuid4())
            claimed = db.outbox.claim(OWNER, batch_size=1 + length)
            db.outbox.ack(OWNER, [message.id for message in claimed])
            assert sent.outcome == "created"
    query = (
        "SELECT t.text AS text FROM sys.dm_exec_cached_plans AS p"
        " CROSS APPLY sys.dm_exec_sql_text(p.plan_handle) AS t"
        " WHERE p.objtype IN (N'Prepared', N'Adhoc') AND t.text LIKE N'%EXEC%outbox[_]' + %s + N']%'"
        " AND t.text NOT LIKE N'%dm_exec_cached_plans%'"
    )
    for routine in ("enqueue", "claim", "ack"):
        texts = [row["text"] for row in server.sql(query, routine)]
        assert len(texts) == 1, texts


# A plan as the server writes it, cut down to what is read of it.
_PLAN = """
<ShowPlanXML xmlns="http://schemas.microsoft.com/sqlserver/2004/07/showplan"><BatchSequence><Batch><Statements>
<StmtSimple><QueryPlan>
<RelOp PhysicalOp="Nested Loops"><NestedLoops>
<RelOp PhysicalOp="Table Scan"><TableScan><Object Table="[@ids]" /></TableScan></RelOp>
<RelOp PhysicalOp="Clustered Index Seek"><IndexScan>
<Object Database="[d]" Schema="[infra]" Table="[outbox_ready]" Index="[pk]" /></IndexScan></RelOp>
<RelOp PhysicalOp="Index Scan"><IndexScan>
<Object Database="[d]" Schema="[infra]" Table="[outbox_lease]" Index="[ix_lease_group]" /></IndexScan></RelOp>
<RelOp PhysicalOp="Clustered Index Scan"><IndexScan>
<Object Database="[d]" Schema="[sys]" Table="[sysschobjs]" Index="[clst]" /></IndexScan></RelOp>
</NestedLoops></RelOp></QueryPlan></StmtSimple></Statements></Batch></BatchSequence></ShowPlanXML>
"""


def test_reading_a_plan() -> None:
    """Seeks, table variables and the catalog do not count; this needs no server."""
    assert scans_of("r", _PLAN) == [Scan("r", "outbox_lease", "ix_lease_group", "Index Scan")]
