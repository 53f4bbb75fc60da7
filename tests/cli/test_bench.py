"""``pysqlbox bench``: the suite's own command line in a checkout, one sentence elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import pysqlbox
from pysqlbox.cli import cli


def test_arguments_are_the_suites() -> None:
    result = CliRunner().invoke(cli, ["bench", "--list"])
    assert result.exit_code == 0, result.output
    for name in (
        "worker_drain (worker)",
        "latency_idle (worker)",
        "enqueue_bulk (sql)",
        "held_snapshot (sql)",
    ):
        assert name in result.output


def test_a_wrong_argument_measures_nothing() -> None:
    result = CliRunner().invoke(cli, ["bench", "--only", "nonsense"])
    assert result.exit_code == 2
    assert "nonsense" in result.output


def test_a_quick_run_of_each_kind_goes_through(tmp_path: Path) -> None:
    """Statements of ours and of a floor, a worker with its producers; the pages are there afterwards."""
    only = ("enqueue_bulk/pysqlbox", "enqueue_bulk/copy", "burst/pysqlbox")
    command = [sys.executable, "-m", "benchmarks", "--quick", "--strict", "--out", str(tmp_path)]
    done = subprocess.run(
        [*command, *(word for name in only for word in ("--only", name))],
        cwd=Path(pysqlbox.__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "suite-quick.json").read_text(encoding="utf-8"))
    assert {each["name"] for each in told["scenarios"]} == {"enqueue_bulk", "burst"}
    assert (tmp_path / "suite-quick.jsonl.gz").exists()
    assert "pysqlbox" in (tmp_path / "suite-quick.md").read_text(encoding="utf-8")


def test_help_has_examples() -> None:
    result = CliRunner().invoke(cli, ["bench", "--help"])
    assert result.exit_code == 0
    assert "  Examples:\n    pysqlbox bench" in result.output


def test_an_installed_package_has_no_suite(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pysqlbox, "__file__", str(tmp_path / "pysqlbox" / "__init__.py"))
    result = CliRunner().invoke(cli, ["bench", "--list"])
    assert result.exit_code == 2
    assert result.output.splitlines() == [
        "pysqlbox: the benchmark suite is in pysqlbox's source tree: run make bench in a checkout"
    ]
