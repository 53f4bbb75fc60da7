"""What a page costs the database: what it shows, however much lies behind it."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

import pytest

import pysqlbox
from pysqlbox.dashboard import Dashboard
from tests.dashboard.support import OWNER, TOKENS, Visitor
from tests.support.database import Database

pytestmark = pytest.mark.only_engine("pg18")


def _rows_read(deployment: pysqlbox.Deployment) -> int:
    """Rows and index entries of this database that were read so far, by the one connection there is."""
    with deployment.connection() as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
        connection.execute("SELECT pg_stat_clear_snapshot()")
        cursor = connection.execute(
            "SELECT (SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables)"
            " + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes)"
        )
        return int(cursor.fetchone()[0])


def _fill(box: pysqlbox.Outbox, done: int, dead: int) -> None:
    """Messages that are done and dead, and a few that wait, alone and in groups."""
    box.enqueue_payloads("a", ["{}"] * done)
    for _ in range(0, done, 1000):
        box.ack(OWNER, [each.id for each in box.claim(OWNER, batch_size=1000)])
    box.enqueue_payloads("b", ["{}"] * dead)
    for _ in range(0, dead, 1000):
        box.fail(OWNER, [each.id for each in box.claim(OWNER, batch_size=1000)], "order 17 is gone")
    box.enqueue_many([{"topic": "c", "payload": "{}", "group_id": f"g{n % 10}"} for n in range(50)])


def test_history_costs_a_page_nothing(db: Database) -> None:
    with pysqlbox.connect(db.url, schema=db.schema, pool_size=1) as deployment:
        made = Dashboard(deployment, find=TOKENS.find, boxes=["outbox", "inbox"])
        visitor = Visitor(made).log_in("admin")
        assert made.watch is not None
        made.watch.close()  # its thread reads too

        def costs(paths: list[str]) -> dict[str, int]:
            return {path: _cost(deployment, lambda path=path: visitor.text(path)) for path in paths}  # type: ignore[misc]

        _fill(deployment.outbox, 1000, 1000)
        some = deployment.outbox.list("Failed", limit=1)[0].id
        pages = [
            "/", "/topics",
            "/messages?status=Done", "/messages?status=Done&after=500", "/messages?status=Failed",
            "/messages?status=Failed&topic=b", "/messages?status=Ready", f"/messages/outbox/{some}",
            "/groups", "/joins", "/schedules", "/ledger", "/workers", "/doctor", "/audit",
        ]  # fmt: skip
        dead = [
            "/dead",
            f"/dead/outbox/bulk?{urlencode({'topic': 'b', 'cause': 'order # is gone'})}",
        ]
        for path in pages + dead:
            visitor.text(path)  # what is asked only once is asked now
        before = costs(pages + dead)
        _fill(deployment.outbox, 15_000, 4000)
        with deployment.connection() as connection:
            connection.execute("VACUUM ANALYZE")
        after = costs(pages + dead)
        made.close()
    for path in pages:
        assert after[path] < before[path] + 1500, (path, before[path], after[path])
    for path in dead:  # they look at what is dead, and at no more than that
        assert after[path] < before[path] + 12 * 4000, (path, before[path], after[path])


def _cost(deployment: pysqlbox.Deployment, look: Callable[[], object]) -> int:
    before = _rows_read(deployment)
    look()
    return _rows_read(deployment) - before
