"""Stores of both dialects under one worker, where a T-SQL engine is named beside PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from pysqlbox import Router, Stores
from tests.stores.support import Seen, fill
from tests.support import engines
from tests.support.engines import Engine
from tests.support.patience import of as patience_of
from tests.worker import support
from tests.worker.support import until

pytestmark = pytest.mark.dialect("postgres")
URL = os.environ.get("PYSQLBOX_TEST_MSSQL")
#: A first call may take Babelfish longer than the default: what is claimed twice would be handled twice.
LEASE = 300


@pytest.fixture
def mixed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stores]:
    """Two databases of PostgreSQL and one of T-SQL, deployed."""
    if not URL:
        pytest.skip("PYSQLBOX_TEST_MSSQL names no T-SQL engine")
    monkeypatch.setattr(support, "PATIENCE", patience_of("mssql"))
    with engines.started(engines.engine_kinds()["mssql"]) as other:
        source = {
            "ann": engine.database_url(engine.create_database()),
            7: other.database_url(other.create_database()),
            "bob": engine.database_url(engine.create_database()),
        }
        with Stores(source) as stores:
            assert [(report.key, report.error) for report in stores.migrate()] == [
                (key, None) for key in source
            ]
            yield stores


def test_one_worker_serves_stores_of_both_dialects(mixed: Stores) -> None:
    router = Router(mixed)
    assert {key: router.get(key).target.dialect for key in mixed} == {
        "ann": "postgres",
        7: "mssql",
        "bob": "postgres",
    }
    worker = mixed.worker(boxes=("outbox", "inbox"), threads=4, poll_seconds=0.2, lease_seconds=LEASE)
    seen = Seen()
    worker.add_handler("t", seen)

    @worker.handler("copy", transactional=True)
    def copy(_message: Any, context: Any) -> None:
        """In its own store, with its own store's connection."""
        assert context.deployment is router.get(context.store)
        context.deployment.outbox.enqueue("t", "copied", connection=context.connection)

    worker.start()
    try:
        made = {key: fill(router.get(key), 20) for key in mixed}
        for key in mixed:
            fill(router.get(key), 1, group_id="g", topic="copy")
            router.get(key).outbox.enqueue("t", "later", delay=2)
            router.get(key).inbox.enqueue("t", "sender", "one", "received")
        until(lambda: all(len(seen.ids[key]) == 23 for key in mixed), 60)
        for key in mixed:
            assert set(made[key]) <= set(seen.ids[key])
            fill(router.get(key), 1)  # after all were at rest for a while
        until(lambda: all(len(seen.ids[key]) == 24 for key in mixed), 60)
    finally:
        worker.stop(10)
    for report in mixed.stats():
        assert report.error is None
        assert {name: rows[-1].ready + rows[-1].in_flight for name, rows in report.stats.items()} == {
            "outbox": 0, "inbox": 0,
        }  # fmt: skip


def test_a_worker_drains_both_dialects(mixed: Stores) -> None:
    worker = mixed.worker(threads=4, lease_seconds=LEASE)
    seen = Seen()
    worker.add_handler("t", seen)
    for key in mixed:
        fill(mixed.get(key), 30)
    assert worker.drain(120 * support.PATIENCE) == 90
    assert {key: len(ids) for key, ids in seen.ids.items()} == {"ann": 30, 7: 30, "bob": 30}
