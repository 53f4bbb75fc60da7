"""What others made in the schema: no deployment replaces it, drops it, or changes who may use it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from functools import partial

import pytest

from pysqlbox.deploy.migrate import migrate
from pysqlbox.drivers import parse_url
from pysqlbox.errors import InvalidState, PysqlboxError
from tests.deploy.catalog import catalog
from tests.deploy.release import Release
from tests.deploy.test_migrate import in_schema
from tests.deploy.test_script import run, script_of
from tests.support.database import execute_once
from tests.support.engines import Engine

_PLACED = {
    "routine": (
        "CREATE FUNCTION {s}.outbox_total() RETURNS TABLE (n bigint) LANGUAGE sql AS 'SELECT 7::bigint'",
        "CREATE PROCEDURE {s}.outbox_total AS SELECT CAST(7 AS bigint) AS n",
        "outbox_total",
    ),
    "view": (
        "CREATE VIEW {s}.outbox_items AS SELECT 7 AS id",
        "CREATE VIEW {s}.outbox_items AS SELECT 7 AS id",
        "outbox_items",
    ),
}


@pytest.mark.parametrize("kind", _PLACED)
@pytest.mark.parametrize("with_script", [False, True])
def test_what_stands_in_the_way_is_not_replaced(
    empty_url: str, release: Release, kind: str, with_script: bool
) -> None:
    """A routine or view of a name we need: the deployment ends with an error that names it."""
    postgres, mssql, name = _PLACED[kind]
    if with_script and parse_url(empty_url).dialect == "mssql":
        pytest.skip("the script for sqlcmd does not look for what others made")
    in_schema(empty_url, "CREATE SCHEMA {s}", "CREATE SCHEMA {s}")
    in_schema(empty_url, postgres, mssql)
    before = catalog(empty_url, "infra")
    deploy = partial(run, script=script_of(empty_url, release)) if with_script else release.migrate
    with pytest.raises(PysqlboxError, match=f"did not make: {name}"):
        deploy(empty_url)
    assert catalog(empty_url, "infra") == before


def test_a_release_that_adds_what_somebody_has_made(empty_url: str, release: Release) -> None:
    """A name that was free with the last release: the new one does not take it away."""
    release.migrate(empty_url)
    in_schema(
        empty_url,
        "CREATE FUNCTION {s}.inbox_other() RETURNS TABLE (n bigint) LANGUAGE sql AS 'SELECT 7::bigint'",
        "CREATE PROCEDURE {s}.inbox_other AS SELECT CAST(7 AS bigint) AS n",
    )
    release.routine("other", "n", "count(*)")
    before = catalog(empty_url, "infra")
    for attempt in (release.migrate, release.status):
        with pytest.raises(InvalidState, match="did not make: inbox_other"):
            attempt(empty_url)
    assert catalog(empty_url, "infra") == before


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize("with_script", [False, True])
def test_a_namesake_with_other_arguments_is_left_alone(
    empty_url: str, release: Release, with_script: bool
) -> None:
    """Of our name, with arguments of its own: neither drift, nor dropped with ours, nor granted."""

    def deploy() -> None:
        if with_script:
            run(empty_url, script_of(empty_url, release))
        else:
            release.migrate(empty_url)

    deploy()
    execute_once(
        empty_url,
        "CREATE FUNCTION infra.outbox_total(mine text) RETURNS text LANGUAGE sql"
        " AS $$SELECT '-- role: producer'$$",
    )
    mine = [row for row in catalog(empty_url, "infra") if "mine" in row[2]]
    assert not release.status(empty_url).drifted
    assert not release.status(empty_url).changes
    release.routine("total", "renamed", "count(*)", parameter="since")  # dropped and created
    deploy()
    release.second_version()  # everything dropped and created
    deploy()
    for file in release.root.glob("*/queue/total.sql"):
        file.unlink()
    deploy()
    assert [row for row in catalog(empty_url, "infra") if "mine" in row[2]] == mine
    assert execute_once(empty_url, "SELECT infra.outbox_total('x') AS t") == [{"t": "-- role: producer"}]


@pytest.mark.dialect("postgres")
def test_a_new_signature_keeps_the_grants(empty_url: str, release: Release) -> None:
    """A routine that gets another parameter may still be called by whoever could, and by nobody else."""
    role = f"reader_{secrets.token_hex(4)}"
    release.migrate(empty_url)
    execute_once(empty_url, f"CREATE ROLE {role}")
    try:
        execute_once(empty_url, "REVOKE ALL ON FUNCTION infra.outbox_total FROM PUBLIC")
        execute_once(empty_url, f"GRANT EXECUTE ON FUNCTION infra.outbox_total TO {role}")
        release.routine("total", "n", "count(*)", parameter="since")
        release.migrate(empty_url)
        query = "SELECT proacl::text AS acl FROM pg_proc WHERE proname = 'outbox_total'"
        found = [str(row["acl"]) for row in execute_once(empty_url, query)]
        assert len(found) == 1
        assert f"{role}=X/" in found[0]
        assert "{=X/" not in found[0]
        assert ",=X/" not in found[0]
    finally:
        execute_once(empty_url, f"DROP OWNED BY {role}")
        execute_once(empty_url, f"DROP ROLE {role}")


@pytest.fixture
def schema(engine: Engine, empty_url: str) -> Iterator[str]:
    """A schema's name of which the roles are dropped at the end."""
    name = f"s{secrets.token_hex(4)}"
    yield name
    for word in ("producer", "worker", "operator", "viewer"):
        if execute_once(empty_url, "SELECT 1 FROM pg_roles WHERE rolname = %s", (f"{name}_{word}",)):
            execute_once(empty_url, f"DROP OWNED BY {name}_{word}")
            engine.execute(f"DROP ROLE {name}_{word}")


@pytest.mark.dialect("postgres")
def test_roles_touch_only_ours(empty_url: str, schema: str) -> None:
    """A function with a comment like our header, a namesake and a view of somebody else's."""
    migrate(empty_url, schema=schema)
    for statement in (
        "CREATE FUNCTION {s}.helper() RETURNS integer LANGUAGE sql AS $$\n-- role: producer\nSELECT 1 $$",
        "CREATE FUNCTION {s}.outbox_claim(text) RETURNS text LANGUAGE sql AS"
        " $$\n-- role: producer\nSELECT 'x' $$",
        "CREATE VIEW {s}.secrets AS SELECT 1 AS secret",
        "CREATE PROCEDURE {s}.job() LANGUAGE sql AS $$\n-- role: worker\nSELECT 1 $$",
    ):
        execute_once(empty_url, statement.replace("{s}", schema))
    rights = (
        "SELECT p.proname AS name, p.prosecdef AS definer, p.proacl::text AS acl FROM pg_proc AS p"
        f" WHERE p.proname IN ('helper', 'job') OR p.oid = '{schema}.outbox_claim(text)'::regprocedure"
        " UNION ALL SELECT relname, false, relacl::text FROM pg_class WHERE relname = 'secrets'"
    )
    before = execute_once(empty_url, rights)
    assert [row["acl"] for row in before] == [None] * 4
    migrate(empty_url, schema=schema, roles=True)
    assert execute_once(empty_url, rights) == before


@pytest.mark.dialect("postgres")
def test_roles_are_mended_and_else_left_alone(empty_url: str, schema: str) -> None:
    """What was granted or taken by hand is put right with the next change; without one nothing is written."""
    migrate(empty_url, schema=schema, roles=True)
    versions = (
        "SELECT array_agg(p.ctid ORDER BY p.oid)::text AS v FROM pg_proc AS p"
        f" WHERE p.pronamespace = '{schema}'::regnamespace AND p.proname <> 'outbox_claim'"
    )
    execute_once(empty_url, f"REVOKE ALL ON FUNCTION {schema}.outbox_ack FROM {schema}_worker")
    execute_once(empty_url, f"GRANT EXECUTE ON FUNCTION {schema}.outbox_list TO PUBLIC")
    execute_once(empty_url, f"GRANT EXECUTE ON FUNCTION {schema}.outbox_list TO {schema}_producer")
    execute_once(empty_url, f"ALTER FUNCTION {schema}.outbox_claim SET work_mem = '1MB'")  # drift
    assert migrate(empty_url, schema=schema).routines == ["queue/claim@outbox", "roles/grants"]
    can = (
        f"SELECT has_function_privilege('{schema}_worker', oid, 'EXECUTE') AS worker,"
        f" has_function_privilege('{schema}_producer', oid, 'EXECUTE') AS producer FROM pg_proc"
        f" WHERE pronamespace = '{schema}'::regnamespace AND proname = %s"
    )
    assert execute_once(empty_url, can, ("outbox_ack",)) == [{"worker": True, "producer": False}]
    assert execute_once(empty_url, can, ("outbox_list",)) == [{"worker": False, "producer": False}]
    assert execute_once(empty_url, can, ("outbox_claim",)) == [{"worker": True, "producer": False}]
    before = execute_once(empty_url, versions)
    execute_once(empty_url, f"ALTER FUNCTION {schema}.outbox_claim SET work_mem = '1MB'")
    assert migrate(empty_url, schema=schema).changes
    assert execute_once(empty_url, versions) == before
