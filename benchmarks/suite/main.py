"""The suite's command line: `python -m benchmarks`, `make bench` and `pysqlbox bench`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.common import machine
from benchmarks.common.databases import Databases, statistics_settings
from benchmarks.common.server import newest_system_server, running
from benchmarks.suite import plots, report
from benchmarks.suite.runner import Plan, Runner, Scenario
from benchmarks.suite.scenarios import ALL
from benchmarks.suite.server import HELD_SECONDS, Lab
from benchmarks.suite.store import Store

ROUNDS = 3
MAX_CONNECTIONS = {"max_connections": "200"}
"""By default it is 100, and a scenario has 128 that wait."""
IN_MEMORY = ("tmpfs", "ramfs")
SETUP = ("commit", "machine", "server", "changed settings", "file system")
"""What measurements have in common that medians are made of."""
TOLD_OF_RUNS = (
    "date",
    "commit",
    "command",
    "rounds",
    "whole",
    "ended",
    "load average at the start",
    "load average at the end",
)
"""Results may be of several runs, each going on with what the one before left: these are told of each."""
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(words)
    if options.list:
        print(listing(ALL))
        return 0
    unknown = [
        *_unknown(options.only),
        *(set(options.variant) - {one for each in ALL for one in each.variants}),
    ]
    if unknown:
        print(f"there is no {', '.join(unknown)}; --list tells what there is", file=sys.stderr)
        return 2
    stop = _Stop()
    for wanted in (signal.SIGINT, signal.SIGTERM):
        signal.signal(wanted, stop)
    # The sustained run takes part once it is told how long it is to be.
    only = tuple(options.only) or (("sustained",) if options.hours else ())
    plan = Plan(
        options.rounds or (1 if options.quick else ROUNDS),
        only,
        options.level,
        options.minutes,
        tuple(options.variant),
    )
    store = Store(options.out / ("suite-quick.jsonl" if options.quick else "suite.jsonl"))
    if options.report:
        store.load()
        _write(store)
        return 0
    where = options.server or newest_system_server()
    settings = {
        **MAX_CONNECTIONS,
        **statistics_settings(where),
        **dict(option.split("=", 1) for option in options.set),
    }
    store.load()
    if not options.resume:
        if len(store) and (plan.only or plan.level or plan.variants) and not options.quick:
            print(
                f"{store.path} has {len(store)} measurements, of others too: add --resume to keep them and "
                "measure what is missing, or --out to write elsewhere",
                file=sys.stderr,
            )
            return 2
        store.clear()
    with running(where, scratch=options.scratch, settings=settings) as server:
        databases = Databases(server, "shared_preload_libraries" in settings)
        lab = Lab(databases, options.quick, options.hours or 1.0, progress, options.held_seconds)
        runner = Runner(ALL, lab, store, plan, progress, stopping=lambda: stop.number is not None)
        about = {**_about(words, server.about(), settings), "file system": lab.file_system()}
        if about["file system"] in IN_MEMORY:
            progress(
                f"the server's data is on {about['file system']}: nothing is durable there, see --scratch"
            )
        earlier = dict(store.about)
        store.enter({name: about[name] for name in SETUP})
        store.start({**earlier, **about})
        ended = "stopped by its time limit"
        try:
            whole = runner.run()
        except (KeyboardInterrupt, SystemExit):
            if stop.number is None:
                raise
            whole, ended = False, "interrupted"
            progress("interrupted: --resume goes on from here")
        finally:
            lab.close()
        told = runner.about()
        versions = {**earlier.get("versions", {}), **told["versions"]}
        missing = {**earlier.get("missing", {}), **told["missing"]}
        told["versions"] = versions
        told["missing"] = {name: reason for name, reason in missing.items() if name not in versions}
        # Of what this run measured; what an earlier one did may have been with other settings.
        described = {
            scenario.name: scenario.describe(lab) for scenario in ALL if scenario.name in runner.measured
        }
        told["descriptions"] = {**earlier.get("descriptions", {}), **described}
    run = {"load average at the end": machine.load(), "whole": whole, "ended": "" if whole else ended}
    runs = list(earlier.get("runs", []))
    if runner.measured:
        runs.append({name: {**about, **told, **run}[name] for name in TOLD_OF_RUNS})
    store.start({**earlier, **about, **told, **run, "runs": runs})
    store.pack()
    progress(f"{len(store)} measurements in {store.packed}")
    if len(store):
        print(report.terminal(store, ALL))
        _write(store)
    if stop.number is not None:
        return 128 + stop.number
    return int(options.strict and _wrong(store, runner))


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures pysqlbox, other queues and bare layouts side by side on a private PostgreSQL.",
    )
    made.add_argument("--list", action="store_true", help="tell scenarios, variants and contestants")
    made.add_argument("--quick", action="store_true", help="small and once: a try-out, not a measurement")
    made.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="SCENARIO|CONTESTANT|SCENARIO/CONTESTANT",
        help="only this; repeatable",
    )
    made.add_argument(
        "--variant", action="append", default=[], metavar="VARIANT", help="of each scenario this; repeatable"
    )
    made.add_argument("--level", choices=["sql", "worker"], help="only statements, or only workers")
    made.add_argument("--rounds", type=int, help=f"how often each has its turn (default: {ROUNDS}; quick: 1)")
    made.add_argument("--minutes", type=float, help="begin nothing new after so many minutes")
    made.add_argument("--hours", type=float, help="the sustained run, and how long it is")
    made.add_argument(
        "--held-seconds",
        type=float,
        default=HELD_SECONDS,
        help=f"how long queues are followed beside an open transaction (default: {HELD_SECONDS:g})",
    )
    made.add_argument(
        "--resume",
        action="store_true",
        help="go on with what an earlier run left; what was measured of another commit or server, anew",
    )
    made.add_argument("--strict", action="store_true", help="answer 1 if anything was left out or went wrong")
    made.add_argument("--report", action="store_true", help="measure nothing, write pages and plots anew")
    made.add_argument("--server", help="a folder of server programs; default: the newest system server")
    made.add_argument(
        "--out", type=Path, default=RESULTS, help="where results are written (default: benchmarks/results)"
    )
    made.add_argument("--scratch", type=Path, help="where the private server keeps its data")
    made.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a server setting")
    return made


def listing(scenarios: Sequence[Scenario[Any]]) -> str:
    """Scenarios with their variants and contestants."""
    lines = []
    for scenario in scenarios:
        opted = ", only when asked for" if scenario.opt_in else ""
        lines.append(f"{scenario.name} ({scenario.level}{opted}): {scenario.title}")
        lines.append(f"    variants: {', '.join(scenario.variants)}")
        there = [
            one.name
            for one in scenario.contestants
            if any(scenario.takes_part(one, variant) for variant in scenario.variants)
        ]
        lines.append(f"    contestants: {', '.join(there)}")
    return "\n".join(lines)


def progress(text: str) -> None:
    """A line for whoever watches."""
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)


def _write(store: Store) -> None:
    """Pages and pictures of what the store has, beside it."""
    folder, name = store.path.parent, store.path.stem
    pictures = folder / f"{name}-plots"
    try:
        written = plots.draw(pictures, store, ALL)
    except plots.UnavailableError as error:
        progress(str(error))
        written = []
    pages = report.write(folder, store, ALL, name=name, pictures=pictures.name)
    front = ROOT / "README.md"
    if store.path.resolve() == RESULTS / "suite.jsonl" and report.write_front_page(
        front, json.loads(pages[0].read_text(encoding="utf-8"))
    ):
        pages.append(front)
    for path in [*pages, *written]:
        progress(f"wrote {path}")


def _wrong(store: Store, runner: Runner) -> bool:
    """Whether anything was left out or went wrong, which is told."""
    found = [f"{name}: {reason}" for name, reason in runner.missing.items()]
    for one in store:
        if one.measured.problem:
            found.append(
                f"{one.key.scenario}, {one.key.variant}, {one.key.contestant}: {one.measured.problem}"
            )
    for text in found:
        progress(text)
    return bool(found)


def _unknown(words: Sequence[str]) -> list[str]:
    scenarios = {scenario.name for scenario in ALL}
    contestants = {contestant.name for scenario in ALL for contestant in scenario.contestants}
    pairs = {f"{scenario.name}/{one.name}" for scenario in ALL for one in scenario.contestants}
    return [word for word in words if word not in scenarios | contestants | pairs]


def _about(words: Sequence[str], server: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, Any]:
    """Where and how it is measured."""
    return {
        "command": " ".join(["python -m benchmarks", *machine.telling(words)]),
        "commit": machine.commit(ROOT, "sql", "pysqlbox"),
        "server": dict(server),
        "changed settings": dict(settings),
        "machine": machine.machine(),
        "load average at the start": machine.load(),
    }


class _Stop:
    """What Ctrl-C and SIGTERM do: leave by the way that stops the private server, and keep what there is.

    `number`: the signal that came. Some drivers make an exception of their own of what is raised in them.
    """

    number: int | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """A second one breaks off the cleaning up, a third ends it outright."""
        if self.number is not None:
            signal.signal(number, signal.SIG_DFL)
        self.number = number
        raise KeyboardInterrupt
