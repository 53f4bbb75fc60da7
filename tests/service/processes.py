"""``pysqlbox serve`` as a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE = 180.0
"""Seconds; a machine under load is slow."""


class Served:
    """A running service."""

    def __init__(self, *options: str, url: str | None, schema: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSQLBOX_")}
        command = [sys.executable, "-W", "error", "-m", "pysqlbox", "serve", "--listen", "127.0.0.1:0"]
        if url is not None:
            command += ["--schema", schema]
            environment["PYSQLBOX_URL"] = url
        self.process = subprocess.Popen(
            [*command, *options],
            cwd=ROOT,
            env=environment | {"PYTHONUNBUFFERED": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            if match := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
                self.port = int(match[1])
                self._said: list[str] = []
                # Read on, for a full pipe would stop whoever writes to it.
                self._reader = threading.Thread(target=self._read, daemon=True)
                self._reader.start()
                return
        raise AssertionError("".join(said))

    def _read(self) -> None:
        assert self.process.stderr is not None
        self._said.extend(self.process.stderr)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any, Any]:
        """Status, headers and JSON of an answer, over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            content = None if body is None else json.dumps(body)
            if body is not None:
                headers["content-type"] = "application/json"
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            return response.status, response.headers, json.loads(response.read())
        finally:
            connection.close()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """End it; its exit code and what it said since it listened."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code, "".join(self._said)


@contextmanager
def served(*options: str, url: str | None = None, schema: str = "infra") -> Iterator[Served]:
    """A service that is ended with the test; without a URL of what the options name."""
    running = Served(*options, url=url, schema=schema)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop(signal.SIGKILL)
        assert running.process.stderr is not None
        running.process.stderr.close()


def until(holds: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait for something to hold."""
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
