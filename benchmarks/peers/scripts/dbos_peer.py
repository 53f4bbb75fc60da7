"""DBOS: a workflow without steps on a queue, worked by the threads of one executor."""

from __future__ import annotations

import json
import os
import sys
import threading
from importlib.metadata import version
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSClient  # type: ignore[import-not-found,unused-ignore]  # in its own environment

from benchmarks.peers.scripts.protocol import TOPIC, Control, Pace, Program, Recorder, options, text

APPLICATION = "bench"
VERSION = "1"
QUEUE = "bench"
STEP = 1000
ENQUEUE = {"queue_name": QUEUE, "workflow_name": TOPIC, "app_version": VERSION}


def versions() -> dict[str, str]:
    """What is measured."""
    names = ("dbos", "SQLAlchemy", "psycopg")
    return {name: version(name) for name in names} | {"Python": sys.version.split()[0]}


def client(url: str) -> Any:
    """A producer outside the application, as its documentation has it."""
    return DBOSClient(system_database_url=url, application_name=APPLICATION)


def launch(url: str) -> None:
    """This process as an executor of the application."""
    DBOS(
        config={
            "name": APPLICATION,
            "system_database_url": url,
            "application_version": VERSION,
            "executor_id": str(os.getpid()),
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    DBOS.register_queue(QUEUE, **options())


def schema(url: str) -> None:
    """Its tables, and the queue."""
    launch(url)
    DBOS.destroy()


def fill(url: str, count: int) -> None:
    """A thousand of its enqueues in a transaction: the client has no call for many."""
    producer = client(url)
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    for first in range(0, count, STEP):
        with engine.begin() as connection:
            for number in range(first, min(first + STEP, count)):
                producer.enqueue_in_transaction(connection, ENQUEUE, text(number))
    engine.dispose()
    producer.destroy()


def enqueue(url: str, pace: Pace) -> None:
    """One at a time."""
    producer = client(url)
    for number, at in pace:
        producer.enqueue(ENQUEUE, text(number, at))
    producer.destroy()


def work(url: str, recorder: Recorder, control: Control) -> None:
    """An executor."""
    stopped = threading.Event()

    def handle(message: str) -> None:
        if recorder.timed:
            recorder.arrived(DBOS.workflow_id, json.loads(message))
            recorder.task.run()
        else:
            recorder.handled(DBOS.workflow_id)

    DBOS.workflow(name=TOPIC)(handle)
    control.ready()
    control.on_stop(stopped.set)
    launch(url)
    stopped.wait()
    DBOS.destroy(workflow_completion_timeout_sec=10)


if __name__ == "__main__":
    Program(versions, schema, fill, enqueue, work).main()
