"""Messages as applications have them: delayed, retried, in groups, steps of joins, big, in one queue."""

from __future__ import annotations

import json
import time
from typing import Any

import psycopg

from benchmarks.peers.runner import PeerFailedError
from benchmarks.peers.scripts.protocol import TOPIC, Task, text
from benchmarks.suite.contestants.workers import QUEUES, Queue
from benchmarks.suite.runner import Metric, Scenario
from benchmarks.suite.server import Lab
from benchmarks.suite.store import CLIENT_CPU, RATE, SERVER_CPU, WAL, Measured

BIG = 10_000
STEP = 800
GROUPS = 100
DELAY_SECONDS = 0.5
FLUSH_SECONDS = 60


class Mixed(Scenario[Queue]):
    """A quarter each."""

    name = "mixed"
    title = "Delays, retries, groups, joins, keys and big messages at once"
    level = "worker"
    metrics = (
        Metric(RATE, "messages finished", "messages/s"),
        Metric(CLIENT_CPU, "CPU of the worker", "µs/message", "lower"),
        Metric(SERVER_CPU, "CPU of the server", "µs/message", "lower"),
        Metric(WAL, "write-ahead log", "bytes/message", "lower"),
    )
    variants = ("1 process",)
    contestants = tuple(queue for queue in QUEUES if queue.name in ("pysqlbox", "pysqlbox (coroutines)"))
    max_rounds = 1

    def measure(self, lab: Lab, contestant: Queue, variant: str) -> Measured:  # noqa: ARG002 - there is one
        """From the start until nothing is left."""
        backlog = self._backlog(lab)

        def build(url: str) -> None:
            contestant.program.create_schema(url)
            fill(url, backlog)

        with (
            lab.database(f"worker mixed {backlog}", build) as url,
            psycopg.connect(url, autocommit=True) as watcher,
            contestant.program.worker(url, "steady", Task(retried=4)) as worker,
        ):
            worker.wait_ready()
            with lab.metered() as cost:
                before = worker.cpu_seconds()
                began = time.monotonic()
                worker.go()
                while left(watcher):
                    worker.check()
                    if time.monotonic() - began > FLUSH_SECONDS:
                        raise PeerFailedError(f"messages were left after {FLUSH_SECONDS} s")
                    time.sleep(0.01)
                seconds, used = time.monotonic() - began, worker.cpu_seconds() - before
            told = worker.stop()
        values = {
            RATE: backlog / seconds,
            CLIENT_CPU: used * 1e6 / backlog,
            SERVER_CPU: cost.server_cpu * 1e6 / backlog,
            WAL: cost.wal_bytes / backlog,
        }
        return Measured(values, messages=backlog, seconds=seconds, problem=wrong(told["ids"], backlog))

    def describe(self, lab: Lab) -> str:
        """What they are."""
        return (
            f"{self._backlog(lab):,} messages: a quarter is delayed by {DELAY_SECONDS:g} s, a quarter "
            f"fails at first, a quarter is in {GROUPS} FIFO groups, a quarter has deduplication keys; of "
            f"those one half are steps of joins, the other half have {BIG:,} bytes. pysqlbox alone: others "
            "have no such mixture."
        )

    @staticmethod
    def _backlog(lab: Lab) -> int:
        return lab.size(40_000, 4000)


def record(number: int) -> dict[str, Any]:
    """One of the eight kinds."""
    made: dict[str, Any] = {"topic": TOPIC, "payload": text(number)}
    if number % 4 == 0:
        made["delay_seconds"] = DELAY_SECONDS
    elif number % 4 == 2:
        made["group_id"] = f"customer {number % GROUPS}"
    elif number % 4 == 3:
        made["dedup_key"] = f"key {number}"
        if number % 8 == 3:
            made["payload"] = json.dumps({**json.loads(text(number)), "more": "x" * BIG})
    return made


def fill(url: str, backlog: int) -> None:
    """In portions, each with a join."""
    with psycopg.connect(url, autocommit=True) as connection:
        for first in range(0, backlog, STEP):
            numbers = range(first, min(first + STEP, backlog))
            rows = connection.execute(
                "SELECT o.message_id FROM infra.outbox_enqueue_many(%s::jsonb) AS o",
                [json.dumps([record(number) for number in numbers])],
            ).fetchall()
            steps = [row[0] for number, row in zip(numbers, rows, strict=True) if number % 8 == 7]
            connection.execute(
                "SELECT infra.join_attach_many((SELECT s.join_id FROM infra.join_start('tenant', %s) AS s), "
                "%s::uuid[])",
                [len(steps), steps],
            )


def left(watcher: psycopg.Connection[Any]) -> int:
    """How many are not finished."""
    row = watcher.execute(
        "SELECT (s.ready + s.scheduled + s.in_flight)::bigint FROM infra.outbox_stats() AS s "
        "WHERE s.topic IS NULL"
    ).fetchone()
    return int(row[0]) if row else 0


def wrong(ids: list[str], backlog: int) -> str | None:
    """Those that fail at first come twice, the others once."""
    if len(set(ids)) != backlog:
        return f"{len(set(ids))} of {backlog} handled"
    again = len(ids) - backlog
    return None if again == backlog // 4 else f"{again} handled again, {backlog // 4} expected"
