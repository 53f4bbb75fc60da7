"""Faults in firing schedules, each with the protocol that shows it."""

from __future__ import annotations

from tests.concurrency.planting import Bug

_FIRE = "outbox/schedule_fire.sql"
_STANDS = "WHERE s.name = $1 AND s.next_at = $2 AND s.enabled"
_FOUND = """    UPDATE {{ box.schedules }} AS s
    SET
        next_at = coalesce($3, $2 + make_interval(secs => s.every_seconds)),"""

PLANTED: list[tuple[Bug, str]] = [
    (
        Bug("firing compares nothing", _FIRE, [(_STANDS, "WHERE s.name = $1 AND s.enabled")]),
        "three fire the same time, and one thinks better of it",
    ),
    (
        Bug(
            "firing compares what it saw before it had the row",
            _FIRE,
            [
                (
                    _FOUND,
                    "    SELECT s.* INTO found FROM {{ box.schedules }} AS s "
                    + _STANDS
                    + ";\n    IF found.name IS NULL THEN\n"
                    "        RETURN QUERY SELECT false, NULL::bigint, NULL::uuid;\n"
                    "        RETURN;\n    END IF;\n" + _FOUND,
                ),
                (_STANDS + "\n    RETURNING", "WHERE s.name = $1\n    RETURNING"),
            ],
        ),
        "two fire one time after the other while one passes them over",
    ),
    (
        Bug(
            "firing passes over a schedule that somebody has in hand",
            _FIRE,
            [
                (
                    _STANDS,
                    _STANDS + " AND s.name IN (SELECT l.name FROM {{ box.schedules }} AS l WHERE l.name = $1"
                    " FOR UPDATE SKIP LOCKED)",
                )
            ],
        ),
        "three fire the same time, and one thinks better of it",
    ),
    (
        Bug(
            "firing asks not whether it is enabled",
            _FIRE,
            [(_STANDS, "WHERE s.name = $1 AND s.next_at = $2")],
        ),
        "a schedule is disabled while two fire it",
    ),
    (
        Bug(
            "skipping compares nothing",
            "outbox/schedule_skip.sql",
            [("AND s.next_at IS NOT DISTINCT FROM $2 ", "")],
        ),
        "a schedule gets another time while one passes the old one over",
    ),
    (
        Bug(
            "setting again decides on what it saw before it had the row",
            "outbox/schedule_set.sql",
            [
                (
                    "    INSERT INTO {{ box.schedules }} AS s (",
                    "    next_at := coalesce(\n"
                    "        next_at, (SELECT o.next_at FROM {{ box.schedules }} AS o WHERE o.name = $1)\n"
                    "    );\n"
                    "    INSERT INTO {{ box.schedules }} AS s (",
                )
            ],
        ),
        "a schedule is set again by the same rule while two fire it",
    ),
    (
        Bug(
            "what is due is locked by nobody",
            "outbox/schedule_due.sql",
            [("FOR NO KEY UPDATE OF s SKIP LOCKED", "FOR NO KEY UPDATE OF s")],
        ),
        "what is due is asked for and fired by two",
    ),
]
