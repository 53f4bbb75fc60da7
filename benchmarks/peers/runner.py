"""Running a queue's program: schema, messages, producers and workers, and what they cost."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.common.machine import process_cpu
from benchmarks.peers.catalogue import Peer
from benchmarks.peers.environments import ROOT, Installed, UnavailableError
from benchmarks.peers.scripts.protocol import Task

Mode = Literal["drain", "latency", "idle", "steady"]
START_SECONDS = 60
STOP_SECONDS = 30


class PeerFailedError(RuntimeError):
    """A queue's program failed; the message has what it said."""


@dataclass(frozen=True)
class Program:
    """An installed queue's program."""

    peer: Peer
    installed: Installed

    @staticmethod
    def install(peer: Peer) -> Program:
        """Install it where it is not yet. Raises UnavailableError."""
        return Program(peer, peer.environment.install(peer.folder))

    def versions(self) -> dict[str, str]:
        """What is measured."""
        try:
            told: dict[str, str] = json.loads(self._run("versions"))
        except PeerFailedError as error:
            raise UnavailableError(str(error)) from error
        return told

    def create_schema(self, url: str) -> None:
        """Its tables in an empty database."""
        self._run("schema", url)

    def fill(self, url: str, count: int) -> None:
        """That many messages, in bulk."""
        self._run("fill", url, str(count))

    def enqueue(self, url: str, count: int, milliseconds: float) -> list[int]:
        """Produce one after another; answers how long each call took, in nanoseconds."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "calls.json"
            self._run("enqueue", url, str(count), str(milliseconds), str(file))
            calls: list[int] = json.loads(file.read_text())["calls"]
        return calls

    @contextlib.contextmanager
    def producer(self, url: str, count: int, milliseconds: float) -> Iterator[Producer]:
        """A process that produces one after another meanwhile; ended at the end whatever happens."""
        producer = Producer(self, url, count, milliseconds)
        try:
            yield producer
        finally:
            producer.kill()

    @contextlib.contextmanager
    def worker(self, url: str, mode: Mode, task: Task | None = None) -> Iterator[Worker]:
        """A worker process, ended at the end whatever happens."""
        worker = Worker(self, url, mode, task)
        try:
            yield worker
        finally:
            worker.kill()

    def command(self, *words: str) -> list[str]:
        """The program's command line."""
        return [*self.installed.command, *words]

    def environment(self, mode: Mode = "drain", task: Task | None = None) -> dict[str, str]:
        """The program's environment, with the settings for what it is to do."""
        prompt = self.peer.prompt_options
        chosen = self.peer.options if mode == "drain" or prompt is None else prompt
        more = self.peer.task_options if task is not None and task.workers is not None else {}
        options = json.dumps({**chosen, **more})
        wanted = json.dumps(asdict(task)) if task else "{}"
        return {
            **os.environ,
            **self.installed.environment,
            "BENCH_OPTIONS": options,
            "BENCH_TASK": wanted,
        }

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            self.command(*words),
            env=self.environment(),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise PeerFailedError(f"{self.peer.name} {words[0]}: {done.stderr.strip()[-2000:]}")
        return done.stdout


class Producer:
    """A process that enqueues one message after another."""

    def __init__(self, program: Program, url: str, count: int, milliseconds: float) -> None:
        self._name = program.peer.name
        self._folder = tempfile.TemporaryDirectory()
        self._file = Path(self._folder.name) / "calls.json"
        self._errors = (Path(self._folder.name) / "errors").open("w+")
        self._process = subprocess.Popen(
            program.command("enqueue", url, str(count), str(milliseconds), str(self._file)),
            env=program.environment(),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self._process.poll() is None

    def wait(self) -> list[int]:
        """Until it has ended; how long each call took, in nanoseconds."""
        if self._process.wait():
            self._errors.seek(0)
            raise PeerFailedError(f"{self._name} enqueue: {self._errors.read().strip()[-2000:]}")
        calls: list[int] = json.loads(self._file.read_text())["calls"]
        return calls

    def kill(self) -> None:
        """End it if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._errors.close()
        self._folder.cleanup()


class Worker:
    """A worker process of a queue."""

    def __init__(self, program: Program, url: str, mode: Mode, task: Task | None = None) -> None:
        self._name = program.peer.name
        self._folder = tempfile.TemporaryDirectory()
        self._file = Path(self._folder.name) / "result.json"
        self._errors = (Path(self._folder.name) / "errors").open("w+")
        self._ready = threading.Event()
        self.count = 0
        self.first = 0
        self._process = subprocess.Popen(
            program.command("work", url, mode, str(self._file)),
            env=program.environment(mode, task),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_ready(self) -> None:
        """Until it is imported and connected."""
        deadline = time.monotonic() + START_SECONDS
        while not self._ready.wait(0.05):
            self.check()
            if time.monotonic() > deadline:
                raise PeerFailedError(f"{self._name}: not ready within {START_SECONDS} s")

    def check(self) -> None:
        """Raise if it has ended."""
        if self._process.poll() is not None:
            raise PeerFailedError(f"{self._name}: worker ended: {self._said()}")

    def go(self) -> None:
        """Begin."""
        self._tell("go")

    def stop(self) -> dict[str, Any]:
        """End in an orderly way; answers what it handled."""
        self._tell("stop")
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise PeerFailedError(f"{self._name}: worker did not end within {STOP_SECONDS} s") from error
        if self._process.returncode or not self._file.exists():
            raise PeerFailedError(f"{self._name}: worker failed: {self._said()}")
        told: dict[str, Any] = json.loads(self._file.read_text())
        return told

    def kill(self) -> None:
        """End it if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._errors.close()
        self._folder.cleanup()

    def cpu_seconds(self) -> float:
        """CPU time of all its threads, in hundredths of a second."""
        return process_cpu(self._process.pid)

    def exact_cpu_seconds(self) -> float:
        """CPU time of the threads that live, to the nanosecond."""
        total = 0
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, *rest = line.split() or [""]
            if word == "ready":
                self._ready.set()
            elif word == "n" and len(rest) == 2:
                self.first = int(rest[1])
                self.count = int(rest[0])

    def _said(self) -> str:
        self._errors.flush()
        self._errors.seek(0)
        return self._errors.read().strip()[-2000:]
