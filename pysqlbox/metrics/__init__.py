"""Prometheus: the figures of deployments and workers, and the alert rules and dashboard that go with them."""

from __future__ import annotations

from pysqlbox.metrics.client import ClientExporter
from pysqlbox.metrics.exporter import Exporter, text
from pysqlbox.metrics.exposition import CONTENT_TYPE
from pysqlbox.metrics.server import address_of, serving
from pysqlbox.metrics.topics import OTHER, TOPICS
from pysqlbox.metrics.worker import WorkerExporter

__all__ = [
    "CONTENT_TYPE",
    "OTHER",
    "TOPICS",
    "ClientExporter",
    "Exporter",
    "WorkerExporter",
    "address_of",
    "serving",
    "text",
]
