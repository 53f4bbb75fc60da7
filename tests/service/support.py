"""Clients and tokens."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.testclient import TestClient

from pysqlbox.service import Role

TOKENS: list[dict[str, object]] = [
    {"name": f"the {role}", "role": str(role), "token": f"token-of-the-{role}"} for role in Role
]


def bearer(role: Role | str) -> dict[str, str]:
    """The header with the token of a role."""
    return {"authorization": f"Bearer token-of-the-{role}"}


def local_client(app: Starlette, *, address: str = "127.0.0.1", host: str = "localhost") -> TestClient:
    """A client at an address that asks for a host."""
    return TestClient(app, base_url=f"http://{host}", client=(address, 50000), raise_server_exceptions=False)


def is_problem(response: Any, status: int, name: str) -> bool:
    """Whether an answer is a problem of that status and name, as it says itself."""
    if response.headers["content-type"] != "application/problem+json":
        return False
    found = response.json()
    assert set(found) == {"type", "title", "status", "detail", "name"}, found
    assert (found["status"], response.status_code) == (status, status), found
    return bool(found["name"] == name)
