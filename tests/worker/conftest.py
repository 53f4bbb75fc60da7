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
from tests.worker import support
from tests.worker.support import Calls


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark."""
    config.addinivalue_line("markers", "every_engine: where the database matters, not only Python")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests without that mark to the first engine, and most of those on inboxes."""
    first = next((kind.id for kind in engine_kinds().values() if not kind.missing), None)
    here = Path(__file__).parent

    def runs(item: pytest.Item) -> bool:
        parameters = (
            item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        )
        engine = parameters.get("engine", first)
        if engine == first or not item.path.is_relative_to(here):
            return True
        if item.get_closest_marker("every_engine") is None:
            return False
        return parameters.get("queue") != "inbox" or item.path.name == "test_results.py"

    others = [item for item in items if not runs(item)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if runs(item)]


class MakeWorker(Protocol):
    """Makes a worker with short waits and without chores, unless told otherwise."""

    def __call__(self, **options: Any) -> Worker: ...


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Babelfish takes its time."""
    if "db" in request.fixturenames and request.getfixturevalue("db").dialect == "mssql":
        monkeypatch.setattr(support, "PATIENCE", 5.0)


@pytest.fixture
def box(db: Database) -> Iterator[pysqlbox.Box]:
    """The package's view of the schema."""
    with pysqlbox.connect(db.url, schema=db.schema, pool_size=4) as opened:
        yield opened


@pytest.fixture(params=["outbox", "inbox"])
def queue(box: pysqlbox.Box, request: pytest.FixtureRequest) -> pysqlbox.Outbox | pysqlbox.Inbox:
    """A box of each kind."""
    return box.queue(request.param)


@pytest.fixture
def calls() -> Calls:
    """An empty list of calls."""
    return Calls()


@pytest.fixture
def make(box: pysqlbox.Box) -> Iterator[MakeWorker]:
    """A maker of workers."""
    made: list[Worker] = []
    threads = 4 if box.target.dialect == "postgres" else 2  # Babelfish's new connections cost seconds

    def worker(**options: Any) -> Worker:
        settings: dict[str, Any] = {"boxes": ("outbox", "inbox"), "threads": threads, "poll_seconds": 0.05}
        found = box.worker(**{**settings, "reap_seconds": None, "cleanup_seconds": None, **options})
        made.append(found)
        return found

    yield worker
    for each in made:
        each.stop(0.5)
