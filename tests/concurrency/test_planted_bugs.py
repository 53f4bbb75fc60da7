"""The scenarios are worth something: each guard that is taken out turns one of them red."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pysqlbox.errors import PysqlboxError
from tests.concurrency import scenarios_bounds as bounds
from tests.concurrency import scenarios_claims as claims
from tests.concurrency import scenarios_groups as groups
from tests.concurrency import scenarios_keys as keys
from tests.concurrency import scenarios_marks as marks
from tests.concurrency import scenarios_runs as runs
from tests.concurrency.planting import Bug, planted
from tests.concurrency.sessions import GATE, steady
from tests.support.database import Database

Scenario = Callable[[Database], None]

_OWNER_TEST = ("WHERE l.id = ANY (ids) AND l.owner_token = $1\n", "WHERE l.id = ANY (ids)\n")

_PAUSE = f"PERFORM pg_advisory_xact_lock({GATE});"
"""Lets a scenario in between two statements."""
_AT_THE_XID = "noted_xid := {{ queue.mark(box._tick_xid) }};"
"""Where a tick has drawn its xid."""
_AT_LOW_GROUPED = "PERFORM setval({{ box._low_grouped | literal }}, low);"
_KNOWN_GATE = (
    "FOR KEY SHARE SKIP LOCKED",
    f"AND pg_advisory_xact_lock({GATE}) IS NOT NULL FOR KEY SHARE SKIP LOCKED",
)
_LAST_NOTED = "SELECT s.last_value INTO next_ticket FROM {{ box._ids }} AS s;"
_NOW_NOTED = "next_time := (extract(epoch FROM {{ db._now }}()) * 1000000)::bigint;"

PLANTED: list[tuple[Bug, Scenario]] = [
    # Two owners at once
    (
        Bug("a claim waits for rows", "queue/claim.sql", [("FOR UPDATE SKIP LOCKED", "FOR UPDATE")]),
        claims.claims_share_without_waiting,
    ),
    (
        Bug("a claim locks nothing", "queue/claim.sql", [("FOR UPDATE SKIP LOCKED", "")]),
        claims.claims_share_without_waiting,
    ),
    (
        Bug("a claim by topic locks nothing", "queue/claim.sql", [("FOR UPDATE SKIP LOCKED", "")]),
        claims.topic_claims_share_without_waiting,
    ),
    (
        Bug(
            "a claim by topic does not turn back",
            "queue/claim.sql",
            [("least(tried_to, CASE", "least(NULL, CASE")],
        ),
        claims.a_topic_claim_turns_back_to_what_lay_beyond_its_reach,
    ),
    (
        Bug(
            "a claim does not delete",
            "queue/claim.sql",
            [("DELETE FROM {{ box.ready }} AS r\n", "UPDATE {{ box.ready }} AS r SET topic = r.topic\n")],
            macro="macros/claim.sql",
        ),
        claims.a_reap_and_an_ack_do_not_both_win,
    ),
    (
        Bug("promotion waits", "queue/_promote.sql", [("FOR UPDATE SKIP LOCKED", "FOR UPDATE")]),
        claims.due_messages_are_promoted_once,
    ),
    (
        Bug("a reap waits", "queue/_reap.sql", [("FOR UPDATE OF c, m SKIP LOCKED", "FOR UPDATE OF c, m")]),
        claims.an_extend_and_a_reap_do_not_both_win,
    ),
    # An owner that lost its lease
    (Bug("ack by anybody", "queue/ack.sql", [_OWNER_TEST]), claims.takeover_ack),
    (Bug("abandon by anybody", "queue/retry.sql", [_OWNER_TEST]), claims.takeover_abandon),
    (Bug("retry by anybody", "queue/retry.sql", [_OWNER_TEST]), claims.takeover_retry),
    (
        Bug(
            "a retry trusts its ids",
            "queue/retry.sql",
            [
                (
                    "SELECT array_agg(gone.id) INTO gone_ids FROM gone;",
                    "SELECT ids INTO gone_ids FROM (SELECT count(*) FROM gone) AS c;",
                )
            ],
        ),
        claims.a_reap_and_a_retry_do_not_both_win,
    ),
    (
        Bug(
            "a retry within a settle trusts its ids",
            "queue/retry.sql",
            [
                (
                    "SELECT array_agg(gone.id) INTO gone_ids FROM gone;",
                    "SELECT ids INTO gone_ids FROM (SELECT count(*) FROM gone) AS c;",
                )
            ],
        ),
        claims.two_settles_retry_once,
    ),
    (
        Bug(
            "a retry that ends a head forgets its group",
            "queue/retry.sql",
            [("IF dying IS NOT NULL AND groups <> '{}' THEN", "IF false THEN")],
        ),
        groups.a_retry_that_ends_its_head_lets_the_group_go_on,
    ),
    (
        Bug(
            "a release with a delay forgets the delay",
            "queue/release.sql",
            [("IF delay_seconds > 0 THEN", "IF false THEN")],
        ),
        groups.a_release_with_a_delay_blocks_its_group,
    ),
    (Bug("release by anybody", "queue/release.sql", [_OWNER_TEST]), claims.takeover_release),
    (Bug("fail by anybody", "queue/fail.sql", [_OWNER_TEST]), claims.takeover_fail),
    (Bug("extend by anybody", "queue/extend.sql", [_OWNER_TEST]), claims.takeover_extend),
    (Bug("settle by anybody", "queue/ack.sql", [_OWNER_TEST]), claims.takeover_settle),
    # The watermark
    (
        Bug(
            "the ticket before the xid",
            "outbox/enqueue.sql",
            [("WHEN pg_current_xact_id() IS NOT NULL", "WHEN true")],
        ),
        claims.the_mark_stays_behind_a_ticket_drawn_before_the_insert,
    ),
    (
        Bug("tickets before the xid", "outbox/enqueue_many.sql", [("PERFORM pg_current_xact_id();", "")]),
        claims.the_mark_stays_behind_a_batch_drawn_before_the_insert,
    ),
    (
        Bug(
            "a tick that does not wait",
            "queue/_tick.sql",
            [("is_over := oldest >= noted_xid;", "is_over := true;")],
        ),
        claims.the_mark_stays_behind_an_open_producer,
    ),
    (
        Bug(
            "a tick that notes the snapshot's xmax",
            "queue/_tick.sql",
            [
                ("{{ box._tick_xid | literal }}, next_xid", "{{ box._tick_xid | literal }}, noted_xmax"),
                (
                    "    next_xid bigint;",
                    "    next_xid bigint;\n    noted_xmax bigint"
                    " := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;",
                ),
            ],
        ),
        claims.the_mark_stays_behind_a_ticket_drawn_before_the_insert,
    ),
    (
        Bug(
            "a tick that passes the note",
            "queue/_tick.sql",
            [(" AND r.ticket <= noted_ticket", "")],
        ),
        claims.the_mark_stays_behind_a_producer_that_came_after_the_note,
    ),
    (
        Bug(
            "a tick after writes",
            "queue/_tick.sql",
            [("IF NOT is_over OR has_written THEN", "IF NOT is_over THEN")],
        ),
        claims.the_mark_does_not_trust_a_claim_that_may_roll_back,
    ),
    (
        Bug(
            "due times pass the note",
            "queue/_tick.sql",
            [
                (
                    "(extract(epoch FROM low_at) * 1000000)::bigint, noted_time)",
                    "(extract(epoch FROM low_at) * 1000000)::bigint, 9000000000000000)",
                )
            ],
        ),
        claims.the_mark_of_due_times_stays_behind_an_open_producer,
    ),
    (
        Bug(
            "a patrol that never lowers",
            "queue/_patrol.sql",
            [("IF {{ found }} < {{ queue", "IF 0 > {{ queue")],
        ),
        claims.a_mark_too_high_is_mended,
    ),
    (
        Bug(
            "a late enqueue under its old id",
            "inbox/_renew.sql",
            [("{{ box._put_back }}(ARRAY[old.id])", "{{ box._admit }}(ARRAY[old.id])")],
            "inbox",
        ),
        claims.a_seen_message_enqueued_late_is_found,
    ),
    (
        Bug(
            "a ticket that was never drawn",
            "queue/_tick.sql",
            [("WHEN s.is_called THEN 0 ELSE 1", "WHEN true THEN 0")],
        ),
        claims.the_first_ticket_of_all_is_found,
    ),
    # What the marks wait for
    (
        Bug(
            "a tick that waits for everybody",
            "queue/_tick.sql",
            [("is_over OR count(*) FILTER (WHERE t.xid < noted_xid) = 0", "is_over")],
        ),
        marks.the_marks_pass_a_stranger_who_writes,
    ),
    (
        Bug(
            "a tick that waits for whoever came later",
            "queue/_tick.sql",
            [("count(*) FILTER (WHERE t.xid < noted_xid) = 0", "count(*) = 0")],
        ),
        marks.the_mark_passes_what_came_before_an_open_producer,
    ),
    (
        Bug(
            "the xid before the ticket",
            "queue/_tick.sql",
            [
                (
                    _AT_THE_XID,
                    f"{_PAUSE} {_LAST_NOTED} {_AT_THE_XID}",
                )
            ],
        ),
        marks.the_marks_stay_behind_what_came_during_the_tick,
    ),
    (
        Bug(
            "the xid before the time",
            "queue/_tick.sql",
            [(_AT_THE_XID, f"{_PAUSE} {_NOW_NOTED} {_AT_THE_XID}")],
        ),
        marks.the_marks_stay_behind_what_came_during_the_tick,
    ),
    *(
        (
            Bug(
                f"a mark of {table} that trusts what may be rolled back",
                "queue/_tick.sql",
                [(f"{{{{ box.{table} | literal }}}}::regclass <> ALL (own)", "true")],
            ),
            scenario,
        )
        for table, scenario in (
            ("ready", marks.no_mark_trusts_what_may_be_rolled_back),
            ("scheduled", marks.no_mark_trusts_what_may_be_rolled_back),
            ("lease", marks.the_mark_of_groups_does_not_trust_an_ack_that_may_be_rolled_back),
            ("group_member", marks.the_mark_of_groups_does_not_trust_a_collapse_that_may_be_rolled_back),
            ("done", marks.the_mark_of_done_does_not_trust_a_cleanup_that_may_be_rolled_back),
        )
    ),
    (
        Bug(
            "what comes late is left behind",
            "queue/_tick.sql",
            [("IF low_sure < low_log AND", "IF false AND")],
        ),
        marks.what_comes_long_after_the_mark_has_passed_is_found,
    ),
    (
        Bug(
            "a round proves what an open producer may bring",
            "queue/_tick.sql",
            [("CASE WHEN is_over THEN low_log ELSE 0 END", "low_log")],
        ),
        marks.what_comes_long_after_the_mark_has_passed_is_found,
    ),
    (
        Bug(
            "what was moved is sure to be gone",
            "queue/_tick.sql",
            [("CASE WHEN count(*) = 0 THEN late_to ELSE 0 END", "late_to")],
        ),
        marks.what_was_moved_from_behind_the_mark_may_come_back,
    ),
    (
        Bug(
            "comebacks are not counted",
            "queue/replay.sql",
            [("PERFORM nextval({{ box._comebacks | literal }});", "")],
            macro="macros/queue.sql",
        ),
        marks.a_replayed_member_comes_back_while_a_tick_moves_on,
    ),
    (
        Bug(
            "a comeback does not lower the mark",
            "queue/replay.sql",
            [("IF {{ first_id }} < {{ mark(box._low_grouped) }} THEN", "IF false THEN")],
            macro="macros/queue.sql",
        ),
        marks.a_replayed_member_comes_back_while_a_tick_moves_on,
    ),
    (
        Bug(
            "a tick does not look for comebacks after it has raised the mark",
            "queue/_tick.sql",
            [
                (_AT_LOW_GROUPED, f"{_PAUSE} {_AT_LOW_GROUPED}"),
                ("IF {{ queue.mark(box._comebacks) }} <> noted_comebacks", "IF false"),
            ],
        ),
        marks.a_replayed_member_comes_back_between_a_look_and_its_mark,
    ),
    (
        Bug("a place that shows too late", "queue/_place.sql", [("{{ queue.touch() }};", "")], "inbox"),
        marks.a_release_held_up_is_due_after_the_mark,
    ),
    (
        Bug(
            "an ack by an old clock",
            "queue/ack.sql",
            [
                ("now_at timestamptz;", "now_at timestamptz := {{ db._now }}();"),
                ("    now_at := {{ db._now }}();\n", ""),
            ],
        ),
        marks.an_ack_held_up_is_done_after_the_mark,
    ),
    (
        Bug(
            "a burial that shows too late",
            "queue/_bury.sql",
            [("SELECT nextval({{ box._ids | literal }}), t.topic, 0", "SELECT -1, t.topic, 0")],
            macro="macros/queue.sql",
        ),
        marks.a_step_held_up_is_counted_after_the_mark,
    ),
    # Looks for leases
    (
        Bug(
            "a look forgets what it passed over",
            "queue/_reap.sql",
            [("coalesce((extract(epoch FROM left_at) * 1000000)::bigint, 0)", "0")],
        ),
        marks.a_lease_that_a_look_passed_over_is_looked_at_again,
    ),
    (
        Bug(
            "a look begins where the last one ended",
            "queue/_reap.sql",
            [("looked - interval '2 seconds'", "looked")],
        ),
        marks.a_lease_committed_a_little_late_is_found,
    ),
    (
        Bug(
            "a group without a row is never reaped",
            "queue/_reap.sql",
            [
                (
                    "OR NOT EXISTS (SELECT FROM {{ box.group }}",
                    "OR false AND EXISTS (SELECT FROM {{ box.group }}",
                )
            ],
        ),
        marks.a_lease_of_a_group_without_a_row_is_reaped,
    ),
    (
        Bug(
            "a group's end waits for a producer",
            "queue/_end_groups.sql",
            [("FOR UPDATE SKIP LOCKED", "FOR UPDATE")],
        ),
        marks.a_cleanup_does_not_wait_for_a_producer,
    ),
    # How far and how much
    (
        Bug("a claim meets what has come back", "queue/claim.sql", [("AND w.ticket <= last_ticket", "")]),
        bounds.a_claim_goes_no_further_than_the_last_number,
    ),
    (
        Bug("a claim takes without end", "queue/claim.sql", [(" OR takes_left = 0", "")]),
        bounds.a_claim_takes_rows_a_bounded_number_of_times,
    ),
    (
        Bug("a claim sweeps without end", "queue/claim.sql", [("EXIT read WHEN sweeps_left = 0;", "")]),
        bounds.a_claim_buries_a_bounded_number,
    ),
    (
        Bug("paused topics are handed out", "queue/claim.sql", [("w.topic <> ALL (paused)", "true")]),
        bounds.a_paused_topic_is_passed_over,
    ),
    (
        Bug(
            "paused topics are handed out if asked for",
            "queue/claim.sql",
            [("WHERE u.topic <> ALL (paused)", "")],
        ),
        bounds.a_paused_topic_is_passed_over,
    ),
    (
        Bug(
            "paused topics of a group are handed out",
            "queue/_claim_groups.sql",
            [("w.topic = ANY (paused)", "false")],
        ),
        bounds.a_paused_topic_is_passed_over,
    ),
    (
        Bug(
            "one mark for all that was ever paused",
            "queue/claim.sql",
            [("CASE WHEN {{ mark(box._low_open) }} & 32767 = {{ bits }}", "CASE WHEN true")],
            macro="macros/queue.sql",
        ),
        bounds.a_mark_of_some_paused_topics_is_not_that_of_others,
    ),
    (
        Bug("one memory for all topics", "queue/claim.sql", [("IF memory[1] = topics_hash AND", "IF")]),
        bounds.a_session_remembers_its_topics_apart,
    ),
    (
        Bug("a memory from before the mark", "queue/claim.sql", [(" AND memory[2] <= low_ticket", "")]),
        bounds.a_session_forgets_once_the_mark_is_lowered,
    ),
    (
        Bug("a memory of what is not settled", "queue/claim.sql", [(", settled + 1);", ");")]),
        bounds.a_session_remembers_nothing_that_may_come,
    ),
    (
        Bug(
            "a memory of what a transaction leaves behind",
            "queue/claim.sql",
            [("may_remember := coalesce(", "may_remember := true OR coalesce(")],
        ),
        bounds.a_session_sees_again_what_a_prepared_transaction_took,
    ),
    (
        Bug(
            "a memory behind two settlements",
            "queue/settle.sql",
            [("topics IS NOT NULL AND pg_current_xact_id_if_assigned() IS NULL", "topics IS NOT NULL")],
        ),
        bounds.a_session_sees_again_what_a_prepared_transaction_took,
    ),
    (
        Bug(
            "a memory behind a settlement's claim",
            "queue/settle.sql",
            [("PERFORM set_config({{ queue.own_setting(\"settled\") }}, '', true);", "NULL;")],
        ),
        bounds.a_session_sees_again_what_a_prepared_transaction_took,
    ),
    (
        Bug(
            "no memory behind a settlement",
            "queue/settle.sql",
            [("coalesce(pg_current_xact_id_if_assigned()::text, ''), true", "'', true")],
        ),
        bounds.a_session_remembers_behind_its_own_settlement,
    ),
    (
        Bug(
            "an enqueue does not tell its priority",
            "outbox/enqueue.sql",
            [('{{ queue.enter_lane("level") }};', "")],
        ),
        bounds.priorities_are_known_to_claims_at_once,
    ),
    (
        Bug("a batch does not tell its priorities", "queue/_admit.sql", [("{{ queue.enter_lanes() }};", "")]),
        bounds.priorities_are_known_to_claims_at_once,
    ),
    (
        Bug(
            "a batch of its own does not tell its priorities",
            "outbox/enqueue_many.sql",
            [("{{ queue.enter_lanes() }};", "")],
        ),
        bounds.priorities_are_known_to_claims_at_once,
    ),
    (
        Bug(
            "payloads do not tell their priority",
            "outbox/enqueue_payloads.sql",
            [('{{ queue.enter_lane("level") }};', "")],
        ),
        bounds.priorities_are_known_to_claims_at_once,
    ),
    (
        Bug(
            "a new place does not tell its priority",
            "queue/_place.sql",
            [("{{ queue.enter_lanes() }};", "")],
            "inbox",
        ),
        bounds.a_changed_priority_is_known_to_claims_at_once,
    ),
    # Runs
    (
        Bug("the rest of a run is lost", "queue/claim.sql", [("IF got > room THEN", "IF false THEN")]),
        runs.a_run_is_put_back_to_its_own_place,
    ),
    (
        Bug(
            "the rest of a run begins where it began",
            "queue/claim.sql",
            [("got_ids[got_rows] + got_spans[got_rows] - (got - room) AS id", "got_ids[got_rows] AS id")],
        ),
        runs.many_share_runs,
    ),
    (
        Bug(
            "payloads as one run though others drew from between their ids",
            "outbox/enqueue_payloads.sql",
            [("            GROUP BY u.id - u.place\n", "")],
        ),
        runs.a_batch_whose_ids_others_drew_from_between,
    ),
    (
        Bug(
            "records as one run though others drew from between their ids",
            "outbox/enqueue_many.sql",
            [("            GROUP BY u.id - u.place\n", "")],
        ),
        runs.a_batch_whose_ids_others_drew_from_between,
    ),
    (
        Bug(
            "a claim takes all it looked at",
            "queue/claim.sql",
            [("WHERE n.before < room", "WHERE true")],
            macro="macros/claim.sql",
        ),
        runs.a_claim_takes_no_more_than_it_returns,
    ),
    (
        Bug("a claim locks the whole log", "queue/claim.sql", [("LIMIT row_limit", "")]),
        runs.claims_share_runs_without_waiting,
    ),
    (
        Bug(
            "the middle of a run is not held",
            "queue/_hold.sql",
            [
                (
                    "UPDATE {{ box.ready }} AS r SET topic = r.topic\n                WHERE",
                    "PERFORM FROM {{ box.ready }} AS r\n                WHERE",
                )
            ],
        ),
        runs.a_step_in_a_run_is_held,
    ),
    (
        Bug(
            "gaps are done too",
            "queue/ack.sql",
            [("IF last_id - first_id < least(moved, 1000)", "IF moved > 0")],
        ),
        runs.what_was_acknowledged_is_done_and_nothing_else,
    ),
    (
        Bug("a cleanup waits for a run", "queue/cleanup.sql", [("FOR UPDATE SKIP LOCKED", "FOR UPDATE")]),
        runs.cleanups_of_one_run_do_not_wait,
    ),
    (
        Bug(
            "the rest of a done run is lost",
            "queue/cleanup.sql",
            [("WHERE part.taken < part.span", "WHERE false")],
        ),
        runs.cleanups_of_one_run_do_not_wait,
    ),
    (
        Bug(
            "a drawn message_id is not asked for",
            "outbox/_known.sql",
            [('m.id = {{ "wanted" | drawn_id }}', "false")],
        ),
        runs.a_drawn_message_id_is_asked_for,
    ),
    (
        Bug(
            "a drawn message_id of a group is not asked for",
            "outbox/_enqueue.sql",
            [('d.id = {{ "n.message_id" | drawn_id }} AND d.message_id', "false AND d.message_id")],
        ),
        runs.a_drawn_message_id_is_asked_for,
    ),
    (
        Bug(
            "a cleanup waits for a collapse",
            "queue/cleanup.sql",
            [("FOR UPDATE SKIP LOCKED", "FOR UPDATE")],
            macro="macros/queue.sql",
        ),
        claims.a_cleanup_does_not_wait_for_a_collapse,
    ),
    # Groups
    (
        Bug(
            "a probe for every ticket of a group that has ended",
            "queue/_claim_groups.sql",
            [
                (
                    "EXISTS (SELECT FROM {{ box.group_member }} AS gm WHERE",
                    "true OR EXISTS (SELECT FROM {{ box.group_member }} AS gm WHERE",
                )
            ],
        ),
        groups.tickets_of_groups_that_have_ended,
    ),
    (
        Bug("a member added without a lock", "queue/_admit.sql", [("FOR KEY SHARE SKIP LOCKED", "")]),
        groups.a_member_added_while_the_group_empties,
    ),
    (
        Bug("a member that waits", "queue/_admit.sql", [("FOR KEY SHARE SKIP LOCKED", "FOR KEY SHARE")]),
        groups.a_member_added_while_the_group_ends,
    ),
    (
        Bug(
            "a group that ends unlocked",
            "queue/_regroup.sql",
            [("FOR UPDATE SKIP LOCKED", "")],
        ),
        groups.a_member_added_while_the_group_empties,
    ),
    (
        Bug(
            "no second look",
            "queue/_regroup.sql",
            [("u.group_id <> ALL (alone)", "false")],
        ),
        groups.a_member_added_while_the_group_empties,
    ),
    (
        Bug(
            "no second look at a delayed group",
            "queue/_regroup.sql",
            [("u.group_id <> ALL (alone)", "false")],
        ),
        groups.a_head_added_below_a_delayed_one,
    ),
    (
        Bug(
            "a head that is not settled",
            "queue/_regroup.sql",
            [("OR free.id > settled", "")],
        ),
        groups.a_head_of_another_topic_comes_late,
    ),
    (
        Bug(
            "a lock that nobody looks behind",
            "queue/_admit.sql",
            [_KNOWN_GATE, ('WHERE {{ queue.is_held("u.group_id") }} OR', "WHERE true OR")],
        ),
        groups.a_member_added_between_two_looks,
    ),
    (
        Bug("a surplus ticket dropped unlocked", "queue/_surplus.sql", [("FOR KEY SHARE SKIP LOCKED", "")]),
        groups.a_ticket_met_while_the_group_ends,
    ),
    (
        Bug(
            "a surplus ticket dropped without a second look",
            "queue/_surplus.sql",
            [("sure := ARRAY", f"{_PAUSE} sure := ARRAY"), ('OR NOT {{ queue.is_held("u.group_id") }}', "")],
        ),
        groups.a_ticket_met_between_two_looks,
    ),
    (
        Bug("a claim waits for a new group", "queue/_claim_groups.sql", [("'1ms'", "'30s'")]),
        groups.a_new_group_entered_under_two_heads,
    ),
    (
        Bug("a collapsed head", "queue/_replace.sql", [("IF groups IS NOT NULL THEN", "IF false THEN")]),
        groups.a_delayed_head_collapsed_away,
    ),
    (
        Bug(
            "a held group is free",
            "queue/_claim_groups.sql",
            [('WHERE NOT {{ queue.is_held("u.group_id") }}', "")],
        ),
        groups.a_group_claimed_between_two_looks,
    ),
    (
        Bug(
            "a group's row is not locked",
            "queue/_claim_groups.sql",
            [("FOR NO KEY UPDATE SKIP LOCKED", ""), ("FOR UPDATE SKIP LOCKED", "")],
        ),
        groups.two_tickets_of_a_known_group,
    ),
    (
        Bug(
            "a claim waits for a group",
            "queue/_claim_groups.sql",
            [("FOR NO KEY UPDATE SKIP LOCKED", "FOR NO KEY UPDATE")],
        ),
        groups.two_tickets_of_a_known_group,
    ),
    (
        Bug(
            "new groups are not looked at again",
            "queue/_claim_groups.sql",
            [("PERFORM {{ box._probe }}", "PERFORM cardinality")],
        ),
        groups.a_new_group_looked_at_while_it_ends,
    ),
    (
        Bug(
            "a member overtakes a retry",
            "queue/_claim_groups.sql",
            [("coalesce(w.due_at > now_at OR w.topic <> ALL (allowed) OR", "coalesce(")],
        ),
        groups.a_retry_blocks_its_group,
    ),
    (
        Bug("parts of a group are settled apart", "queue/_lock_groups.sql", [("FOR NO KEY UPDATE", "")]),
        groups.a_group_settled_in_two_parts,
    ),
    (
        Bug(
            "a group is reaped while it is settled",
            "queue/_reap.sql",
            [("OR c.group_id = ANY (locked)", "OR true")],
        ),
        groups.a_group_reaped_while_it_is_settled,
    ),
    (
        Bug("a mark does not lock the group", "inbox/_take_by_key.sql", [("FOR NO KEY UPDATE", "")], "inbox"),
        groups.a_group_marked_after_part_is_settled,
    ),
    # The lock order
    (
        Bug(
            "an ack takes leases first",
            "queue/ack.sql",
            [("groups := {{ box._lock_groups }}(owner_token, ids);", "")],
        ),
        groups.an_ack_locks_the_group_before_the_lease,
    ),
    (
        Bug(
            "an abandon takes leases first",
            "queue/retry.sql",
            [("groups := {{ box._lock_groups }}(owner_token, ids);", "")],
        ),
        groups.an_abandon_locks_the_group_before_the_lease,
    ),
    (
        Bug(
            "a release takes leases first",
            "queue/release.sql",
            [("PERFORM {{ box._lock_groups }}(owner_token, ids);", "")],
        ),
        groups.a_release_locks_the_group_before_the_lease,
    ),
    (
        Bug(
            "a fail takes leases first",
            "queue/fail.sql",
            [("groups := {{ box._lock_groups }}(owner_token, ids);", "")],
        ),
        groups.a_fail_locks_the_group_before_the_lease,
    ),
    (
        Bug(
            "a settle takes leases first",
            "queue/settle.sql",
            [("PERFORM {{ box._lock_groups }}(owner_token, acked || others);", "")],
        ),
        groups.a_settle_locks_the_group_before_the_lease,
    ),
    # Keys
    (
        Bug(
            "every dedup key is new",
            "outbox/_enqueue.sql",
            [("WHERE d.seen_at <= now_at - make_interval(secs => window_seconds)", "")],
        ),
        keys.dedup_keys_race,
    ),
    (
        Bug(
            "a message_id is not asked for",
            "outbox/enqueue.sql",
            [("ON CONFLICT (message_id) WHERE is_given DO NOTHING", "")],
        ),
        keys.message_ids_race,
    ),
    (
        Bug(
            "a message_id of a group is not asked for",
            "outbox/_enqueue.sql",
            [("ON CONFLICT (message_id) WHERE is_given DO NOTHING", "")],
        ),
        keys.message_ids_of_a_group_race,
    ),
    (
        Bug(
            "a source's key is not asked for",
            "inbox/enqueue.sql",
            [("ON CONFLICT ON CONSTRAINT {{ key.uq_message_key }} DO NOTHING", "")],
            "inbox",
        ),
        keys.sources_race,
    ),
    (
        Bug(
            "a sighting is not asked for",
            "inbox/already_processed.sql",
            [("ON CONFLICT ON CONSTRAINT {{ key.uq_message_key }} DO NOTHING", "")],
            "inbox",
        ),
        keys.sightings_race,
    ),
    (
        Bug(
            "keys in any order",
            "inbox/_enqueue.sql",
            [
                ("SELECT DISTINCT ON (n.source, n.message_id) n.*", "SELECT n.*"),
                ("ORDER BY n.source, n.message_id, n.id", "ORDER BY n.id"),
            ],
            "inbox",
        ),
        keys.keys_are_entered_in_one_order,
    ),
    (
        Bug(
            "messages in another order",
            "queue/retry.sql",
            [
                (
                    '{{ queue.lock_in_key_order("gone_ids") }};',
                    "PERFORM FROM {{ box.message }} AS m WHERE m.id = ANY (gone_ids)"
                    " ORDER BY m.id FOR UPDATE;",
                )
            ],
            "inbox",
        ),
        keys.messages_are_locked_in_one_order,
    ),
    (
        Bug(
            "keys that exist are not locked with the new ones",
            "inbox/_enqueue.sql",
            [("DO UPDATE SET attempt = m.attempt WHERE false", "DO NOTHING")],
            "inbox",
        ),
        keys.a_key_cleaned_up_between_two_batches,
    ),
    # Operators
    (
        Bug(
            "a replay trusts its ids",
            "queue/replay.sql",
            [
                (
                    "SELECT array_agg(gone.id), min(gone.id) INTO back, back_first FROM gone;",
                    "SELECT ids, 0 INTO back, back_first FROM (SELECT count(*) FROM gone) AS c;",
                )
            ],
        ),
        claims.replay_twice_is_replay_once,
    ),
    (
        Bug(
            "a discard trusts its ids",
            "queue/discard.sql",
            [("WHERE m.id = ANY (gone_ids)", "WHERE m.id = ANY (ids)")],
        ),
        claims.replay_and_discard_do_not_both_win,
    ),
    (
        Bug("a cleanup waits", "queue/cleanup.sql", [("FOR UPDATE SKIP LOCKED", "FOR UPDATE")]),
        claims.cleanups_share_without_waiting,
    ),
]

GATES: list[tuple[Bug, Scenario]] = [
    (
        Bug("after the xid", "queue/_tick.sql", [(_AT_THE_XID, f"{_PAUSE} {_AT_THE_XID}")]),
        marks.the_marks_stay_behind_what_came_during_the_tick,
    ),
    (
        Bug("before the mark", "queue/_tick.sql", [(_AT_LOW_GROUPED, f"{_PAUSE} {_AT_LOW_GROUPED}")]),
        marks.a_replayed_member_comes_back_between_a_look_and_its_mark,
    ),
    (Bug("at the lock", "queue/_admit.sql", [_KNOWN_GATE]), groups.a_member_added_between_two_looks),
    (
        Bug("before the lock", "queue/_surplus.sql", [("sure := ARRAY", f"{_PAUSE} sure := ARRAY")]),
        groups.a_ticket_met_between_two_looks,
    ),
]
"""The waits alone of those bugs that wait: they break nothing, so it is the guard that matters."""


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize(
    ("bug", "scenario"),
    GATES,
    ids=[f"{bug.name}-{scenario.__name__}".replace(" ", "_") for bug, scenario in GATES],
)
def test_a_wait_is_no_bug(bug: Bug, scenario: Scenario, db: Database, tmp_path: Path) -> None:
    """The scenario stays green."""
    steady(db)
    with planted(db, bug, tmp_path):
        scenario(db)


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize(
    ("bug", "scenario"),
    PLANTED,
    ids=[f"{bug.name}-{scenario.__name__}".replace(" ", "_") for bug, scenario in PLANTED],
)
def test_planted_bug(bug: Bug, scenario: Scenario, db: Database, tmp_path: Path) -> None:
    """The scenario goes red."""
    steady(db)
    with planted(db, bug, tmp_path), pytest.raises((AssertionError, PysqlboxError)):
        scenario(db)
