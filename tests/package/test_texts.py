"""Text that a database cannot store: one error, which names the argument, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from pysqlbox import Deployment, InvalidArgument

OWNER = UUID("11111111-1111-4111-8111-111111111111")
NUL, FIRST_HALF, SECOND_HALF = "a\0b", "a\ud800", "\udfffb"
Call = Callable[[Deployment, str], Any]

CALLS: list[tuple[str, Call]] = [
    ("topic", lambda db, text: db.outbox.enqueue(text, "p")),
    ("payload", lambda db, text: db.outbox.enqueue("t", text)),
    ("correlation_id", lambda db, text: db.outbox.enqueue("t", "p", correlation_id=text)),
    ("group_id", lambda db, text: db.outbox.enqueue("t", "p", group_id=text)),
    ("dedup_key", lambda db, text: db.outbox.enqueue("t", "p", dedup_key=text)),
    ("collapse_key", lambda db, text: db.outbox.enqueue("t", "p", collapse_key=text)),
    ("headers", lambda db, text: db.outbox.enqueue("t", "p", headers={"a": [{"b": text}]})),
    ("headers", lambda db, text: db.outbox.enqueue("t", "p", headers={text: 1})),
    ("source", lambda db, text: db.inbox.enqueue("t", text, "1", "p")),
    ("message_id", lambda db, text: db.inbox.enqueue("t", "shop", text, "p")),
    ("message_id", lambda db, text: db.inbox.already_processed(text, "shop")),
    ("payload", lambda db, text: db.outbox.enqueue_many([{"topic": "t", "payload": text}])),
    ("group_id", lambda db, text: db.outbox.enqueue_many([_record(), _record(group_id=text)])),
    ("headers", lambda db, text: db.outbox.enqueue_many([_record(headers={"a": text})])),
    ("source", lambda db, text: db.inbox.enqueue_many([_record(source=text, message_id="1")])),
    ("payloads", lambda db, text: db.outbox.enqueue_payloads("t", ["p", text])),
    ("topic", lambda db, text: db.outbox.enqueue_payloads(text, ["p"])),
    ("topics", lambda db, text: db.outbox.claim(OWNER, topics=["t", text])),
    ("error", lambda db, text: db.outbox.fail(OWNER, [1], text)),
    ("last_error", lambda db, text: db.outbox.abandon(OWNER, [1], last_error=text)),
    ("error", lambda db, text: db.outbox.settle(OWNER, [{"id": 1, "result": "fail", "error": text}])),
    ("reason", lambda db, text: db.outbox.cancel([1], reason=text)),
    ("status", lambda db, text: db.outbox.list(text)),
    ("topic", lambda db, text: db.outbox.list("Ready", topic=text)),
    ("group_id", lambda db, text: db.outbox.list("Ready", group_id=text)),
    ("topic", lambda db, text: db.outbox.pause(text)),
    ("tenant_id", lambda db, text: db.joins.start(text, 2)),
    ("metadata", lambda db, text: db.joins.start("tenant", 2, metadata=text)),
    ("on_complete_payload", lambda db, text: _wait(db, text)),
    ("key", lambda db, text: db.ledger.try_begin(text)),
    ("handler", lambda db, text: db.ledger.try_begin("key", handler=text)),
    ("prefix", lambda db, text: db.ledger.list(prefix=text)),
    ("name", lambda db, text: db.schedules.set(text, "t", "p", every=60)),
    ("payload", lambda db, text: db.schedules.set("daily", "t", text, every=60)),
]


def _record(**values: Any) -> dict[str, Any]:
    return {"topic": "t", "payload": "p", **values}


def _wait(db: Deployment, text: str) -> None:
    db.joins.wait(uuid4(), on_complete_topic="t", on_complete_payload=text)


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_the_error_names_the_argument(deployment: Deployment, name: str, call: Call) -> None:
    for text, what in ((NUL, "a NUL"), (FIRST_HALF, "half a character"), (SECOND_HALF, "half a character")):
        with pytest.raises(InvalidArgument) as caught:
            call(deployment, text)
        assert str(caught.value).startswith(f"{name}: must not hold {what}")
        assert text not in str(caught.value)
    assert deployment.outbox.stats()[-1].ready == deployment.inbox.stats()[-1].ready == 0


def test_what_only_looks_like_it_is_stored(deployment: Deployment) -> None:
    """The escape of a NUL within a payload that is JSON already, and characters beyond 16 bits."""
    texts = ['{"a":"\\u0000"}', "\\u0000", "\\\\u0000", "😀", '{"a":"\\ud83d"}']
    made = [deployment.outbox.enqueue("t", text).id for text in texts]
    made += [each.id for each in deployment.outbox.enqueue_many(_record(payload=text) for text in texts)]
    made += [each.id for each in deployment.outbox.enqueue_payloads("t", texts)]
    assert [deployment.outbox.get(each).payload for each in made] == texts * 3


def test_a_value_with_a_nul_in_it_goes_through_the_serializer(deployment: Deployment) -> None:
    """JSON writes it as an escape, which is text like any other; half a character it leaves as it is."""
    made = deployment.outbox.enqueue("t", {"a": NUL})
    assert deployment.outbox.get(made.id).payload == '{"a":"a\\u0000b"}'
    with pytest.raises(InvalidArgument, match=r"^payload: "):
        deployment.outbox.enqueue("t", {"a": FIRST_HALF})
