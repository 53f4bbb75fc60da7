"""``--stores``: commands about many stores."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import pysqlbox
from tests.cli.conftest import OWNER, Run
from tests.support.database import Database

MODULE = """
import pysqlbox

stores = pysqlbox.Stores({{"a": {url!r}, 7: {other!r}, "gone": "postgresql://127.0.0.1:1/x"}},
                         retries=pysqlbox.Retries(attempts=1))
new = pysqlbox.Stores({{7: {other!r}, "gone": "postgresql://127.0.0.1:1/x"}},
                      retries=pysqlbox.Retries(attempts=1))
good = lambda: pysqlbox.Stores({{"a": {url!r}}})

def worker(stores):
    found = stores.worker(threads=2)
    found.add_handler("t", lambda message: None)
    return found
"""


@pytest.fixture(autouse=True)
def tenants(db: Database, empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module with three stores: one deployed, one empty, one that is not there."""
    (tmp_path / "shop_tenants.py").write_text(MODULE.format(url=db.url, other=empty_url))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "shop_tenants", raising=False)
    yield
    found = sys.modules.pop("shop_tenants", None)
    if found is not None:
        found.stores.close()
        found.new.close()


ALL = ("--stores", "shop_tenants:stores")
NEW = ("--stores", "shop_tenants:new")
GOOD = ("--stores", "shop_tenants:good")


def test_migrate_and_status_report_on_each_store(run: Run) -> None:
    before = json.loads(run("status", *NEW, "--json", code=2).output.splitlines()[0])
    assert [(each["key"], each["ok"], each["pending"]) for each in before] == [
        (7, True, ["everything"]), ("gone", False, [])
    ]  # fmt: skip
    planned = run("migrate", *NEW, "--dry-run", code=2).output
    assert "7: create the schema" in planned
    done = run("migrate", *NEW, "--parallel", 2, code=2).output
    assert "7: created the schema" in done
    assert "gone: failed: " in done
    assert "7: version" in run("status", *NEW, code=2).output
    reports = json.loads(run("migrate", *NEW, "--json", code=2).output.splitlines()[0])
    assert reports[0] == {"key": 7, "ok": True, "error": None, "changes": []}


def test_stores_are_listed(run: Run, deployment: pysqlbox.Deployment) -> None:
    deployment.outbox.enqueue_many({"topic": "t", "payload": "p"} for _ in range(3))
    deployment.outbox.ack(OWNER, [message.id for message in deployment.outbox.claim(OWNER, batch_size=1)])
    result = run("stores", *ALL, code=2)
    lines = result.output.splitlines()
    assert lines[0].split() == ["store", "version", "place", "health", "ready", "dead", "last", "work"]
    assert lines[1].split()[0] == "a"
    assert "away" in lines[3]
    (row,) = json.loads(run("stores", *GOOD, "--json").output)
    assert (row["key"], row["ok"], row["ready"], row["dead"]) == ("a", True, 2, 0)
    assert row["last_work_at"] is not None


def test_stats_work_reap_and_cleanup(run: Run, deployment: pysqlbox.Deployment, db: Database) -> None:
    deployment.outbox.enqueue_many({"topic": "t", "payload": "p"} for _ in range(3))
    rows = json.loads(run("stats", *GOOD, "--box", "outbox", "--json").output)
    assert [(row["store"], row["box"], row["topic"], row["ready"]) for row in rows] == [
        ("a", "outbox", "t", 3), ("a", "outbox", None, 3)
    ]  # fmt: skip
    assert run("stats", *GOOD).output.splitlines()[0].split()[:3] == ["store", "box", "topic"]
    deployment.outbox.claim(OWNER, lease_seconds=10, batch_size=1)
    db.advance(20)
    assert "a: outbox leases 1, inbox leases 0" in run("reap", *GOOD).output
    run("work", "shop_tenants:worker", *GOOD, "--drain")
    assert deployment.outbox.stats()[-1].done == 3
    db.advance(86400)
    (report,) = json.loads(run("cleanup", *GOOD, "--box", "outbox", "--retention", "1h", "--json").output)
    assert report["counts"] == {"outbox done": 3, "workers": 0}
    assert "ledger 0" in run("cleanup", *GOOD, "--ledger", "1h").output


def test_work_serves_the_metrics_of_all_stores(run: Run, deployment: pysqlbox.Deployment) -> None:
    """One that is away is told of as such; no connection stays open for what was asked."""
    deployment.outbox.enqueue_many({"topic": "t", "payload": "p"} for _ in range(3))
    told: list[str] = []
    left: list[int] = []

    def look(port: int) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                    told.append(answer.read().decode())
                found = sys.modules["shop_tenants"].stores
                left.append(found.get("a").pool.open)
                if 'store="a",box="outbox",topic="t",outcome="acked"} 3' in told[-1]:
                    break
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    watcher = threading.Thread(target=look, args=(port,))
    watcher.start()
    run("work", "shop_tenants:worker", *ALL, "--metrics", f"127.0.0.1:{port}", "--log-level", "error")
    watcher.join()
    assert 'outcome="acked"} 3\n' in told[-1]
    assert 'pysqlbox_up{store="a"} 1\n' in told[-1]
    assert 'pysqlbox_up{store="gone"} 0\n' in told[-1]
    assert left[-1] == 0


def test_doctor_examines_each_store(run: Run) -> None:
    reports = json.loads(run("doctor", *ALL, "--json", code=2).output.splitlines()[0])
    assert [each["key"] for each in reports] == ["a", 7, "gone"]
    assert reports[0]["findings"]
    assert "gone: failed" in run("doctor", *ALL, code=2).output


@pytest.mark.dialect("postgres")
def test_a_server_without_citus_is_told_from_a_node(run: Run) -> None:
    assert "must be a node of a Citus cluster" in run("migrate", "--citus", code=2).output


def test_what_stores_must_be(run: Run) -> None:
    assert "cannot stand beside" in run("stats", "--url", "postgresql://h/d", *ALL, code=2).output
    assert "must be pysqlbox.Stores" in run("stats", "--stores", "shop_tenants:worker", code=2).output
    assert "no 'nothing'" in run("stats", "--stores", "shop_tenants:nothing", code=2).output
    assert "no module" in run("stats", "--stores", "no_such_module:stores", code=2).output
    assert "must be module:name" in run("stats", "--stores", "stores", code=2).output
    assert "--place" in run("migrate", *ALL, "--place", 1, code=2).output
