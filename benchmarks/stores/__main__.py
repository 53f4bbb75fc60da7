"""`python -m benchmarks.stores`: many databases of one server, or schemas of a database, and one worker.

A database is deployed once and copied. Of 200 databases 50 are sent a message a second each: how long
messages wait, what the worker costs and how many connections it takes is told for each of its configurations.
Schemas are idle, and what that costs is told. What the server spends without a worker is taken off.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from benchmarks.common import machine, server
from benchmarks.common.machine import server_cpu
from pysqlbox.deploy.migrate import migrate
from pysqlbox.drivers import parse_url

ROOT = Path(__file__).parents[2]
TEMPLATE, ONE = "bench_stores_template", "bench_stores_one"
#: What pysqlbox's connections are called; the senders' are not.
NAME = "pysqlbox"
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "60 connections": {"connections": 60},
    "20 connections": {"connections": 20},
    "a connection for each": {"connections": 1000},
    "60 connections, nothing heard": {"connections": 60, "listen": False},
}


def connect(conninfo: str) -> psycopg.Connection[Any]:
    """A connection in autocommit."""
    return psycopg.connect(conninfo, autocommit=True)


class Server:
    """The server, and what its processes spend."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        with connect(conninfo) as connection:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            stat = Path(f"/proc/{row[0] if row else 0}/stat").read_text()
        self.postmaster = int(stat.rpartition(")")[2].split()[1])

    def url(self, name: str) -> str:
        """Of one of its databases, as the worker connects to it."""
        return make_conninfo(self.conninfo, dbname=name)

    def run(self, statement: Any, *names: str) -> None:
        """A statement with names in it."""
        with connect(self.conninfo) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def cpu(self) -> float:
        """CPU seconds of all its processes so far."""
        return server_cpu(self.postmaster)


def databases(found: Server, count: int) -> list[str]:
    """Deploy one and copy it."""
    began = time.monotonic()
    found.run("DROP DATABASE IF EXISTS {} WITH (FORCE)", TEMPLATE)
    found.run("CREATE DATABASE {}", TEMPLATE)
    migrate(parse_url(found.url(TEMPLATE)))
    deployed = time.monotonic()
    names = [f"bench_stores_{number}" for number in range(count)]
    for name in names:
        found.run("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)
        found.run("CREATE DATABASE {} TEMPLATE {}", name, TEMPLATE)
    copied = time.monotonic() - deployed
    print(
        f"{count} databases: the first deployed in {deployed - began:.1f} s,"
        f" copied in {copied:.1f} s ({1000 * copied / count:.0f} ms each)",
        flush=True,
    )
    return names


def schemas(found: Server, count: int) -> list[str]:
    """Deploy many schemas in one database; those that are there already stay."""
    with connect(found.conninfo) as connection:
        there = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [ONE]).fetchone()
    if there is None:
        found.run("CREATE DATABASE {}", ONE)
    names = [f"tenant_{number}" for number in range(count)]
    began = time.monotonic()
    for name in names:
        migrate(parse_url(found.url(ONE)), schema=name)
    print(f"{count} schemas: deployed in {time.monotonic() - began:.0f} s", flush=True)
    return names


class Senders:
    """One thread that sends a message a second to each of some databases, over connections that stay."""

    def __init__(self, found: Server, names: list[str], per_second: float) -> None:
        self._connections = [connect(make_conninfo(found.conninfo, dbname=name)) for name in names]
        self._pause = 1 / per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        order = random.Random(1)
        next_at = time.monotonic()
        while not self._stop.is_set():
            for connection in order.sample(self._connections, len(self._connections)):
                connection.execute("SELECT infra.outbox_enqueue('bench', %s)", [str(time.time())])
                next_at += self._pause
                if self._stop.wait(max(0.0, next_at - time.monotonic())):
                    return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        for connection in self._connections:
            connection.close()


@contextlib.contextmanager
def working(stores: dict[str, list[str]], options: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """The worker's process, ready."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as source:
        json.dump(stores, source)
        source.flush()
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.stores.worker", source.name, json.dumps(options)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
            yield process
        finally:
            process.kill()
            process.communicate(timeout=30)


def measure(
    found: Server, stores: dict[str, list[str]], options: dict[str, Any], seconds: float, settle: float
) -> dict[str, Any]:
    """One configuration: figures of the worker, the server's CPU, and the most connections that were seen."""
    with working(stores, options) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        time.sleep(settle)
        process.stdin.write("begin\n")
        process.stdin.flush()
        cpu, began, most = found.cpu(), time.monotonic(), 0
        with connect(found.conninfo) as connection:
            while time.monotonic() - began < seconds:
                row = connection.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE %s", [f"{NAME}%"]
                ).fetchone()
                most = max(most, int(row[0]) if row else 0)
                time.sleep(1)
        spent = (found.cpu() - cpu) / (time.monotonic() - began)
        process.stdin.write("end\n")
        process.stdin.flush()
        figures: dict[str, Any] = json.loads(process.stdout.readline())
    return figures | {"server_cpu": spent, "connections": most}


def say(what: str, figures: dict[str, Any], senders: float) -> None:
    """One line."""
    waits = ", ".join(
        f"{name} {figures[key]:.0f} ms"
        for name, key in (("p50", "p50_ms"), ("p99", "p99_ms"), ("longest", "longest_ms"))
        if figures[key] is not None
    )
    of_server = max(0.0, figures["server_cpu"] - senders)
    print(
        f"{what}: {figures['connections']} connections, {figures['handled']} messages; {waits or 'no waits'};"
        f" CPU: worker {figures['worker_cpu']:.1%}, server {of_server:.1%} (and {senders:.1%} without it)",
        flush=True,
    )


def main() -> int:
    """Run them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stores", description=__doc__)
    parser.add_argument(
        "--server", default=server.newest_system_server(), help="programs, embedded, or a URL"
    )
    parser.add_argument("--databases", type=int, default=200)
    parser.add_argument("--active", type=int, default=50)
    parser.add_argument("--schemas", type=int, default=200, help="each takes a second or two to deploy")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each configuration")
    parser.add_argument("--settle", type=float, default=15.0, help="before it counts")
    parser.add_argument("--only", action="append", choices=[*CONFIGURATIONS, "schemas"], default=[])
    options = parser.parse_args()
    print(f"{machine.now()}, {machine.machine()}, load {machine.load()}")
    settings = {"max_connections": "600", "max_locks_per_transaction": "512"}
    with server.running(
        options.server,
        scratch=None,
        settings={} if "=" in options.server or "://" in options.server else settings,
    ) as running:
        found = Server(running.conninfo)
        chosen = {
            name: each for name, each in CONFIGURATIONS.items() if not options.only or name in options.only
        }
        if chosen:
            names = databases(found, options.databases)
            active = random.Random(2).sample(names, options.active)
            stores = {name: [found.url(name), "infra"] for name in names}
            with Senders(found, active, options.active):
                before, began = found.cpu(), time.monotonic()
                time.sleep(min(options.seconds, 15.0))
                senders = (found.cpu() - before) / (time.monotonic() - began)
                for name, each in chosen.items():
                    say(name, measure(found, stores, each, options.seconds, options.settle), senders)
        if not options.only or "schemas" in options.only:
            names = schemas(found, options.schemas)
            stores = {name: [found.url(ONE), name] for name in names}
            before, began = found.cpu(), time.monotonic()
            time.sleep(5)
            idle = (found.cpu() - before) / (time.monotonic() - began)
            figures = measure(found, stores, {"connections": 20}, options.seconds, 4 * options.settle)
            say(f"{options.schemas} idle schemas", figures, idle)
    return 0


if __name__ == "__main__":
    sys.exit(main())
