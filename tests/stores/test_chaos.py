"""Many databases that appear, vanish, refuse and recover under load, while worker processes are killed.

What a handler writes commits with the end of its message, so a message that was lost has no line in its
database's table, and one that was handled by two has two.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import pysqlbox
from pysqlbox.drivers import connect
from pysqlbox.drivers.url import with_database
from pysqlbox.errors import PysqlboxError
from tests.support import local_postgres
from tests.support.database import execute_once
from tests.worker.support import until

ROOT = Path(__file__).parents[2]
DATABASES, MESSAGES, SECONDS = 24, 40, 12.0
OPTIONS = {
    "threads": 4, "connections": 8, "poll_seconds": 0.2, "sweep_seconds": 2, "lease_seconds": 3,
    "cleanup_seconds": None, "max_attempts": 0,
}  # fmt: skip


class Fleet:
    """The databases, the file that names them, and the processes that serve them."""

    def __init__(self, url: str, path: Path) -> None:
        self.url = url
        self.path = path
        self.random = random.Random(20)
        self.names = [f"tenant_{number}" for number in range(DATABASES)]
        self.listed = set(self.names)
        self.away: dict[str, str] = {}
        self.sent: Counter[str] = Counter()
        self.processes: list[subprocess.Popen[str]] = []

    def create(self) -> None:
        """One is deployed, and the others are copies of it."""
        first = self.names[0]
        execute_once(self.url, f"CREATE DATABASE {first}")
        with pysqlbox.connect(self.url_of(first)) as db:
            db.migrate()
            db.outbox.configure("backoff_base_seconds", 1)
            with db.transaction() as connection:
                connection.execute("CREATE TABLE effects (message bigint NOT NULL)")
        for name in self.names[1:]:
            execute_once(self.url, f"CREATE DATABASE {name} TEMPLATE {first}")
        self.write()

    def url_of(self, name: str) -> str:
        """The URL of a database."""
        return with_database(self.url, name)

    def write(self) -> None:
        """Says which stores there are."""
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps({name: self.url_of(name) for name in sorted(self.listed)}))
        temporary.replace(self.path)

    def send(self, name: str, count: int) -> None:
        """Sends messages, if the database takes them now."""
        with (
            contextlib.suppress(PysqlboxError),
            pysqlbox.connect(self.url_of(name), pool_size=1, retries=pysqlbox.Retries(attempts=1)) as db,
        ):
            made = db.outbox.enqueue_many({"topic": "t", "payload": "p"} for _ in range(count))
            self.sent[name] += len(made)

    def start(self) -> None:
        """One more worker process."""
        command = [sys.executable, "-m", "tests.stores.program", str(self.path), json.dumps(OPTIONS)]
        self.processes.append(
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        )

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Ends one in the middle of whatever it does."""
        process.kill()
        process.communicate(timeout=30)
        self.processes.remove(process)

    def disturb(self) -> None:
        """One thing that goes wrong, or right again."""
        name = self.random.choice(self.names)
        match self.random.choice(["unlist", "list", "refuse", "vanish", "return", "return", "cut", "kill"]):
            case "unlist":
                self.listed.discard(name)
                self.write()
            case "list":
                self.listed.add(name)
                self.write()
            case "refuse" if name not in self.away:
                execute_once(self.url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
                self.away[name] = f"ALTER DATABASE {name} ALLOW_CONNECTIONS true"
                self.cut(name)
            case "vanish" if name not in self.away:
                execute_once(self.url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
                self.away[name] = f"ALTER DATABASE {name} ALLOW_CONNECTIONS true"
                self.cut(name)
                with contextlib.suppress(PysqlboxError):  # a session that has not ended yet
                    execute_once(self.url, f"ALTER DATABASE {name} RENAME TO {name}_gone")
                    self.away[name] = (
                        f"ALTER DATABASE {name}_gone RENAME TO {name};"
                        f" ALTER DATABASE {name} ALLOW_CONNECTIONS true"
                    )
            case "return" if self.away:
                self.bring_back(self.random.choice(sorted(self.away)))
            case "cut":
                self.cut(name)
            case "kill":
                self.kill(self.random.choice(self.processes))
                self.start()

    def cut(self, name: str) -> None:
        """Ends all sessions of a database."""
        execute_once(
            self.url,
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",
        )

    def bring_back(self, name: str) -> None:
        """Makes a database answer again."""
        for statement in self.away.pop(name).split(";"):
            execute_once(self.url, statement)

    def effects(self, name: str) -> Counter[int]:
        """How often each message of a database was handled."""
        connection = connect(self.url_of(name))
        try:
            rows = connection.execute("SELECT message FROM effects").fetchall()
        finally:
            connection.close()
        return Counter(int(row[0]) for row in rows)

    def left(self) -> int:
        """How many messages have not been handled."""
        return sum(self.sent[name] - len(self.effects(name)) for name in self.names)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Twenty-four databases on a server of their own."""
    if not local_postgres.embedded_installed():
        pytest.skip("there is no embedded PostgreSQL")
    with local_postgres.embedded_server() as url:
        found = Fleet(url, tmp_path / "stores.json")
        found.create()
        try:
            yield found
        finally:
            for process in list(found.processes):
                found.kill(process)


def test_nothing_is_lost_and_nothing_is_handled_twice_whatever_happens_to_the_databases(fleet: Fleet) -> None:
    for name in fleet.names:
        fleet.send(name, MESSAGES)
    for _ in range(2):
        fleet.start()
    for process in fleet.processes:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
    until_time = time.monotonic() + SECONDS
    while time.monotonic() < until_time:
        fleet.disturb()
        fleet.send(fleet.random.choice(fleet.names), 3)
        time.sleep(0.05)  # the pace of what happens; nothing waits for it
    for name in sorted(fleet.away):
        fleet.bring_back(name)
    fleet.listed = set(fleet.names)
    fleet.write()
    until(lambda: fleet.left() == 0, 90, "every message is handled")
    twice = {name: count for name in fleet.names for count in fleet.effects(name).values() if count > 1}
    assert twice == {}
    assert sum(fleet.sent.values()) >= DATABASES * MESSAGES
