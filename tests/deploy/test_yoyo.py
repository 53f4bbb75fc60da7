"""The stock yoyo command on `migrations/`, and the SQL Server backend it finds by entry point."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from yoyo import read_migrations
from yoyo.connections import parse_uri
from yoyo.scripts import main as yoyo

from pysqlbox.deploy import fitness
from pysqlbox.deploy.backends import MIGRATION_TABLE, MssqlBackend
from pysqlbox.deploy.migrate import migrate, status
from pysqlbox.drivers.url import odbc_string, parse_url, read_odbc, wrap_odbc
from pysqlbox.errors import InvalidArgument, InvalidState
from pysqlbox.paths import migrations_root
from tests.support.database import execute_once


@pytest.fixture
def schema(monkeypatch: pytest.MonkeyPatch) -> str:
    """The schema that the stock command is told."""
    monkeypatch.setenv("PYSQLBOX_SCHEMA", "my app")
    monkeypatch.setenv("PYSQLBOX_BOXES", "orders:inbox")
    return "my app"


def as_url(text: str) -> str:
    """What yoyo takes, which knows URLs and no ODBC strings."""
    return text if "://" in text.partition("=")[0] else wrap_odbc(text)


@pytest.fixture
def backend(empty_url: str, schema: str) -> Iterator[MssqlBackend]:  # noqa: ARG001 - sets the environment
    """The SQL Server backend as yoyo makes it."""
    made = MssqlBackend(parse_uri(as_url(empty_url)), MIGRATION_TABLE)
    made.init_database()
    with made:
        yield made


@pytest.mark.dialect("postgres")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the command leaves its connection to the collector
def test_stock_command(empty_url: str, schema: str) -> None:
    """`yoyo apply` deploys the whole, and `pysqlbox migrate` finds nothing left to deploy."""
    url = empty_url.replace("postgresql://", "postgresql+psycopg://")
    command = ["apply", "--batch", "--no-config-file", "--database", url, str(migrations_root())]
    assert not yoyo.main(command)
    found = status(empty_url, schema=schema)
    assert not found.changes
    assert not found.drifted
    assert not yoyo.main(command)
    assert not migrate(empty_url, schema=schema).changes


@pytest.mark.dialect("postgres")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the command leaves its connection to the collector
def test_stock_command_gives_a_place(empty_url: str, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable stands for the option, and is read as strictly."""
    url = empty_url.replace("postgresql://", "postgresql+psycopg://")
    command = ["apply", "--batch", "--no-config-file", "--database", url, str(migrations_root())]
    monkeypatch.setenv("PYSQLBOX_PLACE", "three")
    with pytest.raises(InvalidArgument, match="place: must be a whole number"):
        yoyo.main(command)
    monkeypatch.setenv("PYSQLBOX_PLACE", "3")
    assert not yoyo.main(command)
    found = status(empty_url, schema=schema)
    assert (found.place, found.changes) == (3, False)


@pytest.mark.dialect("mssql")
def test_backend_applies(backend: MssqlBackend, empty_url: str, schema: str) -> None:
    """The backend applies the migrations and then the routines, once."""
    migrations = read_migrations(str(migrations_root()))
    with backend.lock():
        backend.apply_migrations(backend.to_apply(migrations))
    assert not backend.to_apply(migrations)
    assert not status(empty_url, schema=schema).changes
    assert not migrate(empty_url, schema=schema).changes


@pytest.mark.dialect("mssql")
def test_backend_takes_an_odbc_string(empty_url: str, schema: str) -> None:
    """Inside a URL, whichever of the two names the engine here; the backend's own option stands beside it."""
    target = parse_url(empty_url)
    driver = {"DRIVER": target.driver} if target.driver else {}
    url = wrap_odbc(odbc_string(driver | read_odbc(target.dsn)))
    made = MssqlBackend(parse_uri(f"{url}&schema=elsewhere"), MIGRATION_TABLE)
    with made:
        assert made.schema == "elsewhere" != schema
        made.init_database()
        with made.lock():
            assert made.list_tables() == []


@pytest.mark.dialect("mssql")
def test_an_unfit_database_is_refused(
    backend: MssqlBackend, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stock command asks as `migrate` does, and PYSQLBOX_ALLOW_UNFIT_DATABASE allows."""
    monkeypatch.setattr(fitness, "shortcomings", lambda _: ["something is off; run: MEND IT"])
    migrations = backend.to_apply(read_migrations(str(migrations_root())))
    with pytest.raises(InvalidState, match="something is off; run: MEND IT"), backend.lock():
        backend.apply_migrations(migrations)
    monkeypatch.setenv(fitness.ALLOW_VARIABLE, "1")
    with backend.lock():
        backend.apply_migrations(migrations)
    assert backend.schema == schema
    assert not backend.to_apply(read_migrations(str(migrations_root())))


@pytest.mark.dialect("mssql")
def test_backend_keeps_its_tables_in_the_schema(backend: MssqlBackend, schema: str) -> None:
    """yoyo's tables are where everything else is, and there is no lock row."""
    migrations = read_migrations(str(migrations_root()))
    backend.mark_migrations(migrations)
    assert {"_yoyo_migration", "_yoyo_log", "_yoyo_version"} <= set(backend.list_tables())
    assert "yoyo_lock" not in backend.list_tables()
    assert [m.id for m in backend.to_rollback(migrations)] == ["0001.tables"]
    backend.unmark_migrations(migrations)
    assert len(backend.to_apply(migrations)) == 1
    assert schema == backend.schema


@pytest.mark.dialect("mssql")
def test_backend_rolls_back(backend: MssqlBackend, schema: str) -> None:
    """A transaction and a savepoint inside it undo what was done in them."""
    from pyodbc import ProgrammingError

    table = f"[{schema}].[t]"
    with backend.transaction():
        backend.execute(f"CREATE TABLE {table} (id int)")
        with backend.transaction(rollback_on_exit=True):
            backend.execute(f"INSERT INTO {table} VALUES (1)")
    assert backend.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] == 0
    with pytest.raises(ProgrammingError), backend.transaction():
        backend.execute(f"INSERT INTO {table} VALUES (2); SELECT no_such_column FROM {table}")
    assert backend.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] == 0


@pytest.mark.dialect("mssql")
def test_backend_lock_makes_others_wait(backend: MssqlBackend) -> None:
    """A second deployer gets the lock when the first lets go of it."""
    from yoyo.exceptions import LockTimeout

    with backend.copy() as other:
        with backend.lock(), pytest.raises(LockTimeout):
            other.lock(timeout=0.2).__enter__()
        with other.lock(timeout=0.2):
            pass


@pytest.mark.dialect("postgres")
def test_tables_are_not_rolled_back(empty_url: str) -> None:
    """yoyo's rollback is refused: tables hold messages."""
    migrate(empty_url)
    module = import_module("pysqlbox.deploy.steps")
    with pytest.raises(InvalidState, match="does not roll"):
        module.refuse_rollback(None)
    assert execute_once(empty_url, "SELECT count(*) AS n FROM infra._version") == [{"n": 1}]


def test_entry_point_is_declared() -> None:
    """yoyo finds the backend by the name of the URL's scheme."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["yoyo.backends"]["mssql"].partition(":")
    assert getattr(import_module(module), name) is MssqlBackend
