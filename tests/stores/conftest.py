"""Several stores on one engine: databases of their own, deployed once and emptied for each test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from pysqlbox import Stores
from tests.support.database import Database
from tests.support.deployed import Deployed
from tests.support.engines import Engine


@pytest.fixture(scope="session")
def three_deployed(engine: Engine) -> Iterator[dict[str, Deployed]]:
    """Three databases with a deployment in each."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(contextlib.closing(Deployed(engine))) for name in ("a", "b", "c")}


@pytest.fixture
def tenants(three_deployed: dict[str, Deployed]) -> dict[str, Database]:
    """The same as if freshly deployed, by key."""
    return {key: deployed.fresh() for key, deployed in three_deployed.items()}


@pytest.fixture
def stores(tenants: dict[str, Database]) -> Iterator[Stores]:
    """The stores of these."""
    with Stores({key: db.url for key, db in tenants.items()}) as found:
        yield found
