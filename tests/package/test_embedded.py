"""With the URL embedded: the embedded PostgreSQL is used."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.local_postgres import embedded_installed

_PROGRAM = """
import logging
import pysqlbox
logging.basicConfig(level="INFO")
with pysqlbox.connect("embedded:", schema="mine") as db:
    db.migrate()
    print(db.outbox.enqueue("t", "p").outcome, db.outbox.stats()[-1].ready)
"""


def test_two_programs_one_after_the_other() -> None:
    """The data outlives the program, which is a process of its own: it keeps one server a directory."""
    if not embedded_installed():
        pytest.skip("the extra pysqlbox[embedded] is not installed")
    with tempfile.TemporaryDirectory(prefix="pysqlbox-") as directory:
        environment = {**os.environ, "PYSQLBOX_DATA": str(Path(directory) / "data")}
        runs = [
            subprocess.run(
                [sys.executable, "-W", "error", "-c", _PROGRAM],
                cwd=Path(__file__).parents[2],
                env=environment,
                check=True,
                capture_output=True,
                text=True,
            )
            for _ in range(2)
        ]
    assert [run.stdout.split() for run in runs] == [["created", "1"], ["created", "2"]]
    told = "".join(run.stderr for run in runs)
    assert "pysqlbox.outbox" in told
    assert "pg_ctl" not in told, "the server's package does not fill the log"
