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
from pysqlbox.worker import (
    assignment,
    caretaker,
    exchange,
    handlers,
    handling,
    lease_keeper,
    outcomes,
    plan,
    scheduler,
    served_box,
    worker_run,
)
from tests.support.database import Database
from tests.worker import (
    support,
    test_batches,
    test_bounds,
    test_chores,
    test_groups,
    test_handlers,
    test_leases,
    test_life,
    test_results,
    test_topics,
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
        "stop keeps what was not begun", worker_run.WorkerRun, "_stop_beginning",
        ", *self._worked_on()", "",
        test_life.test_stop_releases_the_rest_of_a_group_whose_first_is_running,
    ),
    bug(
        "drain ends with the first box", scheduler.Scheduler, "_end_if_dry",
        "if all(box.dry_at", "if any(box.dry_claims for box in self.boxes) or all(box.dry_at",
        test_results.test_release_comes_back_at_once_and_counts_nothing, box_name="inbox",
    ),
    # The rest
    bug(
        "everybody does the chores", caretaker.Caretaker, "_elected",
        'return rows[0]["status"] == "Acquired"', "return True",
        test_chores.test_one_of_two_workers_does_the_chores,
    ),
]  # fmt: skip


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
    db: Database,
    box: pysqlbox.Box,
    make: MakeWorker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = box.queue(each.arguments.get("box_name", "outbox"))
    known = {
        "db": db, "box": box, "queue": queue, "make": make, "calls": Calls(), "caplog": caplog,
        "monkeypatch": monkeypatch, **each.arguments,
    }  # fmt: skip
    monkeypatch.setattr(support, "PATIENCE", 0.15)
    wanted = inspect.signature(each.scenario).parameters
    arguments = {name: value for name, value in known.items() if name in wanted}
    with planted(each, monkeypatch), pytest.raises((AssertionError, pysqlbox.PysqlboxError)):
        each.scenario(**arguments)
