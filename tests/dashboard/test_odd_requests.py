"""Odd arguments: every page says what is wrong with them, and none breaks."""

from __future__ import annotations

import re
from urllib.parse import quote
from uuid import UUID

import pytest

import pysqlbox
from pysqlbox.dashboard import Dashboard
from pysqlbox.dashboard.dashboard import _ENTRIES
from tests.dashboard.support import HOSTILE, Visitor, kill

pytestmark = pytest.mark.only_engine("pg18")

ODD = [
    "\x00", "\x1b[31m", "\u202e", "ü" * 300, "x" * 10_000, "-1", "0", "9" * 30, "1e3", "null",
    "'; DROP TABLE x; --",
    "../../etc/passwd", "%", "%00", "{{7*7}}", "\r\nset-cookie: a=b", HOSTILE, str(UUID(int=0)),
]  # fmt: skip
ARGUMENTS = [
    "box", "status", "topic", "group", "after", "find", "tenant", "prefix", "actor", "action", "before",
    "cause", "blocked", "said", "n", "next", "store",
]  # fmt: skip
KNOWN = {400, 403, 404, 405, 409}


def _pages() -> list[str]:
    return [path for method, path, *_ in _ENTRIES if method == "GET"]


@pytest.mark.parametrize("page", _pages())
def test_odd_arguments_are_refused_or_find_nothing(
    dashboard: Dashboard, deployment: pysqlbox.Deployment, page: str
) -> None:
    kill(deployment, 1, error=HOSTILE)
    visitor = Visitor(dashboard).log_in("admin")
    path = re.sub(r"\{box\}", "outbox", re.sub(r"\{(id|join_id)\}", "1", page))
    for number, argument in enumerate(ARGUMENTS):
        for value in (ODD * 2)[number % len(ODD) :][:5]:  # in all, each value for some arguments of each page
            answer = visitor.client.get(path, params={argument: value})
            assert answer.status_code in KNOWN | {200, 303}, (page, argument, value, answer.status_code)
            assert HOSTILE not in answer.text
            assert "set-cookie: a=b" not in str(answer.headers)
            if "location" in answer.headers:
                assert re.match(r"/(?![/\\])[!-~]*$", answer.headers["location"])


@pytest.mark.parametrize("value", ODD)
def test_odd_paths_lead_nowhere(dashboard: Dashboard, deployment: pysqlbox.Deployment, value: str) -> None:
    kill(deployment, 1)
    visitor = Visitor(dashboard).log_in("admin")
    odd = quote(value, safe="")
    for path in (
        f"/messages/{odd}/1",
        f"/messages/outbox/{odd}",
        f"/joins/{odd}",
        f"/runs/{odd}",
        f"/dead/{odd}/bulk",
        f"/assets/{odd}",
    ):
        assert visitor.client.get(path).status_code in KNOWN, path
    for path in (
        f"/messages/outbox/{odd}/replay",
        f"/messages/outbox/1/{odd}",
        f"/boxes/{odd}/pause",
        f"/schedules/{odd}/remove",
        f"/dead/outbox/bulk/{odd}",
    ):
        # There may be messages of any id; of this one there is none to be changed.
        assert visitor.post(path, {"cause": "x", "name": "x"}).status_code in KNOWN | {303}, path
    for path in ("/boxes/outbox/pause", "/schedules/outbox/remove", "/dead/outbox/bulk/replay"):
        answer = visitor.post(path, {"topic": value, "name": value, "cause": value, "rate": "1"})
        assert answer.status_code in KNOWN | {303}, (path, answer.text)
    dashboard.runs.close()
    assert deployment.outbox.list("Failed")[0].topic == "t"
