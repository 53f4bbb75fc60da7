"""Messages in by HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

import pysqlbox
from tests.service.support import bearer, is_problem


def send(client: TestClient, box: str, body: object, **headers: str) -> Any:
    response = client.post(f"/v1/messages/{box}", json=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize(
    ("payload", "kept"), [("text", "text"), ("", ""), ({"a": [1]}, '{"a":[1]}'), (3, "3"), (False, "false")]
)
def test_a_message_is_written_with_its_payload(
    client: TestClient, deployment: pysqlbox.Deployment, payload: object, kept: str
) -> None:
    sent = send(client, "outbox", {"topic": "t", "payload": payload})
    assert sent["outcome"] == "created"
    stored = deployment.outbox.get(sent["id"])
    assert (str(stored.message_id), stored.topic) == (sent["message_id"], "t")
    if isinstance(payload, str):
        assert stored.payload == kept
    else:
        assert json.loads(stored.payload) == json.loads(kept)


def test_every_argument_arrives(client: TestClient, deployment: pysqlbox.Deployment) -> None:
    body = {
        "topic": "t", "payload": "p", "message_id": "0196f2a0-0000-7000-8000-000000000001",
        "correlation_id": "c", "group_id": "g", "priority": 5, "dedup_key": "d", "collapse_key": "k",
        "due_at": "2030-01-01T00:00:00+02:00", "expires_at": "2031-01-01T00:00:00Z",
        "created_at": "2020-01-01T00:00:00Z", "headers": {"h": 1},
    }  # fmt: skip
    stored = deployment.outbox.get(send(client, "outbox", body)["id"])
    assert (str(stored.message_id), stored.correlation_id) == (body["message_id"], "c")
    assert (stored.group_id, stored.priority, stored.dedup_key, stored.collapse_key) == ("g", 5, "d", "k")
    assert stored.headers == {"h": 1}
    assert stored.due_at is not None
    assert stored.due_at.isoformat() == "2029-12-31T22:00:00+00:00"
    assert stored.created_at.year == 2020


def test_the_idempotency_key_makes_a_message_once(client: TestClient) -> None:
    message = {"topic": "t", "payload": "p"}
    first = send(client, "outbox", message, **{"idempotency-key": "order-7"})
    again = send(client, "outbox", message, **{"idempotency-key": "order-7"})
    assert (first["outcome"], again["outcome"]) == ("created", "duplicate")
    assert again["id"] == first["id"]
    same = send(client, "outbox", message | {"dedup_key": "order-7"}, **{"idempotency-key": "order-7"})
    assert same["outcome"] == "duplicate"
    for body in (message | {"dedup_key": "other"}, [message]):
        answer = client.post("/v1/messages/outbox", json=body, headers={"idempotency-key": "order-7"})
        assert is_problem(answer, 400, "InvalidArgument")


def test_an_inbox_knows_a_message_by_its_source(client: TestClient) -> None:
    message = {"topic": "t", "payload": "p", "source": "s", "message_id": "m-1", "hash": "00ff"}
    first = send(client, "orders", message)
    assert first == {"id": first["id"], "outcome": "created", "hash_mismatch": False}
    again = send(client, "orders", message | {"hash": "11"})
    assert (again["outcome"], again["hash_mismatch"]) == ("updated", True)


def test_an_array_is_written_whole_or_not_at_all(client: TestClient, deployment: pysqlbox.Deployment) -> None:
    good = {"topic": "t", "payload": {"n": 1}}
    found = send(client, "outbox", [good, good | {"dedup_key": "d"}, good | {"dedup_key": "d"}])
    assert [each["outcome"] for each in found] == ["created", "created", "duplicate"]
    before = deployment.outbox.stats()[-1].ready
    for bad in ([good, good | {"priority": 40_000}], [good, good | {"sauce": "s"}], []):
        assert is_problem(client.post("/v1/messages/outbox", json=bad), 400, "InvalidArgument")
    assert deployment.outbox.stats()[-1].ready == before
    inbound = {"topic": "t", "payload": "p", "source": "s"}
    found = send(
        client, "inbox", [inbound | {"message_id": "1"}, inbound | {"message_id": "2", "hash": "ab"}]
    )
    assert [each["outcome"] for each in found] == ["created", "created"]


@pytest.mark.parametrize(
    ("box", "body", "reason"),
    [
        ("outbox", {"payload": "p"}, "topic: is missing"),
        ("outbox", {"topic": "t"}, "payload: is missing"),
        ("outbox", {"topic": "t", "payload": None}, "payload"),
        ("outbox", {"topic": "", "payload": "p"}, "topic"),
        ("outbox", {"topic": "t", "payload": "p", "due_at": "2030-01-01T00:00:00"}, "due_at"),
        (
            "outbox",
            {"topic": "t", "payload": "p", "due_at": "2030-01-01T00:00:00Z", "delay_seconds": 1},
            "delay",
        ),
        ("outbox", {"topic": "t", "payload": "p", "source": "s", "message_id": "m"}, "outbox is an outbox"),
        ("inbox", {"topic": "t", "payload": "p"}, "source: is missing"),
        ("inbox", {"topic": "t", "payload": "p", "source": "s", "message_id": "m", "hash": "abc"}, "hash"),
        (
            "inbox",
            {"topic": "t", "payload": "p", "source": "s", "message_id": "m", "dedup_key": "d"},
            "dedup_key",
        ),
        ("outbox", "text", "body"),
    ],
)
def test_what_is_malformed_is_refused_by_its_name(
    client: TestClient, box: str, body: object, reason: str
) -> None:
    answer = client.post(f"/v1/messages/{box}", json=body)
    assert is_problem(answer, 400, "InvalidArgument")
    assert reason in answer.json()["detail"]


def test_a_box_that_is_not_there(client: TestClient) -> None:
    body = {"topic": "t", "payload": "p"}
    assert is_problem(client.post("/v1/messages/nosuch", json=body), 404, "NotFound")
    assert is_problem(client.post("/v1/messages/No-Such", json=body), 400, "InvalidArgument")


def test_only_producers_send(guarded: TestClient) -> None:
    body = {"topic": "t", "payload": "p"}
    refused = guarded.post("/v1/messages/outbox", json=body, headers=bearer("viewer"))
    assert is_problem(refused, 403, "Forbidden")
    assert send(guarded, "outbox", body, **bearer("producer"))["outcome"] == "created"


def test_messages_sent_are_noted_one_entry_a_request(
    guarded: TestClient, deployment: pysqlbox.Deployment
) -> None:
    one = {"topic": "t", "payload": "s3cr3t"}
    many = [{**one, "source": "s", "message_id": str(n)} for n in range(3)]
    send(guarded, "outbox", one, **bearer("producer"), **{"idempotency-key": "k"})
    send(guarded, "inbox", many, **bearer("operator"))
    send(guarded, "outbox", one, **bearer("producer"), **{"idempotency-key": "k"})  # there already: no change
    refused = guarded.post("/v1/messages/outbox", json=[one, {"topic": "t"}], headers=bearer("producer"))
    assert is_problem(refused, 400, "InvalidArgument")
    assert [(each.actor, each.action, each.subject, each.affected) for each in deployment.audit.list()] == [
        ("the operator", "enqueue", "inbox", 3), ("the producer", "enqueue", "outbox", 1)
    ]  # fmt: skip
    assert "s3cr3t" not in str(deployment.audit.list())
