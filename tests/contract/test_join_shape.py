"""The surface of joins: names, argument order, result columns also where there are no rows, views."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from pysqlbox.errors import NotFound
from tests.contract.joins import JOIN_COLUMNS, MEMBER_COLUMNS, RESOLVED_COLUMNS, Joins
from tests.contract.support import OWNER, Box, by_position, columns, server_now
from tests.support.database import Database

ROUTINES = (
    "join_start",
    "join_attach",
    "join_attach_many",
    "join_report_completed",
    "join_report_failed",
    "join_wait",
    "join_resolve",
    "join_get",
    "join_list",
    "join_cancel",
)


def _routines(db: Database) -> set[str]:
    query = (
        "SELECT p.proname AS name FROM pg_proc AS p WHERE p.pronamespace = 'infra'::regnamespace"
        if db.dialect == "postgres"
        else "SELECT p.name AS name FROM sys.procedures AS p INNER JOIN sys.schemas AS s"
        " ON s.schema_id = p.schema_id WHERE s.name = 'infra'"
    )
    return {str(row["name"]) for row in db.sql(query)}


def test_contract_joins_belong_to_the_default_outbox_alone(db: Database) -> None:
    public = {name for name in _routines(db) if "join" in name and not name.startswith("_")}
    assert public == set(ROUTINES)


def test_contract_a_message_of_a_named_outbox_is_no_step(joins: Joins) -> None:
    join = joins.start()
    message = joins.box.db.one("mail_enqueue", topic="t", payload="p")["message_id"]
    with pytest.raises(NotFound):
        joins.attach(join, message)
    assert joins.members(join) == []


def test_contract_routines_of_joins_answer_their_columns(joins: Joins) -> None:
    db, join, step = joins.box.db, joins.start(3), joins.put()
    assert columns(db, "join_start", "t", 1, "m") == ["join_id"]
    assert columns(db, "join_attach", join, step.message_id) == ["attached"]
    joins.attach(join, step)
    assert columns(db, "join_attach_many", join, []) == ["attached"]
    assert columns(db, "join_report_completed", join, step.message_id) == ["counted"]
    assert columns(db, "join_report_failed", join, step.message_id) == ["counted"]
    assert columns(db, "join_wait", join, True, "a", "b", "c", "d") == ["id", "message_id"]
    assert columns(db, "join_resolve", join) == RESOLVED_COLUMNS
    assert columns(db, "join_get", join) == JOIN_COLUMNS
    assert columns(db, "join_cancel", join) == ["cancelled"]
    assert columns(db, "join_list", "nobody", "Pending", 5, None, 9) == JOIN_COLUMNS


def test_contract_routines_of_joins_take_their_arguments_by_position(joins: Joins) -> None:
    db, steps = joins.box.db, [joins.put() for _ in range(3)]
    (started,) = by_position(db, "join_start", "the tenant", 2, "the metadata")
    join: UUID = started["join_id"]
    row = joins.get(join)
    assert (row["tenant_id"], row["expected_steps"], row["metadata"]) == ("the tenant", 2, "the metadata")
    for step in steps[:2]:
        assert by_position(db, "join_attach", join, step.message_id) == [{"attached": True}]
    assert by_position(db, "join_report_completed", join, steps[0].message_id) == [{"counted": True}]
    assert by_position(db, "join_report_failed", join, steps[1].message_id) == [{"counted": True}]
    (waiting,) = by_position(db, "join_wait", join, False, "good", "good payload", "bad", "bad payload")
    assert joins.woken() == [waiting["id"]]
    (resolved,) = by_position(db, "join_resolve", join)
    assert (resolved["status"], resolved["enqueued_message_id"] is None) == ("Completed", False)
    assert joins.box.one("find", message_id=resolved["enqueued_message_id"])["payload"] == "good payload"
    assert by_position(db, "join_get", join) == [joins.get(join)]
    assert by_position(db, "join_cancel", join) == [{"cancelled": False}]
    second = joins.start(tenant_id="the tenant")
    assert by_position(db, "join_list", "the tenant", "Completed", 10, None, None) == [joins.get(join)]
    assert by_position(db, "join_list", "the tenant", None, 10, join, None) == [joins.get(second)]
    joins.box.db.advance(100)
    assert len(by_position(db, "join_list", "the tenant", None, 1, None, 50)) == 1


def test_contract_join_wait_takes_its_failing_half_by_position(joins: Joins) -> None:
    join = joins.start()
    by_position(joins.box.db, "join_wait", join, True, "good", "good payload", "bad", "bad payload")
    joins.box.fail(OWNER, joins.held(1, join))
    row = joins.resolve(join)
    assert row["status"] == "Failed"
    message = joins.box.one("find", message_id=row["enqueued_message_id"])
    assert (message["topic"], message["payload"]) == ("bad", "bad payload")


def test_contract_optional_arguments_of_joins_may_be_left_out(joins: Joins) -> None:
    join = joins.box.caller.one("join_start", tenant_id="t", expected_steps=1)["join_id"]
    assert joins.get(join)["metadata"] is None
    assert joins.listed() == [join]
    joins.wait(join)
    joins.box.fail(OWNER, joins.held(1, join))
    row = joins.resolve(join)
    assert (row["status"], row["enqueued_message_id"]) == ("Failed", None), "the flag is true by default"


def test_contract_values_of_joins_have_the_same_types_on_every_engine(joins: Joins) -> None:
    join = joins.start(2, metadata="m")
    joins.steps(1, join)
    joins.wait(join, on_complete_topic="t")
    row = joins.get(join)
    assert isinstance(row["join_id"], UUID)
    assert [type(row[name]) for name in ("expected_steps", "completed_steps", "failed_steps")] == [int] * 3
    assert [row[name].utcoffset() for name in ("created_at", "last_updated_at")] == [timedelta(0)] * 2
    (member,) = joins.members(join)
    assert isinstance(member["message_id"], UUID)
    assert abs(member["attached_at"] - server_now(joins.box.db)) < timedelta(seconds=60)


def test_obx_105_views_show_joins_and_their_members_with_readable_statuses(joins: Joins) -> None:
    box = joins.box
    join, other = joins.start(6, "a tenant", metadata="m"), joins.start(1, "b tenant")
    waiting = joins.wait(join, on_complete_topic="t")
    made = joins.held(3, join)
    pending = joins.put("later")
    joins.attach(join, pending)
    box.ack(OWNER, made[:1])
    box.fail(OWNER, made[1:2])

    row = joins.shown(join)
    assert list(row)[: len(JOIN_COLUMNS)] == JOIN_COLUMNS
    assert {name: row[name] for name in JOIN_COLUMNS} == joins.get(join)
    assert row["wait_message_id"] == waiting.message_id
    assert row["enqueued_message_id"] is None
    assert joins.shown(other)["wait_message_id"] is None

    members = joins.members(join)
    assert list(members[0]) == MEMBER_COLUMNS
    assert [member["id"] for member in members] == [*made, pending.id]
    assert [member["status"] for member in members] == ["Completed", "Failed", "Pending", "Pending"]
    assert [member["topic"] for member in members] == ["step"] * 3 + ["later"]
    assert {(member["join_id"], member["tenant_id"]) for member in members} == {(join, "a tenant")}
    assert members[3]["message_id"] == pending.message_id


def test_obx_105_the_view_of_joins_shows_what_was_enqueued(joins: Joins) -> None:
    join = joins.start()
    joins.wait(join, on_complete_topic="t")
    enqueued = joins.finish(join)["enqueued_message_id"]
    row = joins.shown(join)
    assert (row["status"], row["enqueued_message_id"]) == ("Completed", enqueued)
    assert row["completed_steps"] == 1


def test_contract_a_join_that_nobody_knows_is_not_found(joins: Joins) -> None:
    step = joins.put()
    unknown = uuid4()
    for call in (
        lambda: joins.attach(unknown, step),
        lambda: joins.attach_many(unknown, [step]),
        lambda: joins.completed(unknown, step),
        lambda: joins.failed(unknown, step),
        lambda: joins.wait(unknown),
        lambda: joins.resolve(unknown),
        lambda: joins.get(unknown),
        lambda: joins.cancel(unknown),
        lambda: joins.listed(after=unknown),
    ):
        with pytest.raises(NotFound):
            call()
    assert joins.box.count() == 1


def test_contract_a_named_box_pays_and_shows_nothing_of_joins(outbox: Box, joins: Joins) -> None:
    mail = Box("mail", "outbox", outbox.db, outbox.db)
    join = joins.start(2)
    joins.wait(join)
    held = joins.held(1, join)
    made = mail.fill(2)
    assert mail.take() == made
    assert mail.ack(OWNER, held) == 0, "ids are a box's own"
    assert mail.ack(OWNER, made) == 2
    assert joins.counts(join) == (0, 0)
