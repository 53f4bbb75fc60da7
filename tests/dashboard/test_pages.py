"""The pages on every engine: what they show and do."""

from __future__ import annotations

import re
import threading
from typing import Any, cast

import pytest
from markupsafe import escape
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

import pysqlbox
from pysqlbox import Finding
from pysqlbox.dashboard import Dashboard
from pysqlbox.dashboard.overview import one_of_each_first
from tests.dashboard.support import HOSTILE, OWNER, Audited, Visitor, kill


def test_the_overview_has_every_box(visitor: Visitor, deployment: pysqlbox.Deployment) -> None:
    kill(deployment, 3)
    deployment.outbox.enqueue_many([{"topic": "t", "payload": "{}"}] * 1234)
    deployment.outbox.enqueue("t", "{}", delay=60)
    page = visitor.text("/")
    for box in ("outbox", "inbox", "orders", "mail"):
        assert f'id="box-{box}"' in page
    card = page.split('id="box-outbox"')[1].split("</section>")[0]
    figures = re.findall(r"<dt>([^<]+)</dt><dd[^>]*>(?:<a[^>]*>)?([^<]*)", card)
    assert ("ready", "1,234") in figures
    assert ("delayed", "1") in figures
    assert ("dead", "3") in figures
    assert "<b>dead_letters</b>, box outbox: 3 messages were given up" in page


def test_while_the_database_is_away_the_last_figures_stay(
    visitor: Visitor, deployment: pysqlbox.Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.outbox.enqueue_many([{"topic": "t", "payload": ""}] * 1234)
    assert "The database does not answer." not in visitor.text("/")

    def fail(*_: object, **__: object) -> object:
        raise pysqlbox.DatabaseUnavailable("connection refused")

    with monkeypatch.context() as away:
        away.setattr(deployment, "perform", fail)
        for path in ("/", "/topics"):
            page = visitor.text(path)
            assert "1,234" in page
            assert "The database does not answer." in page
            assert "connection refused" in page
            assert 'data-every="2"' in page
        assert visitor.get("/messages").status_code == 503
    assert "The database does not answer." not in visitor.text("/")


def test_topics_are_paused_and_resumed(
    visitor: Visitor, deployment: pysqlbox.Deployment, audited: Audited
) -> None:
    deployment.outbox.enqueue(HOSTILE, "{}")
    page = visitor.text("/topics?box=outbox")
    assert escape(HOSTILE) in page
    assert HOSTILE not in page
    assert visitor.post("/boxes/outbox/pause", {"topic": HOSTILE}).status_code == 303
    assert deployment.outbox.claim(OWNER) == []
    assert audited() == [("the operator", "pause", f"box outbox, topic {HOSTILE}", 1)]
    assert '<span class="tag warning">paused</span>' in visitor.text("/topics?box=outbox")
    visitor.post("/boxes/outbox/resume", {"topic": HOSTILE})
    assert len(deployment.outbox.claim(OWNER)) == 1
    visitor.post("/boxes/inbox/pause")
    assert "the whole box is paused" in visitor.text("/topics?box=inbox&said=paused")


def test_messages_by_status_topic_and_group(visitor: Visitor, deployment: pysqlbox.Deployment) -> None:
    db = deployment
    plain = db.outbox.enqueue("a", "{}").id
    grouped = db.outbox.enqueue("b", "{}", group_id="g/1 &").id
    dead = kill(db, 1, topic="c", error=HOSTILE)[0]
    seen = db.inbox.enqueue("pay", "bank", "m 1", "{}").id

    def ids(query: str) -> list[int]:
        return [int(id) for id in re.findall(r'/messages/[a-z]+/(\d+)"', visitor.text(f"/messages?{query}"))]

    assert ids("") == [plain, grouped]
    assert ids("box=outbox&status=Ready&topic=b") == [grouped]
    assert ids("box=outbox&status=Ready&group=g%2F1+%26") == [grouped]
    assert ids("box=outbox&status=Failed") == [dead]
    assert ids("box=outbox&status=Ready&topic=none") == []
    assert ids("box=inbox&status=Processing") == [seen]
    assert ids("box=inbox") == [seen]
    page = visitor.text("/messages?box=outbox&status=Failed")
    assert escape(HOSTILE) in page
    assert HOSTILE not in page
    for status in ("Done", "InProgress", "Expired", "Cancelled"):
        assert f"No message is {status} here." in visitor.text(f"/messages?box=outbox&status={status}")


def test_a_list_has_the_beginnings_of_long_errors(visitor: Visitor, deployment: pysqlbox.Deployment) -> None:
    id = kill(deployment, 1, error="e" * 15_000)[0]
    page = visitor.text("/messages?status=Failed")
    assert "e" * 300 + "\N{HORIZONTAL ELLIPSIS}" in page
    assert "e" * 301 not in page
    assert "e" * 15_000 in visitor.text(f"/messages/outbox/{id}")


def test_pages_follow_one_another(visitor: Visitor, deployment: pysqlbox.Deployment) -> None:
    sent = [each.id for each in deployment.outbox.enqueue_many([{"topic": "a", "payload": ""}] * 120)]
    found: list[int] = []
    path = "/messages?box=outbox&status=Ready"
    for _ in range(3):
        page = visitor.text(path)
        found += [int(id) for id in re.findall(r'/messages/outbox/(\d+)"', page)]
        more = re.search(r'href="([^"]+)">next page', page)
        path = more[1].replace("&amp;", "&") if more else ""
    assert found == sent
    assert path == ""


def test_a_message_is_found(visitor: Visitor, deployment: pysqlbox.Deployment) -> None:
    sent = deployment.outbox.enqueue("a", "{}")
    received = deployment.inbox.enqueue("pay", "bank", "m/1", "{}")
    sliced = deployment.inbox.enqueue("pay", "urn:a/b", "m/1", "{}")
    for box, text, id in (
        ("outbox", str(sent.id), sent.id),
        ("outbox", f" {sent.message_id} ", sent.id),
        ("inbox", "bank/m/1", received.id),
        ("inbox", "urn:a/b/m/1", sliced.id),
    ):
        answer = visitor.get("/messages", params={"box": box, "find": text})
        assert answer.headers["location"] == f"/messages/{box}/{id}"
    for box, text, status in (
        ("outbox", "00000000-0000-0000-0000-000000000001", 404),
        ("outbox", HOSTILE, 400),
        ("inbox", "bank/none", 404),
        ("inbox", "x", 400),
        ("none", "1", 404),
    ):
        answer = visitor.get("/messages", params={"box": box, "find": text})
        assert answer.status_code == status
        assert HOSTILE not in answer.text


def test_a_message_tells_its_story(visitor: Visitor, deployment: pysqlbox.Deployment) -> None:
    db = deployment
    sent = db.outbox.enqueue("a", "{}", group_id="g", correlation_id="c-1", dedup_key="d", collapse_key="k")
    join = db.joins.start("t", 2)
    db.joins.attach(join, sent.message_id)
    page = visitor.text(f"/messages/outbox/{sent.id}")
    for text in (str(sent.message_id), "c-1", "Waits", str(join), "Pending"):
        assert text in page
    db.outbox.claim(OWNER)
    assert str(OWNER) in visitor.text(f"/messages/outbox/{sent.id}")
    db.outbox.abandon(OWNER, [sent.id], last_error="first\nsecond \u202e", delay_seconds=0.001)
    page = visitor.text(f"/messages/outbox/{sent.id}")
    assert "1 failed try" in page
    assert "first\nsecond \\u202e" in page
    db.outbox.cancel([sent.id], reason=HOSTILE)
    page = visitor.text(f"/messages/outbox/{sent.id}")
    assert "Cancelled" in page
    assert HOSTILE not in page
    received = db.inbox.enqueue("pay", "bank", "m", "{}", hash=b"\x01\xff")
    page = visitor.text(f"/messages/inbox/{received.id}")
    assert "bank" in page
    assert "01ff" in page
    db.inbox.already_processed("only seen", "bank")
    (seen,) = db.inbox.list("Seen")
    assert "Seen, never enqueued" in visitor.text(f"/messages/inbox/{seen.id}")


def test_payload_and_headers_are_asked_for_and_noted(
    dashboard: Dashboard, deployment: pysqlbox.Deployment, audited: Audited
) -> None:
    payload = {"name": f"Ada {HOSTILE}", "nested": [{"Card_Number": "4111"}], "password": "hush"}
    id = deployment.outbox.enqueue("a", payload, headers={"Authorization": "Bearer 1", "trace": "t-1"}).id
    path = f"/messages/outbox/{id}"
    for role in ("viewer", "operator", "admin"):
        page = Visitor(dashboard).log_in(role).text(path)
        assert "Ada" not in page
        assert "t-1" not in page
    viewer = Visitor(dashboard).log_in("viewer")
    assert viewer.post(f"{path}/reveal").status_code == 403
    assert audited() == []
    operator = Visitor(dashboard).log_in("operator")
    page = operator.post(f"{path}/reveal").text
    assert audited() == [("the operator", "reveal", f"box outbox, message {id}", 1)]
    assert "Ada" in page
    assert "t-1" in page
    assert "masked fields: 2" in page
    for hidden in ("4111", "hush", "Bearer 1", HOSTILE):
        assert hidden not in page


def test_a_payload_that_is_no_json_is_shown_as_it_is(
    visitor: Visitor, deployment: pysqlbox.Deployment
) -> None:
    for payload in ("plain <b>text</b>", "{", ""):
        id = deployment.outbox.enqueue("a", payload).id
        visitor.get(f"/messages/outbox/{id}")
        page = visitor.post(f"/messages/outbox/{id}/reveal").text
        assert "not JSON" in page
        assert escape(payload) in page


def test_one_message_is_acted_on(visitor: Visitor, deployment: pysqlbox.Deployment, audited: Audited) -> None:
    box = deployment.outbox
    first, second = kill(deployment, 2)
    visitor.post(f"/messages/outbox/{first}/replay")
    assert box.get(first).status == "Ready"
    answer = visitor.post(f"/messages/outbox/{second}/discard")
    assert answer.headers["location"].startswith("/messages?box=outbox&said=discarded")
    assert "Deleted: 1." in visitor.text(answer.headers["location"])
    assert visitor.get(f"/messages/outbox/{second}").status_code == 404
    later = box.enqueue("t", "{}", delay=3600).id
    visitor.post(f"/messages/outbox/{later}/now")
    due_at = box.get(later).due_at
    visitor.post(f"/messages/outbox/{later}/cancel")
    found = box.get(later)
    assert found.status == "Cancelled"
    assert found.last_error == "cancelled by the operator"
    assert found.died_at is not None
    assert due_at is None or due_at <= found.died_at
    assert [entry[1] for entry in audited()] == ["replay", "discard", "now", "cancel"]
    assert visitor.post(f"/messages/outbox/{first}/replay").status_code == 409
    assert visitor.post(f"/messages/outbox/{first}/explode").status_code == 404


def test_viewers_are_shown_no_buttons(dashboard: Dashboard, deployment: pysqlbox.Deployment) -> None:
    id = kill(deployment, 1)[0]
    viewer = Visitor(dashboard).log_in("viewer")
    for path in ("/", "/topics", "/messages?status=Failed", f"/messages/outbox/{id}"):
        forms = re.findall(r'<form[^>]*method="post"[^>]*action="([^"]*)"', viewer.text(path))
        assert forms == ["/logout"], path


def test_a_page_that_is_as_it_was_is_not_sent_again(
    visitor: Visitor, deployment: pysqlbox.Deployment
) -> None:
    path = f"/messages/outbox/{kill(deployment, 1)[0]}"
    tag = visitor.get(path).headers["etag"]
    deadline = 50
    while visitor.get(path, headers={"if-none-match": tag}).status_code != 304:  # an age may have changed
        tag = visitor.get(path).headers["etag"]
        deadline -= 1
        assert deadline, "the page is another one every time"
    assert visitor.get(path, headers={"if-none-match": '"other"'}).status_code == 200


def test_mounted_below_a_path_all_links_stay_there(
    dashboard: Dashboard, deployment: pysqlbox.Deployment
) -> None:
    id = kill(deployment, 1)[0]
    visitor = Visitor(dashboard, root="/ops/box")
    assert visitor.get("/ops/box/topics").headers["location"].startswith("/ops/box/login?next=%2Ftopics")
    visitor.get("/ops/box/login")
    fields = {"form_token": visitor.form_token, "token": "token-of-the-operator", "next": "/topics"}
    answer = visitor.send("/ops/box/login", fields)
    assert answer.headers["location"] == "/ops/box/topics"
    assert "Path=/ops/box/" in answer.headers["set-cookie"]
    for path in ("", "topics", "messages", f"messages/outbox/{id}"):
        page = visitor.text(f"/ops/box/{path}")
        links = re.findall(r'(?:href|src|action)="([^"#][^"]*)"', page)
        assert links
        assert all(link.startswith("/ops/box/") for link in links)


def test_it_mounts_below_a_path_of_another_application(dashboard: Dashboard) -> None:
    app = Starlette(routes=[Mount("/ops/queue", routes=dashboard.routes)])
    with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
        assert client.get("/ops/queue/topics").headers["location"] == "/ops/queue/login?next=%2Ftopics"
        page = client.get("/ops/queue/login").text
        token = re.findall(r'name="form_token" value="([^"]*)"', page)[0]
        fields = {"form_token": token, "token": "token-of-the-viewer", "next": "/topics"}
        assert client.post("/ops/queue/login", data=fields).headers["location"] == "/ops/queue/topics"
        page = client.get("/ops/queue/topics").text
        links = re.findall(r'(?:href|src|action)="([^"#][^"]*)"', page)
        assert links
        assert all(link.startswith("/ops/queue/") for link in links)
        assert all(client.get(link).status_code == 200 for link in links if "/assets/" in link)


def test_a_silent_database_is_not_waited_for(
    dashboard: Dashboard, visitor: Visitor, deployment: pysqlbox.Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaks = threading.Event()
    monkeypatch.setattr(deployment, "doctor", lambda: speaks.wait(60) and [])
    monkeypatch.setattr(dashboard, "call_seconds", 0.2)
    for _ in range(6):  # more than there are threads
        answer = visitor.get("/doctor")
        assert answer.status_code == 503
        assert "did not answer within 0.2 seconds" in answer.text
    speaks.set()
    monkeypatch.setattr(dashboard, "call_seconds", 60)
    assert "Nothing is wrong." in visitor.text("/doctor")


def test_without_tokens_forms_still_come_from_our_pages(deployment: pysqlbox.Deployment) -> None:
    made = Dashboard(deployment)
    visitor = Visitor(made)
    assert visitor.post("/boxes/outbox/pause").status_code == 403
    assert "this machine only, no tokens" in visitor.text("/topics")
    assert visitor.post("/boxes/outbox/pause").status_code == 303
    made.close()


def test_the_overview_tells_of_every_check_before_it_tells_of_one_twice() -> None:
    found = [("error", "horizon", "a"), ("error", "horizon", "b"), ("warning", "horizon", "c")]
    found += [("warning", "bloat", "d"), ("warning", "bloat", "e"), ("warning", "dead_letters", "f")]
    findings = [Finding(check, cast(Any, level), subject, "", None) for level, check, subject in found]
    assert [each.subject for each in one_of_each_first(findings)] == ["a", "b", "d", "f", "c", "e"]
