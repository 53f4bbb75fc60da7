"""Who is let in, by every route, before any database is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from pysqlbox.dashboard import Dashboard
from pysqlbox.dashboard.dashboard import _ENTRIES
from pysqlbox.dashboard.people import NOBODY, Person
from pysqlbox.dashboard.sessions import COOKIE, Sessions
from tests.dashboard.support import TOKENS, Visitor, unreachable

_RANK = {"": 0, "viewer": 1, "operator": 2, "admin": 3}
_GUARDED = [entry[:3] for entry in _ENTRIES if entry[2] != NOBODY]


@pytest.fixture
def guarded() -> Iterator[Dashboard]:
    """A dashboard with tokens, in front of nothing."""
    with unreachable() as db:
        made = Dashboard(db, find=TOKENS.find, boxes=["outbox"])
        yield made
        made.close()


@pytest.fixture
def local() -> Iterator[Dashboard]:
    """A dashboard without tokens, in front of nothing."""
    with unreachable() as db:
        made = Dashboard(db, boxes=["outbox"])
        yield made
        made.close()


def _ask(visitor: Visitor, method: str, path: str) -> Any:
    path = re.sub(r"\{box\}", "outbox", path)
    path = re.sub(r"\{join_id\}", "01a1f4df-ad8b-7f69-a2bb-80222cfbef91", path)
    path = re.sub(r"\{[a-z_]+\}", "7", path)
    return visitor.get(path) if method == "GET" else visitor.post(path)


@pytest.mark.parametrize(("method", "path", "least"), _GUARDED)
def test_every_route_asks_for_its_role(guarded: Dashboard, method: str, path: str, least: str) -> None:
    stranger = Visitor(guarded)
    stranger.get("/login")
    answer = _ask(stranger, method, path)
    if method == "GET":
        assert answer.status_code == 303
        assert "/login?next=" in answer.headers["location"]
    else:
        assert answer.status_code == 401
    for role in ("viewer", "operator", "admin"):
        answer = _ask(Visitor(guarded).log_in(role), method, path)
        if _RANK[role] < _RANK[least]:
            assert answer.status_code == 403
            assert least in answer.text
        else:  # it has come as far as the database, or as what is wrong with the path
            assert answer.status_code not in (401, 403), answer.text


def test_what_changes_anything_takes_more_than_a_viewer() -> None:
    assert {entry[2] for entry in _GUARDED if entry[0] == "POST"} <= {"operator", "admin"}


@pytest.mark.parametrize(("method", "path", "least"), [e for e in _GUARDED if e[0] == "POST"])
def test_every_form_carries_the_token_of_its_session(
    guarded: Dashboard, method: str, path: str, least: str
) -> None:
    admin, other = Visitor(guarded).log_in("admin"), Visitor(guarded).log_in("admin")
    assert _ask(admin, method, path).status_code != 403, least
    for token in ("", "x" * 43, other.form_token, admin.form_token[:-1]):
        admin.form_token = token
        assert _ask(admin, method, path).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}],
)
def test_no_form_comes_from_another_site(guarded: Dashboard, headers: dict[str, str]) -> None:
    visitor = Visitor(guarded).log_in("operator")
    assert visitor.post("/boxes/outbox/pause", headers=headers).status_code == 403
    own = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    assert visitor.post("/boxes/outbox/pause", headers=own).status_code == 503


def test_forms_are_forms(guarded: Dashboard) -> None:
    visitor = Visitor(guarded).log_in("operator")
    answer = visitor.client.post("/boxes/outbox/pause", json={"form_token": visitor.form_token})
    assert answer.status_code == 415
    assert visitor.post("/boxes/outbox/pause", {"topic": "x" * 70_000}).status_code == 413
    many = {f"f{number}": "" for number in range(200)} | {"form_token": visitor.form_token}
    assert visitor.send("/boxes/outbox/pause", many).status_code == 400


def test_a_producers_token_and_an_unknown_one_open_nothing(
    guarded: Dashboard, caplog: pytest.LogCaptureFixture
) -> None:
    visitor = Visitor(guarded)
    visitor.get("/login")
    for token, said in (("token-of-the-producer", "producer"), ("nobody's token, really", "No token")):
        answer = visitor.post("/login", {"token": token})
        assert answer.status_code == 403
        assert said in answer.text
        assert "a login from 127.0.0.1 was refused" in caplog.messages[-1]
        assert token not in caplog.text
        assert visitor.get("/topics").status_code == 303


def test_the_cookie_is_for_this_site_alone_and_is_new_after_the_login(guarded: Dashboard) -> None:
    visitor = Visitor(guarded)
    before = visitor.get("/login")
    assert re.search(r"HttpOnly; Path=/; SameSite=strict$", before.headers["set-cookie"], re.I)
    old = visitor.client.cookies[COOKIE]
    visitor.log_in("viewer")
    assert visitor.client.cookies[COOKIE] != old
    secure = visitor.client.get("https://localhost/login", headers={"cookie": ""})
    assert "Secure" in secure.headers["set-cookie"]


def test_a_logout_ends_the_session_on_the_server(guarded: Dashboard) -> None:
    visitor = Visitor(guarded).log_in("operator")
    visitor.get("/topics")
    stolen = visitor.client.cookies[COOKIE]
    visitor.client.cookies.clear()
    visitor.client.cookies.set(COOKIE, stolen)
    assert visitor.get("/topics").status_code == 503
    assert visitor.post("/logout").status_code == 303
    visitor.client.cookies.clear()
    visitor.client.cookies.set(COOKIE, stolen)
    assert visitor.get("/topics").status_code == 303


@pytest.mark.parametrize(
    "wanted",
    ["//evil.example", "/\\evil.example", "https://evil.example", "/%0d%0aset-cookie:x=1", "javascript:x"],
)
def test_the_login_leads_to_no_other_site(guarded: Dashboard, wanted: str) -> None:
    visitor = Visitor(guarded)
    visitor.get("/login")
    fields = {"form_token": visitor.form_token, "token": "token-of-the-viewer", "next": wanted}
    location = visitor.send("/login", fields).headers["location"]
    assert re.match(r"/(?![/\\])", location), location
    assert "\n" not in location


def test_the_login_leads_back(guarded: Dashboard) -> None:
    visitor = Visitor(guarded)
    location = visitor.get("/messages?box=outbox&status=Done").headers["location"]
    page = visitor.get(location).text
    assert 'value="/messages?box=outbox&amp;status=Done"' in page
    fields = {"form_token": visitor.form_token, "token": "token-of-the-viewer"}
    answer = visitor.send("/login", fields | {"next": "/messages?box=outbox&status=Done"})
    assert answer.headers["location"] == "/messages?box=outbox&status=Done"


def test_without_tokens_only_this_machine_is_let_in(local: Dashboard) -> None:
    assert Visitor(local).get("/topics").status_code == 503
    for address, host in (
        ("10.0.0.7", "localhost"),
        ("127.0.0.1", "evil.example"),
        ("127.0.0.1", "localhost.evil.example"),
    ):
        answer = Visitor(local, address=address, host=host).get("/topics")
        assert answer.status_code == 403, (address, host)
    for host in ("127.0.0.1:8080", "[::1]:8080", "localhost:1"):
        assert Visitor(local, host=host).get("/topics").status_code == 503
    proxied = Visitor(local).get("/topics", headers={"x-forwarded-for": "10.0.0.7"})
    assert proxied.status_code == 403


def test_with_tokens_only_allowed_hosts_are_answered() -> None:
    with unreachable() as db:
        made = Dashboard(db, find=TOKENS.find, allowed_hosts=["queue.example"])
        assert Visitor(made, host="queue.example").get("/login").status_code == 200
        assert Visitor(made, host="other.example").get("/login").status_code == 403
        made.close()


def test_every_page_has_a_strict_policy(guarded: Dashboard) -> None:
    visitor = Visitor(guarded)
    for path in ("/login", "/topics", "/assets/app.js", "/assets/none", "/"):
        headers = visitor.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in policy
    assert visitor.get("/login").headers["cache-control"] == "no-store"


def test_nothing_is_asked_of_another_host(guarded: Dashboard) -> None:
    visitor = Visitor(guarded)
    for path in ("/login", "/assets/app.js", "/assets/style.css"):
        text = visitor.text(path)
        assert not re.search(r"(src|href|url)\s*[=(]\s*[\"']?(https?:)?//", text)
    assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son[a-z]+=", visitor.text("/login"))


def test_sessions_end() -> None:
    now = [1_000_000.0]
    sessions = Sessions(b"k" * 32, idle_seconds=60, longest_seconds=100, clock=lambda: now[0])
    session = sessions.begin(Person("a", "viewer"))
    cookie = sessions.cookie(session)
    assert sessions.read(cookie) == session
    now[0] += 59
    assert sessions.read(cookie) == session
    renewed = sessions.renewed(session)
    assert renewed is not None
    now[0] += 1
    assert sessions.read(cookie) is None
    assert sessions.read(sessions.cookie(renewed)) == renewed
    now[0] += 40
    assert sessions.read(sessions.cookie(renewed)) is None


@pytest.mark.parametrize("cookie", [None, "", ".", "a.b", "é.ü", "e30.", "\ud800.x"])
def test_a_forged_cookie_is_none(cookie: str | None) -> None:
    sessions = Sessions(b"k" * 32)
    assert sessions.read(cookie) is None
    body, _, signature = sessions.cookie(sessions.begin(Person("a", "viewer"))).partition(".")
    assert sessions.read(f"{body[:-2]}AA.{signature}") is None
    assert Sessions(b"j" * 32).read(f"{body}.{signature}") is None


def test_a_database_that_is_away_is_said_so(guarded: Dashboard) -> None:
    visitor = Visitor(guarded).log_in("operator")
    for path in ("/", "/topics", "/messages", "/messages/outbox/1"):
        answer = visitor.get(path)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "2"
        assert "The database does not answer" in answer.text
