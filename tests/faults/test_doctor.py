"""What doctor() tells on a standby, and of one."""

from __future__ import annotations

import psycopg
import pytest

from tests.contract.support import Row
from tests.faults.servers import Server, wait_until
from tests.faults.test_standby import backup, follow


def _found(rows: list[Row], check: str) -> list[Row]:
    return [row for row in rows if row["check"] == check and row["level"] != "ok"]


@pytest.mark.every_version
def test_doctor_on_a_standby_and_of_its_feedback(running: Server) -> None:
    """On the standby everything is looked at; on the primary a query there is named that keeps rows."""
    everything = "SELECT * FROM infra.doctor()"
    with backup(running, "-R") as standby:
        standby.settings |= {"hot_standby_feedback": "on", "wal_receiver_status_interval": "1"}
        follow(standby, running)
        rows = standby.sql(everything)
        (row,) = _found(rows, "standby")
        assert (row["level"], row["subject"]) == ("error", "server")
        assert [row for row in rows if row["level"] == "unknown"] == []
        with psycopg.connect(standby.url) as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT 1")
            with psycopg.connect(running.url, autocommit=True) as writer:
                for _ in range(1500):
                    writer.execute("SELECT pg_current_xact_id()")
            wait_until(
                lambda: len(_feedback(running)) == 1, "the primary does not hear of the standby's query"
            )
        wait_until(lambda: _feedback(running) == [], "the primary does not hear that it is over")


def _feedback(primary: Server) -> list[Row]:
    rows = _found(primary.sql("SELECT * FROM infra._doctor_sessions(60)"), "horizon")
    return [row for row in rows if row["subject"] == "standby standby" and row["level"] == "note"]


@pytest.mark.every_version
def test_doctor_names_a_logical_slot_by_what_it_keeps(running: Server) -> None:
    running.settings["wal_level"] = "logical"
    running.stop()
    running.start()
    running.sql("SELECT pg_create_logical_replication_slot('left_behind', 'pgoutput')")
    rows = _found(running.sql("SELECT * FROM infra._doctor_sessions(0)"), "horizon")
    (row,) = [row for row in rows if row["subject"] == "replication slot left_behind"]
    assert row["level"] == "warning"
    assert "in the catalog" in row["detail"]
    running.sql(str(row["advice"]).partition(";")[0])
    assert running.sql("SELECT slot_name FROM pg_replication_slots") == []
