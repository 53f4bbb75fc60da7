"""With roles, routines run with their owner's rights: nobody's search_path may put other code into them."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import tuple_row

from pysqlbox.deploy.migrate import migrate
from pysqlbox.drivers import parse_url
from pysqlbox.errors import PysqlboxError
from pysqlbox.names import DEFAULT_BOXES
from tests.deploy.release import Release
from tests.support.boxes import BOXES
from tests.support.database import execute_once
from tests.support.engines import Engine
from tools.routines import Routine, routines

pytestmark = pytest.mark.dialect("postgres")

OWNER = uuid.UUID(int=7)
MESSAGES = {
    "outbox": [{"topic": "t", "payload": "p", "dedup_key": "k", "delay_seconds": 1}],
    "inbox": [{"topic": "t", "payload": "p", "source": "s", "message_id": "many", "hash": "00"}],
}
#: What a parameter is given, by its name; by its type where the name is not here.
VALUES: dict[str, object] = {
    "owner_token": OWNER,
    "topic": "t",
    "expected_steps": None,
    "fail_if_any_step_failed": False,
    "group_id": "g",
    "headers": "{}",
    "metadata": "{}",
    "name": "notify",
    "outcomes": '[{"id": 2, "result": "ack"}]',
    "payloads": ["p", "q"],
    "status": None,
    "value": "on",
}
BY_TYPE: dict[str, object] = {
    "bigint": 1,
    "bigint[]": [1, 2],
    "boolean": True,
    "integer": 10,
    "jsonb": "{}",
    "numeric": 1,
    "smallint": 0,
    "text": "x",
    "uuid": OWNER,
}
#: The operators that are planted: those that SQL is full of.
OPERATORS = re.findall(r"\S+", "= <> < > <= >= + - * / % & | || -> ->> @> <@ && ~ ~~ ? #>>")
#: The types that they are planted for: those of our tables, and the polymorphic ones.
TYPES = [
    *(
        "int8",
        "int4",
        "int2",
        "text",
        "uuid",
        "bool",
        "numeric",
        "float8",
        "timestamptz",
        "interval",
        "jsonb",
    ),
    *("bytea", "int8[]", "text[]", "anyarray", "anycompatible", "anycompatiblearray"),
]
#: The types that are planted, as domains whose check runs the attacker's code.
DOMAINS = ("text", "uuid", "timestamptz", "jsonb", "bytea", "int4", "int8", "regclass", "bool")


@dataclass(frozen=True, slots=True)
class Attack:
    """A deployment with roles, and a login that may put a schema of its own first in its search_path."""

    url: str
    schema: str
    login: str
    password: str

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """A session of the attacker, who looks in `evil` first."""
        dsn = psycopg.conninfo.make_conninfo(
            parse_url(self.url).dsn,
            user=self.login,
            password=self.password,
            options="-c search_path=evil,pg_catalog",
        )
        return psycopg.connect(dsn, autocommit=True, row_factory=tuple_row)

    def become(self, role: str) -> None:
        """Makes the attacker a member of one role of the deployment only."""
        for each in ("producer", "worker", "operator", "viewer"):
            verb, word = ("GRANT", "TO") if each == role else ("REVOKE", "FROM")
            execute_once(self.url, f"{verb} {self.schema}_{each} {word} {self.login}")

    def hits(self) -> int:
        """How often planted code ran; a sequence counts, so no rollback hides it."""
        rows = execute_once(self.url, "SELECT last_value AS n, is_called FROM evil.hits")
        return int(str(rows[0]["n"])) if rows[0]["is_called"] else 0


@pytest.fixture
def attack(engine: Engine, empty_url: str) -> Iterator[Attack]:
    """A schema deployed with roles, and a login with a schema `evil`; both gone afterwards."""
    schema, password = f"a{secrets.token_hex(4)}", secrets.token_hex(8)
    login = f"{schema}_login"
    migrate(empty_url, schema=schema, boxes=BOXES, roles=True)
    engine.execute(f"CREATE ROLE {login} LOGIN PASSWORD '{password}'")
    try:
        for statement in (
            f"CREATE SCHEMA evil AUTHORIZATION {login}",
            "CREATE SEQUENCE evil.hits",
            "GRANT USAGE ON SCHEMA evil TO PUBLIC",
            "GRANT ALL ON SEQUENCE evil.hits TO PUBLIC",
        ):
            execute_once(empty_url, statement)
        attack = Attack(empty_url, schema, login, password)
        attack.become("producer")
        yield attack
    finally:
        execute_once(empty_url, "DROP SCHEMA evil CASCADE")
        for role in (login, *(f"{schema}_{name}" for name in ("producer", "worker", "operator", "viewer"))):
            execute_once(empty_url, f"DROP OWNED BY {role} CASCADE")
            execute_once(empty_url, f"DROP ROLE {role}")


def test_an_aggregate_of_ones_own_does_not_run_as_the_owner(attack: Attack) -> None:
    """The way in that there was: max(int) of a producer's own, under schema_version."""
    with contextlib.closing(attack.connect()) as session:
        session.execute(
            "CREATE FUNCTION evil.step(integer, integer) RETURNS integer LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_catalog.nextval('evil.hits'); RETURN 666; END $$"
        )
        session.execute("CREATE AGGREGATE evil.max(integer) (SFUNC = evil.step, STYPE = integer)")
        query = sql.SQL("SELECT * FROM {}()").format(sql.Identifier(attack.schema, "schema_version"))
        answer = session.execute(query).fetchall()
    assert attack.hits() == 0
    assert answer == [(1,)]


def test_nothing_of_the_callers_runs_in_any_routine(attack: Attack) -> None:
    """Functions, operators and types of the names our routines use: none of them ever runs."""
    values = VALUES | _prepare(attack)
    ended: dict[str, str] = {}
    with contextlib.closing(attack.connect()) as session:
        assert _plant(session, attack) > 400, "too few were planted to prove anything"
        with pytest.raises(psycopg.errors.RaiseException, match="hijacked"):
            session.execute("SELECT length('x'::pg_catalog.text)")  # the trap works
        with pytest.raises(psycopg.errors.RaiseException, match="hijacked"):
            session.execute("SELECT 'x'::text")
        assert attack.hits() == 2
        public = [
            each for each in routines("postgres", schema=attack.schema, boxes=BOXES) if not each.internal
        ]
        for role in ("producer", "worker", "viewer", "operator"):
            attack.become(role)
            for routine in public:
                if role in routine.header.names("role"):
                    ended[routine.name] = _call(session, attack.schema, routine, values)
        for view in ("outbox_messages", "orders_messages", "outbox_joins", "outbox_join_members"):
            session.execute(sql.SQL("TABLE {}").format(sql.Identifier(attack.schema, view))).fetchall()
    assert not {name: error for name, error in ended.items() if "hijacked" in error}
    assert attack.hits() == 2
    assert len(ended) == len(public) > 60
    through = [name for name, error in ended.items() if not error]
    assert len(through) >= 0.8 * len(ended), f"too few came to their end: {ended}"


def test_definers_routine_without_a_path_is_refused_before_anything(empty_url: str, release: Release) -> None:
    """A release whose public routine has no path of its own cannot be deployed with roles."""
    text = (
        "CREATE OR REPLACE FUNCTION {{ box.leak }}() RETURNS integer LANGUAGE sql AS $$\n"
        "    -- Counts.\n    -- role: producer\n    SELECT 1;\n$$;\n"
    )
    release.write("queue/leak.sql", text, "-- role: producer\nCREATE OR ALTER PROCEDURE {{ box.leak }} AS;\n")
    assert release.migrate(empty_url, schema="without").changes
    for schema in ("without", "fresh"):
        with pytest.raises(PysqlboxError, match=r"queue/leak.*search_path"):
            release.migrate(empty_url, schema=schema, roles=True)
    assert execute_once(empty_url, "SELECT 1 FROM pg_namespace WHERE nspname = 'fresh'") == []
    pinned = text.replace("AS $$", "SET search_path = pg_catalog, pg_temp AS $$")
    release.write("queue/leak.sql", pinned, "SELECT 1;\n")
    assert release.migrate(empty_url, schema="without", roles=True).changes
    hidden = text.replace("LANGUAGE sql", "LANGUAGE sql SECURITY DEFINER").replace("producer", "internal")
    release.write("queue/leak.sql", hidden, "SELECT 1;\n")
    with pytest.raises(PysqlboxError, match=r"queue/leak.*search_path"):
        release.migrate(empty_url, schema="without")


def _prepare(attack: Attack) -> dict[str, object]:
    """Some messages, two of them leased, and a join; answers what the calls can name."""
    in_schema = f"{attack.schema}."
    for box in ("outbox", "mail"):
        execute_once(attack.url, f"SELECT {in_schema}{box}_enqueue('t', 'p') FROM generate_series(1, 5)")
        execute_once(attack.url, f"SELECT {in_schema}{box}_enqueue('t', 'p', group_id => 'g')")
    for box in ("inbox", "orders"):
        execute_once(
            attack.url,
            f"SELECT {in_schema}{box}_enqueue('t', 's', n::text, 'p') FROM generate_series(1, 5) AS n",
        )
    for box in ("outbox", "mail", "inbox", "orders"):
        execute_once(attack.url, f"SELECT {in_schema}{box}_claim('{OWNER}', 600, 2)")
    message = execute_once(attack.url, f"SELECT message_id FROM {in_schema}outbox_message WHERE id = 4")
    join = execute_once(attack.url, f"SELECT join_id FROM {in_schema}join_start('tenant', 2)")
    return {"message_id": message[0]["message_id"], "join_id": join[0]["join_id"]}


def _call(
    session: psycopg.Connection[tuple[object, ...]], schema: str, routine: Routine, values: dict[str, object]
) -> str:
    """Calls a routine with all parameters but those that would be in the way; answers its error."""
    assert routine.box is None or routine.box in (*BOXES, *DEFAULT_BOXES)
    given: dict[str, object] = {}
    for parameter in routine.parameters:
        value = values.get(parameter.name, BY_TYPE.get(parameter.type))
        if parameter.name == "messages":
            value = json.dumps(MESSAGES[routine.box.kind if routine.box else "outbox"])
        elif parameter.name == "status" and routine.box is not None:
            value = "Done"
        elif parameter.name in ("topics", "delay_seconds") and parameter.optional:
            continue
        if value is not None or not parameter.optional:
            given[parameter.name] = value
    named = sql.SQL(", ").join(
        # Literals without a type: a cast of the caller's own would run as the caller, which proves nothing.
        sql.SQL("{} => {}").format(sql.Identifier(name), sql.SQL(_literal(value)))
        for name, value in given.items()
    )
    query = sql.SQL("SELECT * FROM {}({})").format(sql.Identifier(schema, routine.name), named)
    try:
        session.execute(query).fetchall()
    except psycopg.Error as error:
        return f"{error.sqlstate} {error.diag.message_primary} {error.diag.context}"
    return ""


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        value = "{" + ",".join(map(str, value)) + "}"
    return "'" + str(value).replace("'", "''") + "'"


def _plant(session: psycopg.Connection[tuple[object, ...]], attack: Attack) -> int:
    """Shadows, in `evil`, what the sources of our routines name; each counts and raises. Answers how many."""
    body = "$$ BEGIN PERFORM pg_catalog.nextval('evil.hits'); RAISE EXCEPTION 'hijacked by {}'; END $$"
    statements = ["SET search_path = pg_catalog"]
    for row in execute_once(attack.url, _FUNCTIONS, (attack.schema,)):
        arguments = (
            str(row["arguments"])
            .replace('VARIADIC "any"', "VARIADIC anyarray")
            .replace('"any"', "anyelement")
        )
        statements.append(
            f"CREATE OR REPLACE FUNCTION evil.{row['name']}({arguments}) RETURNS {row['result']}"
            f" LANGUAGE plpgsql AS {body.format(row['name'])}"
        )
    for number, row in enumerate(execute_once(attack.url, _OPERATORS, (OPERATORS, TYPES, TYPES))):
        arguments = ", ".join(str(row[side]) for side in ("l", "r") if row[side])
        sides = ", ".join(
            f"{side} = {row[name]}" for side, name in (("LEFTARG", "l"), ("RIGHTARG", "r")) if row[name]
        )
        statements += [
            f"CREATE FUNCTION evil.op_{number}({arguments}) RETURNS {row['result']}"
            f" LANGUAGE plpgsql AS {body.format(f'operator {number}')}",
            f"CREATE OPERATOR evil.{row['name']} ({sides}, FUNCTION = evil.op_{number})",
        ]
    statements.append(f"CREATE FUNCTION evil.trap() RETURNS bool LANGUAGE plpgsql AS {body.format('a type')}")
    statements += [f"CREATE DOMAIN evil.{name} AS pg_catalog.{name} CHECK (evil.trap())" for name in DOMAINS]
    planted = 0
    for statement in statements:
        try:
            session.execute(statement.encode())
            planted += 1
        except (psycopg.errors.InvalidFunctionDefinition, psycopg.errors.FeatureNotSupported):
            continue  # a polymorphic result without such an argument; two of one name that become one
    session.execute("SET search_path = evil, pg_catalog")
    return planted


#: The functions of pg_catalog whose names occur in the sources of a schema's routines.
_FUNCTIONS = """
    WITH word AS (
        SELECT DISTINCT lower(m[1]) AS word
        FROM pg_proc AS p CROSS JOIN LATERAL regexp_matches(p.prosrc, '([a-z_][a-z0-9_]*)', 'g') AS m
        WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = %s)
    )
    SELECT quote_ident(p.proname) AS name,
        (SELECT coalesce(string_agg(
            CASE WHEN p.provariadic <> 0 AND t.no = p.pronargs THEN 'VARIADIC ' ELSE '' END
            || format_type(t.oid, NULL), ', ' ORDER BY t.no), '')
        FROM unnest(p.proargtypes) WITH ORDINALITY AS t (oid, no)) AS arguments,
        CASE WHEN p.proretset THEN 'SETOF ' ELSE '' END || format_type(p.prorettype, NULL) AS result
    FROM pg_proc AS p JOIN word AS w ON w.word = p.proname
    WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind IN ('f', 'a')
        AND NOT EXISTS (
            SELECT FROM unnest(p.proargtypes || p.prorettype) AS a (oid) JOIN pg_type AS t ON t.oid = a.oid
            WHERE t.typtype = 'p' AND t.typname !~ '^(any|record$|void$)'
        )
    ORDER BY p.oid
"""

#: The operators of pg_catalog of these names, over the types that our tables have.
_OPERATORS = """
    SELECT o.oprname AS name, CASE WHEN o.oprleft <> 0 THEN format_type(o.oprleft, NULL) END AS l,
        format_type(o.oprright, NULL) AS r, format_type(o.oprresult, NULL) AS result
    FROM pg_operator AS o
    WHERE o.oprname = ANY (%s) AND o.oprcode <> 0
        AND (o.oprleft = 0 OR o.oprleft = ANY (%s::regtype[])) AND o.oprright = ANY (%s::regtype[])
    ORDER BY o.oid
"""
