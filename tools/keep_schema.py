"""Keeps the schema of a release as data: its rendered scripts, which later releases are tried against.

``python -m tools.keep_schema`` writes ``tests/deploy/releases/VERSION.DIALECT.sql.xz`` for both dialects.
A kept file never changes; a release whose schema is that of the one before need not be kept.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import pysqlbox
from pysqlbox.deploy.script import render_script
from pysqlbox.names import DIALECTS

RELEASES = Path(__file__).parents[1] / "tests/deploy/releases"


def main() -> None:
    """Writes both files; one that is there already ends it."""
    RELEASES.mkdir(exist_ok=True)
    for dialect in DIALECTS:
        path = RELEASES / f"{pysqlbox.__version__}.{dialect}.sql.xz"
        with path.open("xb") as file:
            file.write(lzma.compress(render_script(dialect).encode(), preset=9))
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
