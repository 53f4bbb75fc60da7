"""Many stores in a real browser: the list, the chooser, and what is away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import pysqlbox
from pysqlbox.dashboard import Dashboard
from tests.dashboard import test_browser
from tests.dashboard.support import TOKENS, kill, served, unreachable
from tests.dashboard.test_browser import Tab
from tests.support.database import Database

axe = test_browser.axe  # the fixture
pytestmark = pytest.mark.only_engine("pg18")


@pytest.fixture
def stores_address(db: Database, deployment: pysqlbox.Deployment) -> Iterator[str]:
    """Where three stores are served, one of which is away; the others have one database."""
    with (
        unreachable() as away,
        pysqlbox.Stores({"acme": deployment, "globex": away, "initech": db.url}) as stores,
    ):
        made = Dashboard(stores, find=TOKENS.find)
        with served(made) as found:
            yield found
        made.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_stores_fit_and_are_accessible(
    browser: Any, stores_address: str, deployment: pysqlbox.Deployment, axe: str, scheme: str, width: int
) -> None:
    kill(deployment, 2, error="order 17 is gone, and nobody knows why")
    options = {"color_scheme": scheme, "bypass_csp": True, "viewport": {"width": width, "height": 800}}
    tab = Tab(browser, stores_address, **options).log_in("admin")
    for path in (
        "/",
        "/?find=glo",
        "/?find=none",
        "/stores/acme/",
        "/stores/acme/dead",
        "/stores/acme/doctor",
    ):
        page = tab.open(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        frames = (
            "[...document.querySelectorAll('.scroll')].map((each) => each.scrollWidth - each.clientWidth)"
        )
        if path != "/stores/acme/doctor":
            assert max(page.evaluate(frames), default=0) <= 0, f"{path}: a table is cut off"
        test_browser._check_with_axe(page, axe, path)
    assert tab.complaints == []
    page = tab.open("/stores/globex/")
    page.get_by_role("link", name="To all stores").click()
    page.get_by_text("away", exact=True).wait_for()
    tab.context.close()


def test_the_chooser_by_keyboard_goes_where_enter_says(browser: Any, stores_address: str) -> None:
    """An arrow in a closed list changes it, and must not lead away from the page before one has chosen."""
    tab = Tab(browser, stores_address).log_in("viewer")
    page = tab.open("/stores/acme/dead")
    chooser = page.get_by_label("store")
    chooser.focus()
    page.keyboard.press("End")
    assert chooser.input_value() == "initech"
    page.wait_for_timeout(300)
    assert page.url.endswith("/stores/acme/dead")
    page.keyboard.press("Enter")
    page.wait_for_url("**/stores/initech/dead")
    tab.context.close()
    assert tab.complaints == []


def test_the_chooser_by_mouse_goes_at_once(browser: Any, stores_address: str) -> None:
    tab = Tab(browser, stores_address).log_in("viewer")
    page = tab.open("/stores/acme/dead")
    page.get_by_label("store").select_option("initech")
    page.wait_for_url("**/stores/initech/dead")
    tab.context.close()
    assert tab.complaints == []
