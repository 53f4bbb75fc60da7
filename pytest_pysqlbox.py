"""The pytest plugin of pysqlbox: the fixture ``pysqlbox_deployment``.

pytest loads it wherever pysqlbox is installed, so it imports nothing until a test asks for the fixture; and
it stands outside the package, whose own import would otherwise cost every run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pysqlbox import Deployment
    from pysqlbox.testing.deployments import Deployed

__all__ = ["pysqlbox_deployment"]

URL_VARIABLE = "PYSQLBOX_TEST_URL"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings of pytest.ini."""
    parser.addini(
        "pysqlbox_boxes",
        "boxes of pysqlbox_deployment besides outbox and inbox: name:kind",
        type="args",
        default=[],
    )
    parser.addini("pysqlbox_schema", "the schema of pysqlbox_deployment", default="")


@pytest.fixture(scope="session")
def _pysqlbox_deployed(request: pytest.FixtureRequest) -> Iterator[Deployed]:
    from pysqlbox.testing.deployments import deployed

    url = os.environ.get(URL_VARIABLE) or None
    with deployed(
        url,
        schema=request.config.getini("pysqlbox_schema") or None,
        boxes=request.config.getini("pysqlbox_boxes"),
        worker_id=os.environ.get("PYTEST_XDIST_WORKER"),
    ) as found:
        yield found


@pytest.fixture
def pysqlbox_deployment(_pysqlbox_deployed: Deployed) -> Iterator[Deployment]:
    """A deployment without messages, on a private PostgreSQL or on the database of PYSQLBOX_TEST_URL."""
    db = _pysqlbox_deployed.fresh()
    yield db
    db.stop_workers()
