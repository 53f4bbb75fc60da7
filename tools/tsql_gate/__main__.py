"""`python -m tools.tsql_gate`: compiles the T-SQL and prints what is wrong, by file and line."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tools.tsql_gate.checks import REPOSITORY, check_tree
from tools.tsql_gate.setup import GateUnavailableError, ensure


def main(arguments: list[str]) -> int:
    """0: clean, 1: problems, 2: the gate cannot run here. `--setup` only fetches the libraries."""
    started = time.monotonic()
    try:
        if arguments == ["--setup"]:
            ensure()
            return 0
        problems = check_tree(Path(arguments[0]) if arguments else REPOSITORY / "sql")
    except GateUnavailableError as error:
        print(f"T-SQL gate: not run: {error}", file=sys.stderr)
        return 2
    for problem in problems:
        print(problem)
    print(f"T-SQL gate: {len(problems)} problem(s), {time.monotonic() - started:.1f} s")
    return 1 if problems else 0


sys.exit(main(sys.argv[1:]))
