"""``pysqlbox bench``: the benchmark suite, which is in the source tree and not in the package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

import pysqlbox
from pysqlbox.errors import PysqlboxError

__all__ = ["bench"]

_SUITE = "benchmarks.suite.main"


@click.command(
    context_settings={"ignore_unknown_options": True}, short_help="Measure pysqlbox beside other queues."
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def bench(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Measure pysqlbox beside other queues on a private PostgreSQL. Works in a checkout of the source tree.

    All arguments are the suite's: --quick (a try-out), --only SCENARIO, CONTESTANT or SCENARIO/CONTESTANT,
    --level sql or worker, --rounds, --minutes (begin nothing new after those), --resume, --list, and others
    that "pysqlbox bench -- --help" tells. Plots need the extra bench.

    \b
    Examples:
      pysqlbox bench --quick --only worker_drain
      pysqlbox bench --minutes 60
      pysqlbox bench --minutes 60 --resume
    """
    root = Path(pysqlbox.__file__).resolve().parents[1]
    if not (root / Path(*_SUITE.split("."))).with_suffix(".py").exists():
        raise PysqlboxError("the benchmark suite is in pysqlbox's source tree: run make bench in a checkout")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    ctx.exit(importlib.import_module(_SUITE).main(list(arguments)))
