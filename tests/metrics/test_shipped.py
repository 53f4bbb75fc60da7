"""The alert rules and the dashboard that are shipped: readable by their programs, and about what is told."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pysqlbox
from pysqlbox import metrics
from pysqlbox.metrics import shipped
from tests.contract.support import OWNER
from tests.metrics.conftest import MakeWorker
from tests.metrics.promtool import needs_promtool, promtool
from tests.metrics.reading import read
from tests.worker.support import until


def panels() -> list[dict[str, Any]]:
    """The dashboard's panels."""
    found: list[dict[str, Any]] = json.loads(shipped.dashboard())["panels"]
    return found


def expressions() -> Iterator[str]:
    """What the panels ask, with their variables filled in as Grafana does for all."""
    for panel in panels():
        for target in panel["targets"]:
            text = str(target["expr"]).replace("$__rate_interval", "5m")
            yield re.sub(r"\$\w+", ".*", text)


@needs_promtool
def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    path = tmp_path / "alerts.yml"
    path.write_text(shipped.alerts(), encoding="utf-8")
    result = promtool("check", "rules", "--lint=all", "--lint-fatal", str(path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "17 rules found" in result.stdout


@needs_promtool
def test_prometheus_takes_what_the_dashboard_asks(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(expressions())]
    assert len(rules) >= 20
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
    result = promtool("check", "rules", str(path))
    assert result.returncode == 0, result.stdout + result.stderr


@needs_promtool
@pytest.mark.dialect("postgres")
def test_prometheus_takes_what_is_told(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    worker = make()
    worker.measure()
    worker.add_handler("t", lambda _message: None)
    deployment.outbox.enqueue("t", "p")
    worker.drain(timeout=60)
    text = str(metrics.WorkerExporter(worker))
    from tests.metrics.promtool import PROMTOOL

    assert PROMTOOL is not None
    result = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.dialect("postgres")
def test_what_is_asked_is_told(deployment: pysqlbox.Deployment, make: MakeWorker) -> None:
    """Every metric that a rule or a panel names is there; and every one that is there is in some panel."""
    worker = make()
    worker.measure()
    worker.add_handler("t", lambda _message: None)
    deployment.outbox.enqueue("t", "p")
    worker.start()
    until(lambda: worker.stats().handled, 30)
    exporter = metrics.WorkerExporter(worker)
    mail = deployment.box("mail", kind="outbox")
    mail.enqueue("by hand", "p")
    assert mail.claim(OWNER)
    told = {sample.name for sample in read(str(exporter))}
    shown = set(re.findall(r"pysqlbox_\w+", " ".join(expressions())))
    asked = set(re.findall(r"pysqlbox_\w+", shipped.alerts()))
    assert (asked | shown) - told == set()
    assert told - shown - asked == {
        f"pysqlbox_worker_{name}_seconds_{part}"
        for name in ("handling", "waiting")
        for part in ("sum", "count")
    } | {"pysqlbox_client_operation_seconds_sum"}


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    dashboard = json.loads(shipped.dashboard())
    assert dashboard["uid"] == "pysqlbox"
    assert [each["name"] for each in dashboard["templating"]["list"]] == ["datasource", "job", "store", "box"]
    assert len({panel["id"] for panel in panels()}) == len(panels())
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        assert panel["title"]
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, f"{panel['title']} lies upon another panel"
        taken |= cells
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@pytest.mark.parametrize(("what", "text"), [("alerts", shipped.alerts()), ("dashboard", shipped.dashboard())])
def test_a_command_prints_them(what: str, text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pysqlbox.metrics", what], capture_output=True, timeout=120, check=True
    )
    assert done.stdout.decode() == text


def test_every_alert_says_what_it_means_and_what_to_do() -> None:
    alerts = shipped.alerts()
    count = alerts.count("- alert: ")
    for part in ("severity: ", "summary: ", "action: ", "expr: "):
        assert alerts.count(part) == count, part
