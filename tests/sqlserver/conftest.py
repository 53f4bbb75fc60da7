"""The schema on SQL Server itself; on Babelfish every test here is skipped by name."""

from __future__ import annotations

import pytest

from tests.contract.support import Box, is_babelfish
from tests.support.database import Database
from tests.support.engines import Engine


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test of this folder is T-SQL's."""
    metafunc.definition.add_marker(pytest.mark.dialect("mssql"))


@pytest.fixture
def server(db: Database) -> Database:
    """The schema on SQL Server, whatever its reads do."""
    if is_babelfish(db):
        pytest.skip(
            "Babelfish ignores lock hints, knows one isolation level, answers no attention in a wait and has"
            " no T-SQL plans; make test-mssql runs this on SQL Server"
        )
    return db


@pytest.fixture
def versioned(server: Database, engine: Engine) -> Database:
    """The schema on SQL Server, in a database as deployment requires it."""
    if not engine.is_versioned:
        pytest.skip("READ_COMMITTED_SNAPSHOT is off on this engine: its readers wait for writers")
    return server


@pytest.fixture(params=["outbox", "inbox"])
def box(request: pytest.FixtureRequest, versioned: Database) -> Box:
    """A box of each kind in turn, in a database as deployment requires it."""
    return Box(request.param, request.param, versioned, versioned)
