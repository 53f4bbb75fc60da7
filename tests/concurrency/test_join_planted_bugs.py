"""The scenarios of joins and of the ledger are worth something: each guard taken out turns one red."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pysqlbox.errors import PysqlboxError
from tests.concurrency import scenarios_join_ends as ends
from tests.concurrency import scenarios_joins as joins
from tests.concurrency import scenarios_ledger as ledger
from tests.concurrency.planting import Bug, planted
from tests.support.database import Database

Scenario = Callable[[Database], None]

_LOCK = [("FOR NO KEY UPDATE", "")]
_HOOK = ("IF EXISTS (SELECT FROM {{ db.join_member }}) THEN", "IF false THEN")


def by(scenario: Callable[[Database, str], None], how: str) -> Scenario:
    """A scenario with one way to end a step."""
    made = partial(_by, scenario, how)
    made.__name__ = f"{scenario.__name__}_{how}"  # type: ignore[attr-defined]  # what the list of tests shows
    return made


def _by(scenario: Callable[[Database, str], None], how: str, db: Database) -> None:
    scenario(db, how)


PLANTED: list[tuple[Bug, Scenario]] = [
    # Counting
    (
        Bug("a batch counts once a join", "joins/_count.sql", [("count(*)::integer AS steps", "1 AS steps")]),
        joins.a_batch_counts_what_it_moved,
    ),
    (
        Bug(
            "an ack counts foreign steps",
            "queue/ack.sql",
            [("{{ db._join_count }}(moved_ids, 'completed')", "{{ db._join_count }}(ids, 'completed')")],
        ),
        joins.a_batch_counts_what_it_moved,
    ),
    (
        Bug(
            "a settle does not count what is done",
            "queue/ack.sql",
            [("IF moved > 0 AND EXISTS (SELECT FROM {{ db.join_member }}) THEN", "IF false THEN")],
        ),
        joins.a_settled_batch_counts,
    ),
    (
        Bug("a settle does not count what has failed", "queue/_bury.sql", [_HOOK]),
        joins.a_settled_batch_counts,
    ),
    (
        Bug("what expires or is given up does not count", "queue/_bury.sql", [_HOOK]),
        joins.what_settles_without_a_worker_counts,
    ),
    (
        Bug("what is replaced does not count", "queue/_replace.sql", [_HOOK]),
        joins.what_settles_without_a_worker_counts,
    ),
    (Bug("a replay forgets", "queue/replay.sql", [_HOOK]), joins.a_replayed_step_counts_once),
    (
        Bug(
            "a settlement counts reported steps",
            "joins/_count.sql",
            [("WHERE n.id = u.id AND n.counted IS NULL", "WHERE n.id = u.id")],
        ),
        joins.a_report_counts_once,
    ),
    (
        Bug(
            "a report counts settled steps",
            "joins/_report.sql",
            [("IF {{ db._outbox_hold }}(work_id) = 'pending' THEN", "IF true THEN")],
        ),
        joins.a_report_counts_once,
    ),
    # Looking before locking
    (
        Bug("an attach looks first", "joins/attach.sql", _LOCK),
        joins.attaches_do_not_exceed_the_expected_steps,
    ),
    (
        Bug("an attach misses a cancel", "joins/attach.sql", _LOCK),
        joins.an_attach_and_a_cancel_do_not_both_win,
    ),
    (
        Bug(
            "an attach holds no lease",
            "queue/_hold.sql",
            [
                (
                    "UPDATE {{ box.lease }} AS l SET topic = l.topic WHERE l.id = $1;",
                    "PERFORM FROM {{ box.lease }} AS l WHERE l.id = $1;",
                )
            ],
        ),
        by(joins.an_attach_holds_up_the_settlement, "ack"),
    ),
    (
        Bug(
            "an attach does not wait for a settle",
            "queue/_hold.sql",
            [
                (
                    "UPDATE {{ box.lease }} AS l SET topic = l.topic WHERE l.id = $1;",
                    "PERFORM FROM {{ box.lease }} AS l WHERE l.id = $1;",
                )
            ],
        ),
        by(joins.an_attach_waits_for_the_settlement, "settle"),
    ),
    (
        Bug(
            "a report does not wait for a fail",
            "queue/_hold.sql",
            [
                (
                    "UPDATE {{ box.lease }} AS l SET topic = l.topic WHERE l.id = $1;",
                    "PERFORM FROM {{ box.lease }} AS l WHERE l.id = $1;",
                )
            ],
        ),
        by(joins.a_report_and_a_settlement_count_once, "fail"),
    ),
    (
        Bug(
            "an attach only locks the lease",
            "queue/_hold.sql",
            [
                (
                    "UPDATE {{ box.lease }} AS l SET topic = l.topic WHERE l.id = $1;",
                    "PERFORM FROM {{ box.lease }} AS l WHERE l.id = $1 FOR UPDATE;",
                )
            ],
        ),
        joins.an_older_snapshot_does_not_miss_a_step,
    ),
    (
        Bug(
            "an attach only locks the place",
            "queue/_hold.sql",
            [
                ("UPDATE {{ box.ready }} AS r SET topic = r.topic\n", "PERFORM FROM {{ box.ready }} AS r\n"),
                ("BETWEEN r.id AND r.id + r.span - 1;", "BETWEEN r.id AND r.id + r.span - 1 FOR UPDATE;"),
            ],
        ),
        joins.an_older_snapshot_does_not_miss_a_replaced_step,
    ),
    (
        Bug("an attach does not look again", "queue/_hold.sql", [("IF FOUND THEN", "IF true THEN")]),
        joins.an_attach_follows_its_message,
    ),
    (Bug("a resolve looks first", "joins/resolve.sql", _LOCK), ends.resolve_enqueues_once),
    # Waking
    (
        Bug(
            "a probe is not put back",
            "joins/_fold.sql",
            [("WHERE u.id <> ALL (coalesce(back, '{}'))", "WHERE false")],
        ),
        ends.a_waiting_message_that_is_held_is_woken_later,
    ),
    (
        Bug(
            "a claim drops its own probes",
            "joins/_fold.sql",
            [("IF own_joins IS NOT NULL THEN", "IF false THEN")],
        ),
        ends.two_settles_with_the_last_steps,
    ),
    (
        Bug(
            "a wait leaves no probe",
            "joins/wait.sql",
            [("PERFORM {{ db._join_nudge }}($1);", "")],
        ),
        ends.a_wait_and_the_last_step_find_each_other,
    ),
    (
        Bug("a fold waits", "joins/_fold.sql", [("FOR NO KEY UPDATE SKIP LOCKED", "FOR NO KEY UPDATE")]),
        ends.a_fold_and_a_settlement_count_once,
    ),
    # The ledger
    (
        Bug("a takeover looks first", "ledger/try_begin.sql", [("FOR UPDATE", "")]),
        ledger.an_expired_lease_is_taken_over_once,
    ),
    (
        Bug("a released key is looked at first", "ledger/try_begin.sql", [("FOR UPDATE", "")]),
        ledger.a_released_key_is_acquired_once,
    ),
    (
        Bug(
            "a new key is not asked for",
            "ledger/try_begin.sql",
            [("ON CONFLICT ON CONSTRAINT {{ key.pk_ledger }} DO NOTHING", "")],
        ),
        ledger.a_new_key_is_decided_by_its_first_consumer,
    ),
    (
        Bug("a mark by anybody", "ledger/mark_processed.sql", [(" AND l.lease_id = $2", "")]),
        ledger.a_takeover_and_the_old_holders_mark_do_not_both_win,
    ),
    (
        Bug("a release by anybody", "ledger/release.sql", [(" AND l.lease_id = $2", "")]),
        ledger.a_release_by_the_old_holder_does_not_end_a_takeover,
    ),
    (
        Bug("a cleanup of the ledger waits", "ledger/cleanup.sql", [("SKIP LOCKED", "")]),
        ledger.different_keys_do_not_wait,
    ),
]

_MS_HOOK = ("IF EXISTS (SELECT 1 FROM {{ db.join_member }} WITH (READUNCOMMITTED))", "IF 1 = 0")
PLANTED_IN_T_SQL: list[tuple[Bug, Scenario]] = [
    (
        Bug(
            "a batch counts once a join",
            "joins/_count.sql",
            [("SELECT jm.join_id, COUNT(*)", "SELECT jm.join_id, 1")],
        ),
        joins.a_batch_counts_what_it_moved,
    ),
    (
        Bug(
            "an ack counts foreign steps",
            "queue/ack.sql",
            [("SET @steps = {{ settling.array() }}", 'SET @steps = {{ settling.array("@wanted") }}')],
        ),
        joins.a_batch_counts_what_it_moved,
    ),
    (
        Bug("a settle does not count what is done", "queue/settle.sql", [_MS_HOOK]),
        joins.a_settled_batch_counts,
    ),
    (
        Bug("a settle does not count what has failed", "queue/_bury.sql", [_MS_HOOK]),
        joins.a_settled_batch_counts,
    ),
    (
        Bug("what is replaced does not count", "queue/_replace.sql", [_MS_HOOK]),
        joins.what_settles_without_a_worker_counts,
    ),
    (Bug("a replay forgets", "queue/replay.sql", [_MS_HOOK]), joins.a_replayed_step_counts_once),
    (
        Bug(
            "a settlement counts reported steps",
            "joins/_count.sql",
            [("WHERE jm.counted IS NULL", "WHERE 1 = 1")],
        ),
        joins.a_report_counts_once,
    ),
    (
        Bug("a report counts settled steps", "joins/_report.sql", [("IF @held = N'pending'", "IF 1 = 1")]),
        joins.a_report_counts_once,
    ),
    (
        Bug("a mark by anybody", "ledger/mark_processed.sql", [(" AND lease_id = @lease_id", "")]),
        ledger.an_old_holder_affects_nothing,
    ),
    (
        Bug("a release by anybody", "ledger/release.sql", [(" AND lease_id = @lease_id", "")]),
        ledger.an_old_holder_affects_nothing,
    ),
]
"""Where T-SQL goes its own way; races cannot be played step by step on every engine that speaks it."""


@pytest.mark.dialect("mssql")
@pytest.mark.parametrize(
    ("bug", "scenario"),
    PLANTED_IN_T_SQL,
    ids=[f"{bug.name}-{scenario.__name__}".replace(" ", "_") for bug, scenario in PLANTED_IN_T_SQL],
)
def test_planted_bug_in_t_sql(bug: Bug, scenario: Scenario, db: Database, tmp_path: Path) -> None:
    """The scenario goes red."""
    with planted(db, bug, tmp_path), pytest.raises((AssertionError, PysqlboxError)):
        scenario(db)


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize(
    ("bug", "scenario"),
    PLANTED,
    ids=[f"{bug.name}-{scenario.__name__}".replace(" ", "_") for bug, scenario in PLANTED],
)
def test_planted_bug_of_joins_and_ledger(bug: Bug, scenario: Scenario, db: Database, tmp_path: Path) -> None:
    """The scenario goes red."""
    with planted(db, bug, tmp_path), pytest.raises((AssertionError, PysqlboxError)):
        scenario(db)
