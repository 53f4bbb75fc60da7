"""The protocols are worth something: each guard that is taken out makes some order of one of them red."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.concurrency.planting import Bug
from tests.interleavings.planted_cancel import PLANTED as PLANTED_CANCEL
from tests.interleavings.planted_schedules import PLANTED as PLANTED_SCHEDULES
from tests.interleavings.protocols import PROTOCOLS
from tests.interleavings.scheduler import exhaust
from tests.interleavings.stops import stopping
from tests.interleavings.world import BrokenError
from tests.support.database import Database

pytestmark = pytest.mark.dialect("postgres")

_HELD = '{{ queue.is_held("u.group_id") }}'
_KEY = ("WHERE l.id = ANY (ids) AND l.owner_token = $1\n", "WHERE l.id = ANY (ids)\n")

PLANTED: list[tuple[Bug, str]] = [
    # A group that ends while a producer adds to it
    (
        Bug(
            "a settlement decides without the row's lock",
            "queue/_regroup.sql",
            [("FOR UPDATE SKIP LOCKED", "")],
        ),
        "a group is emptied while two add to it",
    ),
    (
        Bug(
            "a settlement waits for a producer",
            "queue/_regroup.sql",
            [("FOR UPDATE SKIP LOCKED", "FOR UPDATE")],
        ),
        "a group is emptied while two add to it",
    ),
    (
        Bug(
            "no second look at a group whose row was locked",
            "queue/_regroup.sql",
            [("WHERE u.group_id <> ALL (alone)", "WHERE false")],
        ),
        "a group is emptied while two add to it",
    ),
    (
        Bug(
            "a producer trusts a row that it has not locked",
            "queue/_admit.sql",
            [("FOR KEY SHARE SKIP LOCKED", "")],
        ),
        "a group is emptied while two add to it",
    ),
    (
        Bug("a producer waits", "queue/_admit.sql", [("FOR KEY SHARE SKIP LOCKED", "FOR KEY SHARE")]),
        "a group is emptied while two add to it",
    ),
    (
        Bug(
            "a ticket is dropped though the settlement has decided",
            "queue/_surplus.sql",
            [(f"WHERE u.group_id <> ALL (sure) OR NOT {_HELD}", "WHERE false")],
        ),
        "a group is looked at twice while ack is open",
    ),
    (
        Bug(
            "a head that is locked is not looked at again",
            "queue/_claim_groups.sql",
            [("WHERE u.group_id = ANY (blocked)", "WHERE false")],
        ),
        "a head becomes a step beside a ticket too many",
    ),
    (
        Bug(
            "a ticket stands where a later head called for",
            "queue/_regroup.sql",
            [(" OR free.id > settled", "")],
        ),
        "a topic is paused while a group with another topic in front is settled",
    ),
    # The same inside of routines
    (
        Bug(
            "a claim trusts what it saw before the lock",
            "queue/_claim_groups.sql",
            [(f"WHERE NOT {_HELD}", "")],
        ),
        "two claims of one group, each inside of the other",
    ),
    (
        Bug(
            "a settlement trusts what it saw before the lock",
            "queue/_regroup.sql",
            [("u.group_id = ANY (alone)", "false")],
        ),
        "a producer and a settlement, each inside of the other",
    ),
    (
        Bug(
            "the number before the xid",
            "outbox/enqueue.sql",
            [("WHEN pg_current_xact_id() IS NOT NULL", "WHEN true")],
        ),
        "ticks inside of an enqueue, and an enqueue inside of ticks",
    ),
    # Who holds a group
    (
        Bug(
            "a held group is claimed",
            "queue/_claim_groups.sql",
            [("{{ box._surplus }}(groups)", "groups"), (f"WHERE NOT {_HELD}", "")],
        ),
        "a group with a ticket too many and two workers",
    ),
    (
        Bug(
            "a claim waits for a group",
            "queue/_claim_groups.sql",
            [("FOR NO KEY UPDATE SKIP LOCKED", "FOR NO KEY UPDATE")],
        ),
        "a group with a ticket too many and two workers",
    ),
    (
        Bug("parts of a group are settled apart", "queue/_lock_groups.sql", [("FOR NO KEY UPDATE", "")]),
        "a group settled by two hands at once, one with ack",
    ),
    (
        Bug("a mark does not lock the group", "inbox/_take_by_key.sql", [("FOR NO KEY UPDATE", "")], "inbox"),
        "one leased member is marked while the other is settled",
    ),
    # A message is taken once
    (
        Bug(
            "a group's ticket is taken for a message",
            "queue/_withdraw.sql",
            [("c.no = place.id AND c.id = place.id", "c.no = place.id")],
            "inbox",
        ),
        "a head with a ticket of its own number is marked while it is claimed",
    ),
    (
        Bug("a claim waits for rows", "queue/claim.sql", [("FOR UPDATE SKIP LOCKED", "FOR UPDATE")]),
        "two replace one message that a worker claims",
    ),
    (
        Bug("a claim locks nothing", "queue/claim.sql", [("FOR UPDATE SKIP LOCKED", "")]),
        "two replace one message that a worker claims",
    ),
    (
        Bug(
            "a withdrawal waits for a claim",
            "queue/_withdraw.sql",
            [("FOR UPDATE SKIP LOCKED", "FOR UPDATE")],
        ),
        "two replace one message that a worker claims",
    ),
    (
        Bug("promotion waits", "queue/_promote.sql", [("FOR UPDATE SKIP LOCKED", "FOR UPDATE")], "inbox"),
        "a delayed message is marked while it falls due",
    ),
    (
        Bug(
            "a collapse waits for a collapse",
            "queue/_replace.sql",
            [
                (
                    "AND o.id < k.id\n                FOR UPDATE SKIP LOCKED",
                    "AND o.id < k.id\n                FOR UPDATE",
                )
            ],
        ),
        "two replace one message that a worker claims",
    ),
    (
        Bug(
            "nobody looks behind a replaced head",
            "queue/_replace.sql",
            [("IF groups IS NOT NULL THEN", "IF false THEN")],
        ),
        "a delayed head is replaced from outside while one adds behind it",
    ),
    (
        Bug(
            "a key is not asked for",
            "inbox/already_processed.sql",
            [("ON CONFLICT ON CONSTRAINT {{ key.uq_message_key }} DO NOTHING", "")],
            "inbox",
        ),
        "a key is seen, sent and marked at once",
    ),
    # An owner that lost its lease
    *(
        (
            Bug(f"{step} by anybody", f"queue/{file}.sql", [_KEY]),
            f"a late {step} and a rival who has it",
        )
        for step, file in (("abandon", "retry"), ("fail", "fail"), ("release", "release"))
    ),
    (
        Bug("ack by anybody", "queue/ack.sql", [_KEY]),
        "a late ack of part, and a rival who settles what he got",
    ),
    (
        Bug("a reap waits", "queue/_reap.sql", [("FOR UPDATE OF c, m SKIP LOCKED", "FOR UPDATE OF c, m")]),
        "a late ack, a reap and a claim",
    ),
    (
        Bug("a group is reaped unlocked", "queue/_reap.sql", [("FOR NO KEY UPDATE SKIP LOCKED", "")]),
        "a group reaped while a part of it is settled",
    ),
    # Joins
    (
        Bug(
            "a step is attached to a lease that is not held",
            "queue/_hold.sql",
            [
                (
                    "UPDATE {{ box.lease }} AS l SET topic = l.topic WHERE l.id = $1;",
                    "PERFORM FROM {{ box.lease }} AS l WHERE l.id = $1;",
                )
            ],
        ),
        "a message becomes a step of two joins while it fails",
    ),
    (
        Bug(
            "one's own probe proves something",
            "joins/_fold.sql",
            [("IF own_joins IS NOT NULL THEN", "IF false THEN")],
        ),
        "the last two steps of a join end at once, each with a claim in its transaction",
    ),
    # Operators
    (
        Bug(
            "a replay trusts its ids",
            "queue/replay.sql",
            [
                (
                    "SELECT array_agg(gone.id), min(gone.id) INTO back, back_first FROM gone;",
                    "SELECT ids, ids[1] INTO back, back_first FROM (SELECT count(*) FROM gone) AS c;",
                )
            ],
        ),
        "a dead message is replayed twice",
    ),
    (
        Bug(
            "a discard trusts its ids",
            "queue/discard.sql",
            [("WHERE m.id = ANY (gone_ids)", "WHERE m.id = ANY (ids)")],
        ),
        "a dead message is replayed, discarded and claimed",
    ),
    # The low marks
    (
        Bug(
            "a tick waits for nobody",
            "queue/_tick.sql",
            [("is_over := oldest >= noted_xid;", "is_over := true;")],
        ),
        "ticks around an open producer and a claim",
    ),
    (
        Bug(
            "a tick does not mind what it has deleted itself",
            "queue/_tick.sql",
            [
                (
                    "IF is_passable AND {{ box.ready | literal }}::regclass <> ALL (own) THEN",
                    "IF is_passable THEN",
                )
            ],
        ),
        "ticks inside of transactions that have written",
    ),
    (
        Bug(
            "a tick passes what it has noted",
            "queue/_tick.sql",
            [
                (" AND r.ticket <= noted_ticket\n", "\n"),
                ("coalesce(min(f.ticket), noted_ticket + 1)", "min(f.ticket)"),
            ],
        ),
        "ticks around a producer that gives a savepoint up",
    ),
    (
        Bug(
            "a message that comes back to its group is not told",
            "queue/replay.sql",
            [('{{ queue.come_back("back_first") }};', "")],
        ),
        "ticks around a replay into a group",
    ),
]


PLANTED += PLANTED_CANCEL + PLANTED_SCHEDULES


@pytest.mark.parametrize(("bug", "name"), PLANTED, ids=[bug.name.replace(" ", "_") for bug, _ in PLANTED])
def test_planted_fault(bug: Bug, name: str, db: Database, tmp_path: Path) -> None:
    """Some order goes red."""
    protocol = PROTOCOLS[name]
    with stopping(db, protocol, tmp_path, [bug]), pytest.raises(BrokenError, match="again: "):
        exhaust(db, protocol)
