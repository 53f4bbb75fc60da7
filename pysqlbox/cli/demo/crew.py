"""The demo's worker processes: each is ``pysqlbox work`` with a worker of the shop."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

import click

__all__ = ["Crew", "hiring"]


class Crew:
    """Worker processes by name; their log goes to files, shown only if one of them fails."""

    def __init__(self, url: str, environment: Mapping[str, str]) -> None:
        self._environment = {**os.environ, **environment, "PYSQLBOX_URL": url}
        self._running: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}

    def hire(self, name: str, worker: str) -> None:
        """Start a process."""
        log = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as the process
        command = [sys.executable, "-m", "pysqlbox", "work", f"pysqlbox.cli.demo.shop:{worker}"]
        process = subprocess.Popen(
            [*command, "--log-level", "error"],
            env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        self._running[name] = (process, log)

    def kill(self, name: str) -> None:
        """SIGKILL: no handler, no farewell, no settling."""
        process, log = self._running.pop(name)
        process.kill()
        process.wait()
        log.close()

    def check(self) -> None:
        """Everybody else must still be at work."""
        for name, (process, log) in self._running.items():
            if process.poll() is not None:
                log.seek(0)
                text = log.read().decode(errors="replace")
                raise click.ClickException(f"{name} ended with code {process.returncode}:\n{text[-2000:]}")

    def dismiss(self) -> int:
        """SIGTERM: they let their handlers end and exit; answers how many did so with code 0."""
        for process, _ in self._running.values():
            process.terminate()
        deadline = time.monotonic() + 10
        ended = 0
        for process, log in self._running.values():
            try:
                ended += process.wait(max(0.1, deadline - time.monotonic())) == 0
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            log.close()
        self._running.clear()
        return ended


@contextmanager
def hiring(url: str, **environment: str) -> Iterator[Crew]:
    """A crew of which nobody is left behind."""
    crew = Crew(url, environment)
    try:
        yield crew
    finally:
        crew.dismiss()
