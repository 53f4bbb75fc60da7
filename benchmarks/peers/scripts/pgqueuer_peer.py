"""pgqueuer with asyncpg and uvloop, as its own benchmark runs it (tools/benchmark.py)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-not-found,import-untyped,unused-ignore]  # in its own environment
import uvloop  # type: ignore[import-not-found,unused-ignore]  # likewise
from pgqueuer.db import AsyncpgDriver  # type: ignore[import-not-found,unused-ignore]  # likewise
from pgqueuer.qm import QueueManager  # type: ignore[import-not-found,unused-ignore]  # likewise
from pgqueuer.queries import Queries  # type: ignore[import-not-found,unused-ignore]  # likewise

from benchmarks.peers.scripts.protocol import TOPIC, Control, Pace, Program, Recorder, options, text

STEP = 1000


def versions() -> dict[str, str]:
    """What is measured."""
    return {name: version(name) for name in ("pgqueuer", "asyncpg", "uvloop")} | {
        "Python": sys.version.split()[0]
    }


def schema(url: str) -> None:
    """Durable tables, and the vacuum settings that its performance guide asks for."""
    command = [str(Path(sys.executable).parent / "pgq"), "--pg-dsn", url]
    for words in (("install",), ("autovac",)):
        subprocess.run([*command, *words], check=True, stdout=subprocess.DEVNULL)


def fill(url: str, count: int) -> None:
    """Through its enqueue of many."""

    async def produce() -> None:
        connection = await asyncpg.connect(url)
        queries = Queries(AsyncpgDriver(connection))
        for first in range(0, count, STEP):
            numbers = range(first, min(first + STEP, count))
            payloads = [text(number).encode() for number in numbers]
            await queries.enqueue([TOPIC] * len(payloads), payloads, [0] * len(payloads))
        await connection.close()

    uvloop.run(produce())


def enqueue(url: str, pace: Pace) -> None:
    """One at a time."""

    async def produce() -> None:
        connection = await asyncpg.connect(url)
        queries = Queries(AsyncpgDriver(connection))
        for number, at in pace:
            await queries.enqueue(TOPIC, text(number, at).encode())
        await connection.close()

    uvloop.run(produce())


def work(url: str, recorder: Recorder, control: Control) -> None:
    """A queue manager on a connection of its own."""

    async def consume() -> None:
        manager = QueueManager(Queries(AsyncpgDriver(await asyncpg.connect(url))))

        async def handle(job: Any) -> None:
            recorder.handled(job.id)
            await recorder.task.run_async()

        async def handle_timed(job: Any) -> None:
            recorder.arrived(job.id, json.loads(job.payload))
            await recorder.task.run_async()

        manager.entrypoint(TOPIC)(handle_timed if recorder.timed else handle)
        control.ready()
        loop = asyncio.get_running_loop()
        control.on_stop(lambda: loop.call_soon_threadsafe(manager.shutdown.set))
        await manager.run(**options())

    uvloop.run(consume())


if __name__ == "__main__":
    Program(versions, schema, fill, enqueue, work).main()
