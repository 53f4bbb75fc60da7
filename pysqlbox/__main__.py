"""``python -m pysqlbox``."""

from __future__ import annotations

import sys

from pysqlbox.errors import PackageMissing
from pysqlbox.extras import needed_for

__all__ = ["main"]


def main(arguments: list[str] | None = None, name: str | None = None) -> None:
    """Run the command line, on the process's arguments unless others are given."""
    try:
        with needed_for("the command line", "cli"):
            from pysqlbox.cli import main as run
    except PackageMissing as error:
        sys.exit(_failed(error))
    run(arguments, name)


def _failed(error: PackageMissing) -> int:
    print(f"pysqlbox: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
