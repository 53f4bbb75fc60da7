"""awa through its Python client: queue storage, COPY for many, a worker on asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from awa import AsyncClient  # type: ignore[import-not-found,unused-ignore]  # in its own environment

from benchmarks.peers.scripts.protocol import TOPIC, Control, Pace, Program, Recorder, body, options

STEP = 1000
WORKERS = "workers"


@dataclass
class Work:
    """A message."""

    n: int
    at: int
    fill: str


def client(url: str) -> Any:
    """Its driver wants some host's name, also where the host is a socket."""
    return AsyncClient(url.replace("@/", "@localhost/", 1))


def versions() -> dict[str, str]:
    """What is measured."""
    return {"awa-pg": version("awa-pg"), "Python": sys.version.split()[0]}


def schema(url: str) -> None:
    """Its migrations."""

    async def create() -> None:
        made = client(url)
        await made.migrate()
        await made.install_queue_storage()
        await made.close()

    asyncio.run(create())


def fill(url: str, count: int) -> None:
    """Through its COPY."""

    async def produce() -> None:
        made = client(url)
        for first in range(0, count, STEP):
            numbers = range(first, min(first + STEP, count))
            await made.enqueue_many_copy([Work(**body(number)) for number in numbers], queue=TOPIC)
        await made.close()

    asyncio.run(produce())


def enqueue(url: str, pace: Pace) -> None:
    """One at a time."""

    async def produce() -> None:
        made = client(url)
        for number, at in pace:
            await made.insert(Work(**body(number, at)), queue=TOPIC)
        await made.close()

    asyncio.run(produce())


def work(url: str, recorder: Recorder, control: Control) -> None:
    """A worker."""

    async def consume() -> None:
        settings: dict[str, Any] = options()
        queue = {"name": TOPIC, "max_workers": recorder.task.workers or settings.pop(WORKERS), **settings}
        queue.pop(WORKERS, None)
        made, stopped = client(url), asyncio.Event()

        async def handle(job: Any) -> None:
            if recorder.timed:
                recorder.arrived(job.id, asdict(job.args))
            else:
                recorder.handled(job.id)
            await recorder.task.run_async()

        made.task(Work, queue=TOPIC)(handle)
        control.ready()
        loop = asyncio.get_running_loop()
        control.on_stop(lambda: loop.call_soon_threadsafe(stopped.set))
        await made.start([queue])
        await stopped.wait()
        with contextlib.suppress(asyncio.CancelledError):
            await made.shutdown(10_000)
        await made.close()

    asyncio.run(consume())


if __name__ == "__main__":
    Program(versions, schema, fill, enqueue, work).main()
