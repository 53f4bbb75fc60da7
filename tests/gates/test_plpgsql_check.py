"""plpgsql_check has nothing to say about any PL/pgSQL function, on a server that has that extension."""

from __future__ import annotations

import re

import pytest

from pysqlbox.deploy.render import render_units
from tests.support.boxes import SCHEMA
from tests.support.database import Database

ALLOWED = {
    r'cast "text" value to "\w+\[\]" type$': "the literal '{}' as a variable's first value",
    r'/abandon\.sql:\d+: .* cast "text" value to "double precision"': "settings are text",
    r'cast "bigint" value to "integer" type$': "counts of a batch, at most some ten thousand",
    r'/_explain\.sql:\d+: .* unused parameter "(due_at|expires_at|created_at)"': "it takes what _valid takes",
    r'/configure\.sql:\d+: .* unmodified OUT variable "(name|value)"': "it answers what it was given",
    r'joins/get\.sql:\d+: .* unmodified OUT variable "join_id"': "it answers what it was given",
    r"/_hold\.sql:\d+: .* control reached end of function": "a loop without end",
    r'/\w+\.sql:\d+: .* parameter "(check|limit)" is reserved': "the contract's name",
    r"routine is marked as VOLATILE, should be \w+$": "volatile sees what was just committed",
}
"""Warnings that are wrong or wanted: a pattern of `file:line: message`, and the reason."""

CHECK = """
SELECT p.proname AS name, c.lineno AS line, c.level AS level, c.message AS message, c.detail AS detail
FROM pg_proc AS p
    INNER JOIN pg_namespace AS n ON n.oid = p.pronamespace
    INNER JOIN pg_language AS l ON l.oid = p.prolang
    CROSS JOIN LATERAL plpgsql_check_function_tb(
        p.oid, fatal_errors => false, extra_warnings => true, performance_warnings => true,
        compatibility_warnings => true, security_warnings => true
    ) AS c
WHERE n.nspname = %s AND l.lanname = 'plpgsql' AND p.prorettype <> 'trigger'::regtype
ORDER BY p.proname, c.lineno
"""


@pytest.mark.dialect("postgres")
def test_no_function_draws_a_warning(db: Database) -> None:
    available = db.sql("SELECT 1 AS one FROM pg_available_extensions WHERE name = 'plpgsql_check'")
    if not available:
        pytest.skip("this server has no extension plpgsql_check")  # the closing lines name it
    # It checks functions as the session has compiled them and leaves freed plans behind there: later calls in
    # that session fail with "unrecognized node type".
    with db.session() as session:
        session.sql("CREATE EXTENSION plpgsql_check")
        drawn = session.sql(CHECK, SCHEMA)
    places = _places()
    found: list[str] = []
    for row in drawn:
        if row["name"] in places:
            path, body = places[row["name"]]
            line = body + int(str(row["line"] or 1)) - 1
            found.append(f"{path}:{line}: {row['level']}: {row['message']} {row['detail'] or ''}".strip())
    wrong = [
        warning for warning in dict.fromkeys(found) if not any(re.search(known, warning) for known in ALLOWED)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def _places() -> dict[object, tuple[str, int]]:
    """The template of each function and the line its body begins in; the default boxes stand for all."""
    units = render_units("postgres", schema=SCHEMA, preserve_lines=True, test_clock=True)
    return {
        unit.object_name: (f"sql/postgres/{unit.path}", unit.text[: found.start()].count("\n") + 1)
        for unit in units
        if (found := re.search(r"\$[a-z_]*\$", unit.text))
    }
