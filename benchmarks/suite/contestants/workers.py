"""The worker level's contestants: the peers, each in an environment of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg

from benchmarks.peers.catalogue import ALL as PEERS
from benchmarks.peers.catalogue import Peer
from benchmarks.peers.runner import Program
from benchmarks.suite.runner import Contestant
from benchmarks.suite.server import Lab


class Queue(Contestant):
    """A queue with its own client and worker."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.name = peer.name
        self.source = peer.told
        self.keeps = peer.keeps
        self._program: Program | None = None

    @property
    def program(self) -> Program:
        """Its program, once it is prepared."""
        if self._program is None:
            raise RuntimeError(f"{self.name} is not prepared")
        return self._program

    def prepare(self, lab: Lab) -> dict[str, str]:  # noqa: ARG002 - the same on every server
        """Install it, the first time."""
        self._program = Program.install(self.peer)
        return self._program.versions()

    def backlog(self, wanted: int) -> int:
        """How many messages a backlog has for this one."""
        return min(wanted, self.peer.backlog or wanted)

    @contextlib.contextmanager
    def database(self, lab: Lab, count: int = 0, *, counting: bool = False) -> Iterator[str]:
        """A copy of a database with its schema and that many messages."""

        def build(url: str) -> None:
            self.program.create_schema(url)
            if count:
                self.program.fill(url, count)

        with lab.database(f"worker {self.peer.folder} {count}", build, counting=counting) as url:
            yield url

    def remaining(self, watcher: psycopg.Connection[tuple[int]]) -> int:
        """How many messages are not finished."""
        row = watcher.execute(self.peer.remaining.encode()).fetchone()
        return int(row[0]) if row else 0


QUEUES = tuple(Queue(peer) for peer in PEERS)
