"""What doctor() tells on a standby, behind a pooler, and of what only a server of its own can have."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import psycopg
import pytest

import pysqlbox
from tests.contract.support import Row
from tests.faults.servers import Server, wait_until
from tests.faults.test_pooler import SERVER_CONNECTIONS, pooler
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


@pytest.mark.every_version
def test_doctor_sees_a_listener_that_hears_nothing_behind_a_pooler(running: Server) -> None:
    """A worker that goes through PgBouncer in transaction mode is noted; one that goes past it is not."""
    url = f"postgresql://postgres@/postgres?host={running.folder}"
    with pooler(running) as between:
        with _at_work(between.url):
            wait_until(lambda: _listeners(running, between.url), "nobody notes that the listener is deaf")
            (row,) = _listeners(running, between.url)
        assert (row["level"], row["subject"]) == ("note", "box outbox")
        assert "past the pooler" in row["advice"]
    running.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    with _at_work(url):
        wait_until(lambda: not _listeners(running, url), "a listener that hears is not seen")


@contextlib.contextmanager
def _at_work(url: str) -> Iterator[None]:
    """A worker that has handled a message and goes on."""
    with pysqlbox.connect(url) as db:
        worker = db.worker(
            threads=1, reap_seconds=None, cleanup_seconds=None, schedule_seconds=None, report_seconds=0.5
        )
        handled = threading.Event()
        worker.add_handler("t", lambda _message: handled.set())
        db.outbox.enqueue("t", "p")
        worker.start()
        try:
            assert handled.wait(60)
            yield
        finally:
            worker.stop(1)


def _listeners(server: Server, url: str) -> list[Row]:
    """What is found of listeners, after every connection of the pooler has been used."""
    with contextlib.ExitStack() as stack:
        for _ in range(SERVER_CONNECTIONS if "127.0.0.1" in url else 0):
            stack.enter_context(psycopg.connect(url)).execute("SELECT 1")
    return _found(server.sql("SELECT * FROM infra._outbox_doctor()"), "listeners")


@pytest.mark.every_version
def test_doctor_sees_a_queue_of_notifications_that_nobody_empties(running: Server) -> None:
    if int(running.known.id.removeprefix("pg")) < 17:
        pytest.skip("before PostgreSQL 17 this queue has 8 GB, and its size cannot be set")
    running.settings["max_notify_queue_pages"] = "64"
    running.stop()
    running.start()
    everything = "SELECT * FROM infra._doctor_server()"
    assert _found(running.sql(everything), "notifications") == []
    with psycopg.connect(running.url) as listener, psycopg.connect(running.url, autocommit=True) as sender:
        listener.execute("LISTEN somewhere")
        listener.commit()
        listener.execute("SELECT 1")
        for level, count in (("warning", 12), ("error", 32)):
            for number in range(count):
                sender.execute("SELECT pg_notify('somewhere', %s)", (f"{number}:{'x' * 7900}",))
            (row,) = _found(running.sql(everything), "notifications")
            assert row["level"] == level, row["detail"]
        listener.rollback()
    wait_until(
        lambda: not _found(running.sql(everything), "notifications"), "the queue is not seen to be empty"
    )


@pytest.mark.every_version
def test_doctor_sees_rows_of_very_many_transactions_ago(running: Server) -> None:
    """600 million transactions pass while a prepared one keeps every row from being frozen."""
    running.settings["max_prepared_transactions"] = "2"
    running.stop()
    running.start()
    with psycopg.connect(running.url, autocommit=True) as session:
        session.execute("BEGIN")
        session.execute("CREATE TABLE infra.left_behind (id int)")
        session.execute("PREPARE TRANSACTION 'left behind'")
    assert _found(running.sql("SELECT * FROM infra._doctor_server()"), "transaction_age") == []
    running.stop()
    running.run("pg_resetwal", "-x", str(572 * 1_048_576), "-D", running.data)
    running.start()
    (row,) = _found(running.sql("SELECT * FROM infra._doctor_server()"), "transaction_age")
    assert row["level"] == "warning"
    assert "VACUUM (FREEZE" in row["advice"]
    (held,) = [
        row
        for row in _found(running.sql("SELECT * FROM infra._doctor_sessions(0)"), "horizon")
        if row["subject"] == "prepared transaction left behind"
    ]
    running.sql(str(held["advice"]).partition(";")[0])
    running.sql("VACUUM (FREEZE)")
    running.sql("VACUUM (FREEZE)", database="template1")
    assert _found(running.sql("SELECT * FROM infra._doctor_server()"), "transaction_age") == []
