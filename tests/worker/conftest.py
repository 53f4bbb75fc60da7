"""Boxes and workers on the test schema of every engine; what a test starts is stopped at its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import pysqlbox
from pysqlbox.worker import Worker
from tests.support.database import Database
from tests.support.engines import engine_kinds
from tests.support.patience import of as patience_of
from tests.worker import support
from tests.worker.support import Calls

_SLOW = {"test_leases", "test_groups", "test_chores", "test_life"}


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark."""
    config.addinivalue_line("markers", "every_engine: where the database matters, not only Python")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what would only repeat itself: the worker's Python is the same on every engine.

    All tests run on the first engine; those that are marked on the first of the other dialect too, and whole
    processes on all. Slow ones take an outbox only, unless they carry a number of the inbox's.
    """
    kinds = [kind for kind in engine_kinds().values() if not kind.missing]
    first = kinds[0] if kinds else None
    others = {kind.id for kind in kinds if first is not None and kind.dialect != first.dialect}

    def runs(item: pytest.Item) -> bool:
        if item.path.parent != Path(__file__).parent or not isinstance(item, pytest.Function):
            return True
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        engine = parameters.get("engine")
        if parameters.get("box") == "inbox" and "ibx" not in item.name and item.path.stem in _SLOW:
            return False
        if first is None or engine is None or engine == first.id:
            return True
        if item.get_closest_marker("every_engine") is None:
            return False
        if engine in others:
            return parameters.get("box") != "inbox" or item.path.stem == "test_results"
        return item.path.stem == "test_processes"

    left_out = [item for item in items if not runs(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if runs(item)]


class MakeWorker(Protocol):
    """Makes a worker with short waits and without chores, unless told otherwise."""

    def __call__(self, **options: Any) -> Worker: ...


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Babelfish takes its time."""
    if "db" in request.fixturenames:
        monkeypatch.setattr(support, "PATIENCE", patience_of(request.getfixturevalue("db").dialect))


@pytest.fixture
def deployment(db: Database) -> Iterator[pysqlbox.Deployment]:
    """The package's view of the schema."""
    with pysqlbox.connect(db.url, schema=db.schema, pool_size=4) as opened:
        yield opened


@pytest.fixture(params=["outbox", "inbox"])
def box(deployment: pysqlbox.Deployment, request: pytest.FixtureRequest) -> pysqlbox.Outbox | pysqlbox.Inbox:
    """A box of each kind."""
    return deployment.box(request.param)


@pytest.fixture
def calls() -> Calls:
    """An empty list of calls."""
    return Calls()


@pytest.fixture
def make(deployment: pysqlbox.Deployment) -> Iterator[MakeWorker]:
    """A maker of workers."""
    made: list[Worker] = []
    threads = 4 if deployment.target.dialect == "postgres" else 2  # Babelfish's new connections cost seconds

    def worker(**options: Any) -> Worker:
        settings: dict[str, Any] = {"boxes": ("outbox", "inbox"), "threads": threads, "poll_seconds": 0.05}
        chores = ("reap_seconds", "cleanup_seconds", "schedule_seconds", "report_seconds")
        without = dict.fromkeys(chores)
        found = deployment.worker(**{**settings, **without, **options})
        made.append(found)
        return found

    yield worker
    for each in made:
        each.stop(0.5)


@pytest.fixture
def effects(db: Database) -> Iterator[Any]:
    """A table that handlers write to: answers the ids that are in it."""
    kind = "text" if db.dialect == "postgres" else "nvarchar(100)"
    db.sql(f"CREATE TABLE {{schema}}.effects (message bigint NOT NULL, note {kind} NULL)")
    try:
        yield lambda: sorted(
            int(str(row["message"])) for row in db.sql("SELECT message FROM {schema}.effects")
        )
    finally:
        db.sql("DROP TABLE {schema}.effects")
