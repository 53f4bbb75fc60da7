"""Calling off what is not over yet: wherever it is, once, and its group and joins go on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from pysqlbox.errors import InvalidArgument
from tests.contract.joins import Joins
from tests.contract.support import (
    HOSTILE,
    OTHER,
    OWNER,
    Box,
    columns,
    ids,
    is_babelfish,
    refuses,
    server_now,
)

PATIENCE = 60
"""Seconds until a call that must end counts as one that never does."""


def waiting_places(box: Box) -> list[int]:
    """A message in each place where one can wait."""
    made = [box.put("plain"), box.put("above", priority=5)]
    made.append(box.put("late", due_at=server_now(box.db) + timedelta(hours=1)))
    made += [box.put("head", group_id="g"), box.put("behind", group_id="g")]
    back = box.put("back")
    assert box.take(topics=["back"]) == [back]
    assert box.release(OWNER, [back]) == 1
    return [*made, back]


def test_contract_cancel_ends_what_waits_wherever_it_waits(box: Box) -> None:
    made = waiting_places(box)
    assert box.cancel(made, "not wanted") == len(made)
    for message in made:
        row = box.get(message)
        assert (row["status"], row["last_error"]) == ("Cancelled", "not wanted")
        assert row["died_at"] is not None
        assert box.status(message) == "Cancelled"
    box.db.advance(7200)
    assert box.take() == []
    total = box.stats()[None]
    assert (total["dead"], total["ready"], total["scheduled"]) == (len(made), 0, 0)


def test_contract_a_leased_message_is_cancelled_and_its_owner_has_lost_it(box: Box) -> None:
    made = [box.put(), box.put(), box.put(group_id="g")]
    assert box.take() == made
    assert box.cancel(made[::2]) == 2
    assert box.extend(OWNER, [made[0]]) == []
    assert box.abandon(OWNER, [made[0]]) == 0
    assert box.fail(OWNER, [made[2]]) == 0
    assert box.ack(OWNER, made) == 1
    assert [box.status(message) for message in made] == ["Cancelled", "Done", "Cancelled"]


def test_contract_cancel_passes_over_what_is_over_unknown_or_repeated(box: Box) -> None:
    (done,) = box.made_done()
    (dead,) = box.made_dead()
    waiting = box.put()
    assert box.cancel([waiting, waiting, done, dead, 10**15, -1]) == 1
    assert box.cancel([waiting, done, dead], "again") == 0
    assert [box.status(message) for message in (done, dead, waiting)] == ["Done", box.dead, "Cancelled"]
    assert box.get(waiting)["last_error"] is None
    assert box.get(dead)["last_error"] == "it failed"


def test_contract_cancel_of_nothing_is_a_no_op_and_of_null_refused(box: Box) -> None:
    assert box.cancel([]) == 0
    with refuses("ids"):
        box.cancel(None)
    assert columns(box.db, f"{box.name}_cancel", [], None) == ["affected"]


@pytest.mark.dialect("mssql")
def test_contract_cancel_refuses_ids_that_are_no_json_array_of_numbers(box: Box) -> None:
    message = box.put()
    for wrong in ("", "{}", "1", "x", '["x"]', "[1.5]", "[{}]", '[""]'):
        with pytest.raises(InvalidArgument):
            box.cancel(wrong)
    assert box.cancel(f"[{message}, null, {message}]") == 1


def test_contract_the_reason_is_kept_as_it_is_and_an_empty_one_leaves_the_error(box: Box) -> None:
    tried = box.put()
    assert box.take() == [tried]
    box.abandon(OWNER, [tried], last_error="before")
    assert box.cancel([tried], "") == 1
    assert box.get(tried)["last_error"] == "before"
    for reason in HOSTILE:
        message = box.put()
        assert box.cancel([message], reason) == 1
        assert box.get(message)["last_error"] == reason


def test_contract_a_long_reason_is_cut_with_a_mark(box: Box) -> None:
    message, whole = box.put(), box.put()
    box.cancel([message], "r" * 20_000)
    box.cancel([whole], "r" * 16_384)
    kept = box.get(message)["last_error"]
    assert len(kept) == 16_384
    assert kept.startswith("r" * 16_000)
    assert not kept.endswith("r")
    assert box.get(whole)["last_error"] == "r" * 16_384


def test_contract_cancelled_ones_are_listed_replayed_discarded_and_cleaned_up_with_the_dead(box: Box) -> None:
    (dead,) = box.made_dead()
    first, second, third, fourth = (box.put() for _ in range(4))
    box.cancel([first, second, third, fourth], "why")
    letters = box.call("dead_letters")
    assert [(row["id"], row["status"]) for row in letters] == [
        (dead, box.dead),
        *((message, "Cancelled") for message in (first, second, third, fourth)),
    ]
    assert box.affected("discard", ids=[second]) == 1
    assert box.affected("replay", ids=[first]) == 1
    row = box.get(first)
    assert (row["status"], row["attempt"], row["last_error"]) == (box.waiting, 0, "why")
    assert box.take() == [first]
    box.db.advance(100)
    assert box.affected("cleanup_dead", retention_seconds=50) == 3
    assert box.count() == 1


def test_contract_a_group_goes_on_behind_a_cancelled_head(box: Box) -> None:
    soon = server_now(box.db) + timedelta(hours=1)
    late = box.put(group_id="g", due_at=soon)
    behind = box.put(group_id="g")
    assert box.take() == []
    assert box.cancel([late]) == 1
    assert box.take() == [behind]
    following = box.put(group_id="g")
    assert box.take(OTHER) == []
    assert box.cancel([behind]) == 1, "it is leased, and the only one"
    assert box.take(OTHER) == [following]


def test_contract_a_held_group_stays_held_until_its_last_message_is_over(box: Box) -> None:
    made = [box.put(group_id="g") for _ in range(4)]
    assert box.take(batch=2) == made[:2]
    assert box.cancel([made[0], made[2]]) == 2
    assert box.take(OTHER) == [], "the owner still holds the second"
    assert box.ack(OWNER, made[:2]) == 1
    assert box.take(OTHER) == [made[3]]


def test_contract_several_in_one_run_are_cancelled_and_the_rest_keeps_its_order(box: Box) -> None:
    made = box.made_run()
    gone = [made[0], *made[3:6], made[31], made[32], *made[100:140], made[-1]]
    assert box.cancel([*gone, *gone]) == len(gone)
    rest = [message for message in made if message not in set(gone)]
    taken = [message for _ in range(10) for message in box.take(uuid4(), batch=31)]
    assert taken == rest[:310]
    assert box.stats()[None]["dead"] == len(gone)
    assert box.cancel(rest) == len(rest), "all of them are leased"


def test_contract_the_last_of_a_runs_rest_can_be_cancelled_again_and_again(box: Box) -> None:
    made = box.made_run()
    for message in made[1:40:2]:
        assert box.cancel([message]) == 1
    assert box.cancel(made[:40]) == 20
    assert box.take(batch=500) == made[40:]


def test_contract_a_cancelled_message_is_not_collapsed_and_collapses_nothing(box: Box) -> None:
    first = box.put(collapse_key="k")
    box.cancel([first])
    second = box.enqueue(collapse_key="k")
    assert second["outcome"] == "created"
    assert box.status(first) == "Cancelled"
    assert box.take() == [second["id"]]


def test_contract_an_expired_message_that_nobody_met_can_still_be_cancelled(box: Box) -> None:
    message = box.put(expires_at=server_now(box.db) + timedelta(seconds=5))
    box.db.advance(10)
    assert box.cancel([message]) == 1
    assert box.take() == []
    assert box.status(message) == "Cancelled"


def test_contract_a_lease_that_has_run_out_can_still_be_cancelled(box: Box) -> None:
    message = box.put()
    assert box.take(lease=1) == [message]
    box.db.advance(5)
    assert box.cancel([message]) == 1
    assert box.reap() == 0
    assert box.take(OTHER) == []
    assert box.status(message) == "Cancelled"


def test_contract_cancel_counts_as_a_failed_step_once(joins: Joins) -> None:
    box = joins.box
    join = joins.start(3)
    steps = joins.steps(3, join)
    made = [step.id for step in steps]
    joins.wait(join)
    assert box.take(batch=1) == made[:1]
    assert box.cancel(made[:2]) == 2
    assert joins.counts(join) == (0, 2)
    assert box.cancel(made[:2]) == 0
    assert box.affected("replay", ids=made[:1]) == 1
    assert set(box.take(OTHER, batch=2)) == {made[0], made[2]}
    assert box.ack(OTHER, [made[0], made[2]]) == 2
    assert joins.counts(join) == (1, 2)
    assert [row["topic"] for row in box.claim()] == ["join.wait"]


def test_contract_a_cancelled_message_attached_later_counts_as_failed(joins: Joins) -> None:
    step = joins.put()
    joins.box.cancel([step.id])
    join = joins.start(1)
    assert joins.attach(join, step)
    assert joins.counts(join) == (0, 1)


def test_contract_a_message_that_was_never_enqueued_is_passed_over(inbox: Box) -> None:
    inbox.call("already_processed", message_id="m", source="s")
    (row,) = inbox.call("find", message_id="m", source="s")
    assert inbox.cancel([row["id"]]) == 0
    assert inbox.status(row["id"]) == "Seen"
    assert inbox.affected("mark_processing", message_id="m", source="s") == 1
    assert inbox.cancel([row["id"]]) == 0
    assert inbox.status(row["id"]) == "Processing"


def test_contract_a_cancelled_key_stays_cancelled_until_a_replay_and_takes_the_new_content(
    inbox: Box,
) -> None:
    key = {"source": "s", "message_id": "m"}
    message = inbox.put("old", "old", **key)
    inbox.cancel([message])
    answer = inbox.enqueue("new", "new", **key)
    assert (answer["id"], answer["outcome"]) == (message, "updated")
    assert inbox.status(message) == "Cancelled"
    assert not inbox.one("already_processed", **key)["already_processed"]
    assert [inbox.affected(f"mark_{word}", **key) for word in ("processing", "processed", "dead")] == [
        0,
        0,
        0,
    ]
    assert inbox.take() == []
    assert inbox.affected("replay", ids=[message]) == 1
    (row,) = inbox.claim()
    assert (row["topic"], row["payload"]) == ("new", "new")


def test_contract_cancel_joins_the_callers_transaction(box: Box) -> None:
    made = [box.put(), box.put(group_id="g"), box.put(group_id="g")]
    with box.db.session() as session:
        assert box.on(session).cancel(made) == 3
        session.rollback()
    assert [box.status(message) for message in made] == [box.waiting] * 3
    with box.db.session() as session:
        inside = box.on(session)
        own = inside.put()
        assert inside.cancel([own, made[1]]) == 2
        session.commit()
    assert box.take() == [made[0], made[2]]


def meanwhile(box: Box, first: Callable[[Box], Any], second: Callable[[Box], Any], *, commit: bool) -> Any:
    """What the second call answers, begun while the first one's transaction is open."""
    with box.db.session() as session, box.db.session() as other, ThreadPoolExecutor(1) as pool:
        first(box.on(session))
        future = pool.submit(_in_transaction, other, box, second)
        # It may wait for the first or not; both are over in the end.
        if commit:
            session.commit()
        else:
            session.rollback()
        return future.result(PATIENCE)


def _in_transaction(session: Any, box: Box, call: Callable[[Box], Any]) -> Any:
    answer = call(box.on(session))
    session.commit()
    return answer


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("commit", [True, False], ids=["committed", "rolled_back"])
def test_contract_cancel_and_a_claim_that_is_open_do_not_lose_each_other(
    box: Box, commit: bool, group: str | None
) -> None:
    """Whatever the claim comes to, the message is Cancelled, and the claim's owner has nothing of it."""
    message, other = box.put(group_id=group), box.put("other")
    assert meanwhile(box, lambda b: b.take(batch=1), lambda b: b.cancel([message]), commit=commit) == 1
    assert box.ack(OWNER, [message]) == 0
    assert box.status(message) == "Cancelled"
    assert box.take(OTHER) == [other]


@pytest.mark.parametrize("end", ["ack", "fail", "cancel"])
@pytest.mark.parametrize("commit", [True, False], ids=["committed", "rolled_back"])
def test_contract_of_cancel_and_an_end_that_is_open_one_decides(box: Box, commit: bool, end: str) -> None:
    made = [box.put(), box.put(group_id="g"), box.put(group_id="g")]
    assert box.take() == made

    def ending(of: Box) -> int:
        return of.cancel(made) if end == "cancel" else of.affected(end, **arguments)

    arguments: dict[str, object] = {"owner_token": OWNER, "ids": made}
    arguments |= {"error": "e"} if end == "fail" else {}
    cancelled = meanwhile(box, ending, lambda b: b.cancel(made), commit=commit)
    assert cancelled == (0 if commit else 3)
    word = {"ack": "Done", "fail": box.dead, "cancel": "Cancelled"}[end] if commit else "Cancelled"
    assert [box.status(message) for message in made] == [word] * 3


@pytest.mark.parametrize("back", ["abandon", "release"])
def test_contract_cancel_finds_what_its_owner_is_just_giving_back(box: Box, back: str) -> None:
    made = [box.put(), box.put(group_id="g"), box.put()]
    assert box.take() == made
    assert (
        meanwhile(
            box,
            lambda b: b.affected(back, owner_token=OWNER, ids=made),
            lambda b: b.cancel(made),
            commit=True,
        )
        == 3
    )
    assert [box.status(message) for message in made] == ["Cancelled"] * 3
    box.db.advance(100)
    assert box.take() == []


def test_contract_an_owner_behind_an_open_cancel_finds_its_lease_lost(box: Box) -> None:
    made = [box.put(), box.put()]
    assert box.take() == made
    assert meanwhile(box, lambda b: b.cancel(made[:1]), lambda b: b.ack(OWNER, made), commit=True) == 1
    assert [box.status(message) for message in made] == ["Cancelled", "Done"]


def test_contract_a_claim_passes_over_what_is_just_being_cancelled(box: Box) -> None:
    if is_babelfish(box.db):
        pytest.skip("Babelfish ignores lock hints, so a claim there waits for another transaction's rows")
    first, second = box.put(), box.put()
    with box.db.session() as session:
        assert box.on(session).cancel([first]) == 1
        assert box.take() == [second]
        session.commit()
    assert box.take() == []


def _cancelling(chosen: list[int], box: Box) -> int:
    return box.cancel(chosen)


def test_contract_cancels_that_name_the_same_messages_in_any_order_meet_without_deadlock(box: Box) -> None:
    made = [box.put(group_id=group) for group in (None, "b", "a", None, "b", None)]
    assert len(box.take(batch=3)) == 3
    rounds = 4 if is_babelfish(box.db) else 12
    with ThreadPoolExecutor(4) as pool, box.db.session() as one, box.db.session() as two:
        for turn in range(rounds):
            mine, theirs = made[turn % 6 :] + made[: turn % 6], made[::-1]
            answers = [
                pool.submit(_in_transaction, session, box, partial(_cancelling, chosen))
                for session, chosen in ((one, mine), (two, theirs))
            ]
            assert sum(answer.result(PATIENCE) for answer in answers) == 6
            assert box.affected("replay", ids=made) == 6
            box.take(batch=1 + turn % 5)
    assert {row["status"] for row in map(box.get, made)} <= {box.waiting, box.leased}


def test_contract_a_cancel_of_thousands_is_one_call(box: Box) -> None:
    count = 300 if is_babelfish(box.db) else 5000
    made = ids(box.enqueue_many(*[box.record() for _ in range(count)]))
    assert box.cancel(made[::2]) == count // 2
    assert box.take(batch=10_000) == made[1::2]
