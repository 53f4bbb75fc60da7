"""A private server that writes to disk as in production, can be stopped without warning and started again."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support import local_postgres

SETTINGS = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "30"}


def _programs() -> dict[str, Path]:
    return {f"pg{version}": path for version, path in local_postgres.system_versions().items()}


def versions() -> list[str]:
    """The servers that can be started here."""
    return list(_programs())


@dataclass(slots=True)
class Server:
    """One server in a folder of its own."""

    folder: Path
    programs: Path
    owner: str | None

    @property
    def url(self) -> str:
        """The URL of its database postgres."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def start(self) -> None:
        """Starts it, through recovery if need be."""
        settings = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
        options = f"-c listen_addresses='' -c unix_socket_directories='{self.folder}' {settings}"
        self._run("pg_ctl", "-D", self.data, "-l", self.folder / "log", "-w", "-o", options, "start")

    def crash(self) -> None:
        """Stops it without warning: no checkpoint, nothing written that was not on disk already."""
        self._run("pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop")

    def create(self) -> None:
        """Makes its files."""
        self._run(
            "initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"
        )

    @property
    def data(self) -> Path:
        """Where its files are."""
        return self.folder / "data"

    def _run(self, program: str, *arguments: str | Path) -> None:
        local_postgres._run(self.owner, self.folder / "log", self.programs / program, *arguments)


@contextlib.contextmanager
def server(version: str) -> Iterator[Server]:
    """A running server of that version."""
    folder = local_postgres._temporary_folder()
    owner = local_postgres._unprivileged_user() if os.geteuid() == 0 else None
    if owner:
        shutil.chown(folder, owner)
    running = Server(folder, _programs()[version], owner)
    try:
        running.create()
        running.start()
        yield running
        running.crash()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
