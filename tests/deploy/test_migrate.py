"""What `migrate` does to a schema, on every engine."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pysqlbox.deploy.migrate import migrate, status
from pysqlbox.deploy.store_postgres import PostgresStore
from pysqlbox.drivers import connect, driver_for, parse_url
from pysqlbox.errors import InvalidArgument, PysqlboxError, SchemaMismatch
from pysqlbox.names import NamedBox, quote_identifier
from tests.deploy.catalog import catalog
from tests.deploy.release import Release
from tests.support.database import execute_once

ORDERS = NamedBox("orders", "inbox")


def call(url: str, routine: str, schema: str = "infra") -> list[dict[str, object]]:
    """Calls a routine without arguments."""
    target = parse_url(url)
    connection = connect(target)
    try:
        return driver_for(target.dialect).call(connection, schema, routine, {})
    finally:
        connection.close()


def in_schema(url: str, postgres: str, mssql: str, schema: str = "infra") -> None:
    """Runs what each dialect says, with {s} for the schema."""
    dialect = parse_url(url).dialect
    text = postgres if dialect == "postgres" else mssql
    execute_once(url, text.replace("{s}", quote_identifier(dialect, schema)))


def change_by_hand(url: str) -> None:
    """Edits a routine in the database, past the release."""
    in_schema(
        url,
        "CREATE OR REPLACE FUNCTION {s}.outbox_total() RETURNS TABLE (n bigint)"
        " LANGUAGE sql AS 'SELECT 42::bigint'",
        "ALTER PROCEDURE {s}.outbox_total AS SELECT CAST(42 AS bigint) AS n",
    )


def test_release_deploys_and_second_run_changes_nothing(empty_url: str) -> None:
    """The release itself, twice: the second run finds nothing to do."""
    first = migrate(empty_url)
    assert first.changes
    assert "tables/schema/box" in first.tables
    before = catalog(empty_url, "infra")
    second = migrate(empty_url)
    assert not second.changes
    assert catalog(empty_url, "infra") == before
    assert call(empty_url, "schema_version") == [{"version": second.target}]


@pytest.mark.dialect("postgres")
def test_round_trips_do_not_grow_with_boxes(
    empty_url: str, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few questions, whether to deploy two boxes or forty, or to find that nothing is to be done."""
    trips = 0

    def counted(method: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            nonlocal trips
            trips += 1
            return method(*arguments)

        return call

    for name in ("_execute", "_run"):
        monkeypatch.setattr(PostgresStore, name, counted(getattr(PostgresStore, name)))
    counts: list[int] = []
    for schema, boxes in (("few", 2), ("many", 40)):
        wanted = [NamedBox(f"b{number}", "inbox") for number in range(boxes - 2)]
        for changes in (True, False):
            trips = 0
            assert release.migrate(empty_url, schema=schema, boxes=wanted).changes is changes
            counts.append(trips)
    assert counts[0] == counts[2]
    assert counts[1] == counts[3]


@pytest.mark.parametrize("schema", ['my-app "x"', "select", "it's [odd ;--", "MixedCase", "größe"])
def test_any_schema_name(empty_url: str, release: Release, schema: str) -> None:
    """A schema may have any name."""
    release.migrate(empty_url, schema=schema, boxes=[ORDERS])
    assert call(empty_url, "orders_total", schema) == [{"n": 0}]
    assert not release.migrate(empty_url, schema=schema).changes


def test_two_schemas_live_side_by_side(empty_url: str, release: Release) -> None:
    """Two deployments in one database have nothing in common."""
    release.migrate(empty_url, schema="one")
    release.migrate(empty_url, schema="two", boxes=[ORDERS])
    assert not release.status(empty_url, schema="one").changes
    assert [name for _, name, _ in catalog(empty_url, "one") if name.startswith("orders")] == []


def test_named_box_is_kept(empty_url: str, release: Release) -> None:
    """A box once added stays, gets later tables and keeps its kind."""
    release.migrate(empty_url)
    assert release.migrate(empty_url, boxes=[ORDERS]).boxes == ["orders:inbox"]
    release.second_version()
    assert "tables/queue/0002_extra@orders" in release.migrate(empty_url).tables
    with pytest.raises(InvalidArgument, match="is an inbox already"):
        release.migrate(empty_url, boxes=[NamedBox("orders", "outbox")])


def test_edited_and_reverted_routine(empty_url: str, release: Release) -> None:
    """A routine follows its file, forwards and back."""
    release.migrate(empty_url)
    release.routine("total", "n", "count(*) + 7")
    assert sorted(release.migrate(empty_url).routines) == ["queue/total@inbox", "queue/total@outbox"]
    assert call(empty_url, "outbox_total") == [{"n": 7}]
    release.routine("total", "n", "count(*)")
    assert len(release.migrate(empty_url).routines) == 2
    assert call(empty_url, "outbox_total") == [{"n": 0}]


def test_signature_changes(empty_url: str, release: Release) -> None:
    """Another result, other parameters, other columns of a view: nothing is left of the old."""
    release.migrate(empty_url)
    release.routine("total", "answer", "count(*)", parameter="since")
    release.view("note, id")
    release.migrate(empty_url)
    assert call(empty_url, "outbox_total") == [{"answer": 0}]
    release.routine("total", "answer", "count(*)", parameter="upto")
    release.migrate(empty_url)
    assert call(empty_url, "inbox_total") == [{"answer": 0}]
    names = [
        name for kind, name, _ in catalog(empty_url, "infra") if name == "outbox_total" and kind != "column"
    ]
    assert len(names) == (1 if parse_url(empty_url).dialect == "postgres" else 2)  # object and module
    assert not release.status(empty_url).changes


def test_routine_no_longer_shipped_is_dropped(empty_url: str, release: Release) -> None:
    """What a release no longer has goes; what others made in the schema stays."""
    release.routine("other", "n", "count(*)")
    release.migrate(empty_url)
    in_schema(
        empty_url,
        "CREATE FUNCTION {s}.mine() RETURNS TABLE (n int) LANGUAGE sql AS 'SELECT 1'",
        "CREATE PROCEDURE {s}.mine AS SELECT 1 AS n",
    )
    release.remove("queue/other.sql")
    assert sorted(release.migrate(empty_url).dropped) == ["queue/other@inbox", "queue/other@outbox"]
    names = {name for _, name, _ in catalog(empty_url, "infra")}
    assert "mine" in names
    assert not names & {"outbox_other", "inbox_other"}


def test_drift_is_found_and_mended(empty_url: str, release: Release) -> None:
    """A routine changed by hand, and one dropped by hand."""
    release.migrate(empty_url)
    change_by_hand(empty_url)
    in_schema(empty_url, "DROP FUNCTION {s}.inbox_total()", "DROP PROCEDURE {s}.inbox_total")
    found = release.status(empty_url)
    assert sorted(found.drifted) == ["queue/total@inbox", "queue/total@outbox"]
    assert call(empty_url, "outbox_total") == [{"n": 42}]
    release.migrate(empty_url)
    assert call(empty_url, "outbox_total") == [{"n": 0}]
    assert call(empty_url, "inbox_total") == [{"n": 0}]
    assert not release.status(empty_url).changes


def test_upgrade_ends_where_a_fresh_install_does(empty_url: str, release: Release) -> None:
    """Through an older release, with a box added before or after, or at once: the same catalog."""
    release.migrate(empty_url, schema="early", boxes=[ORDERS])
    release.migrate(empty_url, schema="late")
    release.second_version()
    release.routine("total", "n", "sum(extra)", parameter="since")
    assert release.status(empty_url, schema="early").version == 1
    upgraded = release.migrate(empty_url, schema="early")
    assert (upgraded.version, upgraded.target) == (1, 2)
    release.migrate(empty_url, schema="late")
    release.migrate(empty_url, schema="late", boxes=[ORDERS])
    release.migrate(empty_url, schema="fresh", boxes=[ORDERS])
    fresh = catalog(empty_url, "fresh")
    assert any(name == "orders_item" and "extra" in text for _, name, text in fresh)
    assert catalog(empty_url, "early") == fresh
    assert catalog(empty_url, "late") == fresh


def test_release_with_boxes_added_later(empty_url: str) -> None:
    """The release itself: a box added later makes the same schema as one there from the start."""
    migrate(empty_url, schema="box_late")
    migrate(empty_url, schema="box_late", boxes=[ORDERS])
    migrate(empty_url, schema="box_first", boxes=[ORDERS])
    assert catalog(empty_url, "box_late") == catalog(empty_url, "box_first")


def test_newer_schema_is_refused(empty_url: str, release: Release, tmp_path: Path) -> None:
    """An older release keeps its hands off a newer schema."""
    (tmp_path / "older").mkdir()
    older = Release(tmp_path / "older")
    release.second_version()
    release.migrate(empty_url)
    before = catalog(empty_url, "infra")
    for attempt in (older.migrate, older.status):
        with pytest.raises(SchemaMismatch, match="has version 2, newer than this release"):
            attempt(empty_url)
    assert catalog(empty_url, "infra") == before


def test_failure_leaves_nothing_and_next_run_finishes(empty_url: str, release: Release) -> None:
    """An error in the last file undoes all of the deployment."""
    release.write("admin/zz.sql", "SELECT no_such_column;\n", "SELECT no_such_column FROM sys.objects;\n")
    with pytest.raises(PysqlboxError, match="no_such_column"):
        release.migrate(empty_url)
    assert catalog(empty_url, "infra") == []
    release.remove("admin/zz.sql")
    assert release.migrate(empty_url).changes
    before = catalog(empty_url, "infra")
    release.second_version()
    release.write("admin/zz.sql", "SELECT no_such_column;\n", "SELECT no_such_column FROM sys.objects;\n")
    with pytest.raises(PysqlboxError, match="no_such_column"):
        release.migrate(empty_url)
    assert catalog(empty_url, "infra") == before
    release.remove("admin/zz.sql")
    release.migrate(empty_url)
    assert call(empty_url, "schema_version") == [{"version": 2}]


@pytest.mark.dialect("postgres")
def test_crash_in_the_middle(empty_url: str, release: Release) -> None:
    """A connection cut in the middle leaves no lock and nothing half done."""
    release.write("admin/zz.sql", "SELECT pg_terminate_backend(pg_backend_pid());\n", "SELECT 1;\n")
    with pytest.raises(PysqlboxError):
        release.migrate(empty_url)
    assert catalog(empty_url, "infra") == []
    release.remove("admin/zz.sql")
    assert release.migrate(empty_url).changes
    assert not release.status(empty_url).changes


def test_twenty_deployers_at_once(empty_url: str, release: Release) -> None:
    """One does the work, the others wait for it and find nothing to do."""
    barrier = threading.Barrier(20)

    def deploy(number: int) -> bool:
        barrier.wait()
        return release.migrate(empty_url, boxes=[ORDERS] if number % 2 else []).changes

    with ThreadPoolExecutor(20) as pool:
        changed = list(pool.map(deploy, range(20)))
    assert 1 <= sum(changed) <= 2  # the second may have added the box
    assert not release.status(empty_url).changes
    assert call(empty_url, "orders_total") == [{"n": 0}]


def test_dry_run_changes_nothing(empty_url: str, release: Release) -> None:
    """A dry run tells the same plan and writes nothing."""
    told = release.migrate(empty_url, dry_run=True, boxes=[ORDERS])
    assert catalog(empty_url, "infra") == []
    done = release.migrate(empty_url, boxes=[ORDERS])
    assert told == done


def test_edited_table_file_is_reported(empty_url: str, release: Release) -> None:
    """A released table file that was edited is not applied again, and status says so."""
    release.migrate(empty_url)
    for file in release.root.glob("*/tables/queue/item.sql"):
        file.write_text(file.read_text().replace("note", "remark"))
    found = release.status(empty_url)
    assert found.edited == ["tables/queue/item@outbox", "tables/queue/item@inbox"]
    assert found.tables == []


def test_roles_only_on_request_and_kept(empty_url: str, release: Release) -> None:
    """Role files run when asked for, and from then on after every change."""
    release.write(
        "roles/reader.sql",
        "GRANT SELECT ON {{ box_names }} TO PUBLIC;\n".replace("{{ box_names }}", "{{ db.outbox_items }}"),
        "GRANT SELECT ON {{ db.outbox_items }} TO public;\n",
    )
    assert "roles/reader" not in release.migrate(empty_url).routines
    assert "roles/reader" in release.migrate(empty_url, roles=True).routines
    release.view("note, id")
    assert "roles/reader" in release.migrate(empty_url).routines
    assert not release.status(empty_url).changes


@pytest.mark.parametrize("box", ["total", "items"])
def test_box_whose_names_collide(empty_url: str, release: Release, box: str) -> None:
    """A named box may not generate a name that another box or the schema has."""
    release.write(f"queue/{box}_x.sql", *["SELECT 1; -- {{ box." + box + "_x }}\n"] * 2)
    release.write("queue/x.sql", *["SELECT 1; -- {{ box.x }}\n"] * 2)
    with pytest.raises(InvalidArgument, match="collides"):
        release.migrate(empty_url, boxes=[NamedBox("a", "outbox"), NamedBox(f"a_{box}", "outbox")])


def test_status_of_nothing(empty_url: str) -> None:
    """A database without the schema is a database where all is pending."""
    found = status(empty_url)
    assert (found.version, found.schema) == (0, True)
    assert found.tables
    assert re.search(r"tables/", found.tables[0])
