"""What must be true of a box's tables whenever no transaction is open, asked of the tables themselves."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from pysqlbox.names import Dialect
from tests.contract.support import KINDS, Row, ids
from tests.support.database import Database

DRAINER = UUID("dddddddd-dddd-4ddd-8ddd-dddddddddddd")
FAR = 10_000_000
"""Seconds beyond every lease and due time of these tests."""

_ROUNDS = 5_000

_PLACES = """
SELECT id, 'ready' AS place FROM {ready}
UNION ALL SELECT id, 'scheduled' FROM {b}_scheduled WHERE id IS NOT NULL
UNION ALL SELECT id, 'group_member' FROM {b}_group_member
UNION ALL SELECT id, 'lease' FROM {b}_lease
UNION ALL SELECT id, 'done' FROM {done}
UNION ALL SELECT id, 'dead' FROM {b}_dead
"""
# A row of PostgreSQL's ready and done may stand for a run of messages.
_READY = {
    "postgres": """(
        SELECT u.id FROM {b}_ready AS r CROSS JOIN generate_series(r.id, r.id + r.span - 1) AS u (id)
        WHERE r.group_id IS NULL
    ) AS r""",
    "mssql": "(SELECT coalesce(id, ticket) AS id FROM {b}_ready WHERE {g} IS NULL) AS r",
}
_DONE = {
    "postgres": """(
        SELECT u.id FROM {b}_done AS d CROSS JOIN generate_series(d.id, d.id + d.span - 1) AS u (id)
    ) AS n""",
    "mssql": "{b}_done AS n",
}
_SEEN = "UNION ALL SELECT id, 'seen' FROM {b}_seen"

_RULES = {
    "a message is in exactly one place": """
        SELECT m.id, min(p.place) AS one, max(p.place) AS other
        FROM {b}_message AS m LEFT JOIN ({places}) AS p ON p.id = m.id
        GROUP BY m.id HAVING count(p.id) <> 1
        """,
    "what has a place is a message": """
        SELECT p.id, p.place FROM ({places}) AS p
        WHERE NOT EXISTS (SELECT 1 FROM {b}_message AS m WHERE m.id = p.id)
        """,
    "a group that waits has a ticket or is held": """
        SELECT DISTINCT gm.{g} AS name FROM {b}_group_member AS gm
        WHERE NOT EXISTS (SELECT 1 FROM {b}_lease AS l WHERE l.{g} = gm.{g})
            AND NOT EXISTS (SELECT 1 FROM {b}_ready AS r WHERE r.{g} = gm.{g})
            AND NOT EXISTS (SELECT 1 FROM {b}_scheduled AS s WHERE s.{g} = gm.{g})
        """,
    "one owner holds a group": """
        SELECT l.{g} AS name FROM {b}_lease AS l WHERE l.{g} IS NOT NULL
        GROUP BY l.{g} HAVING count(DISTINCT l.owner_token) > 1
        """,
    "the tally counts what is dead": """
        SELECT c.told, sum(c.dead) AS off_by FROM (
            {tallied}
            UNION ALL
            SELECT {topic}, -1 FROM {b}_dead WHERE {topic} IS NOT NULL
        ) AS c GROUP BY c.told HAVING sum(c.dead) <> 0
        """,
}
# T-SQL adds its tally up in a table of its own.
_TALLIED = {
    "postgres": "SELECT topic AS told, dead FROM {b}_tally WHERE dead <> 0",
    "mssql": """
        SELECT topic_key AS told, dead FROM {b}_tally UNION ALL SELECT topic_key, dead FROM {b}_tally_total
        """,
}
_POSTGRES_RULES = {
    "what is ready is a run of messages or a group": """
        SELECT ticket, id, group_id, span FROM {b}_ready WHERE num_nonnulls(id, group_id) <> 1 OR span < 1
        """,
    "no message was tried less than never": "SELECT id, attempt FROM {b}_message WHERE attempt < 0",
    "a member and a lease carry their message's group": """
        SELECT p.id FROM (
            SELECT id, group_id FROM {b}_group_member UNION ALL SELECT id, group_id FROM {b}_lease
        ) AS p INNER JOIN {b}_message AS m ON m.id = p.id
        WHERE coalesce(p.group_id, '') <> coalesce(m.group_id, '')
        """,
    "the tally counts what is done": """
        SELECT sum(c.done) AS off_by FROM (
            SELECT topic, done FROM {b}_tally
            UNION ALL
            SELECT m.topic, -1 FROM {done} INNER JOIN {b}_message AS m ON m.id = n.id
            WHERE m.topic IS NOT NULL
        ) AS c GROUP BY {t} HAVING sum(c.done) <> 0
        """,
    "the low marks are behind everything they guard": """
        SELECT 'ready' AS what FROM {b}_ready
        WHERE ticket < (SELECT last_value FROM {i}_low_ticket) AND lane = 0
            OR ticket < (SELECT last_value FROM {i}_low_above) AND lane < 0
            OR ticket < (SELECT last_value FROM {i}_low_below) AND lane > 0
        UNION ALL SELECT 'scheduled' FROM {b}_scheduled
        WHERE due_at < to_timestamp((SELECT last_value FROM {i}_low_due) / 1000000.0)
        UNION ALL SELECT 'group_member' FROM {b}_group_member
        WHERE id < (SELECT last_value FROM {i}_low_grouped)
        UNION ALL SELECT 'lease' FROM {b}_lease
        WHERE group_id IS NOT NULL AND id < (SELECT last_value FROM {i}_low_grouped)
        UNION ALL SELECT 'tally' FROM {b}_tally
        WHERE no < (SELECT last_value FROM {i}_low_tally)
        UNION ALL SELECT 'done' FROM {b}_done
        WHERE processed_at < to_timestamp((SELECT last_value FROM {i}_low_done) / 1000000.0)
        UNION ALL SELECT 'lane' FROM {b}_ready AS r
        WHERE lane <> 0 AND NOT EXISTS (SELECT FROM {b}_lane AS n WHERE n.lane = r.lane)
        """,
}
_JOIN_RULES = {
    "a join counts what its steps have come to": """
        SELECT j.join_id, j.completed_steps, j.failed_steps, s.completed, s.failed
        FROM {b}_joins AS j
            INNER JOIN (
                SELECT m.join_id,
                    sum(CASE m.status WHEN 'Completed' THEN 1 ELSE 0 END) AS completed,
                    sum(CASE m.status WHEN 'Failed' THEN 1 ELSE 0 END) AS failed
                FROM {b}_join_members AS m GROUP BY m.join_id
            ) AS s ON s.join_id = j.join_id
        WHERE s.completed <> j.completed_steps OR s.failed <> j.failed_steps
        """,
    "a join without steps counts nothing": """
        SELECT j.join_id, j.completed_steps, j.failed_steps FROM {b}_joins AS j
        WHERE j.completed_steps + j.failed_steps > 0
            AND NOT EXISTS (SELECT 1 FROM {b}_join_members AS m WHERE m.join_id = j.join_id)
        """,
    "a join has no more steps than it expects": """
        SELECT j.join_id, j.expected_steps FROM {b}_joins AS j
        WHERE j.expected_steps < (SELECT COUNT(*) FROM {b}_join_members AS m WHERE m.join_id = j.join_id)
        """,
    "a join that is over was complete": """
        SELECT j.join_id FROM {b}_joins AS j
        WHERE j.status IN ('Completed', 'Failed') AND j.completed_steps + j.failed_steps <> j.expected_steps
        """,
}
_AFTER_DRAIN = {
    "nothing waits": """
        SELECT p.id, p.place FROM ({places}) AS p WHERE p.place NOT IN ('done', 'dead', 'seen')
        """,
    "no ticket is left": """
        SELECT {g} AS name FROM {b}_ready UNION ALL SELECT {g} FROM {b}_scheduled
        """,
}


def rules(dialect: Dialect, box: str, *, drained: bool = False) -> dict[str, str]:
    """Every rule of a box with the query for what breaks it; `{schema}` is left to the caller."""
    found = dict(_RULES)
    postgres = dialect == "postgres"
    if postgres:
        found |= _POSTGRES_RULES
    if drained:
        found |= _AFTER_DRAIN
    if box == "outbox":
        found |= _JOIN_RULES
    names = {
        "{places}": _PLACES + (_SEEN if KINDS[box] == "inbox" else ""),
        "{ready}": _READY[dialect],
        "{done}": _DONE[dialect],
        "{tallied}": _TALLIED[dialect],
        "{topic}": "topic" if postgres else "topic_key",
        "{b}": f"{{schema}}.{box}",
        "{i}": f"{{schema}}._{box}",
        # A message may get another topic while it is acknowledged under the one that it was claimed with.
        "{t}": "c.topic" if KINDS[box] == "outbox" else "()",
        "{g}": "group_id" if postgres else "group_key",
    }
    for rule in found:
        for name, value in names.items():
            found[rule] = found[rule].replace(name, value)
    return found


def broken_rules(db: Database, box: str, *, drained: bool = False) -> dict[str, list[Row]]:
    """The rules that the box's tables break, each with some of the rows that break it."""
    found: dict[str, list[Row]] = {}
    for rule, query in rules(db.dialect, box, drained=drained).items():
        if rows := db.sql(query):
            found[rule] = rows[:5]
    return found


def check(db: Database, box: str, *, drained: bool = False) -> None:
    """Fails if the box's tables break a rule; no transaction may be open."""
    broken = broken_rules(db, box, drained=drained)
    assert not broken, f"{box}: {broken}"


def drain(db: Database, box: str, seen: Callable[[list[Row]], None] | None = None) -> list[int]:
    """Lets every lease and delay pass, then claims and acknowledges until nothing is left; the ids in order.

    Nothing may be left out: a message that no claim finds any more fails the check at the end.
    """
    db.advance(FAR)
    taken: list[int] = []
    empty = 0
    for _ in range(_ROUNDS):
        rows = db.call(f"{box}_claim", owner_token=DRAINER, lease_seconds=3600, batch_size=500)
        if rows:
            empty = 0
            if seen is not None:
                seen(rows)
            taken += ids(rows)
            db.call(f"{box}_ack", owner_token=DRAINER, ids=ids(rows))
        else:
            # A group that needed another look is looked at again after a fifth of a second.
            empty += 1
            if empty > 2:
                break
            db.advance(1)
    check(db, box, drained=True)
    return taken
