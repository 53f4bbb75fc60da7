"""Every method of an outbox, on every engine."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from pysqlbox import (
    Deployment,
    Enqueued,
    Extended,
    InvalidArgument,
    InvalidState,
    NotFound,
    Outbox,
    OutboxDeadLetter,
    OutboxMessage,
    OutboxStore,
    Retried,
    StoredOutboxMessage,
    TopicStats,
)
from tests.contract.support import HOSTILE
from tests.support.database import Database

OWNER = UUID("11111111-1111-4111-8111-111111111111")
LATER = datetime(2099, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def test_enqueue_with_every_argument_and_claim(outbox: Outbox) -> None:
    message_id = uuid4()
    before = datetime(2001, 2, 3, 4, 5, 6, 789012, tzinfo=timezone(timedelta(hours=5)))
    done = outbox.enqueue(
        "order.created",
        {"id": 1, "name": "Ünïcode 🐘"},
        correlation_id="c-1",
        due_at=before,
        message_id=message_id,
        group_id="g",
        priority=7,
        dedup_key="d",
        collapse_key="k",
        expires_at=LATER,
        headers={"trace": "x", "n": [1, None]},
        created_at=before,
    )
    assert done == Enqueued(done.id, message_id, "created")
    assert not done.duplicate
    (message,) = outbox.claim(
        OWNER, lease_seconds=timedelta(minutes=1), batch_size=5, topics=["order.created"]
    )
    assert isinstance(message, OutboxMessage)
    assert message.id == done.id
    assert message.message_id == message_id
    assert message.topic == "order.created"
    assert message.payload == '{"id":1,"name":"Ünïcode 🐘"}'
    assert message.correlation_id == "c-1"
    assert message.group_id == "g"
    assert message.priority == 7
    assert message.headers == {"trace": "x", "n": [1, None]}
    assert message.attempt == 0
    assert message.created_at == before
    assert message.created_at.tzinfo is UTC
    assert message.expires_at == LATER
    assert message.locked_until.tzinfo is UTC
    again = outbox.enqueue("other", "", message_id=message_id)
    assert again.duplicate
    assert again.id == done.id


def test_text_goes_through_unchanged(outbox: Outbox) -> None:
    for text in HOSTILE:
        outbox.enqueue(text, text, correlation_id=text, group_id=text, headers={text: text})
    claimed = outbox.claim(OWNER)
    assert [each.payload for each in claimed] == list(HOSTILE)
    for message in claimed:
        assert {message.topic, message.correlation_id, message.group_id} == {message.payload}
        assert message.headers == {message.payload: message.payload}
        stored = outbox.get(message.id)
        assert stored.headers == message.headers


def test_enqueue_many(outbox: Outbox) -> None:
    given = uuid4()
    done = outbox.enqueue_many(
        [
            {"topic": "a", "payload": "1", "message_id": given, "headers": '{"x": 1}', "due_at": None},
            {"topic": "b", "payload": [2], "priority": 1, "created_at": LATER - timedelta(days=1)},
            {"topic": "c", "payload": "3", "message_id": given},
        ]
    )
    assert [each.ordinal for each in done] == [1, 2, 3]
    assert [each.outcome for each in done] == ["created", "created", "duplicate"]
    assert done[0].message_id == done[2].message_id == given
    assert done[0].id == done[2].id
    claimed = outbox.claim(OWNER)
    assert [(each.topic, each.payload, each.headers) for each in claimed] == [
        ("b", "[2]", None),
        ("a", "1", {"x": 1}),
    ]
    assert outbox.enqueue_many([]) == []
    assert len(outbox.enqueue_many({"topic": "t", "payload": str(n)} for n in range(3))) == 3


def test_enqueue_payloads(outbox: Outbox) -> None:
    done = outbox.enqueue_payloads("t", ["1", {"n": 2}, *HOSTILE], priority=2, headers={"x": 1})
    assert [each.ordinal for each in done] == list(range(1, len(HOSTILE) + 3))
    assert {each.outcome for each in done} == {"created"}
    claimed = outbox.claim(OWNER, batch_size=100)
    assert [(each.id, each.message_id) for each in claimed] == [(each.id, each.message_id) for each in done]
    assert [each.payload for each in claimed] == ["1", '{"n":2}', *HOSTILE]
    assert {(each.topic, each.priority, str(each.headers)) for each in claimed} == {("t", 2, "{'x': 1}")}
    assert outbox.enqueue_payloads("t", []) == []
    assert len(outbox.enqueue_payloads("t", (str(n) for n in range(3)))) == 3


@pytest.mark.parametrize("payloads", [None, "text", b"bytes", {"a": "b"}, ["a", None], [b"bytes"]])
def test_enqueue_payloads_refuses(outbox: Outbox, payloads: list[object]) -> None:
    with pytest.raises(InvalidArgument, match="payloads"):
        outbox.enqueue_payloads("t", payloads)
    assert outbox.claim(OWNER) == []


def test_settling(outbox: Outbox) -> None:
    ids = [outbox.enqueue("t", str(n)).id for n in range(6)]
    claimed = outbox.claim(OWNER, batch_size=6)
    assert [each.id for each in claimed] == ids
    assert outbox.ack(OWNER, [ids[0]]) == 1
    assert outbox.ack(OWNER, ids[:1]) == 0
    assert outbox.abandon(OWNER, {ids[1]}, last_error="again", delay_seconds=timedelta(hours=1)) == 1
    assert outbox.release(OWNER, (ids[2],)) == 1
    assert outbox.retry(OWNER, []) == Retried(0, 0)
    assert outbox.fail(OWNER, iter([ids[3]]), "never") == 1
    held = outbox.extend(OWNER, ids, 600)
    assert [type(each) for each in held] == [Extended, Extended]
    assert [each.id for each in held] == ids[4:]
    assert held[0].locked_until > claimed[0].locked_until
    got = outbox.settle(
        OWNER,
        [
            {"id": ids[4], "result": "ack"},
            {"id": ids[5], "result": "abandon", "error": "later", "delay_seconds": timedelta(seconds=90)},
        ],
        claim_batch=10,
        lease_seconds=5,
        topics=["t"],
    )
    assert [each.id for each in got] == [ids[2]]
    assert outbox.settle(OWNER, [{"id": ids[2], "result": "ack"}]) == []
    assert [outbox.get(each).status for each in ids] == ["Done", "Ready", "Done", "Failed", "Done", "Ready"]
    again = outbox.get(ids[5])
    assert again.attempt == 1
    assert again.last_error == "later"
    assert again.due_at is not None


def test_nothing_to_do(outbox: Outbox) -> None:
    assert outbox.claim(OWNER) == []
    assert outbox.ack(OWNER, []) == 0
    assert outbox.extend(OWNER, [1, 2]) == []
    assert outbox.settle(OWNER, []) == []
    assert outbox.find(uuid4()) is None
    assert outbox.dead_letters() == []
    assert outbox.stats() == [TopicStats(None, 0, 0, 0, 0, 0, None)]
    with pytest.raises(NotFound):
        outbox.get(4711)


def test_reap_gives_back_what_has_run_out(outbox: Outbox, db: Database) -> None:
    done = outbox.enqueue("t", "p")
    outbox.claim(OWNER, lease_seconds=5)
    assert outbox.reap() == 0
    db.advance(6)
    assert outbox.reap(10) == 1
    assert outbox.get(done.id).attempt == 1


def test_operating(outbox: Outbox, db: Database) -> None:
    ids = [outbox.enqueue("t", str(n), headers={"n": n}).id for n in range(3)]
    outbox.claim(OWNER)
    outbox.fail(OWNER, ids[:2], "broken")
    outbox.ack(OWNER, ids[2:])
    first, second = outbox.dead_letters(limit=10)
    assert isinstance(first, OutboxDeadLetter)
    assert (first.id, first.last_error, first.headers, first.status) == (ids[0], "broken", {"n": 0}, "Failed")
    assert outbox.dead_letters(after_id=first.id, topic="t") == [second]
    assert outbox.replay([first.id]) == 1
    with pytest.raises(InvalidState):
        outbox.replay([first.id])
    assert outbox.discard([second.id]) == 1
    found = outbox.find(outbox.get(ids[0]).message_id)
    assert isinstance(found, StoredOutboxMessage)
    assert found == outbox.get(ids[0])
    total = outbox.stats()[-1]
    assert (total.topic, total.ready, total.done, total.dead) == (None, 1, 1, 0)
    assert isinstance(total.oldest_ready_seconds, float)
    assert outbox.pause() == 1
    assert outbox.pause() == 0
    assert outbox.claim(OWNER) == []
    assert outbox.resume() == 1
    assert outbox.pause("t") == 1
    assert outbox.resume("t") == 1
    db.advance(100)
    assert outbox.cleanup(timedelta(hours=1)) == 0
    assert outbox.cleanup(50, batch_size=10) == 1
    outbox.fail(OWNER, [each.id for each in outbox.claim(OWNER)], "no")
    assert outbox.cleanup_dead(3600.5) == 0
    db.advance(1)
    assert outbox.cleanup_dead(0.5, batch_size=1) == 1
    assert outbox.configure("notify", False) == "off"
    assert outbox.configure("max_attempts", 3) == "3"
    with pytest.raises(InvalidArgument, match="name"):
        outbox.configure("nothing", 1)


def test_named_boxes(deployment: Deployment) -> None:
    mail = deployment.box("mail")
    orders = deployment.box("orders")
    assert isinstance(mail, Outbox)
    assert mail.kind == "outbox"
    assert orders.kind == "inbox"
    assert deployment.box("mail") is mail
    assert deployment.box("outbox") is deployment.outbox
    done = mail.enqueue("t", "p")
    assert mail.get(done.id).payload == "p"
    assert deployment.outbox.claim(OWNER) == []
    assert orders.enqueue("t", "s", "1", "p").outcome == "created"
    for name in ("nobody", "_outbox", "", "x'; DROP TABLE y; --"):
        with pytest.raises(NotFound):
            deployment.box(name)


def test_the_documents_store(deployment: Deployment) -> None:
    ids = [deployment.outbox.enqueue("t", "p").id for _ in range(3)]
    store = OutboxStore(deployment, OWNER, lease_seconds=60)
    assert [each.id for each in store.claim_due(3)] == ids
    assert store.mark_dispatched(ids[0])
    assert not store.mark_dispatched(ids[0])
    assert store.reschedule(ids[1], timedelta(seconds=60), "later")
    assert store.fail(ids[2], "never")
    assert [deployment.outbox.get(each).status for each in ids] == ["Done", "Ready", "Failed"]
    mail = deployment.box("mail")
    assert isinstance(mail, Outbox)
    assert OutboxStore(mail).claim_due() == []


@pytest.mark.parametrize("argument", ["due_at", "expires_at", "created_at"])
def test_naive_times_are_refused(outbox: Outbox, argument: str) -> None:
    for value in (datetime(2026, 1, 1), "2026-01-01", 5):
        with pytest.raises(InvalidArgument, match=argument):
            outbox.enqueue("t", "p", **{argument: value})  # type: ignore[arg-type]  # that is the test
        with pytest.raises(InvalidArgument, match=argument):
            outbox.enqueue_many([{"topic": "t", "payload": "p", argument: value}])
    assert outbox.stats()[-1].ready == 0


def test_wrong_arguments(outbox: Outbox) -> None:
    with pytest.raises(InvalidArgument, match="payload"):
        outbox.enqueue("t", None)
    with pytest.raises(InvalidArgument, match="payload: must not be bytes"):
        outbox.enqueue("t", b"p")
    with pytest.raises(InvalidArgument, match="headers"):
        outbox.enqueue("t", "p", headers=["x"])  # type: ignore[arg-type]  # that is the test
    with pytest.raises(InvalidArgument, match="headers"):
        outbox.enqueue("t", "p", headers="{")
    with pytest.raises(InvalidArgument, match="topic"):
        outbox.enqueue("", "p")
    with pytest.raises(InvalidArgument, match="payloads"):
        outbox.enqueue_many([{"topic": "t", "payloads": "p"}])
    for messages in ("text", {"topic": "t"}, [1]):
        with pytest.raises(InvalidArgument, match="messages: must be a list of mappings"):
            outbox.enqueue_many(messages)  # type: ignore[arg-type]  # that is the test
    for wrong in ("12", 12, [True], ["1"]):
        with pytest.raises(InvalidArgument, match="ids"):
            outbox.ack(OWNER, wrong)  # type: ignore[arg-type]  # that is the test
    with pytest.raises(InvalidArgument, match="ids"):
        outbox.ack(OWNER, None)  # type: ignore[arg-type]  # that is the test
    with pytest.raises(InvalidArgument, match="topics"):
        outbox.claim(OWNER, topics="t")
    with pytest.raises(InvalidArgument, match="lease_seconds"):
        outbox.claim(OWNER, lease_seconds=0.5)
    with pytest.raises(InvalidArgument, match="delay_seconds"):
        outbox.abandon(OWNER, [1], delay_seconds=float("nan"))
    with pytest.raises(InvalidArgument):
        outbox.claim(UUID(int=0))
    with pytest.raises(InvalidArgument):
        outbox.claim("nobody")  # type: ignore[arg-type]  # that is the test
    for value in (True, b"x", object()):
        with pytest.raises(InvalidArgument):
            outbox.enqueue("t", "p", priority=value)  # type: ignore[arg-type]  # that is the test


@pytest.mark.dialect("postgres")  # pyodbc's cursors are not kept
def test_a_connection_in_the_pool_holds_no_payload(deployment: Deployment) -> None:
    big = "x" * 1_000_000
    calls: dict[str, Callable[[], object]] = {
        "sent": lambda: deployment.outbox.enqueue("t", big),
        "sent in a list": lambda: deployment.outbox.enqueue_payloads("t", [big]),
        "claimed": lambda: deployment.outbox.claim(OWNER, batch_size=1),
        "read": lambda: deployment.outbox.find(deployment.outbox.enqueue("t", "p").message_id),
    }
    for name, call in calls.items():
        deployment.outbox.enqueue("t", "p")
        with deployment.connection() as raw:
            assert raw.kept is not None
        call()
        with deployment.connection() as raw:
            assert raw.kept is None, name


@pytest.mark.dialect("postgres")
def test_a_connection_goes_on_after_calls_of_every_kind(deployment: Deployment) -> None:
    for priority, headers in ((None, None), (3, {"a": 1}), (-3, None)):
        for topic in ("t", "", "u"):
            if topic:
                assert (
                    deployment.outbox.enqueue(topic, "p", priority=priority, headers=headers).outcome
                    == "created"
                )
            else:
                with pytest.raises(InvalidArgument):
                    deployment.outbox.enqueue(topic, "p", priority=priority, headers=headers)
    assert {message.priority for message in deployment.outbox.claim(OWNER)} == {-3, 0, 3}


@pytest.mark.parametrize("delay", [600, 600.0, Decimal(600), timedelta(minutes=10)])
def test_a_delay_is_seconds_or_a_timedelta(outbox: Outbox, delay: float | timedelta) -> None:
    made = outbox.enqueue("t", "p", delay=delay)
    listed = outbox.enqueue_many(
        [
            {"topic": "t", "payload": "p", "delay": delay},
            {"topic": "t", "payload": "p", "delay_seconds": delay},
            {"topic": "t", "payload": "p", "delay": None},
        ]
    )
    waits = [outbox.get(each.id).due_at for each in (made, *listed)]
    first = waits[0]
    assert first is not None
    assert waits[3] is None
    for due_at in waits[1:3]:
        assert due_at is not None
        assert timedelta(0) <= due_at - first < timedelta(minutes=5)
    assert [message.id for message in outbox.claim(OWNER)] == [listed[2].id]


@pytest.mark.parametrize("delay", [float("nan"), float("inf"), True, "5", [5]])
def test_a_delay_that_is_no_length_of_time_is_refused(outbox: Outbox, delay: Any) -> None:
    with pytest.raises(InvalidArgument, match="delay"):
        outbox.enqueue("t", "p", delay=delay)
    with pytest.raises(InvalidArgument, match="delay"):
        outbox.enqueue_many([{"topic": "t", "payload": "p", "delay": delay}])
    assert outbox.stats()[-1].scheduled == 0


def test_a_delay_and_a_due_time_do_not_go_together(outbox: Outbox) -> None:
    with pytest.raises(InvalidArgument, match="delay"):
        outbox.enqueue("t", "p", due_at=LATER, delay=5)
    with pytest.raises(InvalidArgument, match="delay"):
        outbox.enqueue_many([{"topic": "t", "payload": "p", "delay": 5, "delay_seconds": 5}])
    with pytest.raises(InvalidArgument, match="delay_seconds"):
        outbox.enqueue("t", "p", delay=-1)
    assert outbox.stats()[-1].scheduled == 0


def test_retry_and_a_release_with_a_delay(outbox: Outbox) -> None:
    made = [outbox.enqueue("t", str(number)).id for number in range(6)]
    assert len(outbox.claim(OWNER)) == 6
    assert outbox.retry(OWNER, made[:2], last_error="why", delay_seconds=timedelta(hours=1)) == Retried(2, 0)
    assert outbox.retry(OWNER, made[1:3], last_error="enough", max_attempts=1) == Retried(1, 1)
    assert outbox.release(OWNER, made[3:4], delay_seconds=timedelta(hours=1)) == 1
    outbox.settle(
        OWNER,
        [
            {"id": made[4], "result": "retry", "max_attempts": 1, "error": "over"},
            {"ids": made[5:], "result": "release", "delay_seconds": timedelta(hours=1)},
        ],
    )
    stored = [outbox.get(each) for each in made]
    expected = ["Ready", "Ready", "Failed", "Ready", "Failed", "Ready"]
    assert [each.status for each in stored] == expected
    assert [each.attempt for each in stored] == [1, 1, 1, 0, 1, 0]
    assert [each.last_error for each in stored] == ["why", "why", "enough", None, "over", None]
    assert outbox.claim(OWNER) == []
    for wrong in (True, 1.5, "2"):
        with pytest.raises(InvalidArgument, match="max_attempts"):
            outbox.retry(OWNER, made, max_attempts=wrong)  # type: ignore[arg-type]  # that is the test
