"""The queues that are compared, each with the settings that its own documentation recommends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.environments import Environment, Go, Node, Own, Virtual


@dataclass(frozen=True)
class Peer:
    """One queue as it is measured.

    `options` go to its program and are told in the results; `source`: where its documentation has them;
    `prompt_options`: others where it is latency that counts, and for an idle worker; `task_options`: what
    differs from these where handlers take their time and so many run at once.
    `remaining` is SQL for the number of messages that are not finished. `drains_only`: a variant of
    another one, compared by its throughput alone, and under a steady load if `under_load`. `drains`:
    it takes part in the general drain. `backlog`: a
    smaller one for a queue that takes even that not in the time of a drain; so that filling and copying do
    not take the most of a run.
    """

    name: str
    environment: Environment
    remaining: str
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)
    prompt_options: Mapping[str, Any] | None = None
    task_options: Mapping[str, Any] = field(default_factory=dict)
    keeps: str = "deletes finished messages"
    drains_only: bool = False
    under_load: bool | None = None
    drains: bool = True
    backlog: int | None = None

    @property
    def folder(self) -> str:
        """Where it is installed: peers that differ in options alone share that, and their databases."""
        first = self.name.partition(" ")[0]
        return f"{first}_other" if isinstance(self.environment, Own) and self.environment.checkout else first

    @property
    def takes_load(self) -> bool:
        """Whether it takes part where messages come in meanwhile."""
        return not self.drains_only if self.under_load is None else self.under_load

    @property
    def told(self) -> str:
        """Its settings, and where they come from."""
        told = json.dumps(dict(self.options)) if self.options else "defaults"
        if self.prompt_options is not None:
            told += f", for latency {json.dumps(dict(self.prompt_options))}"
        if self.task_options:
            told += f", for handlers that wait {json.dumps(dict(self.task_options))}"
        return f"{told}: {self.source}"


_BOX = """
    SELECT (SELECT coalesce(sum(r.span), 0) FROM infra.outbox_ready AS r)
        + (SELECT count(*) FROM infra.outbox_lease)"""

ALL = (
    Peer(
        "pysqlbox",
        Own("pysqlbox_peer"),
        _BOX,
        "the worker's defaults",
        keeps="keeps message and outcome until cleanup",
    ),
    Peer(
        "pysqlbox (coroutines)",
        Own("pysqlbox_peer"),
        _BOX,
        "the worker's defaults, the handler a coroutine function",
        options={"coroutines": True},
        keeps="keeps message and outcome until cleanup",
        drains_only=True,
        under_load=True,
    ),
    Peer(
        "pysqlbox (transactional)",
        Own("pysqlbox_peer"),
        _BOX,
        "the worker's defaults, the handler transactional=True",
        options={"transactional": True},
        keeps="keeps message and outcome until cleanup",
        drains_only=True,
        drains=False,
    ),
    Peer(
        "pysqlbox (before)",
        Own("pysqlbox_peer", "PYSQLBOX_BENCH_BEFORE"),
        _BOX,
        "another checkout, with the worker's defaults",
        keeps="keeps message and outcome until cleanup",
    ),
    Peer(
        "pysqlbox (batches of 500)",
        Own("pysqlbox_peer"),
        _BOX,
        "batches as big as those of pgqueuer and pg-boss here",
        options={"batch_size": 500},
        keeps="keeps message and outcome until cleanup",
        drains_only=True,
    ),
    Peer(
        "pgqueuer",
        Virtual("pgqueuer_peer", ("pgqueuer[asyncpg]", "uvloop")),
        "SELECT count(*) FROM pgqueuer",
        "docs/guides/performance-tuning.md (bigger batches for short jobs, one connection for the manager, "
        "`pgq autovac`, durable tables), tools/benchmark.py (asyncpg, uvloop)",
        options={"batch_size": 500},
        keeps="moves a row to its log",
    ),
    Peer(
        "awa",
        Virtual("awa_peer", ("awa-pg",)),
        "SELECT count(*) FROM awa.jobs WHERE state IN ('available', 'running', 'scheduled', 'retryable')",
        "README of awa-pg (queue storage, enqueue_many_copy), AsyncClient.start (for hot queues claimers, "
        "2 or 4 at first, and claim_batch_size); the sizes are ours",
        options={"workers": 64, "claimers": 2, "claim_batch_size": 500},
        prompt_options={"workers": 64},
        keeps="keeps the job until it is pruned",
    ),
    Peer(
        "procrastinate",
        Virtual("procrastinate_peer", ("procrastinate", "psycopg[binary]")),
        "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
        "docs/howto/production/concurrency.md (concurrency 30)",
        options={"concurrency": 30},
        keeps="keeps the job, and an event for each change of its state",
        backlog=30_000,
    ),
    Peer(
        "graphile-worker",
        Node("graphile_worker_peer.mjs", (("graphile-worker", "pg"),)),
        "SELECT count(*) FROM graphile_worker._private_jobs",
        "website/docs/performance.md, perfTest/graphile.config.js (what its own figures are measured with; "
        "no local queue where jobs are needed at once)",
        options={
            "concurrentJobs": 24,
            "maxPoolSize": 25,
            "localQueue": {"size": 500, "refetchDelay": {"durationMs": 10}},
            "completeJobBatchDelay": 0,
            "failJobBatchDelay": 0,
        },
        prompt_options={
            "concurrentJobs": 24,
            "maxPoolSize": 25,
            "completeJobBatchDelay": 0,
            "failJobBatchDelay": 0,
        },
    ),
    Peer(
        "pg-boss",
        # The newest may want dependencies that are not out everywhere yet.
        Node("pg_boss_peer.mjs", (("pg-boss", "pg"), ("pg-boss@12.35", "pg"))),
        "SELECT count(*) FROM pgboss.job WHERE name = 'work' AND state < 'completed'",
        "docs/api/workers.md (batchSize, its size ours; burstWhenBatchFull; dispatch with LISTEN/NOTIFY; "
        "where handlers take their time one job each, its default, by localConcurrency of them)",
        options={"batchSize": 500, "burstWhenBatchFull": True},
        task_options={"batchSize": 1},
        keeps="keeps the job until maintenance",
    ),
    Peer(
        "river",
        Go(
            "river",
            (
                "github.com/riverqueue/river@latest",
                "github.com/riverqueue/river/riverdriver/riverpgxv5@latest",
            ),
        ),
        "SELECT count(*) FROM river_job WHERE finalized_at IS NULL",
        "cmd/river/riverbench/river_bench.go (what its own figures are measured with)",
        options={"max_workers": 2000, "fetch_cooldown_ms": 2, "fetch_poll_ms": 20},
        keeps="keeps the job until its cleaner comes, a day later",
    ),
    Peer(
        "absurd",
        Virtual("absurd_peer", ("absurd-sdk", "absurdctl", "psycopg[binary]")),
        "SELECT count(*) FROM absurd.t_bench WHERE state NOT IN ('completed', 'failed', 'cancelled')",
        "docs/sdks/python.md (start_worker with concurrency 1 and its poll_interval of 0.25 s; more by more "
        "processes; the batch size is ours)",
        options={"concurrency": 1, "batch_size": 50},
        keeps="keeps task, run and result until cleanup",
        backlog=30_000,
    ),
    Peer(
        "dbos",
        Virtual("dbos_peer", ("dbos", "psycopg[binary]")),
        "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING', 'DELAYED')",
        "docs/python/tutorials/queue-tutorial.md (worker_concurrency is recommended for most use cases; its "
        "size is ours, and so is the polling interval, which is a second by default)",
        options={"worker_concurrency": 1000, "polling_interval_sec": 0.1},
        keeps="keeps the workflow with its input and output",
        backlog=30_000,
    ),
)
