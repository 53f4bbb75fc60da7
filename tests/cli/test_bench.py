"""``pysqlbox bench``: the suite's own command line in a checkout, one sentence elsewhere."""

from __future__ import annotations

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
