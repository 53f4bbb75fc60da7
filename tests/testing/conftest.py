"""A deployment on every engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pysqlbox
from tests.support.database import Database


@pytest.fixture
def deployment(db: Database) -> Iterator[pysqlbox.Deployment]:
    """The package's view of the schema."""
    with pysqlbox.connect(db.url, schema=db.schema, pool_size=3) as opened:
        yield opened
