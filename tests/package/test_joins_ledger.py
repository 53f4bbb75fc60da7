"""Every method of joins and of the ledger, on every engine."""

from __future__ import annotations

from datetime import UTC, timedelta
from uuid import UUID, uuid4

import pytest

from pysqlbox import Deployment, InvalidState, Join, JoinResolution, LedgerClaim, NotFound
from tests.support.database import Database

OWNER = UUID("11111111-1111-4111-8111-111111111111")


def test_a_join_from_start_to_follow_up(deployment: Deployment) -> None:
    joins, outbox = deployment.joins, deployment.outbox
    join_id = joins.start("tenant", 2, metadata={"order": 1})
    assert isinstance(join_id, UUID)
    steps = [outbox.enqueue("step", str(n)) for n in range(2)]
    assert joins.attach(join_id, steps[0].message_id)
    assert not joins.attach(join_id, steps[0].message_id)
    assert joins.attach(join_id, steps[1].message_id)
    waiting = joins.wait(join_id, on_complete_topic="all.done", on_complete_payload={"ok": True})
    assert joins.resolve(join_id) == JoinResolution("Pending", 0, 0, 2, None)
    claimed = outbox.claim(OWNER, topics=["step"])
    assert outbox.ack(OWNER, [each.id for each in claimed]) == 2
    found = joins.get(join_id)
    assert isinstance(found, Join)
    assert (found.join_id, found.tenant_id, found.expected_steps, found.completed_steps) == (
        join_id,
        "tenant",
        2,
        2,
    )
    assert (found.metadata, found.status) == ('{"order":1}', "Pending")
    assert found.created_at.tzinfo is UTC
    (wait,) = outbox.claim(OWNER)
    assert (wait.topic, wait.id, wait.message_id) == ("join.wait", waiting.id, waiting.message_id)
    resolved = joins.resolve(join_id)
    assert (resolved.status, resolved.completed_steps) == ("Completed", 2)
    assert resolved.enqueued_message_id is not None
    assert joins.resolve(join_id) == resolved
    follow_up = outbox.find(resolved.enqueued_message_id)
    assert follow_up is not None
    assert (follow_up.topic, follow_up.payload) == ("all.done", '{"ok":true}')
    with pytest.raises(InvalidState):
        joins.attach(join_id, outbox.enqueue("step", "late").message_id)


def test_reports_and_cancelling(deployment: Deployment) -> None:
    joins = deployment.joins
    join_id = joins.start("tenant", 2)
    step, other = (deployment.outbox.enqueue("step", "p").message_id for _ in range(2))
    joins.attach(join_id, step)
    joins.attach(join_id, other)
    assert joins.report_completed(join_id, step)
    assert not joins.report_failed(join_id, step)
    assert joins.report_failed(join_id, other)
    joins.wait(join_id, fail_if_any_step_failed=True, on_fail_topic="some.failed", on_fail_payload="")
    assert joins.resolve(join_id).status == "Failed"
    cancelled = joins.start("tenant", 1)
    assert joins.cancel(cancelled)
    assert not joins.cancel(cancelled)
    assert joins.get(cancelled).status == "Cancelled"
    with pytest.raises(NotFound):
        joins.get(uuid4())


def test_listing_joins(deployment: Deployment) -> None:
    joins = deployment.joins
    ids = [joins.start(tenant, 1) for tenant in ("a", 17, "a")]
    assert [each.join_id for each in joins.list()] == ids
    assert [each.join_id for each in joins.list("a")] == [ids[0], ids[2]]
    assert [each.tenant_id for each in joins.list(17)] == ["17"]
    assert [each.join_id for each in joins.list(after=ids[0], limit=1)] == [ids[1]]
    joins.cancel(ids[2])
    assert [each.join_id for each in joins.list(status="Cancelled")] == [ids[2]]
    assert joins.list(older_than_seconds=timedelta(hours=1)) == []


def test_the_ledger(deployment: Deployment, db: Database) -> None:
    ledger = deployment.ledger
    first = ledger.try_begin("k", owner="me", lease_seconds=timedelta(seconds=60), handler="h")
    assert isinstance(first, LedgerClaim)
    assert first.acquired
    assert isinstance(first.lease_id, UUID)
    assert first.attempts == 1
    second = ledger.try_begin("k", lease_seconds=60)
    assert not second
    assert (second.status, second.lease_id, second.expires_at) == ("Busy", None, first.expires_at)
    entry = ledger.get("k")
    assert (entry.status, entry.attempts, entry.handler) == ("Acquired", 1, "h")
    assert entry.lease_until == first.expires_at
    assert ledger.release("k", first.lease_id) == 1
    assert ledger.release("k", first.lease_id) == 0
    third = ledger.try_begin("k")
    assert third
    assert third.expires_at is None
    assert ledger.mark_processed("k", first.lease_id) == 0
    assert ledger.mark_processed("k", third.lease_id) == 1
    assert ledger.try_begin("k").status == "Processed"
    assert ledger.mark_processed("other") == 1
    assert ledger.get("nobody").status == "Unknown"
    db.advance(10)
    assert ledger.cleanup(timedelta(minutes=1)) == 0
    assert ledger.cleanup(5, batch_size=1) == 1
    assert ledger.cleanup(5) == 1
