"""A worker's figures as families of metrics."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pysqlbox.metrics.client import ClientExporter, labels_of
from pysqlbox.metrics.exporter import Exporter
from pysqlbox.metrics.exposition import Families, Labels
from pysqlbox.metrics.topics import TOPICS, Chosen, topics_each
from pysqlbox.stores.worker import StoresWorker
from pysqlbox.worker.figures import BoxKey, Figures, TopicFigures
from pysqlbox.worker.health import WorkerHealth

if TYPE_CHECKING:
    from pysqlbox.worker import Worker

__all__ = ["WorkerExporter"]

_OUTCOMES = ("acked", "retried", "released", "dead")


class WorkerExporter:
    """The metrics of one worker, and of the deployments that it serves, as text for Prometheus.

    It makes the worker keep figures by topic, from then on.
    """

    def __init__(self, worker: Worker, *, topics: int | None = TOPICS, deployment: bool = True) -> None:
        """``topics``: as of ``text``. ``deployment``: tell of the database, or all of them, as well."""
        self._worker = worker
        self._topics = topics
        self._chosen: dict[BoxKey, Chosen] = {}
        self._lock = threading.Lock()
        self._stores = worker.stores if isinstance(worker, StoresWorker) else None
        served = worker.deployment if self._stores is None else self._stores
        self._exporter = (Exporter if deployment else ClientExporter)(served, topics=topics)
        worker.measure()

    def __str__(self) -> str:
        families = Families()
        self.add_to(families)
        self._exporter.add_to(families)
        return str(families)

    def add_to(self, families: Families) -> None:
        """Add what the worker has done and does."""
        worker = self._worker
        labels: Labels = () if self._stores is not None else labels_of(worker.deployment)
        stats = worker.stats()
        for name, value, text in (
            ("running", int(worker.is_running), "Whether the worker runs."),
            ("threads", worker.threads, "How many handlers may run at once in threads."),
            ("busy_threads", stats.busy_threads, "How many threads are at work."),
        ):
            families.get(f"pysqlbox_worker_{name}", "gauge", text).add(value, labels)
        lost = families.get(
            "pysqlbox_worker_lost_leases_total",
            "counter",
            "Messages whose lease was lost while they were here.",
        )
        lost.add(stats.lost_leases, labels)
        _add_health(families, worker.health(), None if self._stores is not None else labels)
        shown = self._shown(worker.figures()).items()
        for ((store, box), topic), figures in sorted(shown, key=lambda each: str(each[0])):
            _add_topic(families, figures, (("store", store), ("box", box), ("topic", topic)))

    def _shown(self, found: Figures) -> Figures:
        """The figures by what is shown of the topics."""
        weights: dict[BoxKey, dict[str, float]] = {}
        for (box, topic), figures in found.items():
            weights.setdefault(box, {})[topic] = figures.claimed
        limit = topics_each(self._topics, 1 if self._stores is None else len({store for store, _ in weights}))
        with self._lock:
            names = {}
            for box, topics in weights.items():
                of_box = self._chosen.setdefault(box, Chosen(limit))
                of_box.limit = limit
                names[box] = of_box.label(topics)
        shown = Figures()
        for (box, topic), figures in found.items():
            shown[box, names[box][topic]].add_all(figures)
        return shown


def _add_health(families: Families, health: WorkerHealth, labels: Labels | None) -> None:
    """What the worker itself sees of each box; without labels by its store."""
    for each in health.boxes:
        of_box = (*((("store", each.store),) if labels is None else labels), ("box", each.box))
        for name, value, text in (
            ("stalled", int(each.stalled_since is not None), "Whether nothing moves although messages wait."),
            ("stuck_handlers", each.stuck_handlers, "Handlers that have overrun their time."),
            (
                "deaf",
                int(each.listener == "deaf"),
                "Whether notifications do not come through to this worker.",
            ),
        ):
            families.get(f"pysqlbox_worker_{name}", "gauge", text).add(value, of_box)
        if each.last_claim_at is not None:
            age = (datetime.now(UTC) - each.last_claim_at).total_seconds()
            text = "Since the database last answered a claim, be it with nothing."
            families.get("pysqlbox_worker_last_claim_age_seconds", "gauge", text).add(max(age, 0.0), of_box)


def _add_topic(families: Families, figures: TopicFigures, labels: Labels) -> None:
    consumed = families.get(
        "pysqlbox_worker_consumed_messages_total", "counter", "Messages that this worker has claimed."
    )
    consumed.add(figures.claimed, labels)
    settled = families.get(
        "pysqlbox_worker_settled_messages_total", "counter", "What became of them: their handlers' results."
    )
    for outcome in _OUTCOMES:
        settled.add(getattr(figures, outcome), (*labels, ("outcome", outcome)))
    for name, histogram, text in (
        ("handling", figures.handling, "How long handlers took, a batch counting once."),
        (
            "waiting",
            figures.waiting,
            "How long messages waited, from their due time until they were claimed.",
        ),
    ):
        family = families.get(f"pysqlbox_worker_{name}_seconds", "histogram", text)
        family.add_histogram(histogram.bounds, histogram.counts, histogram.total, labels)
