"""The boxes that a contract test runs on; after each test their statistics must agree with their messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.joins import Joins
from tests.contract.support import KINDS, Box, check_books
from tests.support.database import Database


def _box(db: Database, name: str) -> Iterator[Box]:
    box = Box(name, KINDS[name], db, db)
    yield box
    check_books(box)


@pytest.fixture(params=["outbox", "inbox"])
def box(request: pytest.FixtureRequest, db: Database) -> Iterator[Box]:
    """A box of each kind in turn: the default ones."""
    yield from _box(db, request.param)


@pytest.fixture(params=list(KINDS))
def every_box(request: pytest.FixtureRequest, db: Database) -> Iterator[Box]:
    """Each box of the deployment in turn, the named ones too, for what a name could spoil."""
    yield from _box(db, request.param)


@pytest.fixture
def outbox(db: Database) -> Iterator[Box]:
    """The default outbox, for what only an outbox has."""
    yield from _box(db, "outbox")


@pytest.fixture(params=[name for name, kind in KINDS.items() if kind == "outbox"])
def each_outbox(request: pytest.FixtureRequest, db: Database) -> Iterator[Box]:
    """The default outbox and a named one, for what only outboxes have."""
    yield from _box(db, request.param)


@pytest.fixture
def inbox(db: Database) -> Iterator[Box]:
    """The default inbox, for what only an inbox has."""
    yield from _box(db, "inbox")


@pytest.fixture
def joins(outbox: Box) -> Joins:
    """The joins of the default outbox."""
    return Joins(outbox)
