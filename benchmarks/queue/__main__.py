"""`python -m benchmarks.queue`: runs the scenarios, prints ratios and bars, writes JSON and Markdown."""

from __future__ import annotations

import argparse
import platform
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import psycopg

from benchmarks.common import machine
from benchmarks.common.server import Server, newest_system_server, running
from benchmarks.queue import report
from benchmarks.queue.figures import Outcome
from benchmarks.queue.scenarios import SCENARIOS
from benchmarks.queue.scenarios.context import Context


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop)
    names = options.scenario or list(SCENARIOS)
    settings = dict(option.split("=", 1) for option in options.set)
    where = options.server or newest_system_server()
    outcomes: list[Outcome] = []
    with running(where, scratch=options.scratch, settings=settings) as server:
        about = _about(server, settings, quick=options.quick)
        for name in names:
            began = time.monotonic()
            _progress(f"{name} …")
            context = Context(server, options.quick, options.candidate, _progress)
            outcome = SCENARIOS[name](context)
            outcomes.append(outcome)
            print(report.terminal(outcome), flush=True)
            _progress(f"{name} took {time.monotonic() - began:.0f} s")
    about["load average at the end"] = machine.load()
    for path in report.write(options.out, _file_name(options.scenario, quick=options.quick), outcomes, about):
        _progress(f"wrote {path}")
    return 0


def _stop(number: int, _frame: FrameType | None) -> None:
    """Leave by the way that stops the private server."""
    raise SystemExit(128 + number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.queue", description="Measures the queue's routines against bare layouts."
    )
    parser.add_argument(
        "--scenario", action="append", choices=list(SCENARIOS), help="only this one; repeatable"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a few seconds each: a try-out, not a measurement"
    )
    parser.add_argument(
        "--server", help="a folder of server programs, 'embedded' or a URL; default: the newest system server"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/results"), help="where results are written"
    )
    parser.add_argument("--scratch", type=Path, help="where the private server keeps its data")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a server setting")
    parser.add_argument(
        "--candidate",
        type=Path,
        metavar="SQL",
        help="templates to measure beside the release's: a changed copy of sql/",
    )
    return parser


def _file_name(scenarios: list[str] | None, *, quick: bool) -> str:
    return "-".join(["queue", *(scenarios or []), *(["quick"] if quick else [])])


def _progress(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)


def _about(server: Server, settings: dict[str, str], *, quick: bool) -> dict[str, str]:
    """Where and how it was measured."""
    about = {
        "date": machine.now(),
        "command": "python -m benchmarks.queue " + " ".join(sys.argv[1:]),
    }
    if quick:
        about["quick"] = "yes: a try-out, not a measurement"
    for name, value in server.about().items():
        about[f"PostgreSQL {name}"] = value
    if settings:
        about["changed settings"] = ", ".join(f"{name}={value}" for name, value in settings.items())
    about["clients"] = (
        f"Python {platform.python_version()}, psycopg {psycopg.__version__} ({psycopg.pq.__impl__})"
    )
    about["machine"] = machine.machine()
    about["load average at the start"] = machine.load()
    return about


if __name__ == "__main__":
    sys.exit(main())
