"""procrastinate with its psycopg connector and asynchronous tasks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from importlib.metadata import version
from typing import Any

import procrastinate  # type: ignore[import-not-found,unused-ignore]  # in its own environment

from benchmarks.peers.scripts.protocol import (
    TOPIC,
    Control,
    Pace,
    Program,
    Recorder,
    Task,
    body,
    options,
)

STEP = 1000


def versions() -> dict[str, str]:
    """What is measured."""
    return {name: version(name) for name in ("procrastinate", "psycopg")} | {"Python": sys.version.split()[0]}


def settings() -> dict[str, Any]:
    """Those of the catalogue; a scenario may say how many run at once."""
    workers = Task.told().workers
    return {**options(), **({"concurrency": workers} if workers else {})}


def app(url: str, recorder: Recorder | None = None) -> tuple[Any, Any]:
    """An app with the one task."""
    logging.getLogger("procrastinate").setLevel(logging.WARNING)
    size = settings()["concurrency"] + 1
    made = procrastinate.App(
        connector=procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=size)
    )

    async def handle(context: Any, n: int, at: int, fill: str) -> None:  # noqa: ARG001 - the message's fields
        assert recorder is not None
        if recorder.timed:
            recorder.arrived(context.job.id, {"n": n, "at": at})
        else:
            recorder.handled(context.job.id)
        await recorder.task.run_async()

    return made, made.task(name=TOPIC, pass_context=True)(handle)


def schema(url: str) -> None:
    """Its schema."""

    async def create() -> None:
        made, _ = app(url)
        async with made.open_async():
            await made.schema_manager.apply_schema_async()

    asyncio.run(create())


def fill(url: str, count: int) -> None:
    """Through its batch_defer."""

    async def produce() -> None:
        made, task = app(url)
        async with made.open_async():
            for first in range(0, count, STEP):
                await task.batch_defer_async(*[body(n) for n in range(first, min(first + STEP, count))])

    asyncio.run(produce())


def enqueue(url: str, pace: Pace) -> None:
    """One at a time."""

    async def produce() -> None:
        made, task = app(url)
        async with made.open_async():
            for number, at in pace:
                await task.defer_async(**body(number, at))

    asyncio.run(produce())


def work(url: str, recorder: Recorder, control: Control) -> None:
    """A worker; it ends in an orderly way when its task is cancelled."""

    async def consume() -> None:
        made, _ = app(url, recorder)
        async with made.open_async():
            control.ready()
            running = asyncio.create_task(made.run_worker_async(install_signal_handlers=False, **settings()))
            loop = asyncio.get_running_loop()
            control.on_stop(lambda: loop.call_soon_threadsafe(running.cancel))
            with contextlib.suppress(asyncio.CancelledError):
                await running

    asyncio.run(consume())


if __name__ == "__main__":
    Program(versions, schema, fill, enqueue, work).main()
