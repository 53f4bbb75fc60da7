"""Names that SQL, drivers and templates could take for something else; what cannot work is refused."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

import pysqlbox
from pysqlbox.deploy.migrate import migrate
from pysqlbox.drivers import parse_url
from pysqlbox.errors import InvalidArgument
from pysqlbox.names import NamedBox, check_box_names, check_role_names
from tests.deploy.catalog import catalog
from tests.deploy.release import Release
from tests.deploy.test_migrate import call, in_schema
from tests.deploy.test_script import run, script_of
from tests.support.database import execute_once
from tests.support.engines import Engine

HOSTILE = [
    "a%b",
    "a%sb %(c)s",
    "a.b",
    "a:id ?",
    "{oid} {unit}",
    "SELECT",
    "order",
    "📦 größe",
    "\\o'",
    "1",
    "-- x",
]


@pytest.mark.parametrize("schema", HOSTILE)
def test_every_schema_name(empty_url: str, release: Release, schema: str) -> None:
    """Deployed, called, found unchanged, changed, and drift mended."""
    if schema == "\\o'" and parse_url(empty_url).dialect == "mssql":
        pytest.skip("a backslash means something to sqlcmd's variables, not to T-SQL")
    release.migrate(
        empty_url, schema=schema, boxes=[NamedBox("order", "inbox"), NamedBox("select", "outbox")]
    )
    assert call(empty_url, "order_total", schema) == [{"n": 0}]
    assert not release.migrate(empty_url, schema=schema).changes
    release.second_version()
    release.routine("total", "n", "count(*) + 1")
    assert release.migrate(empty_url, schema=schema).target == 2
    assert call(empty_url, "select_total", schema) == [{"n": 1}]
    in_schema(
        empty_url,
        "DROP FUNCTION {s}.order_total()",
        "DROP PROCEDURE {s}.order_total",
        schema,
    )
    assert release.status(empty_url, schema=schema).drifted == ["queue/total@order"]
    release.migrate(empty_url, schema=schema)
    assert call(empty_url, "order_total", schema) == [{"n": 1}]


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize("schema", HOSTILE)
def test_every_schema_name_in_a_script(empty_url: str, release: Release, schema: str) -> None:
    """psql takes nothing in a name for a command or variable of its own."""
    run(empty_url, script_of(empty_url, release, schema=schema))
    assert not release.status(empty_url, schema=schema).changes
    assert call(empty_url, "outbox_total", schema) == [{"n": 0}]


@pytest.fixture
def schema(engine: Engine, empty_url: str) -> Iterator[str]:
    """The worst name, whose roles are dropped at the end."""
    name = f"a%b \"{secrets.token_hex(3)}'.📦 {{oid}} %s :id"
    yield name
    for word in ("producer", "worker", "operator", "viewer"):
        role = '"' + f"{name}_{word}".replace('"', '""') + '"'
        execute_once(empty_url, f"DROP OWNED BY {role}")
        engine.execute(f"DROP ROLE {role}")


@pytest.mark.dialect("postgres")
def test_the_release_in_a_schema_of_the_worst_name(empty_url: str, schema: str) -> None:
    """With roles; messages go through, a worker among it, and nothing is left to deploy."""
    migrate(empty_url, schema=schema, boxes=[NamedBox("user", "inbox")], roles=True)
    found = migrate(empty_url, schema=schema)
    assert (found.changes, found.drifted) == (False, [])
    handled: list[str] = []
    with pysqlbox.connect(empty_url, schema=schema) as db:
        assert db.outbox.enqueue("t", "one").outcome == "created"
        assert [each.id for each in db.outbox.enqueue_many([{"topic": "t", "payload": "two"}])]
        worker = db.worker(threads=1, max_attempts=3)
        worker.handler("t")(lambda message: handled.append(message.payload))
        assert worker.drain() == 2
        assert db.outbox.stats()[-1].done == 2
    assert sorted(handled) == ["one", "two"]


@pytest.mark.parametrize("schema", ["x" * 64, "ü" * 32, "", "a\x00b", "a$$b"])
@pytest.mark.dialect("postgres")
def test_names_that_cannot_be(empty_url: str, schema: str) -> None:
    """Too long, empty, or with what ends a text: one sentence, and nothing happens."""
    with pytest.raises(InvalidArgument, match="schema"):
        migrate(empty_url, schema=schema)


@pytest.mark.dialect("postgres")
def test_a_schema_too_long_for_its_channels_or_roles(empty_url: str, release: Release) -> None:
    """PostgreSQL cuts identifiers at 63 bytes: a notification would fail, roles would run together."""
    with pytest.raises(InvalidArgument, match="channel for notifications"):
        release.migrate(empty_url, schema="x" * 50, boxes=[NamedBox("y" * 13, "outbox")])
    with pytest.raises(InvalidArgument, match="too long for roles"):
        release.migrate(empty_url, schema="x" * 55, roles=True)
    assert catalog(empty_url, "x" * 50) == catalog(empty_url, "x" * 55) == []
    assert release.migrate(empty_url, schema="x" * 55).changes


def test_lengths_by_dialect() -> None:
    """T-SQL has room for 128 characters, and no channels."""
    check_box_names("mssql", "x" * 120, [NamedBox("y" * 30, "outbox")])
    check_role_names("mssql", "x" * 119)
    with pytest.raises(InvalidArgument, match="too long for roles"):
        check_role_names("mssql", "x" * 120)
    check_role_names("postgres", "ü" * 27)
    with pytest.raises(InvalidArgument, match="too long for roles"):
        check_role_names("postgres", "ü" * 28)
