"""A Prometheus scrapes a worker and a service; each panel of the dashboard then shows something."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pysqlbox
from pysqlbox import metrics
from pysqlbox.metrics import shipped
from tests.contract.support import OWNER
from tests.metrics.conftest import MakeWorker
from tests.metrics.test_shipped import panels
from tests.support.database import Database
from tests.worker.support import until

PROMETHEUS = shutil.which("prometheus")
pytestmark = [
    pytest.mark.only_engine("pg18"),
    pytest.mark.skipif(
        PROMETHEUS is None and not os.environ.get("CI"),
        reason="prometheus is not here: install Debian's package prometheus (tools/system_packages.sh)",
    ),
]
WINDOW = "20s"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])


def get(url: str) -> Any:
    """What a server answers, None while it does not."""
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()
    return None


@contextlib.contextmanager
def service(db: Database) -> Iterator[int]:
    """`pysqlbox serve` as a process; its port."""
    port = free_port()
    command = [
        sys.executable, "-m", "pysqlbox", "serve", "--url", db.url, "--schema", db.schema,
        "--listen", f"127.0.0.1:{port}",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: get(f"http://127.0.0.1:{port}/healthz"), 60, "the service answers")
            yield port
        finally:
            process.terminate()


@contextlib.contextmanager
def prometheus(folder: Path, targets: dict[str, int]) -> Iterator[str]:
    """A Prometheus that scrapes these ports every second and has the shipped rules; its address."""
    (folder / "alerts.yml").write_text(shipped.alerts(), encoding="utf-8")
    jobs = [
        {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        for job, port in targets.items()
    ]
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "alerts.yml")],
        "scrape_configs": jobs,
    }
    (folder / "prometheus.yml").write_text(json.dumps(configuration), encoding="utf-8")
    assert PROMETHEUS is not None, "prometheus is not here"
    port = free_port()
    command = [
        PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with (
        open(folder / "prometheus.log", "wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            address = f"http://127.0.0.1:{port}"
            until(lambda: get(f"{address}/-/ready"), 60, "Prometheus answers")
            yield address
        finally:
            process.terminate()


def ask(address: str, expression: str) -> list[dict[str, Any]]:
    """The series that an expression has now."""
    found = get(f"{address}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
    answer = json.loads(found or '{"status": "none"}')
    assert answer["status"] == "success", answer
    series: list[dict[str, Any]] = answer["data"]["result"]
    return series


def asked_by(panel: dict[str, Any]) -> list[tuple[str, str]]:
    """What a panel asks, as Grafana would for everything, and how it names the series."""
    return [
        (
            re.sub(r"\$\w+", ".*", target["expr"].replace("$__rate_interval", WINDOW)),
            str(target["legendFormat"]),
        )
        for target in panel["targets"]
    ]


def test_every_panel_shows_what_was_scraped(
    deployment: pysqlbox.Deployment, db: Database, make: MakeWorker, tmp_path: Path
) -> None:
    worker = make(cleanup_seconds=1, reap_seconds=1)
    worker.add_handler("t", lambda _message: None)
    exporter = metrics.WorkerExporter(worker)
    outbox, mail = deployment.outbox, deployment.box("mail", kind="outbox")

    def live() -> bool:
        """Something of everything, once a round: counters must be seen to move."""
        outbox.enqueue("t", "p")
        mail.enqueue("by hand", "p")
        mail.claim(OWNER, lease_seconds=3600)
        with contextlib.suppress(pysqlbox.InvalidArgument):
            outbox.enqueue("t" * 256, "p")
        return not silent()

    def silent() -> list[str]:
        return [
            f"{panel['title']}: {expression}"
            for panel in panels()
            for expression, _ in asked_by(panel)
            if not ask(address, expression)
        ]

    with (
        metrics.serving(("127.0.0.1", 0), exporter.__str__) as worker_port,
        service(db) as service_port,
        prometheus(tmp_path, {"worker": worker_port, "service": service_port}) as address,
        worker,
    ):
        with contextlib.suppress(AssertionError):
            until(live, 90, "every panel has data")
        assert silent() == []
        # Their legends name labels that the series have.
        for panel in panels():
            for expression, legend in asked_by(panel):
                named = set(re.findall(r"\{\{(\w+)\}\}", legend)) - {"store", "error"}
                for found in ask(address, expression):
                    assert named <= found["metric"].keys(), (panel["title"], legend, found["metric"])
        rules = json.loads(get(f"{address}/api/v1/rules"))["data"]["groups"][0]["rules"]
        assert {rule["health"] for rule in rules} == {"ok"}
        # What is told twice, by the worker and by the service, is the same and is shown once.
        both = ask(address, 'pysqlbox_in_flight_messages{box="mail",topic="by hand"}')
        assert {found["metric"]["job"] for found in both} == {"worker", "service"}
