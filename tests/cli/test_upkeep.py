"""``pysqlbox stats``, ``reap`` and ``cleanup``."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from pysqlbox.deployment import Deployment
from pysqlbox.errors import DatabaseUnavailable
from tests.cli.conftest import OWNER, Run, kill
from tests.support.database import Database


def test_stats_is_an_aligned_table(run: Run, deployment: Deployment) -> None:
    deployment.outbox.enqueue_many({"topic": "order.created", "payload": "p"} for _ in range(1200))
    deployment.outbox.enqueue("hostile\x1b[31m\n", "p")
    kill(deployment, "p", name="orders")
    result = run("stats", "--box", "outbox", "--box", "orders")
    lines = result.output.splitlines()
    assert "\x1b" not in result.output
    assert "hostile\\x1b[31m\\n" in result.output
    assert lines[0].split() == [
        "box",
        "topic",
        "ready",
        "scheduled",
        "in",
        "flight",
        "done",
        "dead",
        "oldest",
    ]
    assert "1,201" in next(line for line in lines if line.split()[:2] == ["outbox", "all"])
    assert len({len(line.rstrip()) for line in lines[:2]}) <= 2
    assert next(line for line in lines if line.split()[:2] == ["orders", "all"]).split()[-1] == "1"
    titles = run("stats").output.splitlines()
    assert [line.split()[0] for line in titles[1:]] == ["outbox", "outbox", "outbox", "inbox"]


def test_stats_as_json(run: Run, deployment: Deployment) -> None:
    deployment.outbox.enqueue("t", "p")
    rows = json.loads(run("stats", "--box", "outbox", "--json").output)
    assert [(row["box"], row["topic"], row["ready"]) for row in rows] == [
        ("outbox", "t", 1),
        ("outbox", None, 1),
    ]
    assert set(rows[0]) == {
        "box", "topic", "ready", "scheduled", "in_flight", "done", "dead", "oldest_ready_seconds"
    }  # fmt: skip


def test_reap_takes_expired_leases_back(run: Run, deployment: Deployment, db: Database) -> None:
    deployment.outbox.enqueue_many({"topic": "t", "payload": "p"} for _ in range(5))
    deployment.outbox.claim(OWNER, lease_seconds=10)
    assert run("reap").output == "outbox: reaped 0\ninbox: reaped 0\n"
    db.advance(11)
    assert json.loads(run("reap", "--box", "outbox", "--batch-size", 2, "--json").output) == {"outbox": 5}


def test_cleanup_deletes_what_is_older_than_the_retention(
    run: Run, deployment: Deployment, db: Database
) -> None:
    deployment.outbox.enqueue_many({"topic": "t", "payload": "p"} for _ in range(5))
    deployment.outbox.ack(OWNER, [message.id for message in deployment.outbox.claim(OWNER)])
    kill(deployment, "p")
    deployment.ledger.mark_processed("key")
    db.advance(86400)
    assert run("cleanup").output == "outbox: deleted 0\ninbox: deleted 0\n"
    result = run("cleanup", "--box", "outbox", "--retention", "12h", "--batch-size", 2, "--json")
    assert json.loads(result.output) == {"outbox": 5}
    assert deployment.outbox.stats()[-1].dead == 1
    result = run("cleanup", "--box", "outbox", "--dead", "1h", "--ledger", "1h", "--json")
    assert json.loads(result.output) == {"outbox": 0, "outbox dead letters": 1, "ledger": 1}


@pytest.fixture
def stop_after() -> Iterator[threading.Timer]:
    """Sends this process a SIGTERM in a while, as somebody would to end a loop."""
    timer = threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGTERM))
    yield timer
    timer.cancel()


@pytest.mark.dialect("postgres")
def test_loops_end_with_a_signal(run: Run, stop_after: threading.Timer) -> None:
    before = signal.getsignal(signal.SIGTERM)
    stop_after.start()
    assert run("reap", "--every", "0.1", "--box", "outbox").output.count("outbox: reaped 0\n") >= 2
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.dialect("postgres")
def test_stats_watched(run: Run, deployment: Deployment, stop_after: threading.Timer) -> None:
    deployment.outbox.enqueue("t", "p")
    stop_after.start()
    output = run("stats", "--watch", "0.2", "--box", "outbox").output
    assert output.count("box ") >= 2
    assert "outbox: 0.0 done/s" in output


@pytest.mark.dialect("postgres")
def test_a_loop_outlives_a_database_that_is_away(
    run: Run, stop_after: threading.Timer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> int:
        raise DatabaseUnavailable("nobody answers")

    monkeypatch.setattr("pysqlbox.outbox.Outbox.reap", away)
    monkeypatch.setattr("pysqlbox.outbox.Outbox.stats", away)
    stop_after.start()
    assert run("reap", "--every", "0.1", "--box", "outbox").stderr.count("nobody answers; trying again") >= 2
    assert "pysqlbox: nobody answers\n" in run("stats", "--box", "outbox", code=2).stderr


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize(
    "arguments",
    [
        ("cleanup", "--retention", "-1"),
        ("cleanup", "--retention", "99999999999d"),
        ("cleanup", "--retention", ""),
        ("reap", "--batch-size", "0"),
        ("stats", "--watch", "x"),
    ],
)
def test_bad_arguments(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments, code=2).stderr


@pytest.mark.dialect("postgres")
def test_every_command_explains_itself(run: Run) -> None:
    for command in (
        "work",
        "enqueue",
        "stats",
        "dead",
        "dead list",
        "dead show",
        "replay",
        "reap",
        "cleanup",
    ):
        assert run(*command.split(), "--help").output.startswith("Usage: ")
    for command in ("work", "enqueue", "stats", "dead", "replay", "reap", "cleanup"):
        assert "  Examples:\n    pysqlbox " in run(command, "--help").output


def test_cleanup_forgets_the_audit_log_when_it_is_told_to(
    run: Run, deployment: Deployment, db: Database
) -> None:
    deployment.audit.write("anna", "replay")
    db.advance(7200)
    deployment.audit.write("anna", "pause")
    assert "audit" not in run("cleanup").output
    assert run("cleanup", "--audit", "1h").output.endswith("audit: deleted 1\n")
    assert [each.action for each in deployment.audit.list()] == ["pause"]
