"""The register of workers: who they are, since when, and what they hold."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from pysqlbox.errors import InvalidArgument
from tests.support.database import Database

OWNER = UUID("11111111-1111-4111-8111-111111111111")
WHO: dict[str, object] = {
    "owner_token": OWNER,
    "boxes": ["outbox", "orders"],
    "topics": ["a", "b"],
    "name": "courier",
    "host": "node-1",
    "pid": 4711,
    "version": "0.1.0",
    "threads": 8,
}


def _told(row: dict[str, object]) -> tuple[object, ...]:
    return tuple(row[name] for name in ("owner_token", "name", "host", "pid", "version", "threads"))


def test_contract_a_worker_that_says_who_it_is_is_seen_in_its_boxes(db: Database) -> None:
    first = db.one("worker_report", **WHO)
    assert first["started_at"] == first["seen_at"]
    db.advance(20)
    second = db.one("worker_report", **WHO | {"topics": None})
    assert second["started_at"] == first["started_at"]
    assert str(second["seen_at"]) > str(first["seen_at"])
    for box in ("outbox", "orders"):
        row = db.one(f"{box}_workers")
        assert _told(row) == (OWNER, "courier", "node-1", 4711, "0.1.0", 8)
        assert (row["started_at"], row["seen_at"]) == (second["started_at"], second["seen_at"])
        assert (row["in_flight"], row["done_lately"], row["topics"]) == (0, 0, None)
    assert db.call("mail_workers") == []


def test_contract_what_it_holds_stands_beside_who_it_is(db: Database) -> None:
    db.call("worker_report", **WHO)
    stranger = uuid4()
    for _ in range(3):
        db.call("outbox_enqueue", topic="t", payload="p")
    ids = [row["id"] for row in db.call("outbox_claim", owner_token=OWNER, lease_seconds=60, batch_size=2)]
    db.call("outbox_claim", owner_token=stranger, lease_seconds=60, batch_size=1)
    db.call("outbox_ack", owner_token=OWNER, ids=ids[:1])
    rows = {row["owner_token"]: row for row in db.call("outbox_workers")}
    assert (rows[OWNER]["in_flight"], rows[OWNER]["done_lately"], rows[OWNER]["name"]) == (1, 1, "courier")
    assert (rows[stranger]["in_flight"], rows[stranger]["name"], rows[stranger]["seen_at"]) == (1, None, None)


def test_contract_one_that_holds_something_is_known_also_when_it_is_silent(db: Database) -> None:
    db.call("worker_report", **WHO)
    db.call("inbox_enqueue", topic="t", source="s", message_id="m", payload="p")
    db.call("inbox_claim", owner_token=OWNER, lease_seconds=3600, batch_size=1)
    db.advance(11 * 60)
    assert db.call("outbox_workers") == []
    assert db.one("inbox_workers")["name"] == "courier"  # which it had not even said that it serves


def test_contract_a_worker_leaves(db: Database) -> None:
    db.call("worker_report", **WHO)
    assert db.value("worker_leave", owner_token=OWNER) == 1
    assert db.value("worker_leave", owner_token=OWNER) == 0
    assert db.call("outbox_workers") == []


def test_contract_workers_that_ended_silently_are_forgotten(db: Database) -> None:
    tokens = [uuid4() for _ in range(3)]
    for token in tokens:
        db.call("worker_report", **WHO | {"owner_token": token})
        db.advance(60)
    assert db.value("worker_cleanup", retention_seconds=3600) == 0
    assert db.value("worker_cleanup", retention_seconds=90, batch_size=1) == 1
    assert {row["owner_token"] for row in db.call("outbox_workers")} == set(tokens[1:])
    assert db.value("worker_cleanup", retention_seconds=90) == 1
    assert [row["owner_token"] for row in db.call("outbox_workers")] == tokens[2:]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("owner_token", None),
        ("owner_token", UUID(int=0)),
        ("boxes", None),
        ("boxes", []),
        ("name", None),
        ("name", ""),
        ("name", "x" * 256),
        ("host", ""),
        ("host", "x" * 256),
        ("pid", -1),
        ("pid", None),
        ("version", ""),
        ("version", "x" * 65),
        ("threads", 0),
    ],
)
def test_contract_register_arguments(db: Database, argument: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=argument):
        db.call("worker_report", **WHO | {argument: value})
    assert db.call("outbox_workers") == []


def test_contract_doctor_tells_of_the_worker_seen_last(db: Database) -> None:
    db.call("worker_report", **WHO)
    db.call("outbox_enqueue", topic="c", payload="p")
    db.advance(6 * 60)
    db.call("worker_report", **WHO)
    assert "none of the workers that say who they are handles this topic" in _unclaimed(db)
    db.call("worker_report", **WHO | {"topics": ["c"]})
    assert "cannot keep up" in _unclaimed(db)
    db.advance(6 * 60)
    assert "; the worker seen last, courier on node-1, was here " in _unclaimed(db)


def _unclaimed(db: Database) -> str:
    return next(
        str(row["detail"])
        for row in db.call("doctor")
        if row["check"] == "unclaimed" and str(row["subject"]).startswith("box outbox")
    )
