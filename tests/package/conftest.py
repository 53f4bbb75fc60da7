"""A box on the test schema of every engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pysqlbox
from tests.support.database import Database


@pytest.fixture
def box(db: Database) -> Iterator[pysqlbox.Box]:
    """The package's view of the schema, with a pool of its own."""
    with pysqlbox.connect(db.url, schema=db.schema, pool_size=3) as opened:
        yield opened


@pytest.fixture
def outbox(box: pysqlbox.Box) -> pysqlbox.Outbox:
    """The default outbox."""
    return box.outbox


@pytest.fixture
def inbox(box: pysqlbox.Box) -> pysqlbox.Inbox:
    """The default inbox."""
    return box.inbox
