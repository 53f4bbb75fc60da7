"""What a worker says of itself in the register of workers."""

from __future__ import annotations

import os
import platform
import sys
import uuid
from pathlib import Path

from pysqlbox.worker.caretaker import Chore
from pysqlbox.worker.handlers import Handlers
from pysqlbox.worker.served_box import JOIN_WAIT
from pysqlbox.worker.settings import Settings

__all__ = ["presence"]

#: Seconds after which one is forgotten that has ended without saying so.
FORGET_AFTER = 86_400


def presence(owner: uuid.UUID, settings: Settings, handlers: Handlers, threads: int) -> list[Chore]:
    """The chores that keep the worker in the register, and it small; the topics are those that it handles."""
    from pysqlbox import __version__  # the package itself, which is made of what is here

    if settings.report_seconds is None:
        return []
    topics = settings.topics if settings.topics is not None else handlers.topics()
    report = Chore(
        "report", ", ".join(settings.boxes), settings.report_seconds, "worker_report",
        {
            "owner_token": owner,
            "boxes": list(settings.boxes),
            "topics": sorted({*topics} - {JOIN_WAIT})[:10_000],
            "name": settings.name or _program(),
            "host": platform.node()[:255] or "unknown",
            "pid": os.getpid(),
            "version": __version__,
            "threads": threads,
        },
        by_all=True,
    )  # fmt: skip
    if settings.cleanup_seconds is None:
        return [report]
    arguments: dict[str, object] = {"retention_seconds": FORGET_AFTER}
    return [report, Chore("forget", "workers", 60 * settings.cleanup_seconds, "worker_cleanup", arguments)]


def _program() -> str:
    """What runs here: ``shop.py``, ``pysqlbox``, the package of ``python -m shop``."""
    path = Path(sys.argv[0])
    name = path.parent.name if path.name == "__main__.py" else path.name
    return name[:255] or "python"
