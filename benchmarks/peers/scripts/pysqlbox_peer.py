"""pysqlbox: the outbox and the package's worker."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from typing import Any

import pysqlbox
from benchmarks.peers.scripts.protocol import TOPIC, Control, Pace, Program, Recorder, options, text

STEP = 1000


def versions() -> dict[str, str]:
    """What is measured."""
    return {
        "pysqlbox": pysqlbox.__version__,
        "psycopg": version("psycopg"),
        "Python": sys.version.split()[0],
    }


def connect(url: str) -> Any:
    """The deployment."""
    return pysqlbox.connect(url)


def schema(url: str) -> None:
    """Deploy it."""
    with connect(url) as db:
        db.migrate()


def fill(url: str, count: int) -> None:
    """Through enqueue_many."""
    with connect(url) as db:
        for first in range(0, count, STEP):
            numbers = range(first, min(first + STEP, count))
            db.outbox.enqueue_many([{"topic": TOPIC, "payload": text(number)} for number in numbers])


def enqueue(url: str, pace: Pace) -> None:
    """One at a time."""
    with connect(url) as db:
        for number, at in pace:
            db.outbox.enqueue(TOPIC, text(number, at))


def work(url: str, recorder: Recorder, control: Control) -> None:
    """A worker."""

    def handle(message: Any) -> None:
        recorder.handled(message.id)

    def handle_timed(message: Any) -> None:
        recorder.arrived(message.id, json.loads(message.payload))

    with connect(url) as db:
        worker = db.worker(boxes=("outbox",), **options())
        worker.handler(TOPIC)(handle_timed if recorder.timed else handle)
        control.ready()
        control.on_stop(worker.stop)
        worker.run()


if __name__ == "__main__":
    Program(versions, schema, fill, enqueue, work).main()
