"""What doctor finds in SQL Server itself, and that the statement it gives mends it."""

from __future__ import annotations

import pytest

from tests.contract.support import Row
from tests.contract.test_doctor import doctor, found
from tests.sqlserver.sessions import session_id
from tests.support.database import Database, Session, execute_once
from tests.support.engines import Engine

SETTINGS = {
    "read_committed_snapshot": "READ_COMMITTED_SNAPSHOT OFF WITH ROLLBACK IMMEDIATE",
    "compatibility_level": "COMPATIBILITY_LEVEL = 140",
    "auto_close": "AUTO_CLOSE ON",
    "auto_shrink": "AUTO_SHRINK ON",
}
SESSIONS = """
SET NOCOUNT ON;
CREATE TABLE #pysqlbox_doctor (
    no int IDENTITY (1, 1) NOT NULL, [check] nvarchar(40), level nvarchar(10), subject nvarchar(1000),
    detail nvarchar(max), advice nvarchar(max)
);
EXEC {schema}._doctor_sessions @after_seconds = 0;
SELECT d.[check], d.level, d.subject, d.detail, d.advice FROM #pysqlbox_doctor AS d ORDER BY d.no;
DROP TABLE #pysqlbox_doctor;
"""


def sessions(db: Database, session: Session) -> dict[str, Row]:
    """What is found of a session, which began just now, by check."""
    subject = f"session {session_id(session)}"
    return {str(row["check"]): row for row in db.sql(SESSIONS) if row["subject"] == subject}


@pytest.mark.parametrize("check", SETTINGS)
def test_doctor_names_a_setting_and_its_cure(server: Database, engine: Engine, check: str) -> None:
    if check == "read_committed_snapshot" and not engine.is_versioned:
        (row,) = found(server, check)
        assert row["level"] == "error"
        return
    assert found(server, check) == []
    server.close()
    execute_once(server.url, f"ALTER DATABASE CURRENT SET {SETTINGS[check]}")
    (row,) = found(server, check)
    server.close()
    execute_once(server.url, str(row["advice"]))
    assert found(server, check) == []


def test_doctor_names_who_writes_and_does_not_end(server: Database) -> None:
    with server.session() as writer:
        writer.call("outbox_enqueue", topic="t", payload="secret")
        rows = sessions(server, writer)
        assert rows.keys() == {"writing_transactions", "idle_in_transaction"}
        assert f"KILL {session_id(writer)};" in {row["advice"] for row in rows.values()}
        assert "secret" not in str(rows)
    assert [row["level"] for row in doctor(server) if row["check"] == "writing_transactions"] == ["ok"]


def test_doctor_names_who_holds_versions(versioned: Database) -> None:
    with versioned.session() as reader:
        reader.sql("SET TRANSACTION ISOLATION LEVEL SNAPSHOT")
        reader.sql("SELECT name FROM {schema}._box")
        assert sessions(versioned, reader)["version_store"]["level"] == "warning"


def test_doctor_names_tables_and_sequences_that_were_changed(server: Database) -> None:
    with server.session() as session:
        session.sql("ALTER TABLE {schema}.mail_ready SET (LOCK_ESCALATION = TABLE)")
        session.sql("ALTER SEQUENCE {schema}._mail_ids NO CACHE")
        session.sql("ALTER SEQUENCE {schema}._orders_ids MAXVALUE 1000000 RESTART WITH 850000")
        for check, subject in (
            ("lock_escalation", "table mail_ready"),
            ("sequence_cache", "sequence _mail_ids"),
            ("sequences", "sequence _orders_ids"),
        ):
            (row,) = found(session, check)
            assert row["subject"] == subject
            session.sql(str(row["advice"]))
            assert found(session, check) == []


def test_doctor_misses_every_index_and_its_advice_brings_it_back(server: Database) -> None:
    query = (
        "SELECT i.name AS name, OBJECT_NAME(i.object_id) AS table_name FROM sys.indexes AS i"
        " WHERE OBJECT_SCHEMA_NAME(i.object_id) = 'infra' AND i.name LIKE 'ix[_]%' ORDER BY i.name"
    )
    before = server.sql(query)
    assert len(before) > 20
    for index in before:
        with server.session() as session:
            session.sql(f"DROP INDEX {index['name']} ON {{schema}}.{index['table_name']}")
            (row,) = found(session, "indexes")
            assert (row["level"], row["subject"]) == ("error", f"index {index['name']}")
            session.sql(str(row["advice"]))
            assert found(session, "indexes") == []
            assert session.sql(query) == before


def test_doctor_names_a_disabled_index(server: Database) -> None:
    with server.session() as session:
        session.sql("ALTER INDEX ix_mail_done_age ON {schema}.mail_done DISABLE")
        (row,) = found(session, "indexes", "index ix_mail_done_age")
        assert "disabled" in row["detail"]
        session.sql(str(row["advice"]))
        assert found(session, "indexes") == []


def test_doctor_knows_nothing_without_rights_and_leaves_the_transaction_usable(server: Database) -> None:
    with server.session() as session:
        session.sql("CREATE USER doctor_stranger WITHOUT LOGIN")
        session.sql("GRANT EXECUTE ON {schema}.doctor TO doctor_stranger")
        message = session.one("outbox_enqueue", topic="t", payload="p")["id"]
        session.sql("EXECUTE AS USER = 'doctor_stranger'")
        levels = {row["check"]: row["level"] for row in doctor(session) if row["subject"] != "box outbox"}
        session.sql("REVERT")
        assert {levels[check] for check in ("version_store", "drift", "sequences", "roles")} == {"unknown"}
        assert session.one("outbox_get", id=message)["status"] == "Ready"


def test_doctors_answer_can_be_kept_in_a_table(server: Database) -> None:
    with server.session() as session:
        session.sql(
            "CREATE TABLE #kept (name nvarchar(40), level nvarchar(10), subject nvarchar(1000),"
            " detail nvarchar(max), advice nvarchar(max))"
        )
        session.sql("INSERT INTO #kept EXEC {schema}.doctor")
        assert session.sql("SELECT COUNT(*) AS n FROM #kept")[0]["n"] == len(doctor(session))
