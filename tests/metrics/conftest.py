"""A deployment on the test schema of every engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

import pysqlbox
from pysqlbox.worker import Worker
from tests.support.database import Database


@pytest.fixture
def deployment(db: Database) -> Iterator[pysqlbox.Deployment]:
    """The package's view of the schema, with a pool of its own."""
    with pysqlbox.connect(db.url, schema=db.schema, pool_size=3) as opened:
        yield opened


class MakeWorker(Protocol):
    """Makes a worker with short waits and without chores, unless told otherwise."""

    def __call__(self, **options: Any) -> Worker: ...


@pytest.fixture
def make(deployment: pysqlbox.Deployment) -> Iterator[MakeWorker]:
    """A maker of workers; what it made is stopped at the end."""
    made: list[Worker] = []

    def worker(**options: Any) -> Worker:
        settings: dict[str, Any] = {"threads": 2, "poll_seconds": 0.05, "schedule_seconds": None}
        found = deployment.worker(**{**settings, "reap_seconds": None, "cleanup_seconds": None, **options})
        made.append(found)
        return found

    yield worker
    for each in made:
        each.stop(0.5)
