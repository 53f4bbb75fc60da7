"""The page that an operator keeps open: server-rendered, live, and without a request to anywhere else."""

from __future__ import annotations

from pysqlbox.dashboard.dashboard import Dashboard

__all__ = ["Dashboard"]
