"""PgBouncer in transaction mode between the clients and a server with fewer connections, and kills."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from tests.faults.figures import Figures
from tests.faults.load import Load
from tests.faults.servers import SECONDS, Server, own, owner, temporary_folder, wait_until
from tests.faults.verdict import conclude

PGBOUNCER = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
SERVER_CONNECTIONS = 3
TIMES = max(2, int(SECONDS / 10))


@dataclass(slots=True)
class Pooler:
    """A pooler in transaction mode before one server, on a port of its own."""

    folder: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """The URL by which clients reach the server through it."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?sslmode=disable"

    def start(self) -> None:
        """Starts it and waits until it answers."""
        user = owner()
        self._process = subprocess.Popen(
            [PGBOUNCER, "-q", str(self.folder / "pgbouncer.ini")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=user,
            group=pwd.getpwnam(user).pw_gid if user else None,
            extra_groups=[] if user else None,
        )
        wait_until(self._answers, "the pooler does not answer")

    def kill(self) -> None:
        """Kills it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.url, connect_timeout=5).close()
            return True
        return False


@contextlib.contextmanager
def pooler(server: Server) -> Iterator[Pooler]:
    """A running pooler; skips where there is none."""
    if not os.access(PGBOUNCER, os.X_OK):
        pytest.skip("pgbouncer is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with temporary_folder() as folder:
        (folder / "users.txt").write_text('"postgres" ""\n')
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\npostgres = host={server.folder} dbname=postgres user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = any\nauth_file = {folder}/users.txt\npool_mode = transaction\n"
            f"default_pool_size = {SERVER_CONNECTIONS}\nserver_login_retry = 0\nserver_reset_query =\n"
        )
        own(folder)
        made = Pooler(folder, port)
        try:
            made.start()
            yield made
        finally:
            made.kill()


def test_kills_behind_a_pooler(running: Server, record: Callable[[Figures], None]) -> None:
    """Backends are terminated, the server is killed, the pooler is killed; backends are shared."""
    with pooler(running) as between, Load(between.url, producers=4, workers=4) as load:
        for _ in range(TIMES):
            load.hold(100, SECONDS / TIMES / 3)
            running.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            load.hold(100, SECONDS / TIMES / 3)
            running.kill()
            running.start()
            load.hold(100, SECONDS / TIMES / 3)
            between.kill()
            between.start()
        load.hold(100)
        backends = running.value(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        assert int(str(backends)) <= SERVER_CONNECTIONS, "the clients did not go through the pooler"
    figures = Figures("behind PgBouncer: all kinds of kills", running.known.id, faults=3 * TIMES)
    record(conclude(running, load, figures))
