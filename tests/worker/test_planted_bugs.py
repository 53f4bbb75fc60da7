"""The tests of the worker are worth something: each guard taken out of it turns one of them red."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

import pysqlbox
from pysqlbox import Retry
from pysqlbox.drivers import postgres
from pysqlbox.worker import (
    alarm,
    assignment,
    caretaker,
    coroutines,
    database,
    database_postgres,
    deployment_run,
    exchange,
    handlers,
    handling,
    lease_keeper,
    listener,
    outcomes,
    plan,
    scheduler,
    served_box,
    stalls,
    transactions,
    unknown_topics,
    worker_run,
)
from tests.support.database import Database
from tests.unit import test_coroutines as on_the_loop
from tests.worker import (
    support,
    test_applications,
    test_batches,
    test_bounds,
    test_chores,
    test_coroutines,
    test_groups,
    test_guards,
    test_handlers,
    test_health,
    test_leases,
    test_life,
    test_listening,
    test_outages,
    test_results,
    test_sleeping,
    test_topics,
    test_transactions,
)
from tests.worker.conftest import MakeWorker
from tests.worker.support import Calls


@dataclass(frozen=True, slots=True)
class Bug:
    """A guard taken out: of which function, and what stands in place of what."""

    name: str
    owner: Any
    function: str
    old: str
    new: str
    scenario: Callable[..., None]
    arguments: dict[str, Any]


def bug(
    name: str, owner: Any, function: str, old: str, new: str, scenario: Callable[..., None], **arguments: Any
) -> Bug:
    """One line of the list."""
    return Bug(name, owner, function, old, new, scenario, arguments)


PLANTED = [
    # Results
    bug(
        "an exception is taken for an ack", handling.Handling, "verdict",
        "return Retry(error=reason)", "return Ack()",
        test_results.test_obx_050_ibx_075_any_exception_means_another_try, error=ValueError("wrong"),
    ),
    bug(
        "non-retryable errors are retried", handling.Handling, "verdict",
        "isinstance(error, NonRetryable | Undecodable)", "isinstance(error, Undecodable)",
        test_results.test_non_retryable_is_given_up_at_once,
    ),
    bug(
        "one attempt too many", served_box.ServedBox, "gives_up",
        "0 < limit <= attempt", "0 < limit < attempt",
        test_results.test_contract_an_exception_retries_until_the_workers_max_attempts_then_dead,
    ),
    bug(
        "a reason is sent as it is", outcomes.Outcomes, "add",
        "storable(error)", "error",
        test_results.test_obx_050_ibx_075_any_exception_means_another_try, error=ValueError("nul \0"),
    ),
    bug(
        "a wrong length is filled up", handlers.Handler, "results",
        "if len(found) == len(messages):", "found = (found * 9)[: len(messages)] or [Ack()] * len(messages)\n"
        "        if True:",
        test_batches.test_nonsense_means_another_try_for_all, answer=[],
    ),
    bug(
        "one payload costs the whole batch", handling.Handling, "_decode",
        "results[message.id] = self.verdict(box, message, error)",
        "results.update((m.id, self.verdict(box, m, error)) for m in messages)\n            return [], []",
        test_batches.test_one_undecodable_message_costs_its_batch_nothing,
    ),
    # Groups
    bug(
        "the plan ignores groups", plan, "plan",
        "if not grouped and not box.handlers.any_batch:", "if not box.handlers.any_batch:",
        test_groups.test_a_retry_holds_up_its_group_and_releases_those_behind_it, how=ValueError("again"),
    ),
    bug(
        "a group goes on past a retry", handling.Handling, "steps",
        "if not going:", "if False:",
        test_groups.test_a_retry_holds_up_its_group_and_releases_those_behind_it, how=ValueError("again"),
    ),
    # Limits
    bug(
        "a limited topic lets everybody in", handlers.Handlers, "enter",
        "handler.active < (handler.concurrency or 0)", "True",
        test_topics.test_never_more_at_once_than_the_topics_concurrency, limit=1, sleep=0.12,
    ),
    bug(
        "what is parked is forgotten", handling.Handling, "_leave",
        "if parked is not None:", "if False:",
        test_topics.test_never_more_at_once_than_the_topics_concurrency, limit=1, sleep=0.12,
    ),
    bug(
        "a hanging handler gives its place away", lease_keeper.LeaseKeeper, "_look",
        "self._handlers.hangs(handler)", "handler.active -= 1",
        test_handlers.test_a_hanging_handler_keeps_its_place_in_a_limited_topic_until_it_returns,
    ),
    # Leases
    bug(
        "the keeper extends nothing", lease_keeper.LeaseKeeper, "_extend_all",
        "if time.monotonic() < self._quiet_until:", "if True:",
        test_leases.test_obx_053_ibx_078_a_handler_longer_than_its_lease_is_not_overtaken,
    ),
    bug(
        "the keeper forgets what waits in a group", assignment.Assignment, "held",
        ", *self._waiting", "",
        test_leases.test_what_waits_in_a_group_behind_a_slow_handler_keeps_its_lease,
    ),
    bug(
        "lost leases go unnoticed", lease_keeper.LeaseKeeper, "_extend",
        "assignment.lose(set(found) - kept)", "0",
        test_leases.test_a_waiting_message_whose_lease_is_lost_is_not_begun, where="group",
    ),
    bug(
        "what waits behind a slow handler stays there", lease_keeper.LeaseKeeper, "_look",
        "if ran > STUCK_SECONDS:", "if False:",
        test_bounds.test_what_was_claimed_with_a_message_that_turns_out_slow_goes_to_others,
    ),
    bug(
        "nobody is written off", lease_keeper.LeaseKeeper, "_look",
        "if timeout is None or", "if True or",
        test_handlers.test_the_lease_of_a_handler_that_overran_is_not_extended,
    ),
    bug(
        "a handler that overran still has a say", assignment.Assignment, "finish",
        "return found is not None", "return True",
        test_handlers.test_the_lease_of_a_handler_that_overran_is_not_extended,
    ),
    # Stopping
    bug(
        "stop acknowledges what is running", worker_run.WorkerRun, "_abandon_running",
        'box.outcomes.add(message.id, "release")', "box.outcomes.acked.append(message.id)",
        test_life.test_a_handler_that_outlasts_the_timeout_of_stop_is_released,
    ),
    bug(
        "stop keeps what was not begun", worker_run.WorkerRun, "_release_not_begun",
        ", *self._worked_on()", "",
        test_life.test_stop_releases_the_rest_of_a_group_whose_first_is_running,
    ),
    bug(
        "drain ends with the first box", scheduler.Scheduler, "_end_if_dry",
        "if all(box.dry_at", "if any(box.dry_claims for box in self.boxes) or all(box.dry_at",
        test_results.test_release_comes_back_at_once_and_counts_nothing, box_name="inbox",
    ),
    # One owner
    bug(
        "a lost message's late answer counts", exchange.Exchange, "_note_lost",
        "if again else ()", "if not again else ()",
        test_guards.test_the_late_answer_for_a_lost_message_does_nothing_to_its_next_claim, patience=1.0,
    ),
    bug(
        "an answer for a lost message counts", handling.Handling, "note",
        "if assignment.lost and", "if False and",
        test_guards.test_the_late_answer_for_a_lost_message_does_nothing_to_its_next_claim, patience=1.0,
    ),
    bug(
        "a lease is believed for ever", assignment.Assignment, "is_lost",
        "monotonic() - self.leased_at > self.box.settings.lease_seconds", "False",
        test_leases.test_a_worker_that_was_frozen_begins_nothing_whose_lease_has_run_out,
    ),
    bug(
        "stop does not ask who calls", worker_run.WorkerRun, "is_its_own",
        "caller in self._workers or", "False and",
        test_life.test_stop_from_within_a_handler, patience=1.0,
    ),
    bug(
        "what a claim brings while the worker stops is kept", worker_run.WorkerRun, "_end",
        "self._release_not_begun()", "pass",
        test_guards.test_what_a_claim_brings_while_the_worker_stops_is_released, patience=1.0,
    ),
    # Bounds
    bug(
        "every thread that hangs is replaced", scheduler.Scheduler, "hangs",
        "self._active + self._stuck < 2 * self.threads and", "",
        test_bounds.test_handlers_that_hang_exhaust_neither_the_process_nor_the_server,
    ),
    bug(
        "threads are replaced while the worker stops", scheduler.Scheduler, "hangs",
        " and not self.stopping", "",
        test_bounds.test_no_thread_is_added_while_the_worker_stops, patience=1.0,
    ),
    bug(
        "whoever comes back works on", scheduler.Scheduler, "came_back",
        "self._active >= self.threads", "False",
        test_bounds.test_handlers_that_hang_exhaust_neither_the_process_nor_the_server, patience=0.5,
    ),
    bug(
        "nobody releases what nobody can handle", lease_keeper.LeaseKeeper, "_look_at_all",
        "if exhausted:\n        for", "if False:\n        for",
        test_bounds.test_handlers_that_hang_exhaust_neither_the_process_nor_the_server, patience=0.5,
    ),
    bug(
        "what waits for a place that hangs stays here", lease_keeper.LeaseKeeper, "_look_at_all",
        "self._handlers.unpark_hopeless()", "()",
        test_handlers.test_a_hanging_handler_keeps_its_place_in_a_limited_topic_until_it_returns,
    ),
    # The database
    bug(
        "what an outage kept back is forgotten", exchange.Exchange, "_failed",
        "box.outcomes.give_back(outcomes)", "pass",
        test_outages.test_what_was_finished_during_an_outage_is_settled_with_its_result, patience=0.5,
    ),
    bug(
        "one refusal costs all", exchange.Exchange, "_settle_parts",
        "parts, level, settled = outcomes.parts(), 0, False", "parts, level, settled = [], 0, False",
        test_outages.test_what_the_database_refuses_costs_the_others_nothing, patience=0.3,
    ),
    bug(
        "one refused ack costs all acks", exchange.Exchange, "_settle_parts",
        "if len(part) > 1 and (settled or level == 0):", "if False:",
        test_outages.test_what_is_refused_for_longer_than_its_lease_holds_up_nobody, patience=0.4,
    ),
    bug(
        "a refusal is for ever", exchange.Exchange, "_settle_parts",
        "now - box.refused_at < self._lease_seconds", "True",
        test_outages.test_one_that_is_refused_alone_holds_up_claims_no_longer_than_its_lease, patience=0.5,
    ),
    bug(
        "what is refused for no fault of its own is dropped", exchange.Exchange, "_settle_parts",
        "if keeping and not isinstance(reason, InvalidArgument):", "if False:",
        test_outages.test_results_outlast_a_refusal_that_is_not_for_their_sake, patience=0.4,
        refusal=pysqlbox.PysqlboxError("a full disk"),
    ),
    bug(
        "a right that is missing costs the results", exchange.Exchange, "_failed",
        "isinstance(error, AWAY)", "isinstance(error, DatabaseUnavailable)",
        test_outages.test_results_outlast_a_refusal_that_is_not_for_their_sake, patience=0.4,
        refusal=pysqlbox.AccessDenied("no right"),
    ),
    bug(
        "no call is cut off", database.Calls, "overdue",
        "return now", "return False and now",
        test_outages.test_a_call_that_takes_too_long_is_cut_off_and_made_again, patience=0.3,
    ),
    bug(
        "silence is not reported", database.Database, "report_silence",
        "not calls.reported", "False",
        test_outages.test_a_silent_database_is_reported_within_ten_seconds_and_holds_up_no_end, patience=0.8,
    ),
    bug(
        "a worker does not wait for its database", deployment_run.DeploymentRun, "start",
        "except DatabaseUnavailable as error:", "except ZeroDivisionError as error:",
        test_outages.test_a_worker_can_be_stopped_while_it_waits_for_the_database,
    ),
    bug(
        "a worker waits for what does not come", postgres, "map_error",
        "target is not None and _REFUSED.search(message)", "False",
        test_outages.test_what_waiting_does_not_mend_is_said_at_once,
    ),
    bug(
        "prepared statements are taken for granted", database_postgres.PostgresConnection, "_execute",
        "error.sqlstate not in _NOT_PREPARED or", "True or",
        test_guards.test_prepared_statements_that_are_gone_are_done_without,
    ),
    bug(
        "a listener believes that nothing came before it", listener.Listener, "_listen",
        "self._scheduler.wake(box)", "pass",
        test_guards.test_what_was_sent_before_anybody_listened_waits_for_no_poll, patience=0.5,
    ),
    bug(
        "results wait for whoever hangs", lease_keeper.LeaseKeeper, "_settle",
        "if now - since >= patience", "if False",
        test_leases.test_what_was_finished_before_a_slow_message_is_settled_meanwhile, patience=0.5,
    ),
    # Coroutines, transactions and what applications want
    bug(
        "slots have no end", coroutines.Coroutines, "_begin",
        "len(self._tasks) < self.slots", "True",
        on_the_loop.test_no_more_run_at_once_than_there_are_slots,
    ),
    bug(
        "a coroutine's time has no end", lease_keeper.LeaseKeeper, "_look_at_coroutines",
        "self._coroutines.cancel(assignment)", "pass",
        test_coroutines.test_a_coroutine_that_overruns_its_time_is_cancelled, patience=0.3,
    ),
    bug(
        "coroutine handlers run on threads", handling.Handling, "steps",
        "handler.is_async != on_loop", "False",
        test_coroutines.test_threads_and_coroutines_side_by_side_and_in_one_group,
    ),
    bug(
        "whatever a handler answers is committed", transactions.Transactions, "run",
        "raise _RollBack", "pass",
        test_transactions.test_only_an_ack_commits, answer=Retry(delay=60), expected=("Ready", 1),
    ),
    bug(
        "a lost lease commits", transactions.Transactions, "_end",
        "if done < len(ids):", "if False:",
        test_transactions.test_a_lost_lease_rolls_back, patience=0.3,
    ),
    bug(
        "the end of a message comes behind the commit", postgres, "end_transaction",
        'f"SELECT 1 / {where}({given}); COMMIT"', 'f"COMMIT; SELECT 1 / {where}({given})"',
        test_transactions.test_a_lost_lease_rolls_back, patience=0.3,
    ),
    bug(
        "an unknown topic is asked for again and again", unknown_topics.UnknownTopics, "_next_snooze",
        "2 * self._snoozes.pop(key, FIRST_SNOOZE / 2)", "FIRST_SNOOZE",
        test_applications.test_a_message_without_a_handler_is_put_back_longer_each_time,
    ),
    # The worker's own eyes
    bug(
        "nobody minds that nothing moves", stalls.StallWatch, "_look_at",
        "if waiting:", "if False:",
        test_health.test_a_stall_is_told_once_and_over_when_something_moves,
    ),
    bug(
        "a stall has no end", stalls.StallWatch, "_look_at",
        "box.stalled_since = None", "pass",
        test_health.test_a_stall_is_told_once_and_over_when_something_moves,
    ),
    bug(
        "what nobody may claim is taken for a stall", stalls.StallWatch, "_look_at",
        "max(moved_at, box.emptied_at)", "moved_at",
        test_health.test_what_nobody_may_claim_is_no_stall, patience=1.0,
    ),
    bug(
        "a handler's own time does not count", stalls.StallWatch, "_look_at",
        "max([seconds, self._settings.handler_timeout or 0.0, *timeouts])", "seconds",
        test_health.test_a_long_handler_is_no_stall_before_its_timeout, patience=1.0,
    ),
    bug(
        "a listener believes that it hears", listener.Listener, "_wait",
        "raise _Deaf", "unheard = 0",
        test_listening.test_a_deaf_listener_tries_again,
    ),
    bug(
        "a worker sleeps through what it puts back", exchange.Exchange, "_succeeded",
        "if box.asleep:", "if False:",
        test_sleeping.test_a_retry_of_its_own_wakes_it, patience=0.3,
    ),
    bug(
        "a worker sleeps through due times", alarm, "alarm",
        'known = [due["due_at"]]', "known = [None]",
        test_sleeping.test_known_due_times_and_ends_of_leases_wake_it, patience=0.3,
    ),
    bug(
        "a worker sleeps through schedules", alarm, "alarm",
        "if clock == box.name:", "if False:",
        test_sleeping.test_schedules_wake_it, patience=0.5,
    ),
    bug(
        "a caretaker does not sleep", caretaker.Caretaker, "_wait",
        "or self._scheduler.asleep", "",
        test_sleeping.test_chores_wait_until_it_is_awake,
    ),
    # The rest
    bug(
        "everybody does the chores", caretaker.Caretaker, "_elected",
        'return rows[0]["status"] == "Acquired"', "return True",
        test_chores.test_one_of_two_workers_does_the_chores,
    ),
]  # fmt: skip


#: What a test is red by.
RED = (AssertionError, pysqlbox.PysqlboxError, pytest.fail.Exception)


@contextmanager
def planted(each: Bug, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The worker with the bug; a text to replace that is no more there means that the bug is out of date."""
    real = getattr(each.owner, each.function)
    text = textwrap.dedent(inspect.getsource(real))
    assert each.old in text, f"{each.name}: {each.function} has no more: {each.old}"
    names = dict(real.__globals__)
    exec(compile(text.replace(each.old, each.new), each.name, "exec"), names)
    wrong = names[each.function]
    with monkeypatch.context() as patch:
        patch.setattr(each.owner, each.function, wrong)
        for module in (exchange, handling, lease_keeper):  # functions that were imported by name
            if getattr(module, each.function, None) is real:
                patch.setattr(module, each.function, wrong)
        yield


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize("each", PLANTED, ids=lambda each: each.name)
def test_a_planted_bug_turns_a_test_red(
    each: Bug,
    request: pytest.FixtureRequest,
    db: Database,
    deployment: pysqlbox.Deployment,
    make: MakeWorker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = deployment.box(each.arguments.get("box_name", "outbox"))
    known = {
        "db": db, "deployment": deployment, "box": box, "make": make, "calls": Calls(), "caplog": caplog,
        "monkeypatch": monkeypatch, **each.arguments,
    }  # fmt: skip
    monkeypatch.setattr(support, "PATIENCE", each.arguments.get("patience", 0.15))
    if "effects" in inspect.signature(each.scenario).parameters:
        known["effects"] = request.getfixturevalue("effects")
    wanted = inspect.signature(each.scenario).parameters
    arguments = {name: value for name, value in known.items() if name in wanted}
    with planted(each, monkeypatch), pytest.raises(RED):
        each.scenario(**arguments)
