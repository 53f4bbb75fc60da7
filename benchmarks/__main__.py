"""`python -m benchmarks`: the whole suite."""

from __future__ import annotations

import sys

from benchmarks.suite.main import main

if __name__ == "__main__":
    sys.exit(main())
