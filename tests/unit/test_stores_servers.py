"""Which connection to a server is lent for what, with connections that are none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pysqlbox.stores import servers
from pysqlbox.stores.servers import Kept, Server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server with one database, and room for three connections, each for two schemas."""
    monkeypatch.setattr(servers, "MOST_SCHEMAS", 2)
    found = Server("s", 3)
    calls = SimpleNamespace(open=lambda: SimpleNamespace(calls=SimpleNamespace(), close=lambda: None))
    database: Any = SimpleNamespace(
        server=found,
        target=SimpleNamespace(dsn="d"),
        calls=calls,
        is_busy=True,
        is_heard=False,
        ear=None,
        worked_at=0.0,
    )
    found.databases = {"d": database}
    return found


def lend(server: Server, schema: str) -> Kept:
    """What is lent for a schema."""
    with server.lend(server.databases["d"], schema=schema) as kept:
        return kept


def test_a_schema_goes_to_the_connection_that_knows_it_and_none_gets_too_many(server: Server) -> None:
    """A session of PostgreSQL keeps what it has compiled for each schema."""
    found = [lend(server, schema) for schema in "abcdef"]
    assert [found.index(kept) for kept in found] == [0, 0, 2, 2, 4, 4]
    assert [lend(server, schema) for schema in "fdbace"] == [found["abcdef".index(each)] for each in "fdbace"]
    assert server.open == 3
    further = lend(server, "g")
    assert further not in found
    assert server.open == 3, "the one that was used longest ago has made way"
    assert lend(server, "a") is further, "its own was that one"
    assert lend(server, "d") is found[3]


def test_schemas_of_one_database_do_not_make_the_budget_small(server: Server) -> None:
    for schema in "abcdefgh":
        lend(server, schema)
    assert server.crowded_seconds == 0
    assert server.busy_databases == 0


def test_all_free_connections_of_a_database_that_fails_are_closed(server: Server) -> None:
    found = {lend(server, schema) for schema in "abc"}
    database = server.databases["d"]
    with server.lend(database, schema="a") as kept:
        server.drop_free(database)
        assert server.open == 1
    assert server.open == 1
    assert kept in found
    assert lend(server, "c") not in found - {kept}
