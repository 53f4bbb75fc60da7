"""What the package promises: its names, its errors, and a wheel that has everything."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pysqlbox
from pysqlbox import errors
from pysqlbox.drivers.embedded import EmbeddedServer, default_data_directory
from pysqlbox.paths import migrations_root, sql_root

ROOT = Path(__file__).parents[2]


NAMES = """
AccessDenied Ack AlreadyProcessed AsyncAudit AsyncDeployment AsyncInbox AsyncJoins AsyncLedger
AsyncOutbox AsyncOutboxStore AsyncRegister AsyncSchedules
Audit AuditEntry BoxMetrics Busy DatabaseUnavailable DeadCause DeadLetter
DeadLetterCause Deployment DrainFirst DriverMissing Enqueued Extended Finding Group HashRing
Idempotent Inbox InboxDeadLetter InboxEnqueued InboxMessage InvalidArgument InvalidState Join
JoinResolution Joins JsonSerializer Ledger LedgerClaim LedgerEntry LedgerKey ListedInboxMessage
ListedOutboxMessage Manager NonRetryable NotFound Outbox OutboxDeadLetter OutboxMessage OutboxStore
PackageMissing PysqlboxError Register Release Result Retried Retries Retry RoundRobin Router Schedule
ScheduleClock ScheduleFired Schedules SchemaMismatch Serializer StoredInboxMessage
StoredOutboxMessage Stores TopicStats Undecodable Upkeep WaitEnqueued Weighted Worker WorkerSeen
__version__ connect connect_async message
"""
"""What the package exports; a name that is gone or new is a change of what callers rely on."""


def test_names() -> None:
    """What the package exports is there, and no more."""
    assert sorted(pysqlbox.__all__) == sorted(NAMES.split())
    assert pysqlbox.__all__ == sorted(pysqlbox.__all__)
    for name in pysqlbox.__all__:
        assert hasattr(pysqlbox, name)


def test_importing_the_package_is_light() -> None:
    """Drivers, asyncio, rendering and deploying are imported when they are needed."""
    code = (
        "import sys, pysqlbox;"
        " heavy = {'asyncio', 'jinja2', 'yoyo', 'click', 'psycopg', 'pyodbc', 'sqlalchemy', 'django'};"
        " sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.stderr == ""


def test_a_producer_imports_no_worker() -> None:
    """Nor what deploys; what it asks for is the very thing that its module has."""
    code = (
        "import sys, pysqlbox;"
        " db = pysqlbox.connect('postgresql://nobody@127.0.0.1:1/none');"
        " heavy = {'pysqlbox.worker', 'pysqlbox.idempotent', 'pysqlbox.deploy', 'jinja2', 'yoyo', 'click'};"
        " found = heavy & set(sys.modules);"
        " from pysqlbox.worker.results import Ack; assert pysqlbox.Ack is Ack;"
        " sys.exit(', '.join(found) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.stderr == ""


def test_type_checkers_see_what_is_imported_late() -> None:
    """The imports for type checkers and the table of modules say the same."""
    tree = ast.parse(Path(pysqlbox.__file__).read_text())
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If)
        and "TYPE_CHECKING" in ast.dump(node.test)
        and isinstance(node.test, ast.Name)
    )
    seen = {
        alias.name: str(node.module).removeprefix("pysqlbox.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == pysqlbox._HOME


def test_a_name_that_is_not_there() -> None:
    """It is the usual error."""
    with pytest.raises(AttributeError, match="no attribute 'Outbix'"):
        _ = pysqlbox.Outbix  # type: ignore[attr-defined]  # that is the point
    assert "Outbox" in dir(pysqlbox)


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
