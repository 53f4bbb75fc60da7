"""``python -m pysqlbox``."""

from __future__ import annotations

from pysqlbox.cli import main

if __name__ == "__main__":
    main()
