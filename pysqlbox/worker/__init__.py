"""The worker: a pool of threads that claim messages, run handlers and settle."""

from __future__ import annotations

from pysqlbox.worker.backoff import Backoff, exponential, fixed
from pysqlbox.worker.context import Context
from pysqlbox.worker.health import BoxHealth, WorkerHealth
from pysqlbox.worker.results import Ack, DeadLetter, NonRetryable, Release, Result, Retry
from pysqlbox.worker.settings import WorkerOptions
from pysqlbox.worker.tally import WorkerStats
from pysqlbox.worker.worker import Worker

__all__ = [
    "Ack",
    "Backoff",
    "BoxHealth",
    "Context",
    "DeadLetter",
    "NonRetryable",
    "Release",
    "Result",
    "Retry",
    "Worker",
    "WorkerHealth",
    "WorkerOptions",
    "WorkerStats",
    "exponential",
    "fixed",
]
