"""The document's routes: the ledger by HTTP."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest
from starlette.testclient import TestClient

import pysqlbox
from tests.service.support import bearer, is_problem
from tests.support.database import Database


def post(client: TestClient, path: str, **body: object) -> Any:
    response = client.post(f"/v1/inbox/{path}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_key_is_begun_once_and_marked(client: TestClient) -> None:
    claim = post(client, "try-begin", key="k", owner="me", leaseSeconds=30)
    assert claim["status"] == "Acquired"
    assert UUID(claim["leaseId"])
    busy = post(client, "try-begin", key="k")
    assert busy["status"] == "Busy"
    assert "leaseId" not in busy
    assert busy["expiresAt"] == claim["expiresAt"]
    assert post(client, "mark-processed", key="k", leaseId=str(uuid4())) == {"affected": 0}
    assert post(client, "mark-processed", key="k", leaseId=claim["leaseId"]) == {"affected": 1}
    assert post(client, "try-begin", key="k") == {"status": "Processed"}


def test_a_released_key_can_be_begun_again(client: TestClient) -> None:
    lease = post(client, "try-begin", key="k")["leaseId"]
    assert post(client, "release", key="k", leaseId=lease) == {"affected": 1}
    assert post(client, "release", key="k", leaseId=lease) == {"affected": 0}
    assert post(client, "try-begin", key="k")["status"] == "Acquired"


@pytest.mark.parametrize("given", [{}, {"leaseSeconds": None}, {"owner": None}])
def test_a_lease_is_a_minute_unless_said(client: TestClient, db: Database, given: dict[str, object]) -> None:
    begun = datetime.now(UTC)
    claim = post(client, "try-begin", key="k", **given)
    until = datetime.fromisoformat(claim["expiresAt"])
    assert timedelta(seconds=50) < until - begun < timedelta(seconds=90)
    db.advance(61)
    assert post(client, "try-begin", key="k")["status"] == "Acquired"


@pytest.mark.parametrize("key", ["a:b:c:d", "a/b//c", "ключ 🐘", "a?b#c", " x ", "try-begin", "..", "\t"])
def test_any_text_is_a_key(client: TestClient, key: str) -> None:
    path = f"/v1/inbox/{quote(key, safe='').replace('.', '%2E')}"
    assert client.get(path).json() == {
        "status": "Unknown",
        "attempts": 0,
        "firstSeen": None,
        "lastSeen": None,
    }
    claim = post(client, "try-begin", key=key)
    found = client.get(path).json()
    assert (found["status"], found["attempts"]) == ("Acquired", 1)
    assert found["leaseUntil"] == claim["expiresAt"]
    post(client, "mark-processed", key=key, leaseId=claim["leaseId"])
    found = client.get(path).json()
    assert found["status"] == "Processed"
    assert datetime.fromisoformat(found["firstSeen"]).utcoffset() == timedelta(0)


def test_a_null_lease_marks_whoever_holds_it(client: TestClient) -> None:
    post(client, "try-begin", key="k")
    assert post(client, "mark-processed", key="k", leaseId=None) == {"affected": 1}
    assert post(client, "try-begin", key="k") == {"status": "Processed"}


def test_exactly_one_of_many_callers_begins(client: TestClient) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: post(client, "try-begin", key="k")["status"], range(24)))
    assert sorted(set(found)) == ["Acquired", "Busy"]
    assert found.count("Acquired") == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("try-begin", {}),
        ("try-begin", {"key": ""}),
        ("try-begin", {"key": "k" * 513}),
        ("try-begin", {"key": 1}),
        ("try-begin", {"key": None}),
        ("try-begin", {"key": "\ud800"}),
        ("try-begin", {"key": "\0"}),
        ("try-begin", {"key": "k", "leaseSeconds": 0}),
        ("try-begin", {"key": "k", "leaseSeconds": 86401}),
        ("try-begin", {"key": "k", "leaseSeconds": 1.5}),
        ("try-begin", {"key": "k", "leaseSeconds": True}),
        ("try-begin", {"key": "k", "lease_seconds": 30}),
        ("try-begin", {"key": "k", "owner": "o" * 256}),
        ("try-begin", ["k"]),
        ("mark-processed", {"key": "k"}),
        ("mark-processed", {"key": "k", "leaseId": "no uuid"}),
        ("release", {"key": "k", "leaseId": None}),
    ],
)
def test_what_is_malformed_is_refused_and_nothing_written(
    client: TestClient, deployment: pysqlbox.Deployment, path: str, body: object
) -> None:
    answer = client.post(
        f"/v1/inbox/{path}", content=json.dumps(body), headers={"content-type": "application/json"}
    )
    assert is_problem(answer, 400, "InvalidArgument")
    assert deployment.ledger.list() == []


def test_the_service_tells_what_it_is(client: TestClient, guarded: TestClient) -> None:
    found = client.get("/v1/inbox").json()
    assert (found["auth"], found["version"], found["contract"]) == ("none", pysqlbox.__version__, "v1")
    assert found["limits"]["leaseSeconds"]["default"] == 60
    assert guarded.get("/v1/inbox").json()["auth"] == "bearer"
    assert "token-of" not in guarded.get("/v1/inbox").text


def test_a_key_keeps_whose_token_began_it(
    guarded: TestClient, deployment: pysqlbox.Deployment, db: Database
) -> None:
    for body in ({"key": "a"}, {"key": "b", "owner": "node-1"}):
        assert guarded.post("/v1/inbox/try-begin", json=body, headers=bearer("producer")).status_code == 200
    rows = db.sql("SELECT owner FROM {schema}.ledger ORDER BY lease_until, attempts")
    assert sorted(str(row["owner"]) for row in rows) == ["node-1", "the producer"]
    assert deployment.audit.list() == []
