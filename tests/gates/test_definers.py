"""The catalog of a schema with roles: what runs with its owner's rights, and what everybody may do."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from pysqlbox.deploy.migrate import migrate
from tests.support.boxes import BOXES
from tests.support.database import execute_once
from tests.support.engines import Engine

pytestmark = pytest.mark.dialect("postgres")

UNPINNED = {"now", "uuid", "valid"}
"""Internal routines without a path, so that they are inlined where they are called: the last word of each
name. They run only inside routines that have a path, and never as definers."""

ROUTINES = """
    SELECT p.proname AS name, p.prosecdef AS definer,
        coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false) AS pinned,
        has_function_privilege('pg_monitor', p.oid, 'EXECUTE') AS public
    FROM pg_proc AS p
    WHERE p.pronamespace = %s::regnamespace
    ORDER BY p.proname
"""
"""pg_monitor, a role that no test grants anything, may do what everybody may."""

OTHERS = """
    SELECT c.relname AS name
    FROM pg_class AS c
    WHERE c.relnamespace = %s::regnamespace AND CASE
        WHEN c.relkind IN ('r', 'p', 'v', 'm')
            THEN has_table_privilege('pg_monitor', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE')
        WHEN c.relkind = 'S' THEN has_sequence_privilege('pg_monitor', c.oid, 'USAGE, SELECT, UPDATE')
        ELSE false
    END
    UNION ALL
    SELECT 'the schema' WHERE has_schema_privilege('pg_monitor', %s, 'USAGE, CREATE')
"""

BOUND = """
    SELECT DISTINCT p.proname AS name
    FROM pg_depend AS d
    INNER JOIN pg_proc AS p ON p.oid = d.refobjid AND d.refclassid = 'pg_proc'::regclass
    WHERE p.pronamespace = %s::regnamespace
"""
"""Functions of ours that a view, a default, a check or an index calls: callers bring their path there."""


@pytest.fixture
def schema(engine: Engine, empty_url: str) -> Iterator[str]:
    """A schema that was deployed with roles, by a name that is not SQL's own."""
    name = f"gate_{secrets.token_hex(4)}"
    migrate(empty_url, schema=name, boxes=BOXES, roles=True, test_clock=True)
    yield name
    for word in ("producer", "worker", "operator", "viewer"):
        execute_once(empty_url, f"DROP OWNED BY {name}_{word}")
        engine.execute(f"DROP ROLE {name}_{word}")


def test_every_definers_routine_has_its_path(empty_url: str, schema: str) -> None:
    """And so has everything else, but for what is meant to be inlined."""
    found = execute_once(empty_url, ROUTINES, (schema,))
    assert len([row for row in found if row["definer"]]) > 60
    assert [row["name"] for row in found if row["definer"] and not row["pinned"]] == []
    loose = {str(row["name"]) for row in found if not row["pinned"]}
    assert {name.rpartition("_")[2] for name in loose} == UNPINNED
    assert all(name.startswith("_") for name in loose)


def test_everybody_may_do_nothing(empty_url: str, schema: str) -> None:
    """No routine, table, view or sequence of ours is open to PUBLIC, nor is the schema."""
    found = execute_once(empty_url, ROUTINES, (schema,))
    assert [row["name"] for row in found if row["public"]] == []
    assert execute_once(empty_url, OTHERS, (schema, schema)) == []


def test_internal_routines_are_nobodys_but_the_owners(empty_url: str, schema: str) -> None:
    """Internal ones run inside public ones, as their owner, and no role may call them."""
    query = (
        "SELECT p.proname AS name FROM pg_proc AS p"
        " CROSS JOIN unnest(ARRAY['producer', 'worker', 'operator', 'viewer']) AS role"
        " WHERE p.pronamespace = %s::regnamespace AND p.proname LIKE '\\_%%'"
        " AND (p.prosecdef OR has_function_privilege(%s || '_' || role, p.oid, 'EXECUTE'))"
    )
    assert execute_once(empty_url, query, (schema, schema)) == []


def test_views_and_tables_call_nothing_of_ours(empty_url: str, schema: str) -> None:
    """A view binds what it calls when it is created, and that is the server's own; so are defaults."""
    assert execute_once(empty_url, BOUND, (schema,)) == []


def test_the_gate_sees_planted_faults(empty_url: str, schema: str) -> None:
    """A definer's routine without a path, one open to all, and a view that calls ours."""
    execute_once(empty_url, f"ALTER FUNCTION {schema}.outbox_ack RESET search_path")
    execute_once(empty_url, f"GRANT EXECUTE ON FUNCTION {schema}.outbox_ack TO PUBLIC")
    execute_once(empty_url, f"GRANT SELECT ON {schema}._box TO PUBLIC")
    execute_once(empty_url, f"CREATE VIEW {schema}.planted AS SELECT {schema}._now() AS n")
    found = {row["name"]: row for row in execute_once(empty_url, ROUTINES, (schema,))}
    assert found["outbox_ack"] == {"name": "outbox_ack", "definer": True, "pinned": False, "public": True}
    assert execute_once(empty_url, OTHERS, (schema, schema)) == [{"name": "_box"}]
    assert execute_once(empty_url, BOUND, (schema,)) == [{"name": "_now"}]
