"""The dashboard as a part of the service."""

from __future__ import annotations

import pytest
from starlette.requests import Request

import pysqlbox
from pysqlbox import service
from pysqlbox.service import Caller, Role
from tests.dashboard.support import TOKENS, unreachable
from tests.service.support import bearer, local_client


def test_the_service_has_the_dashboard_at_its_root() -> None:
    with unreachable() as db, local_client(service.app(db, tokens=TOKENS)) as client:
        answer = client.get("/topics", follow_redirects=False)
        assert answer.headers["location"] == "/login?next=%2Ftopics"
        assert client.get("/healthz").json() == {"status": "ok"}
        # A token in a header opens the service's routes, not a page for browsers.
        assert client.get("/topics", headers=bearer("admin"), follow_redirects=False).status_code == 303


def test_it_can_be_left_out() -> None:
    with unreachable() as db, local_client(service.app(db, tokens=TOKENS, dashboard=False)) as client:
        assert client.get("/login").status_code == 404


@pytest.mark.only_engine("pg18")
def test_whom_the_application_knows_needs_no_token(deployment: pysqlbox.Deployment) -> None:
    role = [Role.VIEWER]

    def known(request: Request) -> Caller | None:
        return Caller("ada", role[0]) if request.headers.get("x-user") == "ada" else None

    with local_client(service.app(deployment, authenticate=known)) as client:
        assert client.get("/topics", follow_redirects=False).status_code == 303
        page = client.get("/topics", headers={"x-user": "ada"})
        assert "ada, viewer" in page.text
        assert "Pause" not in page.text
        role[0] = Role.OPERATOR  # asked anew every time, whatever the cookie says
        assert "Pause" in client.get("/topics", headers={"x-user": "ada"}).text
        assert client.get("/topics", follow_redirects=False).status_code == 303
