"""pysqlbox: the outbox and the package's worker."""

from __future__ import annotations

import json
import os
import sys
import threading
from importlib.metadata import version
from typing import Any

import psycopg

from benchmarks.peers.scripts.protocol import TOPIC, Control, Pace, Program, Recorder, options, text

if "BENCH_CHECKOUT" in os.environ:  # another version's
    sys.path.insert(0, os.environ["BENCH_CHECKOUT"])

import pysqlbox

STEP = 1000
RETRY_SECONDS = 0.05
EFFECT = "INSERT INTO public.effect (message) VALUES (%s)"


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

    task = recorder.task
    settings = options()
    coroutines, transactional = settings.pop("coroutines", False), settings.pop("transactional", False)
    if task.workers:
        settings["async_slots" if coroutines else "threads"] = task.workers
    if task.lease_seconds:
        settings["lease_seconds"] = task.lease_seconds

    def again(message: Any, body: Any) -> Any:
        if task.retried and message.attempt == 0 and body["n"] % task.retried == 1:
            return pysqlbox.Retry(delay=RETRY_SECONDS)
        return None

    def handle(message: Any) -> None:
        recorder.handled(message.id)

    def handle_timed(message: Any) -> Any:
        body = json.loads(message.payload)
        recorder.arrived(message.id, body)
        task.run()
        return again(message, body)

    async def handle_async(message: Any) -> Any:
        if not recorder.timed:
            recorder.handled(message.id)
            await task.run_async()
            return None
        body = json.loads(message.payload)
        recorder.arrived(message.id, body)
        await task.run_async()
        return again(message, body)

    mine = threading.local()

    def write(message: Any) -> None:  # as an application does that has a connection for each thread
        if not hasattr(mine, "connection"):
            mine.connection = psycopg.connect(url, autocommit=True)
        mine.connection.execute(EFFECT, [message.id])
        recorder.handled(message.id)

    def write_in_one(message: Any, context: Any) -> None:
        context.connection.execute(EFFECT, [message.id])
        recorder.handled(message.id)

    def handle_in_one(message: Any, context: Any) -> None:  # noqa: ARG001 - the one that has the connection
        recorder.handled(message.id)

    with connect(url) as db:
        worker = db.worker(boxes=("outbox",), **settings)
        if transactional:
            worker.handler(TOPIC, transactional=True)(write_in_one if task.writes else handle_in_one)
        elif task.writes:
            worker.handler(TOPIC)(write)
        else:
            worker.handler(TOPIC)(handle_async if coroutines else handle_timed if recorder.timed else handle)
        control.ready()
        control.on_stop(worker.stop)
        worker.run()


if __name__ == "__main__":
    Program(versions, schema, fill, enqueue, work).main()
