"""Looking by HTTP."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from starlette.testclient import TestClient

import pysqlbox
from tests.service.support import bearer, is_problem

OWNER = UUID("11111111-1111-4111-8111-111111111111")


def get(client: TestClient, path: str, role: str | None = None) -> Any:
    response = client.get(path, headers={} if role is None else bearer(role))
    assert response.status_code == 200, response.text
    return response.json()


def pages(client: TestClient, path: str) -> list[Any]:
    """The items of all pages; an empty one may be followed by others."""
    page = get(client, path)
    found: list[Any] = page["items"]
    while page["next"] is not None:
        page = get(client, f"{path}&after_id={page['next']}")
        found += page["items"]
    return found


def kill(db: pysqlbox.Deployment, *payloads: str, error: str = "it failed") -> list[int]:
    """Enqueue messages with secrets in them and give them up."""
    for payload in payloads:
        db.outbox.enqueue("t", payload, headers={"key": "s3cr3t"})
    ids = [each.id for each in db.outbox.claim(OWNER)]
    db.outbox.fail(OWNER, ids, error)
    return ids


def test_stats_of_every_box(client: TestClient, deployment: pysqlbox.Deployment) -> None:
    deployment.outbox.enqueue("t", "p")
    deployment.box("orders", kind="inbox").enqueue("t", "s", "m", "p")
    items = get(client, "/v1/stats")["items"]
    totals = {each["box"]: (each["kind"], each["ready"]) for each in items if each["topic"] is None}
    assert totals == {
        "outbox": ("outbox", 1), "inbox": ("inbox", 0), "mail": ("outbox", 0), "orders": ("inbox", 1)
    }  # fmt: skip
    assert {each["box"] for each in get(client, "/v1/stats?box=orders")["items"]} == {"orders"}
    assert is_problem(client.get("/v1/stats?box=nosuch"), 404, "NotFound")


def test_messages_of_a_status_come_in_pages(client: TestClient, deployment: pysqlbox.Deployment) -> None:
    ids = [deployment.outbox.enqueue("t", "s3cr3t", group_id=f"g{n % 2}").id for n in range(5)]
    first = get(client, "/v1/messages/outbox?status=Ready&limit=2")
    assert [each["id"] for each in first["items"]] == ids[:2]
    assert [each["id"] for each in pages(client, "/v1/messages/outbox?status=Ready&limit=2")] == ids
    group = get(client, "/v1/messages/outbox?status=Ready&group_id=g1")
    assert [each["id"] for each in group["items"]] == ids[1::2]
    assert get(client, "/v1/messages/outbox?status=Ready&topic=other") == {"items": [], "next": None}
    assert "s3cr3t" not in client.get("/v1/messages/outbox?status=Ready").text


def test_a_list_says_where_it_stopped_to_look(client: TestClient, deployment: pysqlbox.Deployment) -> None:
    deployment.outbox.enqueue_payloads("other", ["p"] * 10_050)
    wanted = deployment.outbox.enqueue("t", "p").id
    first = get(client, "/v1/messages/outbox?status=Done")
    assert first == {"items": [], "next": None}
    assert [each["id"] for each in pages(client, "/v1/messages/outbox?status=Ready&topic=t")] == [wanted]
    deployment.outbox.cancel([wanted])
    assert pages(client, "/v1/messages/outbox?status=Ready&topic=t") == []


def test_one_message_hides_its_secrets_from_viewers(
    guarded: TestClient, deployment: pysqlbox.Deployment
) -> None:
    sent = deployment.outbox.enqueue("t", "s3cr3t", headers={"h": 1})
    path = f"/v1/messages/outbox/{sent.id}"
    shown = get(guarded, path, "operator")
    assert (shown["payload"], shown["headers"], shown["status"]) == ("s3cr3t", {"h": 1}, "Ready")
    masked = get(guarded, path, "viewer")
    assert set(shown) - set(masked) == {"payload", "headers"}
    assert masked["message_id"] == str(sent.message_id)
    deployment.inbox.enqueue("t", "s", "m", "s3cr3t", hash=b"\x01")
    inbound = deployment.inbox.find("m", "s")
    assert inbound is not None
    assert get(guarded, f"/v1/messages/inbox/{inbound.id}", "admin")["hash"] == "01"
    assert "hash" not in get(guarded, f"/v1/messages/inbox/{inbound.id}", "viewer")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/messages/outbox/999999999",
        "/v1/messages/nosuch/1",
        "/v1/joins/00000000-0000-4000-8000-000000000001",
    ],
)
def test_what_is_not_there(client: TestClient, path: str) -> None:
    assert is_problem(client.get(path), 404, "NotFound")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/messages/outbox",
        "/v1/messages/outbox?status=Nonsense",
        "/v1/messages/outbox?status=Seen",
        "/v1/messages/outbox?status=Ready&limit=0",
        "/v1/messages/outbox?status=Ready&limit=1001",
        "/v1/messages/outbox?status=Ready&limit=x",
        "/v1/messages/outbox?status=Ready&status=Done",
        f"/v1/messages/outbox/{2**63}",
        "/v1/joins/no-uuid",
        "/v1/groups/outbox?only_blocked=yes",
        "/v1/ledger?status=Done",
    ],
)
def test_what_is_asked_wrongly(client: TestClient, path: str) -> None:
    assert is_problem(client.get(path), 400, "InvalidArgument")


def test_dead_letters_and_their_causes(guarded: TestClient, deployment: pysqlbox.Deployment) -> None:
    ids = kill(deployment, "s3cr3t", "s3cr3t", "s3cr3t", error="customer 4711 is unknown")
    first = get(guarded, "/v1/dead/outbox?limit=2", "viewer")
    assert [each["id"] for each in first["items"]] == ids[:2]
    assert "s3cr3t" not in str(first)
    rest = get(guarded, f"/v1/dead/outbox?after_id={first['next']}", "viewer")
    assert ([each["id"] for each in rest["items"]], rest["next"]) == (ids[2:], None)
    whole = get(guarded, "/v1/dead/outbox?payloads=true", "operator")["items"][0]
    assert (whole["payload"], whole["headers"]) == ("s3cr3t", {"key": "s3cr3t"})
    refused = guarded.get("/v1/dead/outbox?payloads=true", headers=bearer("viewer"))
    assert is_problem(refused, 403, "Forbidden")
    (cause,) = get(guarded, "/v1/dead/outbox/causes", "viewer")["items"]
    assert (cause["topic"], cause["cause"], cause["messages"]) == ("t", "customer # is unknown", 3)


def test_groups_and_what_holds_them_up(client: TestClient, deployment: pysqlbox.Deployment) -> None:
    for group in ("a", "a", "b"):
        deployment.outbox.enqueue("t", "p", group_id=group)
    items = get(client, "/v1/groups/outbox")["items"]
    assert {each["group_id"]: each["waiting"] for each in items} == {"a": 2, "b": 1}
    (head,) = [each.id for each in deployment.outbox.claim(OWNER, batch_size=1)]
    deployment.outbox.abandon(OWNER, [head], delay_seconds=600)
    (blocked,) = get(client, "/v1/groups/outbox?only_blocked=true")["items"]
    assert (blocked["group_id"], blocked["head_id"]) == ("a", head)


def test_joins(client: TestClient, deployment: pysqlbox.Deployment) -> None:
    joins = [deployment.joins.start("tenant", 2) for _ in range(3)]
    first = get(client, "/v1/joins?limit=2&status=Pending&tenant_id=tenant")
    assert [each["join_id"] for each in first["items"]] == [str(each) for each in joins[:2]]
    rest = get(client, f"/v1/joins?after={first['next']}")
    assert [each["join_id"] for each in rest["items"]] == [str(joins[2])]
    assert get(client, f"/v1/joins/{joins[0]}")["expected_steps"] == 2


def test_the_ledger_by_prefix(client: TestClient, deployment: pysqlbox.Deployment) -> None:
    for key in ("a:1", "a:2", "b:1"):
        deployment.ledger.try_begin(key, lease_seconds=60)
    first = get(client, "/v1/ledger?prefix=a%3A&limit=1")
    assert ([each["key"] for each in first["items"]], first["next"]) == (["a:1"], "a:1")
    assert [each["key"] for each in get(client, "/v1/ledger?after=a%3A1")["items"]] == ["a:2", "b:1"]


def test_doctor_and_schedules(client: TestClient, deployment: pysqlbox.Deployment) -> None:
    levels = {each["level"] for each in get(client, "/v1/doctor")["items"]}
    assert levels <= {"ok", "note", "warning", "error", "unknown"}
    assert levels
    deployment.schedules.set("nightly", "t", "p", cron="0 3 * * *")
    (found,) = get(client, "/v1/schedules/outbox")["items"]
    assert (found["name"], found["cron"]) == ("nightly", "0 3 * * *")
    assert is_problem(client.get("/v1/schedules/inbox"), 400, "InvalidArgument")


def test_metrics_are_text_for_prometheus(guarded: TestClient, deployment: pysqlbox.Deployment) -> None:
    deployment.outbox.enqueue("t", "s3cr3t")
    answer = guarded.get("/metrics", headers=bearer("viewer"))
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "pysqlbox_up 1" in answer.text
    assert "s3cr3t" not in answer.text


def test_workers_seen(client: TestClient, deployment: pysqlbox.Deployment) -> None:
    deployment.outbox.enqueue_payloads("t", ["1", "2"])
    deployment.outbox.claim(OWNER, batch_size=2)
    (found,) = get(client, "/v1/workers")["items"]
    assert (found["box"], found["owner_token"], found["in_flight"]) == ("outbox", str(OWNER), 2)
