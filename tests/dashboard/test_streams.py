"""Pages as streams of themselves: one view for all who may see the same, bounded, ended with the session."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

import pysqlbox
from pysqlbox.dashboard import Dashboard, watch
from pysqlbox.dashboard.sessions import COOKIE
from tests.dashboard.support import TOKENS, Visitor, kill, served

pytestmark = pytest.mark.only_engine("pg18")
PATIENCE = 60.0


class Listener:
    """A browser that listens to a page."""

    def __init__(self, address: str, path: str, cookie: str | None = None) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=PATIENCE)
        headers = {"accept": "text/event-stream"}
        if cookie is not None:
            headers["cookie"] = f"{COOKIE}={cookie}"
        self.connection.request("GET", path, headers=headers)
        self.answer = self.connection.getresponse()

    def events(self) -> Iterator[tuple[str, str]]:
        """Name and data of each event, until the stream ends; the name of a keep-alive is empty."""
        name, data = "", []
        for raw in self.answer:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data.append(line[6:])
            elif line.startswith(":"):
                yield "", ""
            elif not line and name:
                yield name, "\n".join(data)
                name, data = "", []

    def named(self) -> Iterator[tuple[str, str]]:
        """The events without the keep-alives, which may come before any."""
        return (each for each in self.events() if each[0])

    def close(self) -> None:
        """Look no more."""
        self.answer.close()
        self.connection.close()


def until(holds: Callable[[], bool]) -> None:
    """Wait for something to hold."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def cookie_of(visitor: Visitor) -> str:
    """The session of a visitor."""
    return str(visitor.client.cookies[COOKIE])


@pytest.fixture
def quick(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> Dashboard:
    """The dashboard, whose streams show soon that they live."""
    monkeypatch.setattr(dashboard.streams, "_keep_alive", 0.2)
    return dashboard


def test_a_page_is_sent_when_it_has_changed(
    quick: Dashboard, address: str, deployment: pysqlbox.Deployment
) -> None:
    visitor = Visitor(quick).log_in("operator")
    with closing(Listener(address, "/dead", cookie_of(visitor))) as listener:
        assert listener.answer.headers["content-type"].startswith("text/event-stream")
        assert "frame-ancestors 'none'" in str(listener.answer.headers["content-security-policy"])
        events = listener.events()
        name, first = next(each for each in events if each[0])
        assert name == "page"
        assert first.startswith("<main ")
        assert "No dead letters in outbox" in first
        assert next(events) == ("", "")
        kill(deployment, 1, error="it broke")
        quick.watch.shared.forget()  # type: ignore[union-attr]  # of one deployment
        changed = next(data for name, data in events if name == "page")
        assert "it broke" in changed
        assert "replay, discard" in changed
    until(lambda: quick.streams.count == 0)


def test_viewers_share_a_view_and_each_has_its_own_form_token(quick: Dashboard, address: str) -> None:
    visitors = [Visitor(quick).log_in("operator") for _ in range(3)]
    listeners = [Listener(address, "/topics", cookie_of(each)) for each in visitors]
    try:
        pages = [next(listener.named())[1] for listener in listeners]
        assert len(quick.streams._views) == 1  # what is to be one for all
        for visitor, page in zip(visitors, pages, strict=True):
            assert f'name="form_token" value="{visitor.form_token}"' in page
        assert len({visitor.form_token for visitor in visitors}) == 3
    finally:
        for listener in listeners:
            listener.close()


def test_roles_hold_in_a_stream(quick: Dashboard, address: str) -> None:
    viewer = cookie_of(Visitor(quick).log_in("viewer"))
    operator = cookie_of(Visitor(quick).log_in("operator"))
    with closing(Listener(address, "/audit", operator)) as refused:
        assert refused.answer.status == 403
    with closing(Listener(address, "/topics")) as nobody:
        assert nobody.answer.status == 303
    with (
        closing(Listener(address, "/topics", viewer)) as sees,
        closing(Listener(address, "/topics", operator)) as acts,
    ):
        assert "<button" not in next(sees.named())[1]
        assert "<button" in next(acts.named())[1]


def test_a_stream_ends_with_its_session(quick: Dashboard, address: str) -> None:
    visitor = Visitor(quick).log_in("viewer")
    with closing(Listener(address, "/topics", cookie_of(visitor))) as listener:
        events = listener.named()
        next(events)
        visitor.post("/logout")
        assert list(events) == [("over", "login")]


def test_what_is_over_or_gone_is_told_once(
    quick: Dashboard, address: str, deployment: pysqlbox.Deployment
) -> None:
    cookie = cookie_of(Visitor(quick).log_in("viewer"))
    id = kill(deployment, 1)[0]
    with closing(Listener(address, f"/messages/outbox/{id}", cookie)) as listener:
        ((name, data),) = listener.named()
        assert name == "over"
        assert 'data-every="0"' in data
    with closing(Listener(address, "/messages/outbox/999999", cookie)) as listener:
        assert list(listener.named()) == [("over", "404")]


def test_there_are_only_so_many(deployment: pysqlbox.Deployment) -> None:
    made = Dashboard(deployment, find=TOKENS.find, streams=2)
    cookie = cookie_of(Visitor(made).log_in("viewer"))
    with served(made) as address:
        first = [Listener(address, path, cookie) for path in ("/topics", "/dead")]
        until(lambda: made.streams.count == 2)
        with closing(Listener(address, "/topics", cookie)) as refused:
            assert refused.answer.status == 503
            assert int(refused.answer.headers["retry-after"]) > 0
        first.pop().close()
        until(lambda: made.streams.count == 1)
        with closing(Listener(address, "/topics", cookie)) as third:
            assert third.answer.status == 200
        first.pop().close()
        made.close()


def test_the_end_of_the_service_ends_them(quick: Dashboard, address: str) -> None:
    cookie = cookie_of(Visitor(quick).log_in("viewer"))
    with closing(Listener(address, "/topics", cookie)) as listener:
        events = listener.named()
        next(events)
        quick.streams.close()
        assert list(events) == []  # and it ends
    until(lambda: quick.streams.count == 0)


def test_the_database_is_asked_once_for_all(
    quick: Dashboard, address: str, deployment: pysqlbox.Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    real = deployment.outbox.dead_causes

    def dead_causes(**more: Any) -> Any:
        asked.append(more)
        return real(**more)

    monkeypatch.setattr(deployment.outbox, "dead_causes", dead_causes)
    cookie = cookie_of(Visitor(quick).log_in("viewer"))
    listeners = [Listener(address, "/dead", cookie) for _ in range(20)]
    try:
        for listener in listeners:
            next(listener.named())
        assert len(asked) == 1
    finally:
        for listener in listeners:
            listener.close()


def test_nobody_is_asked_when_nobody_looks(
    deployment: pysqlbox.Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(watch, "_LONGEST", 0.0)
    monkeypatch.setattr(watch, "_EVERY", 0.05)
    watched = watch.Watch(deployment)
    watched.snapshot()
    until(lambda: watched._thread is None)  # the thread that is to end
    watched.snapshot()
    assert watched._thread is not None or watched._asked_at > 0  # and to begin again
    watched.close()
