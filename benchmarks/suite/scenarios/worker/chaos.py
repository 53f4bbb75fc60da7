"""Workers that are killed, connections that are cut, a server that crashes: what is lost or comes twice."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import psycopg

from benchmarks.peers.runner import PeerFailedError, Worker
from benchmarks.peers.scripts.protocol import Task
from benchmarks.suite.contestants.workers import QUEUES, Queue
from benchmarks.suite.runner import Metric, Scenario
from benchmarks.suite.server import Lab
from benchmarks.suite.store import Measured

LOST, DOUBLED, PAUSE, SECONDS = "lost", "doubled", "pause_seconds", "seconds"
LEASE_SECONDS = 5
WORKERS = 2
POLL_SECONDS = 0.05
OURS = ("pysqlbox", "pysqlbox (coroutines)", "pysqlbox (before)")


class Chaos(Scenario[Queue]):
    """A backlog, and one accident after the other until it is finished."""

    name = "chaos"
    title = "Accidents while a backlog is worked off"
    level = "worker"
    metrics = (
        Metric(LOST, "messages that no handler saw", "", "lower"),
        Metric(DOUBLED, "messages that came more than once", "", "lower"),
        Metric(PAUSE, "longest time in which nothing was handled", "s", "lower"),
        Metric(SECONDS, "until all was finished", "s", "lower"),
    )
    variants = ("2 processes",)
    contestants = tuple(queue for queue in QUEUES if queue.name in OURS)
    max_rounds = 1

    def expected_seconds(self, lab: Lab) -> float:
        """Without accidents, twice."""
        return 2 * self._backlog(lab) * self._task().seconds / (WORKERS * 16) + 10

    def measure(self, lab: Lab, contestant: Queue, variant: str) -> Measured:  # noqa: ARG002 - there is one
        """Handlers note what they see in a file, which a killed worker leaves behind."""
        backlog, every = self._backlog(lab), lab.seconds(5, 1.5)
        deadline = time.monotonic() + lab.seconds(120, 60)
        with (
            contestant.database(lab, backlog) as url,
            tempfile.TemporaryDirectory() as folder,
            contextlib.ExitStack() as stack,
        ):
            journal = Path(folder) / "journal"

            def start() -> Worker:
                program = contestant.program
                worker = stack.enter_context(program.worker(url, "steady", self._task(str(journal))))
                worker.wait_ready()
                worker.go()
                return worker

            workers = [start() for _ in range(WORKERS)]

            def kill() -> None:
                workers.pop(0).kill()
                workers.append(start())

            accidents: Sequence[Callable[[], None]] = (kill, lambda: cut(url), lambda: crash(url))
            began, happened = time.monotonic(), 0
            while self._remaining(contestant, url) != 0:
                if time.monotonic() > deadline:
                    break
                if time.monotonic() - began > (happened + 1) * every:
                    accidents[happened % len(accidents)]()
                    happened += 1
                time.sleep(POLL_SECONDS)
            seconds = time.monotonic() - began
            for worker in workers:
                worker.stop()
            left = self._remaining(contestant, url) or 0
            seen = journal.read_text().splitlines()
        return counted(seen, backlog, left, seconds, happened)

    def describe(self, lab: Lab) -> str:
        """What happens."""
        return (
            f"{self._backlog(lab):,} messages, two worker processes with 16 handlers of 20 ms each. Every "
            f"{lab.seconds(5, 1.5):g} s, by turns: a worker is killed and another one started, all "
            "connections are cut, a server process is killed, upon which the server recovers as after a "
            f"crash. Leases of {LEASE_SECONDS} s; handlers note each message in a file. Others are not here: "
            "most take over what a killed worker had after minutes or hours, or when somebody asks them to."
        )

    @staticmethod
    def _task(journal: str | None = None) -> Task:
        return Task(0.02, 16, journal=journal, lease_seconds=LEASE_SECONDS)

    @staticmethod
    def _backlog(lab: Lab) -> int:
        return lab.size(30_000, 3000)

    @staticmethod
    def _remaining(contestant: Queue, url: str) -> int | None:
        """None while the server recovers."""
        try:
            with psycopg.connect(url, autocommit=True, connect_timeout=5) as watcher:
                return contestant.remaining(watcher)
        except psycopg.OperationalError:
            return None


def counted(seen: Sequence[str], backlog: int, left: int, seconds: float, happened: int) -> Measured:
    """Of lines with a message's number and a time in nanoseconds."""
    if not seen:
        raise PeerFailedError("no message was handled")
    numbers = Counter(int(line.split()[0]) for line in seen)
    times = sorted(int(line.split()[1]) for line in seen)
    pauses = [(after - before) / 1e9 for before, after in pairwise(times)]
    lost = backlog - left - len(numbers)
    values = {
        LOST: float(lost),
        DOUBLED: float(sum(count > 1 for count in numbers.values())),
        PAUSE: max(pauses, default=0.0),
        SECONDS: seconds,
    }
    wrong = f"{left} messages were left after {happened} accidents" if left else None
    return Measured(values, messages=backlog, seconds=seconds, problem=wrong)


def cut(url: str) -> None:
    """End every connection to the database."""
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a "
            "WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()"
        )


def crash(url: str) -> None:
    """Kill a process of the server, which then ends all of them and recovers."""
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url, autocommit=True) as connection:
        os.kill(connection.info.backend_pid, signal.SIGKILL)
        connection.execute("SELECT 1")
