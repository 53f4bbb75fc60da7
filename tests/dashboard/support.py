"""Visitors of the dashboard: by plain requests, and by a real browser."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any
from urllib.parse import quote
from uuid import UUID

import uvicorn
from starlette.applications import Starlette
from starlette.testclient import TestClient

import pysqlbox
from pysqlbox.dashboard import Dashboard
from pysqlbox.service import Role, Tokens

Audited = Callable[[], list[tuple[str, str, str | None, int | None]]]
OWNER = UUID("22222222-2222-4222-8222-222222222222")
TOKENS = Tokens(
    [{"name": f"the {role}", "role": str(role), "token": f"token-of-the-{role}"} for role in Role]
)
#: What a message must not do on a page, wherever its text comes from.
HOSTILE = (
    "\"><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>'{{7*7}}&lt;"
)


class Visitor:
    """A browser without JavaScript: keeps its cookie, and fills in the forms that it was shown."""

    def __init__(
        self, dashboard: Dashboard, *, address: str = "127.0.0.1", host: str = "localhost", root: str = ""
    ) -> None:
        self.client = TestClient(
            Starlette(routes=dashboard.routes),
            base_url=f"http://{host}", client=(address, 50000), root_path=root,
            follow_redirects=False, raise_server_exceptions=True,
        )  # fmt: skip
        self.form_token = ""
        self._dashboard = dashboard

    def get(self, path: str, **options: Any) -> Any:
        """A page as it is now, whatever was asked a moment ago; its form token is kept."""
        if self._dashboard.watch is not None:
            self._dashboard.watch.shared.forget()
        answer = self.client.get(path, **options)
        self._keep(answer)
        return answer

    def text(self, path: str) -> str:
        """A page that is there."""
        answer = self.get(path)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:2000]}"
        return str(answer.text)

    def post(self, path: str, fields: dict[str, str] | None = None, **options: Any) -> Any:
        """Send a form. ``fields`` are packed as the pages do it."""
        packed = {name: quote(value, safe="") for name, value in (fields or {}).items()}
        return self.send(path, {"form_token": self.form_token} | packed, **options)

    def send(self, path: str, fields: dict[str, str], **options: Any) -> Any:
        """Send fields as they are."""
        answer = self.client.post(path, data=fields, **options)
        self._keep(answer)
        return answer

    def log_in(self, role: str) -> Visitor:
        """Be somebody of this role."""
        self.get("/login")
        answer = self.post("/login", {"token": f"token-of-the-{role}"})
        assert answer.status_code == 303, answer.text
        self.get(
            "/" if self._dashboard.watch is None else "/topics"
        )  # every page has the form of the logout, also one that tells of an error
        return self

    def _keep(self, answer: Any) -> None:
        found = re.search(r'name="form_token" value="([^"]*)"', answer.text)
        if found:
            self.form_token = unescape(found[1])


def unreachable() -> pysqlbox.Deployment:
    """A deployment whose database nobody can reach, for what is decided before it is asked."""
    return pysqlbox.connect("postgresql://nobody@127.0.0.1:1/none", retries=pysqlbox.Retries(attempts=1))


def kill(db: pysqlbox.Deployment, count: int, *, topic: str = "t", error: str = "it failed") -> list[int]:
    """Messages of the outbox that were given up."""
    for number in range(count):
        db.outbox.enqueue(topic, {"n": number})
    ids = [each.id for each in db.outbox.claim(OWNER, batch_size=1000, topics=[topic])]
    db.outbox.fail(OWNER, ids, error)
    return ids


@contextlib.contextmanager
def served(dashboard: Dashboard) -> Iterator[str]:
    """The dashboard at an address of this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(Starlette(routes=dashboard.routes), log_level="warning", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            deadline = time.monotonic() + 30
            while not server.started:
                assert time.monotonic() < deadline, "the server did not start"
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=30)
