"""A Citus cluster that somebody runs: databases of a test's own on each of its nodes, which may crash.

``PYSQLBOX_TEST_CITUS`` is the URL of its coordinator, as a superuser. The last of its workers is left out of
a test's cluster at first, so that a test can add it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

VARIABLE = "PYSQLBOX_TEST_CITUS"
#: Why its tests are skipped where it is not named.
MISSING = f"{VARIABLE} names no coordinator of a Citus cluster"
_PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Member:
    """A server of the cluster, and the test's database on it."""

    host: str
    port: int
    url: str

    def connect(self, *, autocommit: bool = True) -> psycopg.Connection[Any]:
        """A connection of its own."""
        return psycopg.connect(self.url, autocommit=autocommit)

    def run(self, statement: Any, *values: object) -> None:
        """Runs a statement, or several without values."""
        with self.connect() as connection:
            connection.execute(statement, values or None)

    def value(self, query: Any, *values: object) -> Any:
        """The first value that a query answers."""
        with self.connect() as connection:
            row = connection.execute(query, values or None).fetchone()
        return None if row is None else row[0]

    # Crashing

    @property
    def folder(self) -> Path | None:
        """Where it has its data, if that is on this machine and this process may end and start it."""
        path = Path(str(self.value("SELECT current_setting('data_directory')")))
        return path if os.geteuid() == 0 and (path / "postmaster.pid").is_file() else None

    def crash(self, folder: Path) -> None:
        """Ends all of its processes at once, as a power cut does."""
        postmaster = int((folder / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGSTOP)  # so that it starts none meanwhile
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for pid in [*map(int, children), postmaster]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _PATIENCE
        while Path(f"/proc/{postmaster}").exists() or not all(map(_is_over, children)):
            assert time.monotonic() < deadline, "whoever started it has not taken notice of its end"
            time.sleep(0.01)

    def restart(self, folder: Path, programs: str) -> None:
        """Starts it again, as who its data belong to, and waits until it answers."""
        owner = folder.stat()
        command = [f"{programs}/pg_ctl", "-D", str(folder), "-w", "-t", "100", "-l", f"{folder}.log", "start"]
        subprocess.run(
            command, check=True, timeout=_PATIENCE, stdout=subprocess.DEVNULL, user=owner.st_uid,
            group=owner.st_gid, extra_groups=[], cwd="/",
        )  # fmt: skip


def _is_over(pid: str) -> bool:
    """Whether only its parent has not noticed yet."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


@dataclass(frozen=True, slots=True)
class Cluster:
    """A coordinator, workers, and one that is not a member yet."""

    coordinator: Member
    workers: list[Member]
    spare: Member

    @property
    def members(self) -> list[Member]:
        """All nodes but the spare one, by their groups."""
        return [self.coordinator, *self.workers]

    def add(self, member: Member) -> None:
        """Makes a server a node."""
        self.coordinator.value("SELECT citus_add_node(%s, %s)", member.host, member.port)

    def group_of(self, key: str, table: str = "orders") -> int:
        """The node that has a key's rows."""
        return int(
            self.coordinator.value(
                "SELECT p.groupid FROM pg_dist_placement AS p"
                " WHERE p.shardid = get_shard_id_for_distribution_column(%s::text::regclass, %s::text)",
                table, key,
            )
        )  # fmt: skip

    def keys(self, group: int, count: int) -> list[str]:
        """Keys whose rows are on a node."""
        found: list[str] = []
        number = 0
        while len(found) < count:
            key = f"tenant-{number}"
            number += 1
            if self.group_of(key) == group:
                found.append(key)
        return found

    def move(self, key: str, member: Member) -> None:
        """Moves the shard of a key, and those that are colocated with it."""
        source = self.members[self.group_of(key)]
        self.coordinator.value(
            "SELECT citus_move_shard_placement(get_shard_id_for_distribution_column('orders', %s::text),"
            " %s, %s, %s, %s, shard_transfer_mode => 'block_writes')",
            key, source.host, source.port, member.host, member.port,
        )  # fmt: skip


@contextlib.contextmanager
def cluster(url: str) -> Iterator[Cluster]:
    """A database of that name on every server, with Citus in it, and the servers but one as nodes."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT nodename, nodeport FROM pg_dist_node WHERE noderole = 'primary' ORDER BY groupid"
        ).fetchall()
    assert len(rows) >= 4, f"{VARIABLE}: the cluster must have a coordinator and three workers"
    name = f"pysqlbox_test_citus_{secrets.token_hex(4)}"
    servers = [Member(host, port, make_conninfo(url, host=host, port=port)) for host, port in rows]
    try:
        for server in servers:
            server.run(f"CREATE DATABASE {name}")
        members = [
            Member(server.host, server.port, make_conninfo(server.url, dbname=name)) for server in servers
        ]
        for member in members:
            member.run("CREATE EXTENSION citus")
        found = Cluster(members[0], members[1:-1], members[-1])
        found.coordinator.value("SELECT citus_set_coordinator_host(%s, %s)", members[0].host, members[0].port)
        for worker in found.workers:
            found.add(worker)
        yield found
    finally:
        for server in servers:
            server.run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
