"""The images' wiring, as far as it can be seen without Docker: what is started, and with which settings."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from pysqlbox.drivers.url import parse_url, read_odbc
from tests.support import containers, engines
from tests.support.containers import IMAGES, PASSWORD, Image
from tests.support.engines import Engine

ROOT = Path(__file__).parents[2]
REAL = "Microsoft SQL Server 2022 (RTM-CU14)"
SQL_SERVERS = [image for image in IMAGES if image.dialect == "mssql"]


def test_every_sql_server_runs_with_and_without_versioned_reads() -> None:
    pairs: dict[str, set[bool]] = {}
    for image in SQL_SERVERS:
        pairs.setdefault(image.name, set()).add(image.is_versioned)
        assert image.id.endswith("-locking") is not image.is_versioned
    assert {name.rpartition(":")[2]: versioned for name, versioned in pairs.items()} == {
        "2019-latest": {True, False},
        "2022-latest": {True, False},
        "2025-latest": {True, False},
    }


class Server:
    """In place of a container of testcontainers."""

    started: list[Server]

    def __init__(self, *arguments: object, **named: object) -> None:
        self.arguments, self.named = arguments, named
        self.running = False

    def __enter__(self) -> Self:
        self.running = True
        self.started.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.running = False

    def get_container_host_ip(self) -> str:
        return "10.0.0.7"

    def get_exposed_port(self, port: int) -> str:
        return {1433: "31433", 5432: "35432"}[port]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Server]]:
    """The servers that a test starts."""
    Server.started = []
    monkeypatch.setattr(containers, "container_class", lambda *_: Server)
    yield Server.started
    assert not any(server.running for server in Server.started)


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.id)
def test_an_image_becomes_a_url(image: Image, started: list[Server]) -> None:
    with image.start() as url:
        ((server,), target) = (started, parse_url(url))
        assert server.running
        assert server.arguments == (image.name,)
        assert server.named["password"] == PASSWORD
        assert target.dialect == image.dialect
        if image.dialect == "mssql":
            entries = read_odbc(target.dsn)
            assert entries["SERVER"] == "10.0.0.7,31433"
            assert (entries["UID"], entries["PWD"], entries["DATABASE"]) == ("sa", PASSWORD, "master")
            assert entries["TrustServerCertificate"] == "yes"
        else:
            assert "@10.0.0.7:35432/postgres" in target.dsn


@pytest.mark.parametrize(
    ("module", "name", "arguments"),
    [
        ("mssql", "SqlServerContainer", {"username": "sa", "password": "p", "dialect": "mssql+pyodbc"}),
        ("postgres", "PostgresContainer", {"username": "postgres", "password": "p", "dbname": "postgres"}),
    ],
)
def test_testcontainers_takes_what_it_is_given(module: str, name: str, arguments: dict[str, str]) -> None:
    """Its real classes, imported without a warning: a deprecation would be an error in a run."""
    pytest.importorskip("testcontainers", reason="testcontainers is not installed")
    found = containers.container_class(module, name)
    signature = inspect.signature(found.__init__)
    bound = signature.bind(None, "image", **arguments)
    assert bound.arguments["image"] == "image"
    assert set(arguments) <= set(bound.arguments)


@pytest.mark.parametrize(
    ("version", "is_versioned", "settings"),
    [
        (REAL, True, ["READ_COMMITTED_SNAPSHOT ON", "ALLOW_SNAPSHOT_ISOLATION ON"]),
        (REAL, False, ["READ_COMMITTED_SNAPSHOT OFF", "ALLOW_SNAPSHOT_ISOLATION ON"]),
        ("Babelfish 4.3.0 on PostgreSQL 16.4", True, []),
    ],
)
def test_a_database_gets_its_settings(
    monkeypatch: pytest.MonkeyPatch, version: str, is_versioned: bool, settings: list[str]
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(engines, "execute_once", lambda _, statement: sent.append(statement))
    engine = Engine("x", "mssql", "mssql://u:p@h/master", version)
    name = engine.create_database(is_versioned=is_versioned)
    assert sent[0] == f"CREATE DATABASE {name}"
    assert sent[1:] == [f"ALTER DATABASE {name} SET {setting}" for setting in settings]
    engine.close()
    assert f"DROP DATABASE {'IF EXISTS ' if not settings else ''}{name}" in sent[-1]
    assert ("SINGLE_USER WITH ROLLBACK IMMEDIATE" in sent[-1]) is bool(settings)


def _run(*arguments: str) -> str:
    """The output of pytest in another process, which has no Docker and no engine by name."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSQLBOX_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments],
        cwd=ROOT,
        env=environment | {containers.DOCKER_VARIABLE: "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_without_docker_they_are_skipped_by_name() -> None:
    """Every test of a named engine, with the reason; tests of no engine, or another dialect, are left out."""
    names = ["sqlserver2022", "sqlserver2022-locking"]
    output = _run("--engine", names[0], "--engine", names[1], "tests/sqlserver/test_plans.py", "-v")
    for name in names:
        assert f"not run  {name}: {containers.DOCKER_VARIABLE}=0" in output
        skipped = re.search(rf"^ *(\d+)  {name}: {containers.DOCKER_VARIABLE}=0$", output, re.MULTILINE)
        assert skipped is not None
        assert int(skipped[1]) >= 7
    assert "test_reading_a_plan" not in output
    assert "passed" not in output
    assert "pg18]" not in output


def test_an_engine_that_nobody_knows_is_an_error() -> None:
    assert "invalid choice: 'sqlserver1999'" in _run("--engine", "sqlserver1999", "tests/sqlserver")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_test_mssql_names_every_image() -> None:
    make = ["make", "--no-print-directory", "-n", "-f", str(ROOT / "Makefile"), "-C", str(ROOT), "test-mssql"]
    done = subprocess.run(make, capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if "-m pytest" in line)
    assert set(re.findall(r"--engine (\S+)", line)) == {image.id for image in SQL_SERVERS}
    folders = re.findall(r"tests/\w+", line)
    assert {"tests/contract", "tests/concurrency", "tests/package", "tests/worker", "tests/sqlserver"} <= set(
        folders
    )
    assert all((ROOT / folder).is_dir() for folder in folders)


def _workflow() -> dict[str, Any]:
    yaml: Any = importlib.import_module("yaml")
    loaded: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    return loaded


def test_the_workflow_runs_the_whole_matrix() -> None:
    """Pythons, PostgreSQLs and images: all that the project says it runs on."""
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    jobs = _workflow()["jobs"]
    matrices = {name: job["strategy"]["matrix"] for name, job in jobs.items() if "strategy" in job}
    assert matrices["everything"]["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert matrices["postgres"]["postgres"] == ["15", "16", "17", "18"]
    images = {image.name.rpartition(":")[2].removesuffix("-latest") for image in SQL_SERVERS}
    assert set(matrices["sqlserver"]["image"]) == images
    for job in jobs.values():
        assert job["timeout-minutes"] <= 360
        assert job.get("strategy", {"fail-fast": False})["fail-fast"] is False
    commands = "\n".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
    assert "make test-mssql MSSQL_IMAGES=${{ matrix.image }}" in commands
    assert ".ci/run" in commands
    assert (ROOT / ".ci/run").exists()


def test_a_missing_odbc_driver_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyodbc", reason="the extra pysqlbox[mssql] is not installed")
    monkeypatch.setattr(containers, "installed_drivers", list)
    assert "no ODBC driver" in (SQL_SERVERS[0].missing() or "")
