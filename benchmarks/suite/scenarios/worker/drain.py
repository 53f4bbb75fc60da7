"""Draining a backlog with several worker processes."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import psycopg

from benchmarks.common.machine import machine_cpu, process_cpu
from benchmarks.peers.runner import PeerFailedError, Worker
from benchmarks.peers.scripts.protocol import Task
from benchmarks.suite.contestants.workers import QUEUES, Queue
from benchmarks.suite.runner import Metric, Scenario
from benchmarks.suite.scenarios.worker.checks import problem
from benchmarks.suite.server import Lab
from benchmarks.suite.store import CLIENT_CPU, RATE, SERVER_CPU, WAL, Measured

POLL_SECONDS = 0.01
FLUSH_SECONDS = 20
OTHERS = "others_percent"
CONNECTIONS = "connections"


class WorkerDrain(Scenario[Queue]):
    """How many messages whole worker processes finish in a second."""

    name = "worker_drain"
    title = "Draining with whole worker processes"
    level = "worker"
    metrics = (
        Metric(RATE, "messages finished", "messages/s"),
        Metric(CLIENT_CPU, "CPU of the workers", "µs/message", "lower"),
        Metric(SERVER_CPU, "CPU of the server", "µs/message", "lower"),
        Metric(WAL, "write-ahead log", "bytes/message", "lower"),
        Metric(OTHERS, "CPU taken by others", "% of the machine", "lower"),
        Metric(CONNECTIONS, "connections of the workers", "", "lower"),
    )
    variants: ClassVar[tuple[str, ...]] = ("1 process", "2 processes", "4 processes")
    contestants = tuple(queue for queue in QUEUES if queue.peer.drains)

    def expected_seconds(self, lab: Lab) -> float:  # noqa: ARG002 - starting takes the longest
        """Workers start, and work for a moment; some for as long as they are given."""
        return 6.0

    def measure(self, lab: Lab, contestant: Queue, variant: str) -> Measured:
        """From the first handler's start until the database knows that the last message is finished."""
        number, backlog = self.processes(variant), contestant.backlog(self._backlog(lab))
        task = self.task(variant)
        with contestant.database(lab, backlog) as url, contextlib.ExitStack() as stack:
            watcher = stack.enter_context(psycopg.connect(url, autocommit=True))
            if task.writes:
                watcher.execute("CREATE TABLE public.effect (message bigint PRIMARY KEY)")
            workers = [
                stack.enter_context(contestant.program.worker(url, "drain", task)) for _ in range(number)
            ]
            for worker in workers:
                worker.wait_ready()
            time.sleep(0.3)
            with lab.metered() as cost:
                before = _Used.of(workers)
                for worker in workers:
                    worker.go()
                _wait(workers, backlog, self._seconds(lab))
                if sum(worker.count for worker in workers) >= backlog:
                    _wait_finished(contestant, watcher, workers)
                ended, count = time.monotonic(), sum(worker.count for worker in workers)
                used = _Used.of(workers)
            first = min(worker.first for worker in workers if worker.first) / 1e9
            connections = _connections(watcher)
            told = [worker.stop() for worker in workers]
            finished = backlog - contestant.remaining(watcher)
        own = used.workers - before.workers + used.own - before.own + cost.server_cpu
        others = max(used.busy - before.busy - own, 0) / (used.machine - before.machine)
        values = {
            RATE: count / (ended - first),
            CLIENT_CPU: (used.workers - before.workers) * 1e6 / count,
            SERVER_CPU: cost.server_cpu * 1e6 / count,
            WAL: cost.wal_bytes / count,
            OTHERS: 100 * others,
            CONNECTIONS: float(connections),
        }
        wrong = problem([identity for one in told for identity in one["ids"]], finished)
        return Measured(values, messages=count, seconds=ended - first, problem=wrong)

    def describe(self, lab: Lab) -> str:
        """How much."""
        return (
            f"{self._backlog(lab):,} messages of 200 bytes (at most 30,000 for queues that do not get "
            f"through those), handlers that only note the message, for at most {self._seconds(lab):g} s: "
            "from the first handler's start until the database knows that the last message is finished."
        )

    @staticmethod
    def processes(variant: str) -> int:
        """How many."""
        return int(variant.split()[0])

    def task(self, variant: str) -> Task:  # noqa: ARG002 - for scenarios whose handlers do something
        """What handlers do."""
        return Task()

    @staticmethod
    def _backlog(lab: Lab) -> int:
        return lab.size(100_000, 20_000)

    @staticmethod
    def _seconds(lab: Lab) -> float:
        return lab.seconds(4, 2)


@dataclass(frozen=True)
class _Used:
    """CPU seconds so far: of the workers, of this process, of the whole machine; and what that had."""

    workers: float
    own: float
    busy: float
    machine: float

    @staticmethod
    def of(workers: Sequence[Worker]) -> _Used:
        """Now."""
        return _Used(sum(one.cpu_seconds() for one in workers), process_cpu(os.getpid()), *machine_cpu())


class Transactional(WorkerDrain):
    """What it costs that a handler's writes and its message's end are one commit."""

    name = "transactional"
    title = "Handlers whose writes end with their messages"
    variants: ClassVar[tuple[str, ...]] = ("a row written", "nothing written")
    contestants = tuple(
        queue
        for queue in QUEUES
        if queue.name in ("pysqlbox", "pysqlbox (before)", "pysqlbox (transactional)")
    )

    def describe(self, lab: Lab) -> str:
        """How much."""
        return (
            f"{self._backlog(lab):,} messages, one worker process with 8 threads, for at most "
            f"{self._seconds(lab):g} s; handlers insert a row, on a connection of each thread in autocommit, "
            "or in one transaction with the message's end; or they write nothing."
        )

    @staticmethod
    def processes(variant: str) -> int:  # noqa: ARG004 - one in all of them
        """One."""
        return 1

    def task(self, variant: str) -> Task:
        """A row, or none."""
        return Task(writes=variant == self.variants[0])


class ManyCoroutines(WorkerDrain):
    """Handlers that do nothing but wait, a thousand at once."""

    name = "many_coroutines"
    title = "A thousand handlers that wait"
    variants: ClassVar[tuple[str, ...]] = ("1,000 at once, 100 ms",)
    contestants = tuple(
        queue
        for queue in QUEUES
        if queue.name in ("pysqlbox (coroutines)", "procrastinate", "pgqueuer", "graphile-worker", "pg-boss")
    )

    def describe(self, lab: Lab) -> str:
        """How much."""
        return (
            f"{self._backlog(lab):,} messages (at most 30,000 for some), one worker process told to run "
            f"1,000 at once (pgqueuer: as many as it does by itself), for at most {self._seconds(lab):g} s; "
            "handlers are coroutines that wait 100 ms."
        )

    @staticmethod
    def processes(variant: str) -> int:  # noqa: ARG004 - one in all of them
        """One."""
        return 1

    def task(self, variant: str) -> Task:  # noqa: ARG002 - there is one
        """They wait."""
        return Task(0.1, 1000)


def _connections(watcher: psycopg.Connection[Any]) -> int:
    row = watcher.execute(
        "SELECT count(*) FROM pg_stat_activity AS a WHERE a.datname = current_database() "
        "AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()"
    ).fetchone()
    return int(row[0]) if row else 0


def _wait(workers: Sequence[Worker], backlog: int, seconds: float) -> None:
    """Until all is handled or the time is over, counted from the first message."""
    gone = time.monotonic()
    while sum(worker.count for worker in workers) < backlog:
        time.sleep(POLL_SECONDS)
        for worker in workers:
            worker.check()
        firsts = [worker.first for worker in workers if worker.first]
        if firsts and time.monotonic() - min(firsts) / 1e9 >= seconds:
            return
        if not firsts and time.monotonic() - gone > FLUSH_SECONDS:
            raise PeerFailedError("no message was handled")


def _wait_finished(queue: Queue, watcher: psycopg.Connection[tuple[int]], workers: Sequence[Worker]) -> None:
    """Until the database knows of everything that was handled."""
    deadline = time.monotonic() + FLUSH_SECONDS
    while queue.remaining(watcher):
        for worker in workers:
            worker.check()
        if time.monotonic() > deadline:
            return
        time.sleep(POLL_SECONDS)
