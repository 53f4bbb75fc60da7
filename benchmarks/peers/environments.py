"""Where each queue is installed: an environment, node_modules or program of its own, kept between runs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
ROOT = SCRIPTS.parents[2]
DONE = "installed.json"
NODE = "node@22"
"""Node.js itself comes from npm, as a package: some queues want a newer one than the system has."""


class UnavailableError(RuntimeError):
    """A queue cannot be had here; the message says why."""


def cache_folder() -> Path:
    """PYSQLBOX_BENCH_CACHE, or a folder in the user's cache."""
    given = os.environ.get("PYSQLBOX_BENCH_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "pysqlbox-bench"


@dataclass(frozen=True)
class Installed:
    """How to run a queue's program."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


class Environment(ABC):
    """Where a queue's program runs."""

    @abstractmethod
    def install(self, name: str) -> Installed:
        """Install what is not yet there. Raises UnavailableError."""


@dataclass(frozen=True)
class Own(Environment):
    """The environment that runs the benchmark, and the work tree."""

    script: str
    checkout: str | None = None
    """The variable that says where another checkout of pysqlbox is, which then is measured."""

    def install(self, name: str) -> Installed:  # noqa: ARG002 - nothing to install
        """Nothing to do."""
        environment = {"PYTHONPATH": str(ROOT)}
        if self.checkout is not None:
            folder = os.environ.get(self.checkout)
            if not folder:
                raise UnavailableError(f"{self.checkout} is not set")
            environment["BENCH_CHECKOUT"] = folder
        return Installed((sys.executable, "-m", _module(self.script)), environment)


@dataclass(frozen=True)
class Virtual(Environment):
    """A virtual environment with these requirements."""

    script: str
    requirements: tuple[str, ...]

    def install(self, name: str) -> Installed:
        """With pip, as it is configured."""
        folder = cache_folder() / name
        python = folder / "bin" / "python"
        if not _is_done(folder, self.requirements):
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True)
            _run(folder, str(python), "-m", "pip", "install", "--quiet", *self.requirements)
            _set_done(folder, self.requirements)
        return Installed((str(python), "-m", _module(self.script)), {"PYTHONPATH": str(ROOT)})


@dataclass(frozen=True)
class Node(Environment):
    """A node_modules with one of these sets of packages: the first that can be installed."""

    script: str
    choices: tuple[tuple[str, ...], ...]

    def install(self, name: str) -> Installed:
        """With npm, as it is configured."""
        if not shutil.which("npm"):
            raise UnavailableError("npm is not installed")
        folder = cache_folder() / name
        if not _is_done(folder, self.choices):
            self._install(folder)
            _set_done(folder, self.choices)
        for script in SCRIPTS.glob("*.mjs"):
            shutil.copy(script, folder)
        node = folder / "node_modules" / ".bin" / "node"
        return Installed((str(node), str(folder / self.script)), {})

    def _install(self, folder: Path) -> None:
        failure: UnavailableError | None = None
        for packages in self.choices:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            (folder / "package.json").write_text('{"private": true}')
            try:
                # Node first: npm picks the versions that suit the Node it runs on.
                _run(folder, "npm", "install", NODE)
                path = f"{folder / 'node_modules' / '.bin'}{os.pathsep}{os.environ.get('PATH', '')}"
                _run(folder, "npm", "install", *packages, PATH=path)
            except UnavailableError as error:
                failure = error
            else:
                return
        assert failure is not None
        raise failure


@dataclass(frozen=True)
class Go(Environment):
    """A program that is built with these modules."""

    folder: str
    modules: tuple[str, ...]

    def install(self, name: str) -> Installed:
        """With the go command, as it is configured."""
        if not shutil.which("go"):
            raise UnavailableError("go is not installed")
        folder, source = cache_folder() / name, (SCRIPTS / self.folder / "main.go").read_text()
        wanted = (*self.modules, source)
        if not _is_done(folder, wanted):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            (folder / "main.go").write_text(source)
            _run(folder, "go", "mod", "init", "bench")
            _run(folder, "go", "get", *self.modules)
            _run(folder, "go", "build", "-o", "program", ".")
            _set_done(folder, wanted)
        return Installed((str(folder / "program"),), {})


def _module(script: str) -> str:
    return f"benchmarks.peers.scripts.{script}"


def _fingerprint(wanted: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(wanted).encode()).hexdigest()


def _is_done(folder: Path, wanted: Sequence[object]) -> bool:
    done = folder / DONE
    return done.exists() and json.loads(done.read_text())["wanted"] == _fingerprint(wanted)


def _set_done(folder: Path, wanted: Sequence[object]) -> None:
    (folder / DONE).write_text(json.dumps({"wanted": _fingerprint(wanted)}))


def _run(folder: Path, *command: str, **environment: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        # Not in the results, since it names this machine's hosts and folders.
        print((done.stderr or done.stdout).strip(), file=sys.stderr)
        raise UnavailableError(f"{' '.join(command[:3])} failed")
