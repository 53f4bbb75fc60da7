"""Where messages, tickets and marks are in PostgreSQL's tables; no other module of this package names one."""

from __future__ import annotations

from tests.concurrency.invariants import rules
from tests.contract.support import Caller
from tests.support.database import Database

TICKET_MARKS = ("low_ticket", "low_above", "low_below", "low_open", "low_sure", "low_grouped", "low_tally")
"""The low marks that are numbers of the box's one sequence."""
TIME_MARKS = ("low_due", "low_done", "low_lease")
"""The low marks that are times, in microseconds since 1970."""


def number(caller: Caller, text: str, *parameters: object) -> int:
    """The whole number that a query answers in its one row and column."""
    (row,) = caller.sql(text, *parameters)
    return int(str(next(iter(row.values()))))


def dead(caller: Caller, box: str) -> int:
    """How many messages were given up or have expired."""
    return number(caller, f"SELECT count(*) AS n FROM {{schema}}.{box}_dead")


def group_tickets(caller: Caller, box: str) -> int:
    """How many tickets of groups wait among what is ready."""
    return number(caller, f"SELECT count(*) AS n FROM {{schema}}.{box}_ready WHERE group_id IS NOT NULL")


def probes(caller: Caller) -> int:
    """How many probes of joins wait to be looked at."""
    return number(caller, "SELECT count(*) AS n FROM {schema}.outbox_scheduled WHERE join_id IS NOT NULL")


def add_surplus_tickets(db: Database, box: str, count: int, topic: str = "t") -> None:
    """Tickets of groups that have ended meanwhile, each of another group."""
    db.sql(
        f"INSERT INTO {{schema}}.{box}_ready (lane, ticket, topic, group_id)"
        f" SELECT 0, nextval('{{schema}}._{box}_ids'), %s, 'gone ' || n"
        f" FROM generate_series(1, {count}) AS n",
        topic,
    )


def marks(db: Database, box: str) -> dict[str, int]:
    """Every low mark of a box with its value; one that this module does not know fails the test."""
    prefix = f"_{box}_"
    names = [
        str(row["name"]).removeprefix(prefix)
        for row in db.sql(
            "SELECT sequencename AS name FROM pg_sequences"
            " WHERE schemaname = %s AND starts_with(sequencename, %s)",
            db.schema,
            f"{prefix}low_",
        )
    ]
    unknown = set(names) - {*TICKET_MARKS, *TIME_MARKS}
    assert not unknown, f"marks that nobody told this module of: {unknown}"
    return {name: number(db, f"SELECT last_value AS n FROM {{schema}}.{prefix}{name}") for name in names}


def set_mark(db: Database, box: str, name: str, value: int) -> None:
    """Puts a low mark where it should not be."""
    db.sql(f"SELECT setval('{{schema}}._{box}_{name}', {value})")


def last_ticket(caller: Caller, box: str) -> int:
    """The number that the box has drawn last."""
    return number(caller, f"SELECT last_value AS n FROM {{schema}}._{box}_ids")


def microseconds(db: Database) -> int:
    """The schema's clock, as the marks have it."""
    return number(db, "SELECT (extract(epoch FROM {schema}._now()) * 1000000)::bigint AS n")


def skipped_by_marks(db: Database, box: str) -> int:
    """How many numbers lie between the low mark of tickets and the first that is still there."""
    first = number(
        db,
        f"SELECT coalesce(min(ticket), (SELECT last_value FROM {{schema}}._{box}_ids)) AS n"
        f" FROM {{schema}}.{box}_ready WHERE lane = 0",
    )
    return first - marks(db, box)["low_ticket"]


def add_probes(db: Database, join: object, count: int) -> None:
    """Probes of one join, as settlements leave them."""
    db.sql(
        "INSERT INTO {schema}.outbox_scheduled (due_at, no, lane, topic, join_id, probe_xid)"
        " SELECT {schema}._now(), nextval('{schema}._outbox_ids'), 0, '', %s, pg_current_xact_id()"
        f" FROM generate_series(1, {count})",
        join,
    )


def analyze(db: Database, box: str) -> None:
    """Tells the planner how much there is now, as autovacuum would."""
    db.sql(f"ANALYZE {{schema}}.{box}_message")


def shrink_text(db: Database, box: str) -> str:
    """Frees pages that earlier tests left behind dead: a patrol reads a few at a time and would need long."""
    return f"TRUNCATE {', '.join(f'{{schema}}.{name}' for name in _tables(db, box))}"


def _tables(db: Database, box: str) -> list[str]:
    """The tables of a box, and those of the joins, without settings."""
    rows = db.sql(
        "SELECT tablename AS name FROM pg_tables"
        " WHERE schemaname = %s AND tablename ~ %s AND tablename !~ '_settings$' ORDER BY tablename",
        db.schema,
        f"^({box}|join)(_|$)",
    )
    return [str(row["name"]) for row in rows]


def reset_text(db: Database, box: str) -> str:
    """The statements that put a box, and the joins, back to empty; the settings stay."""
    sequences = db.sql(
        "SELECT sequencename AS name, start_value AS start FROM pg_sequences"
        " WHERE schemaname = %s AND (sequencename ~ %s OR sequencename = '_clock') ORDER BY sequencename",
        db.schema,
        f"^_{box}_",
    )
    # And what the session remembers of its topics.
    memory = f"SELECT set_config('pysqlbox.topics_' || '{{schema}}.{box}_ready'::regclass::oid, '', false);\n"
    deletes = memory + "".join(f"DELETE FROM {{schema}}.{name};\n" for name in _tables(db, box))
    return deletes + "".join(
        f"SELECT setval('{{schema}}.{row['name']}', {row['start']}, false);\n" for row in sequences
    )


def check_text(box: str, *, drained: bool = False) -> str:
    """One query, and so one snapshot, for the rules that the box breaks: rule, and some rows as JSON."""
    parts = ", ".join(
        f"($rule${rule}$rule$, (SELECT jsonb_agg(q)::text FROM (SELECT * FROM ({query}) AS r LIMIT 5) AS q))"
        for rule, query in rules("postgres", box, drained=drained).items()
    )
    return f"SELECT u.rule, u.rows FROM (VALUES {parts}) AS u (rule, rows) WHERE u.rows IS NOT NULL"


def unfinished_text(box: str) -> str:
    """What waits in groups or is leased: id, group_id, and of leases the owner and whether it is good."""
    return (
        f"SELECT gm.id, gm.group_id, NULL AS owner, false AS good FROM {{schema}}.{box}_group_member AS gm"
        " UNION ALL SELECT l.id, l.group_id, l.owner_token::text, l.locked_until >= {schema}._now()"
        f" FROM {{schema}}.{box}_lease AS l"
    )


def claimable_text(box: str) -> str:
    """What waits and could be handed out now: topic not paused, time come, first of a group nobody holds."""
    return (
        f"SELECT w.id FROM {{schema}}.{box}_messages AS v"
        f" INNER JOIN {{schema}}.{box}_message AS w ON w.id = v.id"
        f" WHERE v.owner_token IS NULL AND v.status IN ('Ready', 'Processing') AND w.topic IS NOT NULL"
        " AND coalesce(w.due_at <= {schema}._now(), true)"
        f" AND NOT EXISTS (SELECT FROM {{schema}}.{box}_paused AS p WHERE p.topic IN (w.topic, ''))"
        f" AND NOT EXISTS (SELECT FROM {{schema}}.{box}_lease AS l WHERE l.group_id = w.group_id)"
        f" AND NOT EXISTS (SELECT FROM {{schema}}.{box}_group_member AS gm"
        " WHERE gm.group_id = w.group_id AND gm.id < w.id)"
    )


def messages_text(box: str) -> str:
    """Every message: id, collapse_key, and whether it is done."""
    return f"SELECT v.id, v.collapse_key, v.status = 'Done' AS done FROM {{schema}}.{box}_messages AS v"


def going_on_text(box: str, ids: list[int]) -> str:
    """Those of these messages that are not over."""
    return (
        f"SELECT v.id, v.status FROM {{schema}}.{box}_messages AS v WHERE v.id = ANY (ARRAY{ids}::bigint[])"
        " AND v.topic IS NOT NULL AND v.processed_at IS NULL AND v.died_at IS NULL"
    )


def done_by_text(box: str, owner: str, ids: list[int]) -> str:
    """How many of these messages this owner has done."""
    return (
        f"SELECT count(*) AS affected FROM {{schema}}.{box}_messages AS v"
        f" WHERE v.processed_by = '{owner}' AND v.id = ANY (ARRAY{ids}::bigint[])"
    )
