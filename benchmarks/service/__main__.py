"""`python -m benchmarks.service`: try-begin by HTTP beside the bare routine, on one server, in turns."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import machine, server
from pysqlbox.deploy.migrate import migrate
from pysqlbox.drivers import parse_url

ROOT = Path(__file__).parents[2]
BAR = 0.3
"""The service's rate is at least this part of the routine's."""


@contextlib.contextmanager
def serving(url: str, threads: int) -> Iterator[tuple[str, int]]:
    """`pysqlbox serve`, as anybody would run it; yields its URL and its process."""
    command = [sys.executable, "-m", "pysqlbox", "serve", "--listen", "127.0.0.1:0", "--log-level", "warning"]
    process = subprocess.Popen(
        [*command, "--threads", str(threads)],
        cwd=ROOT,
        env=os.environ | {"PYSQLBOX_URL": url},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        match = re.search(r"http://[^/]+", line)
        if match is None:
            raise RuntimeError(line)
        yield match[0], process.pid
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()


def measure(kind: str, target: str, seconds: float, connections: int) -> dict[str, float]:
    """One caller's figures."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.service.clients", kind, target, str(seconds), str(connections)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def say(what: str, found: dict[str, float]) -> None:
    """One line of figures."""
    times = ", ".join(
        f"{name[:-3].replace('_', ' ')} {value:.2f} ms"
        for name, value in found.items()
        if name.endswith("_ms")
    )
    print(f"{what}: {found['rate']:,.0f}/s, {times}", flush=True)


def pgbench(program: Path, conninfo: str, seconds: float, connections: int) -> dict[str, float]:
    """The routine by a client written in C, which costs next to nothing itself."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write("SELECT * FROM infra.ledger_try_begin('bench:' || gen_random_uuid(), NULL, 60);\n")
        script.flush()
        done = subprocess.run(
            [
                str(program), "-n", "-M", "prepared", "-c", str(connections), "-j", "2",
                "-T", str(max(1, round(seconds))), "-f", script.name, conninfo,
            ],
            capture_output=True,
            text=True,
            check=True,
        )  # fmt: skip
    rate, latency = (re.search(rf"{name} = ([0-9.]+)", done.stdout) for name in ("tps", "latency average"))
    if rate is None or latency is None:
        raise RuntimeError(done.stdout)
    return {"rate": float(rate[1]), "average_ms": float(latency[1])}


def main() -> int:
    """Run the rounds; 1 if the service stays below its bar."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description=__doc__)
    parser.add_argument(
        "--server", default=server.newest_system_server(), help="programs, embedded, or a URL"
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--threads", type=int, default=16, help="of the service")
    options = parser.parse_args()
    print(f"{machine.now()}, {machine.machine()}, load {machine.load()}")
    program = Path(options.server) / "pgbench"
    figures: dict[str, list[dict[str, float]]] = {"bare": [], "http": [], "pgbench": []}
    with (
        server.running(options.server, scratch=None, settings={}) as running,
        running.database("bench_service") as conninfo,
    ):
        migrate(parse_url(conninfo), schema="infra")
        with serving(conninfo, options.threads) as (url, service):
            targets = {"bare": conninfo, "http": url}
            for kind, target in targets.items():  # so that nothing is cold
                measure(kind, target, 1.0, options.connections)
            for number in range(1, options.rounds + 1):
                for kind, target in targets.items():
                    spent = machine.process_cpu(service)
                    found = measure(kind, target, options.seconds, options.connections)
                    if kind == "http":
                        found["service_cpu_ms"] = (
                            1000 * (machine.process_cpu(service) - spent) / found["calls"]
                        )
                    say(f"round {number} {kind}", found)
                    figures[kind].append(found)
                if program.exists():
                    found = pgbench(program, conninfo, options.seconds, options.connections)
                    say(f"round {number} pgbench", found)
                    figures["pgbench"].append(found)
    share = median_share(figures["http"], figures["bare"])
    print(f"of the routine's rate by a client in Python: {share:.2f} (median of the rounds, bar {BAR})")
    if figures["pgbench"]:
        print(f"of its rate by pgbench, in C: {median_share(figures['http'], figures['pgbench']):.2f}")
    return 0 if share >= BAR else 1


def median_share(some: list[dict[str, float]], others: list[dict[str, float]]) -> float:
    """The median of one's rate as a part of the other's, round by round."""
    return statistics.median(one["rate"] / other["rate"] for one, other in zip(some, others, strict=True))


if __name__ == "__main__":
    sys.exit(main())
