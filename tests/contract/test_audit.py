"""The audit log, and the boxes of a deployment."""

from __future__ import annotations

import pytest

from tests.contract.support import columns, refuses
from tests.support.database import Database

COLUMNS = ["id", "changed_at", "actor", "action", "subject", "affected", "detail"]


def write(db: Database, actor: str = "anna", action: str = "replay", **more: object) -> int:
    return int(str(db.value("audit_write", actor=actor, action=action, **more)))


def ids(db: Database, **filters: object) -> list[object]:
    return [row["id"] for row in db.call("audit_list", **filters)]


def test_contract_a_change_is_noted_with_who_what_and_how_many(db: Database) -> None:
    entry = write(db, subject="orders", affected=3, detail="topic 'x'")
    row = db.one("audit_list")
    assert list(row) == COLUMNS
    assert (row["id"], row["actor"], row["action"]) == (entry, "anna", "replay")
    assert (row["subject"], row["affected"], row["detail"]) == ("orders", 3, "topic 'x'")
    assert db.sql("SELECT * FROM {schema}.audit_log") == [row]


def test_contract_the_audit_log_is_listed_latest_first_by_actor_and_action(db: Database) -> None:
    first, second = write(db), write(db, "bert")
    third = write(db, "anna", "pause")
    assert ids(db) == [third, second, first]
    assert ids(db, limit=2) == [third, second]
    assert ids(db, before_id=second) == [first]
    assert ids(db, actor="anna") == [third, first]
    assert ids(db, actor="Anna") == ids(db, actor="anna ") == ids(db, actor="a" * 300) == []
    assert ids(db, action="pause") == [third]
    assert ids(db, actor="bert", action="pause") == []


def test_contract_a_change_that_is_undone_was_never_noted(db: Database) -> None:
    with db.session() as session:
        session.call("audit_write", actor="anna", action="replay")
        assert len(session.call("audit_list")) == 1
        session.rollback()
    assert ids(db) == []


def test_contract_the_audit_log_is_forgotten_by_its_age(db: Database) -> None:
    old = [write(db) for _ in range(3)]
    db.advance(3600)
    new = write(db)
    assert db.value("audit_cleanup", retention_seconds=7200) == 0
    assert db.value("audit_cleanup", retention_seconds=1800, batch_size=2) == 2
    assert ids(db) == [new, old[2]]
    assert db.value("audit_cleanup", retention_seconds=1800) == 1
    assert ids(db) == [new]


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("actor", [None, "", "a" * 256]),
        ("action", [None, "", "a" * 65]),
        ("subject", ["", "a" * 513]),
        ("affected", [-1]),
        ("detail", ["a" * 4001]),
    ],
)
def test_contract_a_change_that_is_noted_wrongly_is_refused(
    db: Database, argument: str, values: list[object]
) -> None:
    good: dict[str, object] = {
        "actor": "a" * 255, "action": "a" * 64, "subject": "s" * 512, "detail": "d" * 4000
    }  # fmt: skip
    for value in values:
        with refuses(argument):
            db.call("audit_write", **good | {argument: value})
    assert ids(db) == []
    assert db.call("audit_write", **good)


@pytest.mark.parametrize(
    ("routine", "argument", "more"),
    [
        ("audit_list", "limit", {"limit": 0}),
        ("audit_list", "limit", {"limit": 10001}),
        ("audit_cleanup", "retention_seconds", {"retention_seconds": -1}),
        ("audit_cleanup", "batch_size", {"retention_seconds": 1, "batch_size": 0}),
    ],
)
def test_contract_audit_arguments(db: Database, routine: str, argument: str, more: dict[str, object]) -> None:
    with refuses(argument):
        db.call(routine, **more)


def test_contract_a_deployment_knows_its_boxes(db: Database) -> None:
    assert [(row["name"], row["kind"]) for row in db.call("schema_boxes")] == [
        ("outbox", "outbox"),
        ("inbox", "inbox"),
        ("mail", "outbox"),
        ("orders", "inbox"),
    ]
    assert columns(db, "schema_boxes") == ["name", "kind"]
