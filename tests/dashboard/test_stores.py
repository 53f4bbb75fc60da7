"""Many stores, each with the pages of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import pysqlbox
from pysqlbox.dashboard import Dashboard
from tests.dashboard.support import TOKENS, Visitor, kill, unreachable

pytestmark = pytest.mark.only_engine("pg18")
KEY = "a/b <é>?"
PATH = "/stores/~YS9iIDzDqT4_"


@pytest.fixture
def many(deployment: pysqlbox.Deployment) -> Iterator[Dashboard]:
    """A dashboard of a store that is there and one that is not."""
    with unreachable() as away, pysqlbox.Stores({KEY: deployment, 7: away}) as stores:
        made = Dashboard(stores, find=TOKENS.find)
        yield made
        made.close()


def test_stores_are_listed_and_one_that_is_away_says_so(
    many: Dashboard, deployment: pysqlbox.Deployment
) -> None:
    kill(deployment, 3)
    page = Visitor(many).log_in("viewer").text("/")
    assert "<é>" not in page
    assert f'href="{PATH}/"' in page
    assert page.index(">away<") < page.index(f'href="{PATH}/"')
    assert re.search(r'<td class="n bad">3</td>', page)


def test_each_store_has_pages_of_its_own(many: Dashboard, deployment: pysqlbox.Deployment) -> None:
    id = kill(deployment, 1)[0]
    visitor = Visitor(many).log_in("operator")
    for page in (
        "",
        "topics",
        "messages",
        f"messages/outbox/{id}",
        "dead",
        "groups",
        "joins",
        "workers",
        "doctor",
    ):
        text = visitor.text(f"{PATH}/{page}")
        assert text.count('aria-current="page"') == 1
        links = re.findall(r'(?:href|action)="(/[^"]*)"', text)
        assert all(re.match(rf"{PATH}/|/assets/|/choose$|/logout$|/$", link) for link in links), links
    answer = visitor.post(f"{PATH}/messages/outbox/{id}/replay")
    assert answer.headers["location"].startswith(f"{PATH}/messages/outbox/{id}?")
    assert [each.action for each in deployment.audit.list()] == ["replay"]
    assert visitor.get("/stores/7/").status_code == 503
    for path in ("/stores/~/", "/stores/~%FF/", "/stores/~A/", "/stores/~é/"):
        assert visitor.get(path).status_code in (400, 404)
    answer = visitor.get("/stores/none/topics")
    assert answer.status_code == 404
    assert 'href="/stores/' not in answer.text
    assert visitor.get("/topics").status_code == 404


def test_the_chooser_stays_on_the_page(many: Dashboard) -> None:
    visitor = Visitor(many).log_in("viewer")
    page = visitor.text(f"{PATH}/dead?box=inbox")
    assert "<option selected>a/b &lt;é&gt;?</option>" in page
    assert '<input type="hidden" name="page" value="dead">' in page
    assert visitor.get("/choose", params={"key": KEY, "page": "dead"}).headers["location"] == f"{PATH}/dead"
    assert visitor.get("/choose", params={"key": KEY, "page": "../x"}).headers["location"] == f"{PATH}/"
    assert visitor.get("/choose", params={"key": "", "page": "dead"}).headers["location"] == "/"


def test_stores_are_found_by_a_part_of_their_key(many: Dashboard) -> None:
    visitor = Visitor(many).log_in("viewer")
    page = visitor.text("/?find=É>")
    assert f'href="{PATH}/"' in page
    assert ">away<" not in page
    assert "No store has this in its key." in visitor.text("/?find=nothing")


def test_roles_hold_in_every_store(many: Dashboard, deployment: pysqlbox.Deployment) -> None:
    id = kill(deployment, 1)[0]
    viewer = Visitor(many).log_in("viewer")
    viewer.text(f"{PATH}/messages/outbox/{id}")
    for action in ("replay", "discard", "reveal"):
        assert viewer.post(f"{PATH}/messages/outbox/{id}/{action}").status_code == 403
    assert viewer.get(f"{PATH}/audit").status_code == 403


def test_without_stores_there_is_no_such_page(visitor: Visitor) -> None:
    assert visitor.get("/stores").status_code == 404
