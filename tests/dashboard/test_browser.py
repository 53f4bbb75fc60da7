"""The pages in a real browser."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import pysqlbox
from tests.dashboard.support import HOSTILE, OWNER, Audited, kill

pytestmark = pytest.mark.only_engine("pg18")


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core, Mozilla Public License 2.0, as it comes with axe-playwright-python."""
    found = importlib.util.find_spec("axe_playwright_python")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")


class Tab:
    """A page of the browser; whatever it complains of, and whatever it asks of another host, fails a test."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.address = address
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
        self.context.set_default_timeout(20_000)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._note)
        self.page.on("request", self._check)

    def log_in(self, role: str) -> Tab:
        """By the form, as a person does it."""
        self.page.goto(f"{self.address}/login")
        self.page.get_by_label("Token").fill(f"token-of-the-{role}")
        self.page.get_by_role("button", name="Log in").click()
        self.page.get_by_role("button", name="Log out").wait_for()
        return self

    def open(self, path: str) -> Any:
        """Go to a page."""
        self.page.goto(f"{self.address}{path}")
        return self.page

    def _note(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def _check(self, request: Any) -> None:
        if not request.url.startswith(f"{self.address}/"):
            self.complaints.append(f"asks for {request.url}")


@pytest.fixture
def tab(browser: Any, address: str) -> Iterator[Tab]:
    """An operator's."""
    opened = Tab(browser, address).log_in("operator")
    yield opened
    opened.context.close()
    assert opened.complaints == []


@pytest.fixture
def pages(deployment: pysqlbox.Deployment) -> list[str]:
    """The pages, with hostile texts wherever there is room for one."""
    db = deployment
    long = HOSTILE + "x" * 120
    dead = kill(db, 2, topic=HOSTILE, error=long * 3)[0]
    db.outbox.enqueue(long, HOSTILE, group_id=long, correlation_id=long, dedup_key=long, headers={"a": long})
    waits = db.outbox.enqueue("t", HOSTILE, group_id=long, delay=600).id
    held = db.outbox.claim(OWNER, batch_size=1)[0].id
    got = db.inbox.enqueue("pay", long, long, "{}", group_id=long).id
    db.outbox.pause(HOSTILE)
    join = db.joins.start(long, 2)
    db.joins.attach(join, db.outbox.get(waits).message_id)
    db.schedules.set(HOSTILE, long, "{}", every=60)
    db.ledger.try_begin(long, handler=long)
    db.audit.write(HOSTILE, "replay", subject=long, detail=long)
    cause = db.outbox.dead_causes()[0]
    return [
        "/",
        "/topics",
        "/messages",
        "/messages?status=Failed",
        "/messages?box=inbox",
        f"/messages/outbox/{dead}",
        f"/messages/outbox/{held}",
        f"/messages/outbox/{waits}",
        f"/messages/inbox/{got}",
        "/dead",
        f"/dead/outbox/bulk?{urlencode({'topic': cause.topic, 'cause': cause.cause})}",
        "/groups",
        "/joins",
        f"/joins/{join}",
        "/schedules",
        "/ledger",
        "/workers",
        "/doctor",
        "/audit",
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible(
    browser: Any, address: str, axe: str, pages: list[str], scheme: str
) -> None:
    tab = Tab(browser, address, color_scheme=scheme, bypass_csp=True)
    tab.open("/login")
    _check_with_axe(tab.page, axe, "/login")
    tab.log_in("admin")
    for path in pages:
        _check_with_axe(tab.open(path), axe, path)
        assert tab.page.title() not in ("owned", "")
    tab.context.close()
    assert tab.complaints == []


def _check_with_axe(page: Any, axe: str, path: str) -> None:
    page.evaluate(axe)
    found = page.evaluate("async () => (await axe.run()).violations")
    bad = [
        (each["id"], each["help"], [node["html"] for node in each["nodes"]][:3])
        for each in found
        if each["impact"] in ("serious", "critical", "moderate")
    ]
    assert bad == [], f"{path}: {bad}"


@pytest.mark.parametrize("width", [390, 640])
def test_no_page_is_wider_than_the_window(browser: Any, address: str, pages: list[str], width: int) -> None:
    """A phone; and 1280 pixels at 200 %."""
    tab = Tab(browser, address, viewport={"width": width, "height": 800}).log_in("admin")
    for path in pages:
        tab.open(path)
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width, path
    tab.context.close()
    assert tab.complaints == []


def test_hostile_text_is_text(browser: Any, address: str, pages: list[str]) -> None:
    tab = Tab(browser, address).log_in("admin")
    for path in pages:
        page = tab.open(path)
        assert "owned" not in page.title()
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("[...document.querySelectorAll('*')].every((each) => !each.onerror)")
    tab.context.close()
    assert tab.complaints == []


def test_the_overview_lives(tab: Tab, deployment: pysqlbox.Deployment) -> None:
    page = tab.open("/")
    card = page.locator("section", has=page.locator("#box-outbox"))
    ready = card.locator("dd").nth(2)
    ready.filter(has_text="0").wait_for()
    page.evaluate("window.same = true")
    deployment.outbox.enqueue_many([{"topic": "t", "payload": "{}"}] * 77)
    ready.filter(has_text="77").wait_for()
    assert page.evaluate("window.same"), "the page was loaded anew"
    page.locator(".live", has_text="live").wait_for()


def test_a_page_comes_back_with_the_database(
    browser: Any, address: str, deployment: pysqlbox.Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> object:
        raise pysqlbox.DatabaseUnavailable("connection refused")

    tab = Tab(browser, address).log_in("operator")
    with monkeypatch.context() as away:
        away.setattr(deployment, "perform", fail)
        page = tab.open("/ledger")
        page.get_by_role("heading", name="The database does not answer").wait_for()
    page.get_by_role("heading", name="Ledger").wait_for()
    tab.context.close()


def test_a_focused_link_stays_focused(tab: Tab, deployment: pysqlbox.Deployment) -> None:
    page = tab.open("/")
    link = page.get_by_role("link", name="inbox", exact=True)
    link.focus()
    deployment.outbox.enqueue_many([{"topic": "t", "payload": "{}"}] * 5)
    page.locator("section", has=page.locator("#box-outbox")).locator("dd").nth(2).filter(
        has_text="5"
    ).wait_for()
    assert page.evaluate("document.activeElement.textContent") == "inbox"


def test_payload_and_replay_by_hand(tab: Tab, deployment: pysqlbox.Deployment) -> None:
    id = kill(deployment, 1, error=HOSTILE)[0]
    page = tab.open("/messages?status=Failed")
    page.get_by_role("link", name=str(id), exact=True).click()
    assert page.locator("#payload").count() == 0
    page.get_by_role("button", name="Show payload and headers").click()
    assert page.locator("#payload").inner_text() == '{\n  "n": 0\n}'
    page.get_by_role("link", name="Hide").click()
    page.get_by_role("button", name="Replay").click()
    page.get_by_text("Claimable again: 1.").wait_for()
    assert deployment.outbox.get(id).status == "Ready"
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Cancel").click()
    assert deployment.outbox.get(id).status == "Ready"
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Cancelled: 1.").wait_for()
    assert deployment.outbox.get(id).status == "Cancelled"


def test_a_cause_is_replayed_by_hand(tab: Tab, deployment: pysqlbox.Deployment) -> None:
    kill(deployment, 30, topic="mail", error="order 17 is gone")
    page = tab.open("/dead")
    page.get_by_role("row", name="order # is gone").get_by_role("link", name="replay, discard").click()
    page.get_by_role("heading", name="30 dead letters").wait_for()
    page.get_by_label("at most, a second").first.fill("1000")
    page.get_by_role("button", name="Replay 30").click()
    page.get_by_text("30 of 30").wait_for()
    page.get_by_text("finished").wait_for()
    assert deployment.outbox.dead_letters() == []


def test_a_slow_run_moves_and_is_cancelled(tab: Tab, deployment: pysqlbox.Deployment) -> None:
    kill(deployment, 30, topic="mail", error="no")
    page = tab.open("/dead/outbox/bulk?topic=mail&cause=no")
    page.get_by_label("at most, a second").first.fill("1")
    page.get_by_role("button", name="Replay 30").click()
    page.get_by_role("heading", name="3 of 30").wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("The run ends after the piece it is at.").wait_for()
    page.locator(".tag.cancelled").wait_for()
    assert 0 < len(deployment.outbox.dead_letters(limit=100)) < 30


def test_by_keyboard_alone(tab: Tab, deployment: pysqlbox.Deployment) -> None:
    id = deployment.outbox.enqueue("t", "{}").id
    page = tab.open("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.goto(f"{tab.address}/messages")
    page.keyboard.press("/")
    page.keyboard.type(str(id))
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/messages/outbox/{id}")
    page.get_by_role("heading", name=f"Message {id}").wait_for()


def test_a_form_asks_for_another_status_by_itself(tab: Tab, deployment: pysqlbox.Deployment) -> None:
    deployment.inbox.enqueue("pay", "bank", "m-17", "{}")
    page = tab.open("/messages")
    page.get_by_label("box").select_option("inbox")
    page.get_by_text("bank / m-17").wait_for()


def test_without_javascript_everything_is_there(
    browser: Any, address: str, deployment: pysqlbox.Deployment
) -> None:
    id = kill(deployment, 1)[0]
    tab = Tab(browser, address, java_script_enabled=False).log_in("operator")
    page = tab.open(f"/messages/outbox/{id}")
    page.get_by_role("button", name="Replay").click()
    page.get_by_text("Claimable again: 1.").wait_for()
    tab.context.close()
    assert deployment.outbox.get(id).status == "Ready"


def test_a_form_of_another_site_changes_nothing(
    tab: Tab, deployment: pysqlbox.Deployment, audited: Audited
) -> None:
    """Another site's page in the same browser, where the operator is logged in."""
    other = tab.context.new_page()
    form = f'<form method="post" action="{tab.address}/boxes/outbox/pause"><button>a prize</button></form>'
    other.route("http://evil.test/", lambda route: route.fulfill(content_type="text/html", body=form))
    other.goto("http://evil.test/")
    other.get_by_role("button").click()
    other.wait_for_url(f"{tab.address}/**")
    assert "pause" not in [entry[1] for entry in audited()]
    deployment.outbox.enqueue("t", "{}")
    assert len(deployment.outbox.claim(OWNER)) == 1
