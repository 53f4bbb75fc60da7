"""Transactions of other isolation levels, and one whose snapshot stays open for long."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
import pytest

from pysqlbox.errors import DatabaseUnavailable, InvalidState
from tests.concurrency.invariants import check, drain
from tests.concurrency.scenarios_groups import PROBE
from tests.contract.support import OTHER, OWNER, Box, ids
from tests.support.database import Database, Session

pytestmark = pytest.mark.dialect("postgres")
LEVELS = ("REPEATABLE READ", "SERIALIZABLE")


@pytest.mark.parametrize("kind", ["outbox", "inbox"])
@pytest.mark.parametrize("level", LEVELS)
def test_everything_but_a_claim_works_at_a_higher_level(db: Database, level: str, kind: str) -> None:
    """A caller's own transaction may have any level; only a claim needs to see what is held now."""
    box = Box(kind, "inbox" if kind == "inbox" else "outbox", db, db)
    first = [box.put(group_id="g"), box.put(), box.put()]
    assert box.take() == first
    with db.session() as session:
        inside = box.on(session)
        session.sql(f"SET TRANSACTION ISOLATION LEVEL {level}")
        made = [inside.put(group_id="g"), inside.put(collapse_key="c"), inside.put(group_id="h")]
        assert inside.ack(OWNER, first[:1]) == 1
        assert inside.release(OWNER, first[1:2]) == 1
        assert inside.abandon(OWNER, first[2:], delay_seconds=0.01) == 1
        assert inside.reap() == 0
        session.commit()
        session.sql(f"SET TRANSACTION ISOLATION LEVEL {level}")
        with pytest.raises(InvalidState):
            inside.claim()
        session.rollback()
    check(db, kind)
    time.sleep(PROBE)
    found = box.take(OTHER) + box.take(OTHER)
    assert sorted(found) == sorted([*first[1:], *made])


def test_a_member_added_under_an_old_snapshot_is_found(db: Database) -> None:
    """Its transaction sees a group that ended meanwhile; the member must not be taken for looked after."""
    box = Box("outbox", "outbox", db, db)
    first = box.put(group_id="g")
    assert box.take() == [first]
    with db.session() as session:
        session.sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.sql("SELECT 1 AS one FROM {schema}.outbox_group")
        assert box.ack(OWNER, [first]) == 1
        added = box.on(session).put(group_id="g")
        session.commit()
    check(db, "outbox")
    assert box.take() == [added]


@pytest.mark.parametrize("level", LEVELS)
def test_errors_at_a_higher_level_are_serialization_failures(db: Database, level: str) -> None:
    """Producers and settlers may have to try again (40001), and in the end all is done once."""
    box = Box("outbox", "outbox", db, db)
    settled: list[int] = []

    def retried(session: Session, step: Callable[[Box], object]) -> None:
        for _ in range(200):
            try:
                session.sql(f"SET TRANSACTION ISOLATION LEVEL {level}")
                step(box.on(session))
                session.commit()
            except (DatabaseUnavailable, psycopg.Error) as error:  # a commit's own error is the driver's
                if getattr(error.__cause__ or error, "sqlstate", None) != "40001":
                    raise
                session.rollback()
            else:
                return
        raise AssertionError("never succeeds")

    def produce(number: int) -> None:
        with db.session() as session:
            for turn in range(15):
                retried(session, partial(Box.enqueue, group_id="g", dedup_key=f"{number}"))
                retried(session, partial(Box.enqueue, collapse_key=f"c{turn % 2}"))

    def work(number: int) -> None:
        owner = (OWNER, OTHER)[number]
        with db.session() as session:
            for _ in range(15):
                taken = box.on(session).take(owner, batch=4)
                session.commit()
                retried(session, partial(Box.ack, owner=owner, ids=taken))
                settled.extend(taken)

    with ThreadPoolExecutor(5) as pool:
        futures = [pool.submit(produce, number) for number in range(3)]
        futures += [pool.submit(work, number) for number in range(2)]
        for future in futures:
            future.result(60)
    check(db, "outbox")
    settled += drain(db, "outbox")
    assert len(settled) == len(set(settled)) == box.stats()[None]["done"]


def test_a_held_snapshot_harms_nothing(db: Database) -> None:
    """Twenty thousand messages pass while a report's transaction is open; each comes once."""
    box = Box("outbox", "outbox", db, db)
    with db.session() as report:
        report.sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        report.sql("SELECT count(*) AS n FROM {schema}.outbox_message")
        made: list[int] = []
        taken: list[int] = []
        for _ in range(20):
            made += box.fill(1000)
            for _ in range(2):
                rows = ids(box.claim(batch_size=500))
                taken += rows
                assert box.ack(OWNER, rows) == len(rows)
        assert taken == made
        assert report.sql("SELECT count(*) AS n FROM {schema}.outbox_done")[0]["n"] == 0
        report.rollback()
    assert box.take() == []
    check(db, "outbox")
