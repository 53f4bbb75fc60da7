"""Who works on a box."""

from __future__ import annotations

from tests.contract.support import OTHER, OWNER, Box, refuses, server_now
from tests.support.database import Database


def test_nobody_has_worked_here(box: Box) -> None:
    box.put()
    assert box.call("workers") == []


def test_whoever_holds_something_comes_first(box: Box) -> None:
    box.fill(5)
    done = box.take(OWNER, batch=2)
    box.ack(OWNER, done)
    held = box.take(OTHER, batch=3)
    first, second = box.call("workers")
    assert (first["owner_token"], first["in_flight"], first["done_lately"]) == (OTHER, len(held), 0)
    assert first["locked_until"] is not None
    assert first["last_done_at"] is None
    assert (second["owner_token"], second["in_flight"], second["done_lately"]) == (OWNER, 0, 2)
    assert second["locked_until"] is None
    assert second["last_done_at"] is not None
    assert [row["owner_token"] for row in box.call("workers", limit=1)] == [OTHER]


def test_the_first_lease_to_end_is_told(box: Box, db: Database) -> None:
    box.fill(2)
    (first,) = box.take(OWNER, batch=1)
    db.advance(5)
    box.take(OWNER, batch=1)
    (row,) = box.call("workers")
    assert row["in_flight"] == 2
    assert row["locked_until"] == box.one("get", id=first)["locked_until"]
    assert row["locked_until"] > server_now(db)


def test_who_was_done_long_ago_is_forgotten(box: Box, db: Database) -> None:
    box.fill(1)
    box.ack(OWNER, box.take(OWNER))
    db.advance(299)
    assert len(box.call("workers")) == 1
    db.advance(2)
    assert box.call("workers") == []


def test_limits(box: Box) -> None:
    for limit in (0, 10001, None):
        with refuses("limit"):
            box.call("workers", limit=limit)
