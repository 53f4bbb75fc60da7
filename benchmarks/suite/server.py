"""The laboratory: the server that is measured, databases filled once and copied, and what a work costs."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from benchmarks.common.databases import Databases
from benchmarks.common.machine import server_cpu
from benchmarks.queue.pool import Pool

CLIENTS = 4
HELD_SECONDS = 60.0
"""So that a whole run ends within two hours; longer is told by --held-seconds."""


@dataclass
class Cost:
    """What the server spent between the beginning and the end of a work."""

    server_cpu: float = 0.0
    wal_bytes: float = 0.0


@dataclass
class Lab:
    """What scenarios work with.

    `quick`: a try-out, not a measurement. `hours`: how long the sustained run takes. `progress` tells a
    line to whoever watches. `held_seconds`: how long a queue is followed under a held snapshot.
    """

    databases: Databases
    quick: bool
    hours: float
    progress: Callable[[str], None]
    held_seconds: float = HELD_SECONDS
    _templates: set[str] = field(default_factory=set)
    _postmaster: int | None = None
    _pool: Pool | None = None

    def size(self, full: int, quick: int) -> int:
        """How many: the first, or in a hurry the second."""
        return quick if self.quick else full

    def seconds(self, full: float, quick: float) -> float:
        """How long: the first, or in a hurry the second."""
        return quick if self.quick else full

    @property
    def pool(self) -> Pool:
        """Client processes, as many as any scenario needs, started once."""
        if self._pool is None:
            with _inherited(signal.SIGINT, signal.SIG_IGN):  # Ctrl-C is for the parent, which ends them
                self._pool = Pool(CLIENTS, is_local=False)
        return self._pool

    def close(self) -> None:
        """End the clients; new ones are started when they are needed."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            pool.close()

    def file_system(self) -> str:
        """The kind of the one that the server's data is on; empty where nobody tells."""
        with psycopg.connect(self.databases.server.conninfo, autocommit=True) as connection:
            row = connection.execute("SHOW data_directory").fetchone()
        folder, mounts = Path(str(row[0]) if row else "/"), Path("/proc/mounts")
        if not mounts.exists():
            return ""
        there = [line.split()[1:3] for line in mounts.read_text().splitlines()]
        above = [(len(point), kind) for point, kind in there if folder.is_relative_to(point)]
        return max(above)[1] if above else ""

    @property
    def postmaster(self) -> int:
        """The server's first process."""
        if self._postmaster is None:
            self._postmaster = self.databases.postmaster()
        return self._postmaster

    @contextlib.contextmanager
    def database(self, name: str, build: Callable[[str], None], *, counting: bool = False) -> Iterator[str]:
        """A private copy of what `build` makes of an empty database, whose URL it gets; dropped at the end.
        `counting`: with statements counted.

        It is built once a run for each name (and then vacuumed and analysed); nothing may have connected to
        it in the background when `build` returns.
        """
        template = "".join(character if character.isalnum() else "_" for character in name.lower())
        if len(template) > 58:
            raise ValueError(f"a database's name has at most 58 characters: {template}")
        if template not in self._templates:
            self.databases.drop(template)
            self.databases.create(template)
            build(self.databases.url(template))
            self.databases.settle(template)
            self._templates.add(template)
        with self.databases.copy(template, counting=counting) as url:
            yield url

    @contextlib.contextmanager
    def metered(self) -> Iterator[Cost]:
        """What the whole server spends meanwhile: all its processes' CPU seconds, and the WAL of all."""
        cost = Cost()
        with psycopg.connect(self.databases.server.conninfo, autocommit=True) as connection:
            position, cpu = _position(connection), server_cpu(self.postmaster)
            yield cost
            cost.server_cpu = server_cpu(self.postmaster) - cpu
            cost.wal_bytes = _position(connection) - position


@contextlib.contextmanager
def _inherited(number: signal.Signals, handler: signal.Handlers) -> Iterator[None]:
    """What processes that are started meanwhile do about a signal."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _position(connection: psycopg.Connection[tuple[object, ...]]) -> float:
    row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    return float(str(row[0])) if row else 0.0
