"""A producer whose transaction stays open slows nobody down, and what it brings is delivered after all."""

from __future__ import annotations

import pytest

from tests.concurrency.invariants import check
from tests.concurrency.sessions import sessions
from tests.contract.support import OTHER, OWNER, Box
from tests.interleavings import places
from tests.support.database import Database

pytestmark = pytest.mark.dialect("postgres")

STEP = 200


def _busy(box: Box, rounds: int) -> list[int]:
    """Messages come and go for a while, with the clock."""
    got: list[int] = []
    for _ in range(rounds):
        box.fill(STEP)
        taken = box.take(OWNER, batch=STEP)
        got += taken
        box.ack(OWNER, taken)
        box.db.advance(1)
        box.db.sql(f"SELECT {{schema}}._{box.name}_tick()")
    return got


@pytest.mark.parametrize("name", ["outbox", "inbox"])
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_an_open_producer_holds_no_mark_up_and_loses_nothing(db: Database, name: str, ends: str) -> None:
    box = Box(name, "outbox" if name == "outbox" else "inbox", db, db)
    with sessions(db, 1) as (producer,):
        late = [box.on(producer).put("late") for _ in range(3)]
        _busy(box, 45)
        passed = places.marks(db, name)["low_ticket"]
        assert passed > places.last_ticket(db, name) - 10 * STEP, "the mark waits for the open producer"
        assert places.marks(db, name)["low_sure"] <= late[0]
        getattr(producer, ends)()
        box.fill(1)
        got = _busy(box, 6) + box.take(OTHER, batch=50)
        assert [message for message in got if message in late] == (late if ends == "commit" else [])
        _busy(box, 6)
        assert places.marks(db, name)["low_sure"] > passed, "what was left behind is never proven"
    box.ack(OTHER, late)
    check(db, name)


def test_what_came_late_is_found_by_claims_that_find_nothing(db: Database) -> None:
    box = Box("outbox", "outbox", db, db)
    with sessions(db, 1) as (producer,):
        late = [int(row["id"]) for row in box.on(producer).enqueue_many(*[box.record() for _ in range(300)])]
        _busy(box, 45)
        producer.commit()
        found: list[int] = []
        for _ in range(20):
            found += box.take(OTHER, batch=100)
        assert sorted(found) == late
        box.ack(OTHER, found)
    check(db, "outbox", drained=True)


def test_a_late_group_and_a_late_topic_are_found_too(db: Database) -> None:
    box = Box("outbox", "outbox", db, db)
    with sessions(db, 1) as (producer,):
        grouped = [box.on(producer).put("late", group_id="g") for _ in range(2)]
        plain = box.on(producer).put("other")
        _busy(box, 45)
        producer.commit()
        found: list[int] = []
        for _ in range(20):
            found += box.take(OTHER, batch=100, topics=["late", "other"])
        assert sorted(found) == [*grouped, plain]
        assert [message for message in found if message in grouped] == grouped
        box.ack(OTHER, found)
    check(db, "outbox", drained=True)
