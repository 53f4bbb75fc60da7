"""Tries a wheel as its users will: in clean virtual environments, without any extra and with one.

``python -m tools.try_wheel dist/*.whl`` does it with every Python from 3.11 to 3.14 that is on the path,
or that pyenv has.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")

#: A program that only sends: what it does not use is neither imported nor needed.
_PRODUCER = """
import sys
import pysqlbox

light = {"asyncio", "psycopg"}.isdisjoint(sys.modules)
try:
    with pysqlbox.connect(sys.argv[1]) as db:
        print("sent", db.outbox.enqueue("wheel.tried", {"light": light}).outcome)
        try:
            db.migrate()
        except pysqlbox.PackageMissing as error:
            print(error)
except pysqlbox.DriverMissing as error:
    print(error)
"""
#: All of it, on a server that comes along.
_WHOLE = """
import pysqlbox
from pysqlbox.drivers.embedded import EmbeddedServer

with EmbeddedServer(temporary=True) as server, pysqlbox.connect(server.url) as db:
    db.migrate()
    db.outbox.enqueue("wheel.tried", {})
    worker = db.worker(threads=1)
    worker.handler("wheel.tried")(lambda message: None)
    print("handled", worker.drain(timeout=30))
"""


class CleanPython:
    """A virtual environment of its own."""

    def __init__(self, directory: Path, python: str = sys.executable) -> None:
        """Makes it, which needs no network."""
        _run(python, "-m", "venv", str(directory))
        self._bin = directory / ("Scripts" if sys.platform == "win32" else "bin")

    def install(self, requirement: str) -> None:
        """Installs something with what it needs."""
        _run(
            self._bin / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            requirement,
        )

    def produce(self, url: str) -> str:
        """What the program that only sends prints."""
        return self._program(_PRODUCER, url)

    def whole(self) -> str:
        """What the program prints that deploys, sends and works."""
        return self._program(_WHOLE)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs the command ``pysqlbox``."""
        return _completed(self._bin / "pysqlbox", *arguments)

    def _program(self, program: str, *arguments: str) -> str:
        # -P: what is installed, and not what lies in the current directory.
        return _run(self._bin / "python", "-P", "-c", program, *arguments)


class Failed(Exception):
    """A step of the trial did not work; the text is what it printed."""


def _completed(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYENV_VERSION": _pyenv_versions()}
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, env=environment)


@functools.cache
def _pyenv_versions() -> str:
    """All that pyenv has, the newest first: its launchers find what this names."""
    if shutil.which("pyenv") is None:
        return "system"
    done = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True, check=False)
    return ":".join([*reversed(done.stdout.split()), "system"])


def _run(*command: str | Path) -> str:
    done = _completed(*command)
    if done.returncode:
        raise Failed(
            f"{' '.join(map(str, command[:4]))} …: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def main(wheel: str) -> int:
    """Tries the wheel with every Python that is here; how many failed."""
    tried = failed = 0
    for python in _PYTHONS:
        try:
            version = _run(python, "--version").strip()
        except (Failed, FileNotFoundError):  # a launcher may be there without the Python it would launch
            print(f"{python}: not here")
            continue
        tried += 1
        with tempfile.TemporaryDirectory(prefix="pysqlbox-wheel-") as directory:
            try:
                print(f"{version}: {_try(wheel, Path(directory), python)}")
            except Failed as error:
                failed += 1
                print(f"{version}: {error}")
    return failed if tried else 1


def _try(wheel: str, directory: Path, python: str) -> str:
    clean = CleanPython(directory / "venv", python)
    clean.install(wheel)
    said = clean.command("--version")
    if said.returncode != 2 or "pysqlbox[cli]" not in said.stderr:
        raise Failed(f"without click the command line says: {said.stdout}{said.stderr}")
    clean.install(f"{wheel}[embedded]")
    return ", ".join(["installed", clean.whole().strip(), clean.command("--version").stdout.strip()])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
