"""Who may come in."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

import pysqlbox
from pysqlbox import service
from pysqlbox.service import Caller, Role, Tokens
from tests.service.support import bearer, is_problem, local_client

SENT = {"key": "k"}


def test_a_token_is_asked_for_and_its_role_counts(guarded: TestClient) -> None:
    def begin(**headers: str) -> Any:
        return guarded.post("/v1/inbox/try-begin", json=SENT, headers=headers)

    missing = begin()
    assert is_problem(missing, 401, "Unauthorized")
    assert missing.headers["www-authenticate"].startswith("Bearer ")
    assert is_problem(begin(authorization="Bearer another-token-altogether"), 401, "Unauthorized")
    assert is_problem(begin(authorization="Basic dXNlcjpwYXNz"), 401, "Unauthorized")
    assert is_problem(begin(**bearer("viewer")), 403, "Forbidden")
    for role in ("producer", "operator", "admin"):
        assert begin(**bearer(role)).status_code == 200


def test_health_is_for_everybody(guarded: TestClient) -> None:
    assert guarded.get("/healthz").json() == {"status": "ok"}
    assert guarded.get("/readyz").json()["status"] == "ok"


@pytest.mark.parametrize(
    ("address", "host", "headers", "status"),
    [
        ("127.0.0.1", "localhost", {}, 200),
        ("::1", "[::1]:8080", {}, 200),
        (
            "127.0.0.1",
            "127.0.0.1:8080",
            {"origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-origin"},
            200,
        ),
        ("192.0.2.1", "localhost", {}, 403),
        ("127.0.0.1", "rebound.example", {}, 403),
        ("127.0.0.1", "localhost", {"origin": "http://evil.example"}, 403),
        ("127.0.0.1", "localhost", {"sec-fetch-site": "cross-site"}, 403),
        ("127.0.0.1", "localhost", {"x-forwarded-for": "192.0.2.1"}, 403),
        ("127.0.0.1", "localhost", {"forwarded": "for=192.0.2.1"}, 403),
        ("127.0.0.1", "localhost", {"x-real-ip": "192.0.2.1"}, 403),
    ],
)
def test_without_tokens_only_this_machine_is_answered(
    deployment: pysqlbox.Deployment, address: str, host: str, headers: dict[str, str], status: int
) -> None:
    with local_client(service.app(deployment), address=address, host=host) as client:
        answer = client.post("/v1/inbox/try-begin", json=SENT, headers=headers)
    assert answer.status_code == status, answer.text
    assert status == 200 or is_problem(answer, 403, "Forbidden")


def test_an_application_may_know_its_callers_itself(deployment: pysqlbox.Deployment) -> None:
    async def by_header(request: Request) -> Caller | None:
        name = request.headers.get("x-user")
        return None if name is None else Caller(name, Role.PRODUCER)

    with local_client(service.app(deployment, authenticate=by_header), address="192.0.2.1") as client:
        assert is_problem(client.post("/v1/inbox/try-begin", json=SENT), 401, "Unauthorized")
        known = {"x-user": "anna"}
        assert client.post("/v1/inbox/try-begin", json=SENT, headers=known).status_code == 200
        foreign = {"x-user": "anna", "origin": "http://evil.example"}
        assert is_problem(client.post("/v1/inbox/try-begin", json=SENT, headers=foreign), 403, "Forbidden")


def test_the_token_file(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"a long enough token").hexdigest()
    file = tmp_path / "tokens.toml"
    file.write_text(
        '[[tokens]]\nname = "billing"\nrole = "producer"\ntoken = "0123456789abcdef"\n'
        f'[[tokens]]\nname = "ops"\nrole = "operator"\nsha256 = "{digest}"\n',
        encoding="utf-8",
    )
    tokens = Tokens.load(file)
    assert tokens.find("0123456789abcdef") == Caller("billing", Role.PRODUCER)
    assert tokens.find("a long enough token") == Caller("ops", Role.OPERATOR)
    assert tokens.find("0123456789abcdeF") is None
    assert "0123456789abcdef" not in repr(tokens)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must hold tables"),
        ("tokens = []", "must be at least one"),
        ("[[tokens]\n", "must be TOML"),
        ('[[tokens]]\nname = "a"\nrole = "king"\ntoken = "0123456789abcdef"', "role must be one of"),
        ('[[tokens]]\nname = "a"\nrole = "admin"\ntoken = "short"', "at least 16"),
        ('[[tokens]]\nname = "a"\nrole = "admin"', "either token or sha256"),
        ('[[tokens]]\nname = "a"\nrole = "admin"\nsha256 = "12"', "64 hex digits"),
        ('[[tokens]]\nrole = "admin"\ntoken = "0123456789abcdef"', "name must be"),
        ('[[tokens]]\nname = "a"\nrole = "admin"\ntokn = "0123456789abcdef"', "'tokn' must be"),
        (
            '[[tokens]]\nname = "a"\nrole = "admin"\ntoken = "0123456789abcdef"\n'
            '[[tokens]]\nname = "b"\nrole = "viewer"\ntoken = "0123456789abcdef"',
            "must not have the token of another",
        ),
        ('other = 1\n[[tokens]]\nname = "a"\nrole = "admin"\ntoken = "0123456789abcdef"', "nothing else"),
    ],
)
def test_a_wrong_token_file_says_what_is_wrong(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(pysqlbox.InvalidArgument, match=reason) as caught:
        Tokens.load(file)
    assert "0123456789abcdef" not in str(caught.value)


def test_a_missing_token_file(tmp_path: Path) -> None:
    with pytest.raises(pysqlbox.InvalidArgument, match="must be readable"):
        Tokens.load(tmp_path / "none.toml")
