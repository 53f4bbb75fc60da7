"""What a queue's program and the harness say to each other.

Standard library only: it runs in every environment.

A program is called with one of these commands:

    versions                              prints a JSON object: what is measured
    schema URL                            creates the queue's tables
    fill URL COUNT                        produces that many messages in bulk
    enqueue URL COUNT MILLISECONDS FILE   produces one after another, about that far apart (0: at once)
    work URL MODE FILE                    consumes; MODE is drain, latency, idle or steady

`work` prints `ready`, begins when it reads `go`, in mode drain prints `n COUNT FIRST` as it goes along,
ends in an orderly way when it reads `stop` (or its input ends), and leaves what it handled in FILE.
In mode steady a handler takes as long as BENCH_TASK says, and as many run at once.
All times are nanoseconds of the machine's monotonic clock, which every process shares.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAYLOAD_BYTES = 200
TOPIC = "work"
PROGRESS_SECONDS = 0.02
JITTER = 0.3
"""Messages come at random within this share of their distance, so that they fall in with nobody's polling."""

Body = dict[str, Any]


def body(number: int, at: int = 0) -> Body:
    """A message that is 200 bytes long as JSON."""
    bare = {"n": number, "at": at, "fill": ""}
    return {**bare, "fill": "x" * (PAYLOAD_BYTES - len(json.dumps(bare, separators=(",", ":"))))}


def text(number: int, at: int = 0) -> str:
    """The same as text."""
    return json.dumps(body(number, at), separators=(",", ":"))


def options() -> dict[str, Any]:
    """The settings that the catalogue gives this queue."""
    told: dict[str, Any] = json.loads(os.environ.get("BENCH_OPTIONS", "{}"))
    return told


@dataclass(frozen=True)
class Task:
    """What a handler does: it waits so long, as if for another service. `workers`: so many run at once."""

    seconds: float = 0.0
    workers: int | None = None
    writes: bool = False
    """Whether a handler also inserts a row into the table `effect`, once for all in the same database."""
    retried: int = 0
    """Of so many messages one is asked for again when it comes first."""
    journal: str | None = None
    """A file for what handlers see, which stays when the worker is killed."""
    lease_seconds: int | None = None

    @staticmethod
    def told() -> Task:
        """What the scenario asks for."""
        wanted: dict[str, Any] = json.loads(os.environ.get("BENCH_TASK", "{}"))
        return Task(**wanted)

    def run(self) -> None:
        """In a thread."""
        if self.seconds:
            time.sleep(self.seconds)

    async def run_async(self) -> None:
        """In a coroutine."""
        if self.seconds:
            await asyncio.sleep(self.seconds)


@dataclass
class Recorder:
    """What a worker has handled."""

    mode: str
    ids: list[Any] = field(default_factory=list)
    latencies: list[tuple[int, int, int]] = field(default_factory=list)
    first: int = 0
    task: Task = field(default_factory=Task.told)
    _journal: int = -1

    def __post_init__(self) -> None:
        """Open the journal if there is to be one."""
        if self.task.journal is not None:
            self._journal = os.open(self.task.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @property
    def timed(self) -> bool:
        """Whether handlers have to read the time that their message carries."""
        return self.mode != "drain"

    def handled(self, identity: Any) -> None:
        """A message of a drain."""
        if not self.first:
            self.first = time.monotonic_ns()
        self.ids.append(identity)

    def arrived(self, identity: Any, message: Body) -> None:
        """A message of a latency run."""
        now, at = time.monotonic_ns(), message["at"]
        self.first = self.first or now
        self.latencies.append((message["n"], now - at, at))
        self.ids.append(identity)
        if self._journal >= 0:
            os.write(self._journal, f"{message['n']} {now}\n".encode())

    def write(self, file: Path) -> None:
        """Leave it for the harness."""
        ids = [str(identity) for identity in self.ids]
        told = {"ids": ids, "first": self.first, "latencies": self.latencies}
        file.write_text(json.dumps(told), encoding="utf-8")


class Control:
    """The worker's side of the conversation."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def ready(self) -> None:
        """Everything is imported and connected: wait for the start."""
        print("ready", flush=True)
        if sys.stdin.readline().strip() != "go":
            raise SystemExit(1)
        if self._recorder.mode in ("drain", "steady"):
            threading.Thread(target=self._progress, daemon=True).start()

    def on_stop(self, stop: Callable[[], object]) -> None:
        """Call that, from another thread, when the harness has seen enough."""

        def wait() -> None:
            sys.stdin.readline()
            stop()

        threading.Thread(target=wait, daemon=True).start()

    def _progress(self) -> None:
        told = 0
        while True:
            time.sleep(PROGRESS_SECONDS)
            count = len(self._recorder.ids)
            if count != told:
                told = count
                print(f"n {count} {self._recorder.first}", flush=True)


class Pace:
    """When to enqueue: yields a number and the time just before the call, and times the call.

    Each message has its time, whatever the calls before it took; one that is late is enqueued at once, and
    with no distance all of them are.
    """

    def __init__(self, count: int, milliseconds: float) -> None:
        self._count = count
        self._seconds = milliseconds / 1000
        self.calls: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        due = time.monotonic()
        for number in range(self._count):
            due += self._seconds * random.uniform(1 - JITTER, 1 + JITTER)
            wait = due - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            at = time.monotonic_ns()
            yield number, at
            self.calls.append(time.monotonic_ns() - at)


@dataclass(frozen=True)
class Program:
    """A queue's answers to the commands."""

    versions: Callable[[], dict[str, str]]
    schema: Callable[[str], None]
    fill: Callable[[str, int], None]
    enqueue: Callable[[str, Pace], None]
    work: Callable[[str, Recorder, Control], None]

    def main(self) -> None:
        """Do what the command line says."""
        command, *rest = sys.argv[1:]
        if command == "versions":
            print(json.dumps(self.versions()))
        elif command == "schema":
            self.schema(rest[0])
        elif command == "fill":
            self.fill(rest[0], int(rest[1]))
        elif command == "enqueue":
            pace = Pace(int(rest[1]), float(rest[2]))
            self.enqueue(rest[0], pace)
            Path(rest[3]).write_text(json.dumps({"calls": pace.calls}), encoding="utf-8")
        elif command == "work":
            recorder = Recorder(rest[1])
            self.work(rest[0], recorder, Control(recorder))
            recorder.write(Path(rest[2]))
        else:
            raise SystemExit(f"unknown command {command}")
