"""The dashboard on the database of the test, and one browser for a module."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

import pysqlbox
from pysqlbox.dashboard import Dashboard
from tests.dashboard.support import TOKENS, Audited, Visitor, served
from tests.support.database import Database


@pytest.fixture
def deployment(db: Database) -> Iterator[pysqlbox.Deployment]:
    """The deployment of the test."""
    with pysqlbox.connect(db.url, schema=db.schema, pool_size=4) as opened:
        yield opened


@pytest.fixture
def audited(deployment: pysqlbox.Deployment) -> Audited:
    """What the audit log has, the first first."""
    return lambda: [
        (each.actor, each.action, each.subject, each.affected) for each in reversed(deployment.audit.list())
    ]


@pytest.fixture
def dashboard(deployment: pysqlbox.Deployment) -> Iterator[Dashboard]:
    """The dashboard, with a token for each role."""
    made = Dashboard(deployment, find=TOKENS.find)
    made.call_seconds = 300  # Babelfish under load takes its time
    yield made
    made.close()


@pytest.fixture
def visitor(dashboard: Dashboard) -> Visitor:
    """An operator."""
    return Visitor(dashboard).log_in("operator")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium; of a module only, since while Playwright is there no other test may run an event loop."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        reason = "chromium is not installed (tools/system_packages.sh)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Its sandbox does not work as root and in containers; it is shown our own pages only.
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def address(dashboard: Dashboard) -> Iterator[str]:
    """Where the dashboard is served."""
    with served(dashboard) as found:
        yield found
