"""Programs of the examples: started in their own folder, asked over HTTP, ended by SIGTERM."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PATIENCE = 60.0


def environment(**more: str) -> dict[str, str]:
    """This process's, with the package of this checkout, warnings as errors nowhere but in our tests."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **more}


def run(folder: Path, *command: str, env: Mapping[str, str], code: int = 0) -> str:
    """Runs a Python program to its end; what it printed."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**env},
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextlib.contextmanager
def running(
    folder: Path, *command: str, env: Mapping[str, str], codes: tuple[int, ...] = (0,)
) -> Iterator[None]:
    """A Python program while the block runs; SIGTERM must end it in time and with one of these codes."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=folder, env={**env}, stdout=log, stderr=subprocess.STDOUT
        )

        def said() -> str:
            log.seek(0)
            return log.read()

        try:
            yield
            assert process.poll() is None, said()
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) in codes, said()
            assert "Traceback" not in said(), said()
        except BaseException:
            print(said())
            raise
        finally:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def ask(
    url: str,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    method: str | None = None,
) -> Any:
    """The JSON that a GET answers, or a POST if there is a body, or another method."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={**(headers or {})}, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def until(condition: Callable[[], bool]) -> None:
    """Waits until it holds; a server that does not listen yet does not hold."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            if condition():
                return
        time.sleep(0.05)
    raise AssertionError("it never came about")


def at_once(calls: int, call: Callable[[int], Any]) -> list[Any]:
    """A load: so many calls by four threads."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(call, range(calls)))
