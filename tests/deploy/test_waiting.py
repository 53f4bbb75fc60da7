"""A deployment that needs what is in use: it gives way, tells who has it, tries again, and gives up."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pysqlbox.deploy import waiting
from pysqlbox.deploy.migrate import migrate
from pysqlbox.drivers import connect, parse_url
from pysqlbox.errors import DatabaseUnavailable
from pysqlbox.names import NamedBox
from tests.deploy.catalog import catalog
from tests.deploy.release import Release
from tests.deploy.test_migrate import call
from tests.support.database import execute_once, run_sql


@pytest.fixture
def deployed(empty_url: str, release: Release) -> str:
    """The URL of a database with the small release."""
    release.migrate(empty_url)
    return empty_url


@contextlib.contextmanager
def using(url: str, statement: str) -> Iterator[Any]:
    """A session with an open transaction that has run a statement."""
    target = parse_url(url)
    connection = connect(target)
    try:
        run_sql(connection, target.dialect, statement)
        yield connection
    finally:
        connection.close()


def test_gives_up_and_leaves_all_as_it_was(deployed: str, release: Release) -> None:
    """An open writing transaction is in the way of a new column."""
    release.second_version()
    before = catalog(deployed, "infra")
    insert = "INSERT INTO infra.outbox_item (id, note) VALUES (1, 'x')"
    with (
        using(deployed, insert),
        pytest.raises(DatabaseUnavailable, match=r"is in use by .*nothing was changed"),
    ):
        release.migrate(deployed, wait_seconds=0)
    assert catalog(deployed, "infra") == before
    assert release.migrate(deployed, wait_seconds=0).target == 2
    assert call(deployed, "schema_version") == [{"version": 2}]


def test_goes_on_when_the_way_is_free(deployed: str, release: Release) -> None:
    """It is told who is in the way, and after the pause it finds nobody there."""
    release.second_version()
    told: list[str] = []
    with using(deployed, "INSERT INTO infra.outbox_item (id, note) VALUES (1, 'x')") as holder:

        def on_wait(message: str) -> None:
            told.append(message)
            holder.commit()

        assert release.migrate(deployed, wait_seconds=60, on_wait=on_wait).changes
    assert len(told) == 1
    assert call(deployed, "outbox_total") == [{"n": 1}]


@pytest.mark.dialect("postgres")
def test_says_who_is_in_the_way(deployed: str, release: Release) -> None:
    """By number, user, application, state and times; never what the session had asked."""
    release.view("note, id")
    dsn = parse_url(deployed).dsn
    with psycopg.connect(dsn, application_name="the-report") as holder:
        holder.execute("SELECT * FROM infra.outbox_items WHERE note = 'topsecret'")
        user = holder.info.user
        found = (
            rf"session {holder.info.backend_pid} \(user {user}, application the-report, idle in transaction,"
            r" since \S+ \S+ UTC, last query began \S+ \S+ UTC\), for infra.outbox_items; gave up after"
        )
        with pytest.raises(DatabaseUnavailable, match=found) as raised:
            release.migrate(deployed, wait_seconds=0)
        assert "topsecret" not in str(raised.value)
        assert isinstance(raised.value.__cause__, psycopg.errors.LockNotAvailable)


@pytest.mark.dialect("postgres")
def test_says_when_it_is_a_prepared_transaction(deployed: str, release: Release) -> None:
    """One that nobody has finished has no session, and outlives them all."""
    allowed = execute_once(deployed, "SHOW max_prepared_transactions")
    if allowed == [{"max_prepared_transactions": "0"}]:
        pytest.skip("this server has max_prepared_transactions = 0")
    release.view("note, id")
    with using(deployed, "SELECT * FROM infra.outbox_items") as holder:
        holder.execute("PREPARE TRANSACTION 'forgotten by its coordinator'")
        holder.commit()
    try:
        with pytest.raises(
            DatabaseUnavailable, match=r"in use by a prepared transaction \(see pg_prepared_xacts"
        ):
            release.migrate(deployed, wait_seconds=0)
    finally:
        execute_once(deployed, "ROLLBACK PREPARED 'forgotten by its coordinator'")


@pytest.mark.dialect("postgres")
def test_callers_wait_a_moment_only(deployed: str, release: Release) -> None:
    """Whoever reads the view meanwhile is served, though a deployment waits for it all the time."""
    release.view("note, id")
    stop, tried = threading.Event(), threading.Event()
    with using(deployed, "SELECT * FROM infra.outbox_items"):

        def deploy() -> None:
            with contextlib.suppress(DatabaseUnavailable):
                release.migrate(deployed, wait_seconds=12, on_wait=lambda _: tried.set())
            stop.set()

        thread = threading.Thread(target=deploy)
        thread.start()
        served = 0
        with psycopg.connect(parse_url(deployed).dsn, autocommit=True) as caller:
            caller.execute("SET statement_timeout = '30s'")
            while not stop.is_set():
                caller.execute("SELECT * FROM infra.outbox_items").fetchall()
                served += 1
        thread.join()
    assert tried.is_set()
    assert served > 1
    assert release.status(deployed).changes


@pytest.mark.dialect("postgres")
def test_unchanged_and_changed_routines_take_no_locks(empty_url: str, release: Release) -> None:
    """Transactions that have used everything are in nobody's way when only routines change."""
    release.migrate(empty_url)
    told: list[str] = []
    everything = (
        "SELECT * FROM infra.outbox_items; SELECT * FROM infra.outbox_total();"
        "INSERT INTO infra.outbox_item (id, note) VALUES (1, 'x')"
    )
    with using(empty_url, everything):
        assert not release.migrate(empty_url, wait_seconds=0, on_wait=told.append).changes
        release.routine("total", "n", "count(*) + 1")
        assert release.migrate(empty_url, wait_seconds=0, on_wait=told.append).changes
        release.migrate(empty_url, schema="another", wait_seconds=0, on_wait=told.append)
    assert told == []


@pytest.mark.dialect("postgres")
def test_a_box_is_added_while_the_others_are_in_use(empty_url: str) -> None:
    """The release itself: a new box touches nothing of the boxes that are there."""
    migrate(empty_url)
    statement = (
        "SELECT infra.outbox_enqueue('t', 'p'); SELECT * FROM infra.outbox_find(gen_random_uuid());"
        " TABLE infra.outbox_messages; TABLE infra.inbox_messages; TABLE infra.outbox_joins"
    )
    with using(empty_url, statement):
        plan = migrate(empty_url, boxes=[NamedBox("orders", "inbox")], wait_seconds=0)
    assert plan.boxes == ["orders:inbox"]
    assert not [name for name in plan.routines if name.endswith(("@outbox", "@inbox"))]


def test_a_deployment_goes_on_without_a_watcher(
    deployed: str, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No second connection to be had: it ends the same way, and does not know who it was."""
    release.second_version()

    class NoDriver:
        @staticmethod
        def connect(*_: object, **__: object) -> None:
            raise DatabaseUnavailable("too many connections")

        @staticmethod
        def database_error() -> type[Exception]:
            return psycopg.Error

    monkeypatch.setattr(waiting, "driver_for", lambda _: NoDriver)
    insert = "INSERT INTO infra.outbox_item (id, note) VALUES (1, 'x')"
    with using(deployed, insert), pytest.raises(DatabaseUnavailable, match="could not be looked up"):
        release.migrate(deployed, wait_seconds=0)
