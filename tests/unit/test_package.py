"""What the package promises: its names, its errors, and a wheel that has everything."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pysqlbox
from pysqlbox import errors
from pysqlbox.drivers.embedded import EmbeddedServer, default_data_directory
from pysqlbox.paths import migrations_root, sql_root

ROOT = Path(__file__).parents[2]


NAMES = """
AccessDenied Ack AlreadyProcessed AsyncAudit AsyncDeployment AsyncInbox AsyncJoins AsyncLedger
AsyncOutbox AsyncSchedules Audit AuditEntry BoxMetrics Busy DatabaseUnavailable DeadCause DeadLetter
DeadLetterCause Deployment DriverMissing Enqueued Extended Finding Group HashRing Idempotent Inbox
InboxDeadLetter InboxEnqueued InboxMessage InvalidArgument InvalidState Join JoinResolution Joins
JsonSerializer Ledger LedgerClaim LedgerEntry LedgerKey ListedInboxMessage ListedOutboxMessage
NonRetryable NotFound Outbox OutboxDeadLetter OutboxMessage OutboxStore PysqlboxError Release Result
Retried Retries Retry Router Schedule ScheduleClock ScheduleFired Schedules SchemaMismatch
Serializer StoredInboxMessage StoredOutboxMessage Stores TopicStats Undecodable WaitEnqueued Worker
WorkerSeen __version__ connect connect_async message
"""
"""What the package exports; a name that is gone or new is a change of what callers rely on."""


def test_names() -> None:
    """What the package exports is there, and no more."""
    assert sorted(pysqlbox.__all__) == sorted(NAMES.split())
    assert pysqlbox.__all__ == sorted(pysqlbox.__all__)
    for name in pysqlbox.__all__:
        assert hasattr(pysqlbox, name)


def test_importing_the_package_is_light() -> None:
    """Rendering, deploying and the drivers are imported when they are needed."""
    code = (
        "import sys, pysqlbox;"
        " heavy = {'jinja2', 'yoyo', 'click', 'psycopg', 'pyodbc', 'sqlalchemy', 'django', 'pydantic'};"
        " sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.stderr == ""


def test_error_tree() -> None:
    """All derive from one, and two are also what Python calls them."""
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.PysqlboxError)
    assert issubclass(errors.InvalidArgument, ValueError)
    assert issubclass(errors.NotFound, LookupError)


def test_found_in_a_checkout() -> None:
    """The SQL is beside the package."""
    assert (sql_root() / "postgres").is_dir()
    assert (sql_root() / "mssql").is_dir()
    assert list(migrations_root().glob("0001.*.py"))


def test_pyodbc_is_imported_only_when_used() -> None:
    """A machine without pyodbc can use PostgreSQL."""
    code = "import sys, pysqlbox.cli, pysqlbox.deploy.backends; sys.exit('pyodbc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_wheel_has_sql_and_migrations(tmp_path: Path) -> None:
    """The wheel holds every SQL file and migration, and works from there."""
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "installed")
    for folder in ("sql", "migrations"):
        for file in (ROOT / folder).rglob("*.*"):
            if file.suffix in (".sql", ".py"):
                assert f"pysqlbox/{file.relative_to(ROOT)}" in names
    assert {"pysqlbox/py.typed", "pytest_pysqlbox.py"} <= names
    code = "from pysqlbox.deploy.script import render_script; print(len(render_script('mssql')))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "installed", check=True, capture_output=True, text=True
    )
    assert int(done.stdout) > 1000


def test_data_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded server's place can be chosen."""
    monkeypatch.setenv("PYSQLBOX_DATA", "/somewhere")
    assert default_data_directory() == Path("/somewhere")
    monkeypatch.delenv("PYSQLBOX_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_data_directory() == Path("/data/pysqlbox/postgres")


def test_embedded_server_must_be_started() -> None:
    """Before that it has no URL."""
    with pytest.raises(errors.DatabaseUnavailable, match="not started"):
        _ = EmbeddedServer(temporary=True).url
