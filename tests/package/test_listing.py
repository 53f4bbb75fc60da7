"""Lists, causes and groups, by their methods."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import pytest

from pysqlbox import (
    DeadCause,
    Deployment,
    Group,
    InvalidArgument,
    ListedInboxMessage,
    ListedOutboxMessage,
    Outbox,
)

OWNER = UUID("11111111-1111-4111-8111-111111111111")


def test_list_answers_messages_without_what_was_sent(deployment: Deployment) -> None:
    sent = deployment.outbox.enqueue("t", "secret", group_id="g", headers={"h": 1}, correlation_id="c")
    (found,) = deployment.outbox.list("Ready")
    assert isinstance(found, ListedOutboxMessage)
    assert (found.id, found.message_id, found.status, found.topic) == (sent.id, sent.message_id, "Ready", "t")
    assert (found.group_id, found.correlation_id, found.attempt) == ("g", "c", 0)
    assert found.created_at.tzinfo is not None
    assert not hasattr(found, "payload")
    deployment.inbox.enqueue("t", "s", "m", "p")
    (received,) = deployment.inbox.list("Processing", topic="t", limit=5)
    assert isinstance(received, ListedInboxMessage)
    assert (received.source, received.message_id, received.status) == ("s", "m", "Processing")
    assert deployment.inbox.list("Dead") == []


def test_list_is_paged_filtered_and_joins_a_transaction(outbox: Outbox) -> None:
    ids = [outbox.enqueue(topic, "p", group_id=topic).id for topic in "abab"]
    assert [each.id for each in outbox.list("Ready", limit=2)] == ids[:2]
    assert [each.id for each in outbox.list("Ready", limit=2, after_id=ids[1])] == ids[2:]
    assert [each.id for each in outbox.list("Ready", topic="a")] == ids[::2]
    assert [each.id for each in outbox.list("Ready", group_id="b", after_id=ids[1])] == ids[3:]
    with outbox.deployment.transaction() as connection:
        own = outbox.enqueue("own", "p", connection=connection)
        assert [each.id for each in outbox.list("Ready", topic="own", connection=connection)] == [own.id]
        assert outbox.list("Ready", topic="own") == []


def test_list_follows_markers_and_never_shows_one(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are made up: a page with two messages, two that found none, and the last."""
    (empty,) = [outbox.enqueue("t", "p")]
    (row,) = outbox.deployment.call("outbox_list", {"status": "Ready"})
    width = len(row)

    def shown(number: int) -> tuple[Any, ...]:
        return (number, *row[1:])

    def marker(number: int) -> tuple[Any, ...]:
        return (number, *[None] * (width - 1))

    pages = {0: [shown(1), shown(2), marker(50)], 50: [marker(90)], 90: [marker(95)], 95: [shown(97)]}
    asked: list[tuple[object, object]] = []

    def fetch(_connection: Any, _schema: str, routine: str, arguments: dict[str, object]) -> Any:
        assert routine == "outbox_list"
        asked.append((arguments["after_id"], arguments["limit"]))
        return pages[int(str(arguments["after_id"]))]

    monkeypatch.setattr(outbox.deployment.driver, "fetch", fetch)
    found = outbox.list("Ready", limit=10)
    assert [each.id for each in found] == [1, 2, 97]
    assert asked == [(0, 10), (50, 8), (90, 8), (95, 8)]
    assert {each.message_id for each in found} == {empty.message_id}
    asked.clear()
    assert [each.id for each in outbox.list("Ready", limit=2)] == [1, 2]
    assert asked == [(0, 2)], "a full page needs no other"


def test_dead_causes_and_groups(outbox: Outbox) -> None:
    ids = [outbox.enqueue("t", "p", group_id="g").id for _ in range(3)]
    outbox.claim(OWNER, batch_size=1)
    (group,) = outbox.groups()
    assert isinstance(group, Group)
    assert (group.group_id, group.head_id, group.head_status) == ("g", ids[0], "InProgress")
    assert group.waiting + group.leased == 3
    (blocked,) = outbox.groups(only_blocked=True)
    assert blocked.blocked_seconds is not None
    assert blocked.blocked_seconds >= 0
    outbox.fail(OWNER, ids, "order 17 is gone\nreally")
    outbox.cancel(ids, reason="order 18 is gone")
    (cause,) = outbox.dead_causes()
    assert isinstance(cause, DeadCause)
    assert (cause.topic, cause.cause, cause.messages) == ("t", "order # is gone", 3)
    assert cause.sample_id in ids
    assert outbox.groups() == []


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "a\udfff"])
def test_text_that_no_database_stores_is_refused(outbox: Outbox, text: str) -> None:
    outbox.enqueue("t", "p")
    for call in (
        partial(outbox.list, text),
        partial(outbox.list, "Ready", topic=text),
        partial(outbox.list, "Ready", group_id=text),
    ):
        with pytest.raises(InvalidArgument):
            call()
    assert len(outbox.list("Ready")) == 1


@pytest.mark.parametrize("limit", [0, -1, 10_001, 2**31 - 1, 2**31, 2**63, None, 1.5, "1", True])
def test_a_wrong_limit_is_refused(outbox: Outbox, limit: Any) -> None:
    for call in (
        lambda: outbox.list("Ready", limit=limit),
        lambda: outbox.dead_causes(limit=limit),
        lambda: outbox.groups(limit=limit),
    ):
        with pytest.raises(InvalidArgument):
            call()


def test_wrong_statuses_and_ids_are_refused(deployment: Deployment) -> None:
    outbox = deployment.outbox
    wrong: list[Any] = [None, "", "ready", "Seen", 1]
    for status in wrong:
        with pytest.raises(InvalidArgument):
            outbox.list(status)
    with pytest.raises(InvalidArgument, match="status"):
        deployment.inbox.list("Ready")
    for after in (1.5, "1", True, 2**63):
        with pytest.raises(InvalidArgument):
            outbox.list("Ready", after_id=after)  # type: ignore[arg-type]  # what is refused
