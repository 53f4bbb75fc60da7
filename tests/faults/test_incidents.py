"""The three incidents of docs/operating.md, played through with the commands that it tells."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

import pysqlbox
from tests.faults.servers import PATIENCE, Server, wait_until
from tests.faults.test_standby import backup, follow, promote

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Operator:
    """Somebody with a shell, and the variable that says where the database is."""

    url: str
    folder: Path

    @property
    def journal(self) -> Path:
        """What the workers wrote of what they handled."""
        return self.folder / "journal"

    @property
    def broken(self) -> Path:
        """While it exists, no mail goes out."""
        return self.folder / "broken"

    @property
    def log(self) -> Path:
        """What the workers said."""
        return self.folder / "worker.log"

    def environment(self) -> dict[str, str]:
        """What commands and workers find in their environment."""
        mine = {"PYSQLBOX_URL": self.url, "JOURNAL": str(self.journal), "BROKEN": str(self.broken)}
        return {**os.environ, **mine}

    def run(self, *arguments: str) -> str:
        """One command that works; answers what it printed."""
        code, output = self.answer(*arguments)
        assert code == 0, (arguments, output)
        return output

    def answer(self, *arguments: str) -> tuple[int, str]:
        """One command; its exit code and what it printed."""
        command = [sys.executable, "-m", "pysqlbox", *arguments]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert not done.stderr, (arguments, done.stderr)
        return done.returncode, done.stdout

    @contextlib.contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """A worker process; an end by SIGTERM is an orderly one."""
        command = [sys.executable, "-m", "pysqlbox", "work", "tests.faults.incident_worker:make"]
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, cwd=ROOT, env=self.environment(), stdout=log, stderr=log)
        try:
            yield process
            assert process.poll() is None, f"it has ended by itself: {self.log.read_text()}"
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, self.log.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(PATIENCE)

    def handled(self) -> Counter[str]:
        """How often each message was handled."""
        return Counter(self.journal.read_text().splitlines() if self.journal.exists() else [])

    def findings(self) -> set[str]:
        """The checks in which doctor has found something; its exit code says whether it has."""
        code, output = self.answer("doctor", "--json")
        found = {row["check"] for row in json.loads(output) if row["level"] in ("warning", "error")}
        assert code == (1 if found else 0)
        return found

    def causes(self) -> list[dict[str, Any]]:
        """Dead letters by cause."""
        found: list[dict[str, Any]] = json.loads(self.run("dead", "causes", "--json"))
        return found


def enqueue(url: str, topic: str, numbers: range) -> None:
    """One message for each number, each in a transaction of its own."""
    with pysqlbox.connect(url) as db:
        for number in numbers:
            db.outbox.enqueue(topic, str(number))


@pytest.mark.every_version
def test_the_database_fails_over(running: Server, tmp_path: Path) -> None:
    """Worker and producers have both hosts in their URL: nobody restarts them, and nothing is lost."""
    with backup(running, "-R") as standby:
        follow(standby, running)
        running.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        running.sql("SELECT pg_reload_conf()")
        query = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        wait_until(lambda: running.value(query) == 1, "the standby does not become synchronous")
        hosts = f"{running.folder},{standby.folder}"
        url = (
            f"postgresql://postgres@/postgres?host={hosts}&target_session_attrs=read-write&connect_timeout=2"
        )
        operator = Operator(url, tmp_path)
        operator.run("migrate")
        with operator.worker():
            enqueue(url, "order", range(30))
            wait_until(lambda: len(operator.handled()) == 30, "the worker does not work")
            running.kill()
            with pytest.raises(pysqlbox.DatabaseUnavailable):
                enqueue(url, "order", range(30, 31))
            promote(standby)
            enqueue(url, "order", range(30, 60))
            wait_until(lambda: len(operator.handled()) == 60, "the worker has not found the new primary")
            assert "standby" not in operator.findings()
    assert operator.handled().keys() == {f"order {number}" for number in range(60)}
    assert "Traceback" not in operator.log.read_text()


def test_a_topic_is_poisoned(running: Server, tmp_path: Path) -> None:
    """Its messages die, the others do not notice; the cause is one row; mended, all come back."""
    operator = Operator(running.url, tmp_path)
    operator.run("migrate")
    operator.broken.touch()
    with operator.worker():
        enqueue(running.url, "mail", range(40))
        enqueue(running.url, "order", range(40))
        wait_until(lambda: len(operator.handled()) == 40, "the other topic waits")
        wait_until(lambda: "dead_letters" in operator.findings(), "nothing died")
        wait_until(lambda: operator.causes()[0]["messages"] == 40, "not all have died")
        (cause,) = operator.causes()
        assert cause["topic"] == "mail"
        assert "no template" in cause["cause"]
        assert not re.search(r"\d", cause["cause"]), "one fault is one row, whichever the customer"
        # Meanwhile: the topic stands still, what comes in waits unharmed.
        operator.run("pause", "mail")
        enqueue(running.url, "mail", range(40, 50))
    operator.broken.unlink()
    with operator.worker():
        operator.run("replay", "--all", "--topic", "mail")
        operator.run("resume", "mail")
        wait_until(lambda: len(operator.handled()) == 90, "not all have come back")
    assert operator.handled() == Counter(
        [f"order {number}" for number in range(40)] + [f"mail {number}" for number in range(50)]
    )
    assert operator.findings().isdisjoint({"dead_letters", "paused", "unclaimed", "leases"})


def test_a_transaction_is_forgotten(running: Server, tmp_path: Path) -> None:
    """Work goes on beside it; doctor says whose it is, and its advice ends it."""
    operator = Operator(running.url, tmp_path)
    operator.run("migrate")
    with psycopg.connect(running.url, application_name="nightly-report") as forgotten:
        forgotten.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pysqlbox.connect(running.url) as db:
            db.outbox.enqueue("order", "never", connection=forgotten)
        pid = forgotten.info.backend_pid
        with operator.worker():
            enqueue(running.url, "order", range(50))
            wait_until(
                lambda: len(operator.handled()) == 50, "the worker waits for the forgotten transaction"
            )
        # doctor() speaks from a minute on; the routine behind it takes the limit as an argument.
        rows = running.sql("SELECT * FROM infra._doctor_sessions(after_seconds => 0)")
        told = {str(row["check"]): row for row in rows if row["subject"] == f"session {pid}"}
        assert {"horizon", "writing_transactions", "idle_in_transaction"} <= told.keys()
        assert "nightly-report" in str(told["horizon"]["detail"])
        advice = str(told["horizon"]["advice"])
        assert f"pg_terminate_backend({pid})" in advice
        running.sql(advice)
        with pytest.raises(psycopg.OperationalError):
            forgotten.execute("SELECT 1")
    rows = running.sql("SELECT * FROM infra._doctor_sessions(after_seconds => 0)")
    assert f"session {pid}" not in {row["subject"] for row in rows}
    assert operator.handled() == Counter(f"order {number}" for number in range(50))
