"""Clients and tokens."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.testclient import TestClient

from pysqlbox.service import Role
from tests.service.processes import PATIENCE, until

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


@contextmanager
def live(app: Any) -> Iterator[str]:
    """An application on a real socket, served by a thread; yields its URL."""
    config = uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=10)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            until(lambda: server.started or not thread.is_alive(), "the server did not start")
            assert server.started
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
    assert not thread.is_alive()
