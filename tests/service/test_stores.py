"""Many stores behind one service: each request says which, and each fails for itself."""

from __future__ import annotations

import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from openapi_spec_validator import validate
from starlette.testclient import TestClient

import pysqlbox
from pysqlbox import service
from pysqlbox.http_ledger import HttpLedger
from pysqlbox.service.application import OPERATIONS
from tests.dashboard.support import unreachable
from tests.service.processes import served
from tests.service.support import TOKENS, bearer, is_problem, live, local_client
from tests.support.database import Database


@pytest.fixture
def many(deployment: pysqlbox.Deployment) -> Iterator[pysqlbox.Stores]:
    """A store that is there, one that is away, and one that is given wrongly."""
    with (
        unreachable() as away,
        pysqlbox.Stores({"a b": deployment, 7: away, "typo": "nonsense://"}) as stores,
    ):
        yield stores


@pytest.fixture
def client(many: pysqlbox.Stores) -> Iterator[TestClient]:
    """A client on this machine of a service of the stores."""
    with local_client(service.app(many)) as opened:
        yield opened


def test_every_request_says_which_store_it_is_about(
    client: TestClient, deployment: pysqlbox.Deployment
) -> None:
    body = {"topic": "t", "payload": "p"}
    sent = client.post("/v1/messages/outbox?store=a+b", json=body).json()
    assert deployment.outbox.get(sent["id"]).payload == "p"
    assert client.get("/v1/stats?store=a+b&box=outbox").json()["items"][-1]["ready"] == 1
    assert client.post("/v1/inbox/try-begin?store=a+b", json={"key": "k"}).json()["status"] == "Acquired"
    assert deployment.ledger.get("k").status == "Acquired"
    missing = client.get("/v1/stats")
    assert is_problem(missing, 400, "InvalidArgument")
    assert "store: is missing" in missing.json()["detail"]


def test_an_unknown_store_is_not_found(client: TestClient) -> None:
    for path in ("/v1/stats", "/v1/messages/outbox/1", "/v1/doctor"):
        answer = client.get(path, params={"store": "none"})
        assert is_problem(answer, 404, "NotFound")
        assert (
            answer.json()["detail"]
            == "store: there is none of the key 'none'; name one of those that are served"
        )


@pytest.mark.parametrize("store", ["7", "typo"])
def test_a_store_that_is_down_answers_503_for_itself(client: TestClient, store: str) -> None:
    answer = client.get("/v1/stats", params={"store": store})
    assert is_problem(answer, 503, "DatabaseUnavailable")
    assert int(answer.headers["retry-after"]) >= 1
    assert client.get("/v1/stats", params={"store": "a b"}).status_code == 200


def test_all_of_them_are_listed_and_ready_if_one_is(client: TestClient) -> None:
    items = client.get("/v1/stores").json()["items"]
    assert [(each["store"], each["ok"]) for each in items] == [("a b", True), ("7", False), ("typo", False)]
    assert client.get("/readyz").json() == {"status": "ok", "stores": 3, "away": 2}
    figures = client.get("/metrics").text
    assert 'pysqlbox_up{store="a b"} 1' in figures
    assert 'pysqlbox_up{store="7"} 0' in figures
    assert is_problem(client.get("/readyz?store=7"), 400, "InvalidArgument")


def test_it_is_not_ready_while_all_are_away() -> None:
    with (
        unreachable() as one,
        unreachable() as other,
        pysqlbox.Stores({1: one, 2: other}) as stores,
        local_client(service.app(stores)) as client,
    ):
        assert is_problem(client.get("/readyz"), 503, "DatabaseUnavailable")
        assert client.get("/healthz").status_code == 200


def test_one_deployment_has_no_stores(deployment: pysqlbox.Deployment) -> None:
    with local_client(service.app(deployment)) as client:
        assert is_problem(client.get("/v1/stores"), 404, "NotFound")
        assert is_problem(client.get("/v1/stats?store=a"), 400, "InvalidArgument")


def test_the_document_has_the_store_and_is_valid(client: TestClient) -> None:
    found = client.get("/openapi.json").json()
    validate(found)
    with_store = {
        operation["operationId"]
        for methods in found["paths"].values()
        for operation in methods.values()
        if any(each["name"] == "store" and each["required"] for each in operation.get("parameters", ()))
    }
    wanted = {each.name for each in OPERATIONS if each.asks_database and not each.over_all}
    assert with_store == wanted
    assert "/v1/stores" in found["paths"]


def test_roles_hold_for_every_store(many: pysqlbox.Stores) -> None:
    with local_client(service.app(many, tokens=service.Tokens(TOKENS))) as client:
        assert client.get("/v1/stores").status_code == 401
        assert client.get("/v1/stores", headers=bearer("producer")).status_code == 403
        # Who may not ask does not learn which stores there are.
        for key in ("a b", "none"):
            refused = client.get("/v1/stats", params={"store": key}, headers=bearer("producer"))
            assert is_problem(refused, 403, "Forbidden")


def test_a_store_that_hangs_costs_the_others_nothing(
    deployment: pysqlbox.Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More calls than there are threads are stuck in one store; another one answers meanwhile."""
    release = threading.Event()
    with unreachable() as slow, pysqlbox.Stores({"slow": slow, "quick": deployment}) as stores:

        def hang() -> object:
            release.wait(60)
            raise pysqlbox.DatabaseUnavailable("it hangs")

        monkeypatch.setattr(slow, "schema_boxes", hang)
        limits = service.Limits(threads=4, call_seconds=30)
        with live(service.app(stores, limits=limits, dashboard=False)) as url:
            asking = [
                threading.Thread(target=_ask, args=(url, "/v1/stats?store=slow"), daemon=True)
                for _ in range(12)
            ]
            for each in asking:
                each.start()
            time.sleep(0.5)  # they have come by then, or some of them; the answer below holds either way
            assert _ask(url, "/v1/stats?store=quick") == 200
            release.set()
            for each in asking:
                each.join(60)
            began = time.monotonic()
            assert _ask(url, "/v1/stats?store=slow") == 503
            assert time.monotonic() - began < 30


def _ask(url: str, path: str) -> int:
    try:
        with urllib.request.urlopen(url + path, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_client_of_the_ledger_names_its_store(
    many: pysqlbox.Stores, deployment: pysqlbox.Deployment
) -> None:
    with live(service.app(many, dashboard=False)) as url, HttpLedger(url, store="a b") as ledger:
        claim = ledger.try_begin("k?&=", lease_seconds=60)
        assert claim.status == "Acquired"
        assert deployment.ledger.get("k?&=").status == "Acquired"
        assert ledger.mark_processed("k?&=", claim.lease_id) == 1
        assert ledger.is_processed("k?&=")
        with HttpLedger(url, store="none") as other, pytest.raises(pysqlbox.NotFound):
            other.get("k")


@pytest.mark.only_engine("pg18")
def test_serve_takes_stores_of_a_module(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"import pysqlbox\n\nstores = pysqlbox.Stores({{'a': {db.url!r}}}, schema={db.schema!r})\n"
    (tmp_path / "tenants_of_serve.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with served("--stores", "tenants_of_serve:stores") as running:
        assert running.ask("GET", "/readyz")[2] == {"status": "ok", "stores": 1, "away": 0}
        status, _, found = running.ask("POST", "/v1/inbox/try-begin?store=a", {"key": "k"})
        assert (status, found["status"]) == (200, "Acquired")
        assert running.ask("GET", "/v1/stats?store=b")[0] == 404
        assert running.stop()[0] == 0
