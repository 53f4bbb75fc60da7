"""What the server's plans do: the operators that read a table from one end to the other."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass

from tests.support.database import Database

_SPACE = "{http://schemas.microsoft.com/sqlserver/2004/07/showplan}"
_SCANS = {"Table Scan", "Index Scan", "Clustered Index Scan"}
_CACHED = """
    SELECT OBJECT_NAME(p.objectid, p.dbid) AS routine, CAST(p.query_plan AS nvarchar(max)) AS plan_text
    FROM sys.dm_exec_procedure_stats AS s
        CROSS APPLY sys.dm_exec_query_plan(s.plan_handle) AS p
    WHERE s.database_id = DB_ID() AND OBJECT_SCHEMA_NAME(s.object_id, s.database_id) = %s
        AND p.query_plan IS NOT NULL
    """


@dataclass(frozen=True, slots=True)
class Scan:
    """An operator of a routine's plan that has no predicate to seek by."""

    routine: str
    table: str
    index: str
    operator: str


def scans(db: Database) -> list[Scan]:
    """Every scan of a real table in the cached plans of the schema's routines."""
    found: set[Scan] = set()
    for row in db.sql(_CACHED, db.schema):
        found.update(scans_of(str(row["routine"]), str(row["plan_text"])))
    return sorted(found, key=lambda scan: (scan.table, scan.routine, scan.index))


def scans_of(routine: str, plan: str) -> list[Scan]:
    """The scans in one plan; table variables and temporary tables are a call's own and may be scanned."""
    found = []
    for operator in ET.fromstring(plan).iter(f"{_SPACE}RelOp"):
        if operator.get("PhysicalOp") not in _SCANS:
            continue
        target = operator.find(f"./*/{_SPACE}Object")
        table = "" if target is None else (target.get("Table") or "").strip("[]")
        if target is None or table.startswith(("@", "#")) or target.get("Schema") in (None, "[sys]"):
            continue
        index = (target.get("Index") or "").strip("[]")
        found.append(Scan(routine, table, index, str(operator.get("PhysicalOp"))))
    return found
