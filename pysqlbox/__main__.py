"""``python -m pysqlbox``."""

from __future__ import annotations

import sys

from pysqlbox.errors import PackageMissing
from pysqlbox.extras import needed_for

__all__ = ["main"]


def main() -> None:
    """Run the command line; without the packages that it needs, say which."""
    try:
        with needed_for("the command line", "cli"):
            from pysqlbox.cli import main as run
    except PackageMissing as error:
        sys.exit(_failed(error))
    run()


def _failed(error: PackageMissing) -> int:
    print(f"pysqlbox: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
