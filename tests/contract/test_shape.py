"""The surface itself: names, argument order, result columns in their order, also where there are no rows."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from uuid import uuid4

import pytest

from tests.contract.support import (
    CLAIM_COLUMNS,
    KINDS,
    OWNER,
    VIEW_COLUMNS,
    Box,
    by_position,
    columns,
    headers_of,
    ids,
    json_text,
    server_now,
)
from tests.support.database import Database

AFFECTED: dict[str, tuple[object, ...]] = {
    "ack": (OWNER, []),
    "abandon": (OWNER, [], "error", Decimal("1.5")),
    "release": (OWNER, [], Decimal("1.5")),
    "fail": (OWNER, [], "error"),
    "reap": (10,),
    "replay": ([],),
    "discard": ([],),
    "cancel": ([], "reason"),
    "reschedule": ([], None),
    "cleanup": (60, 10),
    "cleanup_dead": (60, 10),
    "pause": ("topic",),
    "resume": ("topic",),
}
"""The routines that answer only how many rows they touched, with arguments in the contract's order."""


@pytest.mark.parametrize("step", AFFECTED)
def test_obx_106_routines_that_settle_and_sweep_answer_affected(every_box: Box, step: str) -> None:
    arguments = AFFECTED[step]
    assert columns(every_box.db, f"{every_box.name}_{step}", *arguments) == ["affected"]
    (row,) = by_position(every_box.db, f"{every_box.name}_{step}", *arguments)
    assert row["affected"] in (0, 1)


def test_obx_106_claim_and_settle_answer_the_columns_of_a_claim_even_without_rows(every_box: Box) -> None:
    expected = CLAIM_COLUMNS[every_box.kind]
    assert columns(every_box.db, f"{every_box.name}_claim", OWNER, 30, 10, ["t"]) == expected
    assert columns(every_box.db, f"{every_box.name}_settle", OWNER, "[]", 0, 30, ["t"]) == expected
    assert columns(every_box.db, f"{every_box.name}_settle", OWNER, "[]", 5, 30, ["t"]) == expected
    every_box.put()
    assert list(every_box.claim()[0]) == expected


def test_contract_extend_and_lookups_answer_their_columns_even_without_rows(every_box: Box) -> None:
    name = every_box.name
    assert columns(every_box.db, f"{name}_extend", OWNER, [], 30) == ["id", "locked_until"]
    left_out = {"owner_token", "locked_until", "processed_at", "processed_by"}
    dead = [column for column in VIEW_COLUMNS[every_box.kind] if column not in left_out]
    assert columns(every_box.db, f"{name}_dead_letters", 10, 0, "t") == dead
    key = ("m", "s") if every_box.kind == "inbox" else (uuid4(),)
    assert columns(every_box.db, f"{name}_find", *key) == VIEW_COLUMNS[every_box.kind]
    assert columns(every_box.db, f"{name}_get", every_box.put()) == VIEW_COLUMNS[every_box.kind]


def test_contract_enqueue_answers_its_columns(every_box: Box) -> None:
    if every_box.kind == "outbox":
        single, many = ["id", "message_id", "outcome"], ["ordinal", "id", "message_id", "outcome"]
    else:
        single, many = ["id", "outcome", "hash_mismatch"], ["ordinal", "id", "outcome", "hash_mismatch"]
    assert list(every_box.enqueue()) == single
    assert list(every_box.enqueue_many(every_box.record())[0]) == many
    assert columns(every_box.db, f"{every_box.name}_enqueue_many", "[]") == many


def test_contract_stats_and_configure_answer_their_columns(every_box: Box) -> None:
    expected = ["topic", "ready", "scheduled", "in_flight", "done", "dead", "oldest_ready_seconds"]
    assert columns(every_box.db, f"{every_box.name}_stats") == expected
    assert columns(every_box.db, f"{every_box.name}_configure", "max_attempts", "10") == ["name", "value"]


def test_ibx_004_deduplication_routines_answer_their_columns(inbox: Box) -> None:
    name = inbox.name
    answered = columns(inbox.db, f"{name}_already_processed", "m", "s", None)
    assert answered == ["already_processed", "hash_mismatch"]
    for step in ("mark_processing", "mark_processed", "mark_dead"):
        assert columns(inbox.db, f"{name}_{step}", "m", "s") == ["affected"]


def test_contract_outbox_enqueue_takes_its_arguments_by_position(outbox: Box) -> None:
    now = server_now(outbox.db).replace(microsecond=0)  # Babelfish may lose fractions
    own = uuid4()
    values: dict[str, object] = {
        "topic": "topic",
        "payload": "payload",
        "correlation_id": "correlation",
        "due_at": now - timedelta(days=1),
        "message_id": own,
        "group_id": "group",
        "priority": 3,
        "dedup_key": "dedup",
        "collapse_key": "collapse",
        "expires_at": now + timedelta(days=1),
        "headers": '{"a": 1}',
        "created_at": now - timedelta(days=2),
    }
    (made,) = by_position(outbox.db, f"{outbox.name}_enqueue", *values.values())
    row = outbox.get(int(str(made["id"])))
    assert headers_of(row) == {"a": 1}
    del values["headers"]
    assert {name: row[name] for name in values} == values


def test_contract_inbox_enqueue_takes_its_arguments_by_position(inbox: Box) -> None:
    if inbox.db.dialect == "mssql":
        hash_value: object = None  # FreeTDS hangs on a bound varbinary(max)
    else:
        hash_value = b"\x00\xff"
    now = server_now(inbox.db).replace(microsecond=0)  # Babelfish may lose fractions
    values: dict[str, object] = {
        "topic": "topic",
        "source": "source",
        "message_id": "message",
        "payload": "payload",
        "hash": hash_value,
        "due_at": now - timedelta(days=1),
        "group_id": "group",
        "priority": 3,
        "collapse_key": "collapse",
        "expires_at": now + timedelta(days=1),
        "headers": '{"a": 1}',
        "received_at": now - timedelta(days=2),
    }
    (made,) = by_position(inbox.db, f"{inbox.name}_enqueue", *values.values())
    row = inbox.get(int(str(made["id"])))
    assert headers_of(row) == {"a": 1}
    assert row["first_seen_at"] == values.pop("received_at")
    del values["headers"]
    assert {name: row[name] for name in values} == values


def test_contract_worker_routines_take_their_arguments_by_position(every_box: Box) -> None:
    made = every_box.fill(5, topic="a")
    every_box.put("b")
    rows = by_position(every_box.db, f"{every_box.name}_claim", OWNER, 60, 5, ["a"])
    assert ids(rows) == made
    (extended,) = by_position(every_box.db, f"{every_box.name}_extend", OWNER, made[:1], 600)
    assert extended["id"] == made[0]
    assert by_position(every_box.db, f"{every_box.name}_ack", OWNER, made[:1]) == [{"affected": 1}]
    abandoned = by_position(every_box.db, f"{every_box.name}_abandon", OWNER, made[1:2], "why", 700)
    assert abandoned == [{"affected": 1}]
    assert by_position(every_box.db, f"{every_box.name}_release", OWNER, made[2:3], 0) == [{"affected": 1}]
    assert by_position(every_box.db, f"{every_box.name}_fail", OWNER, made[3:4], "over") == [{"affected": 1}]
    outcomes = json_text([{"id": made[4], "result": "ack"}])
    (again,) = by_position(every_box.db, f"{every_box.name}_settle", OWNER, outcomes, 5, 60, ["a"])
    assert again["id"] == made[2]
    assert [every_box.get(message)["last_error"] for message in (made[1], made[3])] == ["why", "over"]


def test_contract_operating_routines_take_their_arguments_by_position(every_box: Box) -> None:
    dead = every_box.made_dead(3, topic="x")
    assert ids(by_position(every_box.db, f"{every_box.name}_dead_letters", 1, dead[0], "x")) == [dead[1]]
    assert by_position(every_box.db, f"{every_box.name}_get", dead[0])[0]["id"] == dead[0]
    if every_box.kind == "inbox":
        every_box.put(message_id="m", source="s")
        (row,) = by_position(every_box.db, f"{every_box.name}_find", "m", "s")
        assert (row["message_id"], row["source"]) == ("m", "s")
        (answer,) = by_position(every_box.db, f"{every_box.name}_already_processed", "m", "s", None)
        assert not answer["already_processed"]
        assert by_position(every_box.db, f"{every_box.name}_mark_processed", "m", "s") == [{"affected": 1}]


def test_contract_optional_arguments_may_be_left_out(every_box: Box) -> None:
    assert every_box.claim() == every_box.call("claim", owner_token=OWNER, lease_seconds=30, batch_size=10)
    for step in ("abandon", "release", "ack"):
        assert every_box.affected(step, owner_token=OWNER, ids=[]) == 0
    assert every_box.call("settle", owner_token=OWNER, outcomes="[]") == []
    assert every_box.affected("reap") == 0
    assert every_box.affected("cancel", ids=[]) == 0
    assert every_box.affected("reschedule", ids=[]) == 0
    assert every_box.call("dead_letters") == []
    assert every_box.affected("cleanup", retention_seconds=1) == 0
    assert every_box.affected("cleanup_dead", retention_seconds=1) == 0
    assert [every_box.affected(step) for step in ("pause", "resume")] == [1, 1]
    if every_box.kind == "inbox":
        assert not every_box.one("already_processed", message_id="m", source="s")["already_processed"]


def test_obx_105_ibx_117_every_box_has_its_view_with_readable_statuses(every_box: Box) -> None:
    (message,) = every_box.made_dead()
    row = every_box.shown(message)
    assert list(row) == VIEW_COLUMNS[every_box.kind]
    assert row["status"] == every_box.dead


def test_obx_105_obx_106_every_box_has_every_routine(db: Database) -> None:
    shared = [*AFFECTED, "enqueue", "enqueue_many", "claim", "extend", "settle", "get", "find", "next_due"]
    shared += ["list", "dead_letters", "dead_causes", "groups", "stats", "configure"]
    schedules = [f"schedule_{step}" for step in ("set", "remove", "list", "due", "fire", "skip", "next")]
    only = {
        "outbox": schedules,
        "inbox": ["already_processed", "mark_processing", "mark_processed", "mark_dead"],
    }
    expected = {f"{box}_{step}" for box, kind in KINDS.items() for step in shared + only[kind]}
    query = (
        "SELECT p.proname AS name FROM pg_proc AS p WHERE p.pronamespace = 'infra'::regnamespace"
        if db.dialect == "postgres"
        else "SELECT p.name AS name FROM sys.procedures AS p INNER JOIN sys.schemas AS s"
        " ON s.schema_id = p.schema_id WHERE s.name = 'infra'"
    )
    present = {str(row["name"]) for row in db.sql(query)}
    assert expected - present == set()


def test_contract_schema_version_answers_the_version_that_a_deployment_recorded(db: Database) -> None:
    assert list(db.one("schema_version")) == ["version"]
    for version in (7, 12, 9):
        db.sql("INSERT INTO {schema}._version (version) VALUES (%s)", version)
    assert db.value("schema_version") == 12


def test_contract_values_have_the_same_types_on_every_engine(every_box: Box) -> None:
    every_box.put(headers="{}", group_id="g", due_at=server_now(every_box.db))
    (row,) = every_box.claim()
    stored = every_box.get(row["id"])
    assert isinstance(row["id"], int)
    assert isinstance(row["priority"], int)
    assert isinstance(row["attempt"], int)
    assert row["locked_until"].utcoffset() == timedelta(0)
    assert row["due_at"].utcoffset() == timedelta(0)
    assert stored["owner_token"] == OWNER
    if every_box.kind == "inbox":
        answer = every_box.one("already_processed", message_id="m", source="s", hash=None)
        assert answer["already_processed"] is False
        assert answer["hash_mismatch"] is False
        assert isinstance(row["message_id"], str)
