"""The OpenAPI document, and what each route allows whom."""

from __future__ import annotations

import json
import re
from typing import Any

from openapi_spec_validator import validate
from starlette.testclient import TestClient

from pysqlbox.service import Role
from pysqlbox.service.application import OPERATIONS
from tests.service.support import bearer, is_problem

LEAST = {
    "producer": {"producer", "operator", "admin"},
    "viewer": {"viewer", "operator", "admin"},
    "operator": {"operator", "admin"},
    "admin": {"admin"},
}


def test_the_document_is_valid(client: TestClient, guarded: TestClient) -> None:
    for each in (client, guarded):
        found = each.get("/openapi.json").json()
        validate(found)
        assert found["openapi"].startswith("3.1")
        assert ("bearer" in str(found["components"])) is (each is guarded)


def test_every_route_is_in_the_document_with_its_least_role(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert sum(map(len, paths.values())) == len(OPERATIONS)
    names = [each["operationId"] for methods in paths.values() for each in methods.values()]
    assert len(set(names)) == len(names)
    for operation in OPERATIONS:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", operation.path)
        assert paths[path][operation.method.lower()].get("x-role") == operation.role


def test_each_route_allows_its_least_role_and_no_less(guarded: TestClient) -> None:
    for operation in OPERATIONS:
        path = _filled(operation.path)
        body: Any = {"content": json.dumps({}), "headers": {"content-type": "application/json"}}
        anonymous = guarded.request(operation.method, path, **body)
        assert (anonymous.status_code == 401) is (operation.role is not None), operation.name
        for role in Role:
            named = body | {"headers": body["headers"] | bearer(role)}
            answer = guarded.request(operation.method, path, **named)
            allowed = operation.role is None or role in LEAST[operation.role]
            assert (answer.status_code == 403) is not allowed, f"{operation.name} as {role}: {answer.text}"
            assert allowed or is_problem(answer, 403, "Forbidden")


def _filled(path: str) -> str:
    """A path with something in place of its parameters, none of which is there."""
    path = path.replace("{box}", "nosuch").replace("{id:int}", "1")
    return re.sub(r"\{[^}]+\}", "x", path)
