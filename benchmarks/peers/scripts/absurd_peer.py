"""absurd through its Python client; the schema comes with absurdctl."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
from absurd_sdk import Absurd  # type: ignore[import-not-found,unused-ignore]  # in its own environment

from benchmarks.peers.scripts.protocol import TOPIC, Control, Pace, Program, Recorder, body, options, text

QUEUE = "bench"
STEP = 1000


def versions() -> dict[str, str]:
    """What is measured."""
    names = ("absurd-sdk", "absurdctl", "psycopg")
    return {name: version(name) for name in names} | {"Python": sys.version.split()[0]}


def client(url: str) -> Any:
    """A client of the one queue."""
    return Absurd(url, queue_name=QUEUE)


def schema(url: str) -> None:
    """Its schema and a queue."""
    command = str(Path(sys.executable).parent / "absurdctl")
    subprocess.run([command, "init", "-d", url], check=True, stdout=subprocess.DEVNULL)
    client(url).create_queue(QUEUE)


def fill(url: str, count: int) -> None:
    """Through its routine, a thousand calls a statement: the client has no call for many."""
    spawn = """
        SELECT count(*) FROM unnest(%s::jsonb[]) AS message
        CROSS JOIN LATERAL absurd.spawn_task(%s, %s, message)"""
    with psycopg.connect(url, autocommit=True) as connection:
        for first in range(0, count, STEP):
            messages = [text(number) for number in range(first, min(first + STEP, count))]
            connection.execute(spawn, [messages, QUEUE, TOPIC])


def enqueue(url: str, pace: Pace) -> None:
    """One at a time."""
    absurd = client(url)
    for number, at in pace:
        absurd.spawn(TOPIC, body(number, at), queue=QUEUE)
    absurd.close()


def work(url: str, recorder: Recorder, control: Control) -> None:
    """A worker."""
    absurd = client(url)

    def handle(_params: Any, context: Any) -> None:
        recorder.handled(context.task_id)

    def handle_timed(params: Any, context: Any) -> None:
        recorder.arrived(context.task_id, params)
        recorder.task.run()

    absurd.register_task(TOPIC)(handle_timed if recorder.timed else handle)
    control.ready()
    control.on_stop(absurd.stop_worker)
    workers = recorder.task.workers
    absurd.start_worker(**{**options(), **({"concurrency": workers} if workers else {})})
    absurd.close()


if __name__ == "__main__":
    Program(versions, schema, fill, enqueue, work).main()
