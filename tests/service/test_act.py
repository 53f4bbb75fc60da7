"""Acting by HTTP, and the audit log of it."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import pytest
from starlette.testclient import TestClient

import pysqlbox
from pysqlbox.service import by_cause
from tests.service.support import bearer, is_problem
from tests.service.test_look import OWNER, kill


def post(client: TestClient, path: str, role: str | None = None, **body: object) -> Any:
    response = client.post(f"/v1/{path}", json=body, headers={} if role is None else bearer(role))
    assert response.status_code == 200, response.text
    return response.json()


def test_dead_messages_come_back_or_go(client: TestClient, deployment: pysqlbox.Deployment) -> None:
    ids = kill(deployment, "1", "2", "3")
    assert post(client, "messages/outbox/replay", ids=ids[:2]) == {"affected": 2}
    assert deployment.outbox.get(ids[0]).status == "Ready"
    alive = client.post("/v1/messages/outbox/replay", json={"ids": ids})
    assert is_problem(alive, 409, "InvalidState")
    assert deployment.outbox.get(ids[2]).status == "Failed"
    assert post(client, "messages/outbox/discard", ids=ids) == {"affected": 1}
    assert post(client, "messages/outbox/discard", ids=[10**15]) == {"affected": 0}


def test_waiting_messages_are_called_off_and_put_off(
    client: TestClient, deployment: pysqlbox.Deployment
) -> None:
    first, second = (deployment.outbox.enqueue("t", "p").id for _ in range(2))
    assert post(client, "messages/outbox/cancel", ids=[first], reason="not wanted") == {"affected": 1}
    stored = deployment.outbox.get(first)
    assert (stored.status, stored.last_error) == ("Cancelled", "not wanted")
    later = "2030-01-01T00:00:00Z"
    assert post(client, "messages/outbox/reschedule", ids=[second], due_at=later) == {"affected": 1}
    due_at = deployment.outbox.get(second).due_at
    assert due_at is not None
    assert due_at.year == 2030
    assert post(client, "messages/outbox/reschedule", ids=[second]) == {"affected": 1}
    assert [each.id for each in deployment.outbox.claim(OWNER)] == [second]


def test_boxes_are_paused_and_configured(client: TestClient, deployment: pysqlbox.Deployment) -> None:
    deployment.outbox.enqueue("t", "p")
    assert post(client, "boxes/outbox/pause", topic="t") == {"affected": 1}
    assert post(client, "boxes/outbox/pause", topic="t") == {"affected": 0}
    assert deployment.outbox.claim(OWNER) == []
    assert post(client, "boxes/outbox/resume", topic="t") == {"affected": 1}
    assert post(client, "boxes/outbox/pause") == {"affected": 1}
    assert post(client, "boxes/outbox/resume", topic=None) == {"affected": 1}
    assert len(deployment.outbox.claim(OWNER)) == 1
    for value, kept in ((7, "7"), ("8", "8"), (9.0, "9")):
        answer = post(client, "boxes/outbox/configure", name="max_attempts", value=value)
        assert answer == {"name": "max_attempts", "value": kept}
    assert post(client, "boxes/outbox/configure", name="notify", value=False)["value"] == "off"
    refused = client.post("/v1/boxes/outbox/configure", json={"name": "nonsense", "value": 1})
    assert is_problem(refused, 400, "InvalidArgument")


def test_schedules_are_set_and_removed(client: TestClient, deployment: pysqlbox.Deployment) -> None:
    path = "/v1/schedules/outbox/every%20night%2Fnow"
    body = {
        "topic": "t",
        "payload": {"a": 1},
        "cron": "0 3 * * *",
        "timezone": "Europe/Berlin",
        "catch_up": 2,
    }
    made = client.put(path, json=body).json()
    assert (made["name"], made["catch_up"], made["next_at"] is None) == ("every night/now", 2, False)
    assert client.put(path, json={"topic": "t", "payload": "", "every_seconds": 60}).json()["cron"] is None
    wrong = client.put(path, json=body | {"cron": "nonsense"})
    assert is_problem(wrong, 400, "InvalidArgument")
    assert len(deployment.schedules.list()) == 1
    assert client.delete(path).json() == {"affected": 1}
    assert is_problem(client.delete(path), 404, "NotFound")
    assert deployment.schedules.list() == []


def test_every_change_is_noted_with_who_made_it(guarded: TestClient, deployment: pysqlbox.Deployment) -> None:
    ids = kill(deployment, "s3cr3t", "s3cr3t")
    post(guarded, "messages/outbox/replay", "operator", ids=ids)
    post(guarded, "messages/outbox/cancel", "operator", ids=ids[:1], reason="why not")
    post(guarded, "messages/outbox/reschedule", "operator", ids=ids[1:])
    post(guarded, "messages/outbox/discard", "operator", ids=ids[:1])
    post(guarded, "boxes/orders/pause", "operator", topic="t")
    post(guarded, "boxes/orders/resume", "operator", topic="t")
    post(guarded, "boxes/orders/configure", "admin", name="max_attempts", value=3)
    rule = {"topic": "t", "payload": "s3cr3t", "every_seconds": 60}
    assert guarded.put("/v1/schedules/outbox/x", json=rule, headers=bearer("operator")).status_code == 200
    assert guarded.delete("/v1/schedules/outbox/x", headers=bearer("operator")).status_code == 200
    answer = guarded.get("/v1/audit", headers=bearer("admin"))
    assert "s3cr3t" not in answer.text
    found = [
        (each["actor"], each["action"], each["subject"], each["affected"])
        for each in reversed(answer.json()["items"])
    ]
    assert found == [
        ("the operator", "replay", "outbox", 2),
        ("the operator", "cancel", "outbox", 1),
        ("the operator", "reschedule", "outbox", 1),
        ("the operator", "discard", "outbox", 1),
        ("the operator", "pause", "orders", 1),
        ("the operator", "resume", "orders", 1),
        ("the admin", "configure", "orders", 1),
        ("the operator", "schedule", "outbox", 1),
        ("the operator", "unschedule", "outbox", 1),
    ]
    first = answer.json()["items"][-1]
    assert json.loads(first["detail"]) == {"ids": ids}
    page = guarded.get("/v1/audit?limit=2&action=pause", headers=bearer("admin")).json()
    assert [each["action"] for each in page["items"]] == ["pause"]


def test_what_changed_nothing_is_not_noted(client: TestClient, deployment: pysqlbox.Deployment) -> None:
    ids = kill(deployment, "1")
    post(client, "messages/outbox/cancel", ids=ids)
    post(client, "boxes/outbox/resume")
    post(client, "messages/outbox/discard", ids=[10**15])
    deployment.outbox.replay(ids)
    assert client.post("/v1/messages/outbox/replay", json={"ids": ids}).status_code == 409
    assert deployment.audit.list() == []


def test_a_change_that_cannot_be_noted_is_not_made(
    client: TestClient, deployment: pysqlbox.Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = kill(deployment, "1")

    away = Mock(side_effect=pysqlbox.DatabaseUnavailable("gone"))
    monkeypatch.setattr(deployment.audit, "write", away)
    answer = client.post("/v1/messages/outbox/replay", json={"ids": ids})
    assert is_problem(answer, 503, "DatabaseUnavailable")
    assert deployment.outbox.get(ids[0]).status == "Failed"


@pytest.mark.parametrize(("action", "status"), [("replay", "Ready"), ("discard", None)])
def test_all_of_one_cause(
    client: TestClient,
    deployment: pysqlbox.Deployment,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
    status: str | None,
) -> None:
    ids = [each for n in range(5) for each in kill(deployment, "p", error=f"customer {n} is unknown")]
    (other,) = kill(deployment, "p", error="timeout")
    wanted = {"cause": "customer # is unknown", "topic": "t"}
    path = f"messages/outbox/{action}"
    assert post(client, path, preview=True, **wanted) == {"affected": 5, "next": None}
    assert post(client, path, preview=True, cause="nothing like it") == {"affected": 0, "next": None}
    assert post(client, path, preview=True, cause=wanted["cause"], topic="other")["affected"] == 0
    assert deployment.audit.list() == []
    monkeypatch.setattr(by_cause, "LOOKED_AT", 2)
    part = post(client, path, **wanted)
    steps = [part["affected"]]
    while part["next"] is not None:
        part = post(client, path, after_id=part["next"], **wanted)
        steps.append(part["affected"])
    assert (sum(steps), max(steps)) == (5, 2)
    if status is None:
        assert deployment.outbox.stats()[-1].dead == 1
    else:
        assert {deployment.outbox.get(each).status for each in ids} == {status}
    assert deployment.outbox.get(other).status == "Failed"
    noted = deployment.audit.list()
    assert sum(each.affected or 0 for each in noted) == 5
    assert json.loads(noted[0].detail or "")["cause"] == wanted["cause"]


def test_ids_and_a_cause_exclude_each_other(client: TestClient) -> None:
    wrong: list[dict[str, object]] = [{}, {"ids": [1], "cause": "c"}, {"ids": []}, {"cause": ""}]
    for body in wrong:
        answer = client.post("/v1/messages/outbox/replay", json=body)
        assert is_problem(answer, 400, "InvalidArgument")
