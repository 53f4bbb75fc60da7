"""Each alert's condition is brought about on a real deployment, and promtool evaluates its rule on that."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import pysqlbox
from pysqlbox import Retries, metrics
from pysqlbox.cli import cli
from pysqlbox.metrics import exporter, shipped
from pysqlbox.worker import listener
from pysqlbox.worker.database_postgres import PostgresConnection
from tests.contract.support import OWNER
from tests.metrics.conftest import MakeWorker
from tests.metrics.promtool import needs_promtool, promtool
from tests.metrics.reading import Sample, read, value
from tests.support.database import Database
from tests.worker.support import until

pytestmark = [needs_promtool, pytest.mark.dialect("postgres")]

HEALTHY, AFTER = 60, 120
"""Minutes in which all is well, and minutes after the last scrape in which what it told goes on."""
ALERTS = re.findall(r"- alert: (\w+)", shipped.alerts())
DAY = 86400


@dataclass
class Scene:
    """A deployment, its clock, and its worker, which has handled a message and still runs."""

    deployment: pysqlbox.Deployment
    db: Database
    worker: pysqlbox.Worker
    patch: pytest.MonkeyPatch
    #: What the next messages do; the worker's only thread waits for ``go_on`` in it.
    at_work: threading.Event
    go_on: threading.Event
    ends: contextlib.ExitStack

    def hang(self) -> None:
        """Give the worker messages with which it will not be done."""
        self.go_on.clear()
        self.at_work.clear()
        self.deployment.outbox.enqueue_payloads("t", ["p"] * 20)
        assert self.at_work.wait(30)


def database_down(scene: Scene) -> None:
    def away() -> object:
        raise pysqlbox.DatabaseUnavailable("it is away")

    scene.patch.setattr(scene.deployment, "metrics", away)


def messages_wait(scene: Scene) -> None:
    scene.worker.stop()
    scene.deployment.outbox.enqueue("t", "p")
    scene.db.advance(400)


def nobody_works(scene: Scene) -> None:
    messages_wait(scene)
    scene.db.advance(300)


def nothing_moves(scene: Scene) -> None:
    scene.hang()
    scene.deployment.outbox.enqueue("t", "p")
    scene.db.advance(400)


def worker_stalled(scene: Scene) -> None:
    nothing_moves(scene)
    until(lambda: scene.worker.health().boxes[0].stalled_since, 30)


def worker_deaf(scene: Scene) -> None:
    """Notifications are swallowed, as by a pooler in transaction mode."""
    scene.worker.stop()
    scene.patch.setattr(listener, "HEAR_SECONDS", 0.05)
    scene.patch.setattr(PostgresConnection, "notify", lambda _self, _channel: None)
    scene.worker.start()
    until(lambda: scene.worker.health().boxes[0].listener == "deaf", 30)


def dead_letters(scene: Scene) -> None:
    scene.worker.stop()
    outbox = scene.deployment.outbox
    outbox.enqueue("new", "p")
    outbox.fail(OWNER, [each.id for each in outbox.claim(OWNER)], "hopeless")


def old_dead_letters(scene: Scene) -> None:
    dead_letters(scene)
    scene.db.advance(15 * DAY)


def expired_leases(scene: Scene) -> None:
    scene.worker.stop()
    outbox = scene.deployment.outbox
    outbox.enqueue("t", "p")
    assert outbox.claim(OWNER, lease_seconds=10)
    scene.db.advance(11)


def lost_leases(scene: Scene) -> None:
    scene.hang()
    (leased, *_) = scene.deployment.outbox.list("InProgress")
    scene.deployment.outbox.cancel([leased.id])
    scene.db.advance(90_000)
    until(lambda: scene.worker.stats().lost_leases, 30)


def group_blocked(scene: Scene) -> None:
    scene.worker.stop()
    outbox = scene.deployment.outbox
    for _ in range(2):
        outbox.enqueue("t", "p", group_id="g")
    held = [each.id for each in outbox.claim(OWNER)]
    outbox.release(OWNER, held, delay_seconds=DAY)
    outbox.enqueue("t", "p", group_id="g")
    outbox.reschedule(held[1:])
    scene.db.advance(1000)


def retries(scene: Scene) -> None:
    before = scene.worker.stats().retried
    scene.deployment.outbox.enqueue_payloads("fails", ["p"] * 5)
    until(lambda: scene.worker.stats().retried >= before + 5, 30)


def upkeep_stopped(scene: Scene) -> None:
    scene.db.advance(4000)


def worker_stopped(scene: Scene) -> None:
    scene.worker.stop()


def worker_saturated(scene: Scene) -> None:
    scene.hang()


def pool_exhausted(scene: Scene) -> None:
    scene.patch.setattr(exporter, "ANSWER_SECONDS", 0.2)
    for _ in range(scene.deployment.pool.size):
        scene.ends.enter_context(scene.deployment.connection())


def metrics_slow(scene: Scene) -> None:
    real, clock = scene.deployment.metrics, time.monotonic
    behind = 0.0

    def slow() -> object:
        nonlocal behind
        behind += 6.0
        return real()

    scene.patch.setattr(scene.deployment, "metrics", slow)
    scene.patch.setattr(time, "monotonic", lambda: clock() + behind)


PROVOKED: Mapping[str, Callable[[Scene], None]] = {
    "PysqlboxDatabaseDown": database_down,
    "PysqlboxMessagesWait": messages_wait,
    "PysqlboxNobodyWorks": nobody_works,
    "PysqlboxNothingMoves": nothing_moves,
    "PysqlboxWorkerStalled": worker_stalled,
    "PysqlboxWorkerDeaf": worker_deaf,
    "PysqlboxDeadLetters": dead_letters,
    "PysqlboxOldDeadLetters": old_dead_letters,
    "PysqlboxExpiredLeases": expired_leases,
    "PysqlboxLostLeases": lost_leases,
    "PysqlboxGroupBlocked": group_blocked,
    "PysqlboxRetries": retries,
    "PysqlboxUpkeepStopped": upkeep_stopped,
    "PysqlboxWorkerStopped": worker_stopped,
    "PysqlboxWorkerSaturated": worker_saturated,
    "PysqlboxPoolExhausted": pool_exhausted,
    "PysqlboxMetricsSlow": metrics_slow,
}


@pytest.fixture
def scene(
    deployment: pysqlbox.Deployment, db: Database, make: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    """All is well: a message was handled, upkeep was done."""
    monkeypatch.setattr(exporter, "SHARE", 1.0)
    worker = make(threads=1, lease_seconds=DAY, stall_seconds=0.5)
    at_work, go_on = threading.Event(), threading.Event()
    go_on.set()

    @worker.handler("t")
    def handle(_message: Any, context: Any) -> None:
        at_work.set()
        until(lambda: go_on.is_set() or context.cancelled, 60)

    @worker.handler("fails")
    def fail(_message: object) -> pysqlbox.Retry:
        return pysqlbox.Retry(delay=600)

    del handle, fail
    deployment.outbox.cleanup(DAY)
    worker.measure()
    deployment.outbox.enqueue("t", "p")
    deployment.outbox.enqueue("fails", "p")
    worker.start()
    until(lambda: worker.stats().handled == 2 and not deployment.outbox.stats()[-1].in_flight, 30)
    until(lambda: not worker.stats().busy_threads, 30)
    with contextlib.ExitStack() as ends:
        yield Scene(deployment, db, worker, monkeypatch, at_work, go_on, ends)
        go_on.set()


def key(sample: Sample) -> str:
    """A sample's series, as Prometheus would have it: with the target's labels."""
    labels = {**sample.labels, "job": "pysqlbox", "instance": "worker:9464"}
    return sample.name + json.dumps(labels).replace('": "', '="').replace(', "', ",").replace('{"', "{")


def series(before: list[Sample], after: list[Sample]) -> Iterator[dict[str, str]]:
    """What a Prometheus has that scrapes each minute: counters go on as they did between the two scrapes."""
    first, last = ({key(sample): sample for sample in each} for each in (before, after))
    for name in {**first, **last}:
        known = last.get(name) or first[name]
        grows = known.name.endswith(("_total", "_bucket", "_sum", "_count"))
        values = []
        old, new = (each[name].value if name in each else None for each in (first, last))
        values.append(f"_x{HEALTHY}" if old is None else f"{old}+0x{HEALTHY}")
        slope = (new or 0) - (old or 0) if grows else 0
        values.append(f"_x{AFTER}" if new is None else f"{new}+{slope}x{AFTER}")
        yield {"series": name, "values": " ".join(values)}


def firing(
    folder: Path, alert: str, before: list[Sample], after: list[Sample], *, wanted: bool = True
) -> subprocess.CompletedProcess[str]:
    """Whether it is silent while all is well, and fires afterwards, or does not, by promtool."""
    (folder / "alerts.yml").write_text(shipped.alerts(), encoding="utf-8")

    def expected(minute: int, value: int, state: str) -> dict[str, Any]:
        return {
            "expr": f'sum(ALERTS{{alertname="{alert}"{state}}}) > bool 0 or vector(0)',
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": "{}", "value": value}],
        }

    # An increase of the last minutes is told at once; what must last, an hour later at most.
    times = [HEALTHY + minute for minute in (2, 5, 10, 20, 30, 60)]
    fires = " or ".join(
        f'ALERTS{{alertname="{alert}",alertstate="firing"}} offset {HEALTHY + AFTER - minute}m'
        for minute in times
    )
    test = {
        "rule_files": [str(folder / "alerts.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": list(series(before, after)),
                "promql_expr_test": [
                    expected(HEALTHY - 1, 0, ""),
                    {
                        "expr": f"sum({fires}) > bool 0 or vector(0)",
                        "eval_time": f"{HEALTHY + AFTER}m",
                        "exp_samples": [{"labels": "{}", "value": int(wanted)}],
                    },
                ],
            }
        ],
    }
    path = folder / "test.yml"
    path.write_text(json.dumps(test), encoding="utf-8")
    return promtool("test", "rules", str(path))


def test_every_alert_is_provoked() -> None:
    assert set(PROVOKED) == set(ALERTS)
    assert len(ALERTS) == len(set(ALERTS))


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_fires_when_it_should_and_not_before(scene: Scene, tmp_path: Path, alert: str) -> None:
    told = metrics.WorkerExporter(scene.worker)
    before = read(str(told))
    PROVOKED[alert](scene)
    after = read(str(told))
    result = firing(tmp_path, alert, before, after)
    assert result.returncode == 0, result.stdout + result.stderr


def by_worker(scene: Scene) -> None:
    worker = scene.deployment.worker(threads=1, cleanup_seconds=0.2)
    worker.add_handler("t", lambda _message: None)
    worker.start()
    until(lambda: upkeep_age(scene) < 60, 30, "a worker cleans up")
    worker.stop()


def by_upkeep(scene: Scene) -> None:
    pysqlbox.Upkeep(scene.deployment).run_once()


def by_upkeep_that_keeps_everything(scene: Scene) -> None:
    pysqlbox.Upkeep(scene.deployment, retention=None).run_once()


def by_cron(scene: Scene) -> None:
    result = CliRunner().invoke(cli, ["cleanup", "--url", scene.db.url, "--schema", scene.db.schema])
    assert result.exit_code == 0, result.output


def by_sql(scene: Scene) -> None:
    scene.db.call("outbox_cleanup", retention_seconds=7 * DAY)


def upkeep_age(scene: Scene) -> float:
    (row,) = [row for row in scene.deployment.metrics() if row.box == "outbox" and row.topic is None]
    assert row.upkeep_seconds is not None
    return row.upkeep_seconds


WAYS = [by_worker, by_upkeep, by_upkeep_that_keeps_everything, by_cron, by_sql]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way.__name__))
def test_upkeep_by_any_way_keeps_its_alert_silent(
    scene: Scene, tmp_path: Path, way: Callable[[Scene], None]
) -> None:
    told = metrics.WorkerExporter(scene.worker)
    before = read(str(told))
    scene.db.advance(4000)
    way(scene)
    after = read(str(told))
    assert value(after, "pysqlbox_done_messages", box="outbox", topic="t") == 1, "it would be missed"
    assert value(after, "pysqlbox_upkeep_age_seconds", box="outbox") < 60
    result = firing(tmp_path, "PysqlboxUpkeepStopped", before, after, wanted=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_box_in_which_nothing_is_done_needs_no_upkeep(scene: Scene, tmp_path: Path) -> None:
    told = metrics.WorkerExporter(scene.worker)
    before = read(str(told))
    scene.db.advance(4000)
    scene.deployment.outbox.cleanup(0)
    scene.db.advance(4000)
    after = read(str(told))
    assert value(after, "pysqlbox_upkeep_age_seconds", box="outbox") >= 4000
    result = firing(tmp_path, "PysqlboxUpkeepStopped", before, after, wanted=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_database_that_is_really_away_is_told_as_such() -> None:
    with pysqlbox.connect("postgresql://127.0.0.1:1/nowhere", retries=Retries(attempts=1)) as away:
        assert [each.value for each in read(metrics.text(away)) if each.name == "pysqlbox_up"] == [0]
