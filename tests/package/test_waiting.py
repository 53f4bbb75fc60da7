"""Calling off, rescheduling, next_due, open joins, attaching many and the list of keys, by their methods."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from pysqlbox import Deployment, InvalidArgument, InvalidState, LedgerKey, NotFound, Outbox

OWNER = UUID("11111111-1111-4111-8111-111111111111")
LATER = datetime(2099, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_cancel(outbox: Outbox) -> None:
    ids = [outbox.enqueue("t", "p").id for _ in range(3)]
    assert outbox.cancel(iter(ids[:2]), reason="not wanted") == 2
    assert outbox.cancel(ids) == 1
    found = outbox.get(ids[0])
    assert (found.status, found.last_error) == ("Cancelled", "not wanted")
    assert [(each.id, each.status) for each in outbox.dead_letters()] == [(each, "Cancelled") for each in ids]
    assert outbox.replay(ids[:1]) == 1
    assert outbox.cancel([]) == 0


def test_reschedule_and_next_due(outbox: Outbox) -> None:
    assert outbox.next_due() is None
    ids = [outbox.enqueue("t", "p").id for _ in range(2)]
    assert outbox.reschedule(ids, LATER) == 2
    assert outbox.next_due() == LATER
    assert outbox.get(ids[0]).due_at == LATER
    assert outbox.claim(OWNER) == []
    assert outbox.reschedule(ids[1:]) == 1
    assert [each.id for each in outbox.claim(OWNER)] == ids[1:]
    ends = outbox.next_due()
    assert ends is not None
    assert timedelta(0) < ends - datetime.now(UTC) < timedelta(minutes=2)


@pytest.mark.parametrize("wrong", ["17", None, [1.5], [True], ["1"]])
def test_wrong_ids_are_refused(outbox: Outbox, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="ids"):
        outbox.cancel(wrong)
    with pytest.raises(InvalidArgument, match="ids"):
        outbox.reschedule(wrong)


def test_a_naive_due_time_is_refused(outbox: Outbox) -> None:
    with pytest.raises(InvalidArgument, match="due_at"):
        outbox.reschedule([1], datetime(2099, 1, 1))  # what is refused


def test_an_open_join_and_many_steps(deployment: Deployment) -> None:
    joins, outbox = deployment.joins, deployment.outbox
    with deployment.transaction() as connection:
        join_id = joins.start("tenant", connection=connection)
        sent = outbox.enqueue_payloads("step", [str(n) for n in range(5)], connection=connection)
        ids = [each.message_id for each in sent]
        assert joins.attach_many(join_id, iter(ids), connection=connection) == 5
    assert joins.get(join_id).expected_steps is None
    assert joins.attach_many(join_id, [str(each) for each in ids]) == 0  # type: ignore[misc]  # their text
    assert joins.resolve(join_id).expected_steps is None
    joins.wait(join_id)
    assert joins.get(join_id).expected_steps == 5
    with pytest.raises(InvalidState):
        joins.attach_many(join_id, [outbox.enqueue("step", "late").message_id])
    with pytest.raises(NotFound):
        joins.attach_many(join_id, [uuid4()])


@pytest.mark.parametrize("wrong", ["x", None, [1], ["x"], [None], UUID(int=1)])
def test_wrong_message_ids_are_refused(deployment: Deployment, wrong: Any) -> None:
    join_id = deployment.joins.start("tenant")
    with pytest.raises(InvalidArgument, match="message_ids"):
        deployment.joins.attach_many(join_id, wrong)


def test_the_ledger_lists_its_keys(deployment: Deployment) -> None:
    ledger = deployment.ledger
    ledger.try_begin("a:1", lease_seconds=60, handler="h")
    ledger.mark_processed("a:2")
    ledger.mark_processed("b")
    keys = ledger.list("a:")
    assert [type(each) for each in keys] == [LedgerKey, LedgerKey]
    assert [(each.key, each.status, each.handler) for each in keys] == [
        ("a:1", "Acquired", "h"),
        ("a:2", "Processed", None),
    ]
    assert [each.key for each in ledger.list(limit=1, after="a:1")] == ["a:2"]
    assert [each.key for each in ledger.list(status="Processed")] == ["a:2", "b"]
    assert ledger.list("nothing") == []
    with pytest.raises(InvalidArgument, match="limit"):
        ledger.list(limit=0)
