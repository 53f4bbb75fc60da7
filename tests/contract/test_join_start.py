"""Joins: starting them, looking them up, listing and cancelling them, and what a caller may pass."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from pysqlbox.errors import InvalidState, NotFound, PysqlboxError
from tests.contract.joins import Joins, ids_of
from tests.contract.support import (
    DISTINCT,
    HOSTILE,
    LONG,
    OWNER,
    TOO_LONG,
    is_babelfish,
    refuses,
    server_now,
    unreadable,
)


def test_obx_074_obx_075_start_creates_a_join_and_answers_its_id(joins: Joins) -> None:
    before = server_now(joins.box.db)
    made = [joins.start(7, f"tenant {n}", metadata=f"metadata {n}") for n in range(3)]
    assert len(set(made)) == 3
    for n, join in enumerate(made):
        row = joins.get(join)
        assert (row["join_id"], row["tenant_id"], row["metadata"]) == (join, f"tenant {n}", f"metadata {n}")
        assert (row["expected_steps"], row["status"]) == (7, "Pending")
        assert before - timedelta(seconds=5) <= row["created_at"] <= before + timedelta(seconds=60)
        assert row["last_updated_at"] == row["created_at"]


def test_obx_076_counters_begin_at_zero(joins: Joins) -> None:
    join = joins.start(3)
    assert joins.counts(join) == (0, 0)
    joins.steps(2, join)
    assert joins.counts(join) == (0, 0)


def test_obx_089_a_join_belongs_to_one_tenant(joins: Joins) -> None:
    made = {tenant: joins.start(tenant_id=tenant) for tenant in DISTINCT}
    for tenant, join in made.items():
        assert joins.get(join)["tenant_id"] == tenant
        assert joins.listed(tenant_id=tenant) == [join], "tenants differ by case and by trailing spaces"


def test_contract_start_refuses_bad_tenants(joins: Joins) -> None:
    for tenant in (None, "", *TOO_LONG):
        with refuses("tenant_id"):
            joins.start(tenant_id=tenant)
    assert joins.listed() == []


def test_contract_start_keeps_tenants_of_up_to_255_characters(joins: Joins) -> None:
    for tenant in ("t", LONG, "ü" * 255, "y" * 254 + " ", "🐘" * 127):
        assert joins.get(joins.start(tenant_id=tenant))["tenant_id"] == tenant


def test_contract_start_refuses_fewer_than_one_step(joins: Joins) -> None:
    for steps in (0, -1, -(2**31)):
        with refuses("expected_steps"):
            joins.start(steps)
    assert joins.listed() == []
    assert joins.get(joins.start(2**31 - 1))["expected_steps"] == 2**31 - 1


def test_contract_tenants_and_metadata_come_back_as_they_went_in(joins: Joins) -> None:
    for text in HOSTILE:
        join = joins.start(tenant_id=text, metadata=text)
        row = joins.get(join)
        assert (row["tenant_id"], row["metadata"]) == (text, text)
        assert joins.listed(tenant_id=text) == [join]
        assert joins.shown(join)["tenant_id"] == text


def test_contract_metadata_may_be_null_empty_or_long(joins: Joins) -> None:
    for text in (None, "", "m" * 100_000):
        assert joins.get(joins.start(metadata=text))["metadata"] == text


def test_contract_a_nul_character_in_a_join_is_refused_or_kept_but_never_cut(joins: Joins) -> None:
    for name in ("tenant_id", "metadata"):
        before = len(joins.listed())
        with contextlib.suppress(PysqlboxError):
            join = joins.start(**{name: "a\0b"})
            assert joins.get(join)[name] == "a\0b"
            before += 1
        assert len(joins.listed()) == before


@pytest.mark.dialect("postgres")
def test_contract_a_tenant_may_be_a_plain_number(joins: Joins) -> None:
    db = joins.box.db
    (row,) = db.sql("SELECT * FROM {schema}.join_start(9007199254740993, 2, 'm')")
    assert joins.get(row["join_id"])["tenant_id"] == "9007199254740993"
    (row,) = db.sql("SELECT * FROM {schema}.join_start(tenant_id => 42, expected_steps => 2)")
    assert joins.get(row["join_id"])["tenant_id"] == "42"
    assert [found["join_id"] for found in db.sql("SELECT * FROM {schema}.join_list(42)")] == [row["join_id"]]
    (null,) = db.sql("SELECT count(*) AS n FROM {schema}.join_list(NULL)")
    assert null["n"] == 2


def test_contract_null_ids_are_invalid_arguments(joins: Joins) -> None:
    join, step = joins.start(2), joins.put()
    for routine in ("join_attach", "join_report_completed", "join_report_failed"):
        with refuses("join_id"):
            joins.box.db.call(routine, join_id=None, message_id=step.message_id)
        with refuses("message_id"):
            joins.box.db.call(routine, join_id=join, message_id=None)
    for routine in ("join_wait", "join_resolve", "join_get", "join_cancel"):
        with refuses("join_id"):
            joins.box.db.call(routine, join_id=None)
    assert joins.members(join) == []


def test_contract_ids_that_are_no_uuids_are_refused(joins: Joins) -> None:
    join = joins.start()
    for call in (
        lambda: joins.get("not a uuid"),
        lambda: joins.attach(join, "not a uuid"),
        lambda: joins.attach("'; DROP TABLE x; --", joins.put()),
    ):
        with unreadable(joins.box.db):
            call()
    assert joins.members(join) == []


def test_contract_list_answers_the_columns_of_get_oldest_first(joins: Joins) -> None:
    made = [joins.start(n + 1, metadata=str(n)) for n in range(4)]
    joins.steps(1, made[2])
    assert joins.box.db.call("join_list") == [joins.get(join) for join in made]


def test_contract_list_filters_by_tenant_and_status(joins: Joins) -> None:
    pending, done, failed, cancelled = (joins.start(tenant_id="a") for _ in range(4))
    other = joins.start(tenant_id="b")
    for join in (done, failed):
        joins.wait(join)
    joins.finish(done)
    joins.finish(failed, failing=1)
    joins.cancel(cancelled)
    assert joins.listed(tenant_id="a") == [pending, done, failed, cancelled]
    assert joins.listed(tenant_id="nobody") == []
    assert joins.listed(status="Pending") == [pending, other]
    assert joins.listed(status="Completed") == [done]
    assert joins.listed(status="Failed") == [failed]
    assert joins.listed(status="Cancelled") == [cancelled]
    assert joins.listed(tenant_id="b", status="Pending") == [other]


def test_contract_list_answers_pages(joins: Joins) -> None:
    made = [joins.start(tenant_id="ab"[n % 2]) for n in range(9)]
    assert joins.listed(limit=4) == made[:4]
    assert joins.listed(limit=4, after=made[3]) == made[4:8]
    assert joins.listed(limit=4, after=made[7]) == made[8:]
    assert joins.listed(limit=4, after=made[8]) == []
    assert joins.listed(limit=2, after=made[2], tenant_id="a") == [made[4], made[6]]
    assert joins.listed(after=made[1], tenant_id="a")[0] == made[2], "whoever was seen last"


def test_contract_list_answers_a_hundred_unless_asked_for_more(joins: Joins) -> None:
    for _ in range(101):
        joins.start()
    assert len(joins.listed()) == 100
    assert len(joins.listed(limit=1000)) == 101


def test_contract_list_finds_joins_that_are_stuck(joins: Joins) -> None:
    old = joins.start()
    joins.box.db.advance(1000)
    young = joins.start()
    joins.steps(1, joins.start(1))
    assert joins.listed(status="Pending", older_than_seconds=900) == [old]
    assert joins.listed(older_than_seconds=2000) == []
    assert young in joins.listed(older_than_seconds=0)


def test_contract_list_refuses_bad_arguments(joins: Joins) -> None:
    join = joins.start()
    for limit in (0, -1, 10001, None):
        with refuses("limit"):
            joins.listed(limit=limit)
    for status in ("", "pending", "Done", "Pending ", *HOSTILE):
        with refuses("status"):
            joins.listed(status=status)
    with refuses("older_than_seconds"):
        joins.listed(older_than_seconds=-1)
    with pytest.raises(NotFound):
        joins.listed(after=UUID(int=0))
    assert joins.listed(limit=10000) == [join]


def test_contract_cancel_gives_a_pending_join_up_once(joins: Joins) -> None:
    join = joins.start()
    assert [joins.cancel(join) for _ in range(3)] == [True, False, False]
    assert joins.get(join)["status"] == "Cancelled"


def test_contract_cancel_leaves_finished_joins(joins: Joins) -> None:
    for failing, status in ((0, "Completed"), (1, "Failed")):
        join = joins.start()
        joins.wait(join)
        joins.finish(join, failing=failing)
        assert not joins.cancel(join)
        assert joins.get(join)["status"] == status


def test_contract_cancel_wakes_the_waiting_message_which_then_has_nothing_to_do(joins: Joins) -> None:
    join = joins.start(2)
    waiting = joins.wait(join, on_complete_topic="good", on_fail_topic="bad")
    assert joins.woken() == []
    joins.cancel(join)
    assert joins.woken() == [waiting.id]
    row = joins.resolve(join)
    assert (row["status"], row["enqueued_message_id"]) == ("Cancelled", None)
    assert joins.box.ack(OWNER, [waiting.id]) == 1
    assert joins.box.take() == []


def test_contract_steps_of_a_cancelled_join_still_count(joins: Joins) -> None:
    join = joins.start(3)
    made = joins.held(2, join)
    reported = joins.steps(1, join)[0]
    joins.wait(join, on_complete_topic="good")
    joins.cancel(join)
    joins.woken()
    joins.box.ack(OWNER, made[:1])
    joins.box.fail(OWNER, made[1:])
    assert joins.completed(join, reported)
    assert joins.counts(join) == (2, 1)
    assert joins.resolve(join)["status"] == "Cancelled"
    assert joins.box.take(topics=["good", "join.wait"]) == []


def test_contract_last_updated_at_moves_with_whatever_happens_to_a_join(joins: Joins) -> None:
    box = joins.box
    join = joins.start(3)
    seen = [joins.get(join)["last_updated_at"]]

    def moved() -> None:
        seen.append(joins.get(join)["last_updated_at"])
        assert seen[-1] - seen[-2] >= timedelta(seconds=9), "it was updated"
        box.db.advance(10)

    box.db.advance(10)
    made = joins.steps(3, join)
    moved()
    joins.wait(join)
    moved()
    box.take(batch=3, lease=1000)
    box.ack(OWNER, ids_of(made[:1]))
    moved()
    box.fail(OWNER, ids_of(made[1:2]))
    moved()
    joins.completed(join, made[2])
    moved()
    assert joins.resolve(join)["status"] == "Failed"
    moved()
    assert joins.get(join)["created_at"] == seen[0]
    cancelled = joins.start()
    box.db.advance(10)
    joins.cancel(cancelled)
    row = joins.get(cancelled)
    assert row["last_updated_at"] - row["created_at"] >= timedelta(seconds=9)


def test_contract_a_join_is_started_and_cancelled_in_the_callers_transaction(joins: Joins) -> None:
    kept = joins.start()
    with joins.box.db.session() as session:
        inside = joins.on(session)
        join = inside.start()
        assert inside.cancel(kept)
        assert inside.get(join)["status"] == "Pending"
        session.rollback()
    with pytest.raises(NotFound):
        joins.get(join)
    assert joins.get(kept)["status"] == "Pending"
    with joins.box.db.session() as session:
        join = joins.on(session).start()
        session.commit()
    assert joins.get(join)["status"] == "Pending"


def test_contract_joins_work_at_any_isolation_level(joins: Joins) -> None:
    if is_babelfish(joins.box.db):
        pytest.skip("Babelfish refuses every isolation level but READ COMMITTED")
    with joins.box.db.session() as session:
        session.sql("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        inside = joins.on(session)
        join = inside.start(2)
        step = inside.put()
        assert inside.attach(join, step)
        inside.wait(join)
        assert inside.completed(join, step)
        assert inside.resolve(join)["status"] == "Pending"
        session.commit()
    assert joins.counts(join) == (1, 0)


def test_contract_errors_of_joins_name_the_argument_or_the_state(joins: Joins) -> None:
    join = joins.start()
    joins.cancel(join)
    with pytest.raises(InvalidState) as caught:
        joins.attach(join, joins.put(payload="secret"))
    assert "secret" not in str(caught.value)
    with pytest.raises(NotFound):
        joins.attach(uuid4(), joins.put())
