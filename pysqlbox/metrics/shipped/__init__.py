"""Alert rules for Prometheus and a dashboard for Grafana, as files of the package."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["alerts", "dashboard"]


def alerts() -> str:
    """The alert rules, YAML."""
    return _read("alerts.yml")


def dashboard() -> str:
    """The dashboard, JSON."""
    return _read("dashboard.json")


def _read(name: str) -> str:
    return files(__package__ or "pysqlbox.metrics.shipped").joinpath(name).read_text(encoding="utf-8")
