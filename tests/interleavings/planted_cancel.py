"""Faults in calling off, rescheduling, and open joins, each with the protocol that shows it."""

from __future__ import annotations

from tests.concurrency.planting import Bug

PLANTED: list[tuple[Bug, str]] = [
    (
        Bug(
            "a cancel does not try again",
            "queue/_take.sql",
            [("RAISE EXCEPTION USING ERRCODE = 'no_data_found';", "NULL;")],
        ),
        "the head of a group is called off while one adds to it",
    ),
    (
        Bug(
            "a cancel holds nothing that moves",
            "queue/_take.sql",
            [
                (
                    "IF {{ box._hold }}(one_id) = 'pending' THEN\n"
                    "                        held := held || one_id;\n"
                    "                    END IF;",
                    "held := held || one_id;",
                ),
                ("FOR turn IN 1..100 LOOP", "FOR turn IN 1..3 LOOP"),
            ],
        ),
        "a message is called off while two claim it",
    ),
    (
        Bug(
            "a cancel takes leases of groups that it has not locked",
            "queue/_take.sql",
            [("OR c.group_id = ANY (groups)", "OR true")],
        ),
        "of two leases of a group one is called off while the other is settled",
    ),
    (
        Bug("a cancel leaves the group alone", "queue/cancel.sql", [("{{ box._regroup }}(groups)", "1")]),
        "the leased head of a group is called off while two add to it",
    ),
    (
        Bug(
            "a cancel forgets the rest of a run",
            "queue/_cut_runs.sql",
            [("WHERE NOT message.is_wanted\n        ) AS k", "WHERE false\n        ) AS k")],
        ),
        "several of a run are called off while others claim from it",
    ),
    (
        Bug(
            "a reschedule gives the group no ticket",
            "queue/reschedule.sql",
            [("PERFORM {{ box._regroup }}(groups);", "NULL;")],
        ),
        "the head of a group is made due while one claims",
    ),
    (
        Bug(
            "a closing looks before it has locked the join",
            "joins/wait.sql",
            [("WHERE j.join_id = $1 FOR NO KEY UPDATE;", "WHERE j.join_id = $1;")],
        ),
        "an open join is closed while a step is attached and settled",
    ),
    (
        Bug("a closing leaves no probe", "joins/wait.sql", [("PERFORM {{ db._join_nudge }}($1);", "")]),
        "an open join is closed while its last step ends, and one looks",
    ),
    (
        Bug(
            "attaching many holds nothing",
            "joins/attach_many.sql",
            [("states[place] := {{ db._outbox_hold }}(work_ids[place]);", "states[place] := 'pending';")],
        ),
        "many become steps while one of them is settled and one called off",
    ),
    (
        Bug(
            "a cancel waits for a group behind a message",
            "queue/_take.sql",
            [
                (
                    "PERFORM FROM {{ box.group }} AS g WHERE g.group_id = ANY (groups) ORDER BY g.group_id"
                    " FOR NO KEY UPDATE;\n",
                    "",
                ),
                (
                    "left_ids := held;\n            END IF;",
                    "left_ids := held;\n"
                    "PERFORM FROM {{ box.group }} AS g WHERE g.group_id = ANY (groups) FOR NO KEY UPDATE;\n"
                    "            END IF;",
                ),
            ],
        ),
        "one lease of a group is called off while both are settled one by one",
    ),
    (
        Bug(
            "a cancel takes hold in another order",
            "queue/_take.sql",
            [("ORDER BY m.id\n", "ORDER BY m.id DESC\n")],
        ),
        "messages are called off while they become steps one by one",
    ),
    (
        Bug(
            "attaching many takes hold in another order",
            "joins/attach_many.sql",
            [
                (
                    "FOR place IN 1..cardinality(work_ids) LOOP",
                    "FOR place IN REVERSE cardinality(work_ids)..1 LOOP",
                ),
            ],
        ),
        "many become steps of one join, and one by one of another",
    ),
]
