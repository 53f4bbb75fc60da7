"""What a box that a worker serves is asked for and when, when it may sleep, and who gives up its messages."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pysqlbox.worker.handlers import Handler
from pysqlbox.worker.served_box import (
    DROWSY_AFTER,
    EAGER_MOST,
    EAGER_SECONDS,
    EMPTY_CLAIMS,
    FIRST_CLAIM,
    JOIN_WAIT,
    MOST,
    NEVER,
    RIDE_SECONDS,
    ServedBox,
)
from pysqlbox.worker.settings import Settings
from tests.unit.standins import Parts


async def coroutine(_message: Any) -> None:
    """A handler on the loop."""


def nothing(_messages: Any) -> None:
    """A handler, of batches too."""


def served(*, threads: int = 8, batch: bool = False, sync: bool = True, **settings: Any) -> ServedBox:
    """A box whose handlers are not timed yet."""
    parts = Parts(settings=Settings(**{"poll_seconds": 0.5, **settings}), threads=threads)
    if sync:
        parts.handler("t", nothing, batch=batch)
    return parts.box


# Giving up


def test_what_waits_for_a_join_is_never_given_up() -> None:
    """Neither by the worker nor by the database, which 0 tells so."""
    box = served(max_attempts=2)
    box.max_attempts = 2
    found = [box.gives_up("t", attempt) for attempt in (1, 2, 3)]
    assert (found, box.limit_of("t")) == ([False, True, True], 2)
    assert not box.gives_up(JOIN_WAIT, 1000)
    assert box.limit_of(JOIN_WAIT) == 0


@pytest.mark.parametrize("limit", [None, 0])
def test_where_there_is_no_limit_the_worker_gives_nothing_up(limit: int | None) -> None:
    box = served()
    box.max_attempts = limit
    assert not box.gives_up("t", 1000)


# How much to ask for


def test_before_anything_is_timed_little_is_asked_for() -> None:
    """The handler may take an hour."""
    assert served().claim_size(8) == FIRST_CLAIM
    assert served(batch_size=2).claim_size(8) == 2


def test_coroutines_are_claimed_for_free_slots_and_idle_threads() -> None:
    """A thread takes none but what it can call, and a batch handler gets no more than a batch."""
    box = served(batch_size=5)
    box.handlers.any_async = True
    assert box.claim_size(3, 1, 10) == 12
    assert box.claim_size(1, 3, 10) == 10, "what waits here is for the threads"
    assert box.claim_size(1, 0, 2 * MOST) == MOST
    box.handlers.any_batch = True
    assert box.claim_size(3, 1, 10) == 5
    only = served(sync=False)
    only.handlers.any_async = True
    assert only.claim_size(3, 1, 10) == 10


def test_quick_messages_are_claimed_for_more_than_one_thread() -> None:
    """But a batch handler gets no more than a batch, and nobody more than what threads may hold."""
    for batch, cost, size in ((False, 0.0001, 50), (False, 1e-7, 200), (True, 0.0001, 50), (True, 1e-7, 50)):
        box = served(threads=8, batch=batch)
        box.note_cost(cost)
        assert box.claim_size(1) == size, (batch, cost)


def test_what_is_quick_goes_by_batches_but_never_by_very_large_ones() -> None:
    """50 in 5 ms are quick wherever batches are larger, and 20 where batches are small."""
    for batch_size, cost, size in ((200, 0.0001, 50), (10, 0.00025, 20)):
        box = served(threads=8, batch_size=batch_size)
        box.note_cost(cost)
        assert box.claim_size(1) == size


def test_no_claim_asks_for_more_than_a_claim_may() -> None:
    box = served(threads=100, batch_size=1000)
    box.note_cost(0.00011)
    assert box.claim_size(1) == MOST


def test_of_slow_messages_so_many_are_claimed_as_can_be_begun_soon() -> None:
    box = served(threads=8)
    box.note_cost(0.005)
    assert box.claim_size(2) == 2 + 8 * 4
    assert box.claim_size(2, 30) == 4, "some wait here already"
    assert box.claim_size(2, 100) == 0, "more than enough do"
    assert box.claim_size(0, 0) == 1 + 8 * 4, "there is always one to begin with"
    few = served(threads=8, batch_size=2)
    few.note_cost(0.005)
    assert few.claim_size(2) == 16
    batches = served(threads=8, batch=True, batch_size=20)
    batches.note_cost(0.005)
    assert batches.claim_size(2) == 20


def test_messages_are_quick_each_by_itself_and_all_together() -> None:
    box = served()
    assert not box.is_quick(1), "nobody knows yet"
    box.note_cost(0.0002)
    assert box.is_quick(20)
    assert not box.is_quick(100), "together they keep a thread for long"
    slower = served()
    slower.note_cost(0.001)
    assert not slower.is_quick(1), "another thread might go on meanwhile"


def test_the_latest_times_weigh_most_and_what_is_surely_slow_counts_at_once() -> None:
    """One that was only interrupted does not; one that takes a second does."""
    box = served(threads=8, batch_size=1000)
    box.note_cost(0.008, 8)
    box.note_cost(0.015)
    interrupted = box.claim_size(1)
    box.note_cost(0.05)
    assert (interrupted, box.claim_size(1)) == (1 + 8 * 7, 1)
    box.note_cost(0.0)
    assert box.claim_size(1) == 1, "one quick message does not make it quick"
    steady = served(threads=8)
    steady.note_cost(0.015)
    steady.note_cost(0.028)
    assert steady.claim_size(1) == 1 + 8, "it is no slower than it was"


def test_what_takes_no_time_that_a_clock_shows_is_divided_by_all_the_same() -> None:
    box = served()
    box.note_cost(0.0)
    assert box.claim_size(1) == 200


@pytest.mark.parametrize("topics", [None, ["t", "limited", "nobody's"]])
def test_while_a_handler_is_saturated_only_the_others_topics_are_claimed(topics: list[str] | None) -> None:
    """Its messages wait in the database, where another worker finds them."""
    box = served()
    assert box.claim_topics() is None
    for topic, concurrency in (("limited", 1), ("free", None)):
        box.handlers.add(Handler(topic, nothing, concurrency=concurrency))
    box.topics = topics
    assert box.claim_topics() == topics
    box.handlers.by_topic["limited"].active = 1
    assert box.claim_topics() == (["t", "free"] if topics is None else ["t", "nobody's"])


def test_whatever_moves_is_remembered() -> None:
    """For health(), and for the watch that says when nothing does."""
    box = served()
    assert (box.claimed_at, box.settled_at) == (None, None)
    box.moved_at = 0.0
    box.note_cost(0.1)
    costs, box.moved_at = box.moved_at, 0.0
    box.note_settled()
    settles, box.moved_at = box.moved_at, 0.0
    box.note_claim(1, all_topics=False)
    assert min(costs, settles, box.moved_at) > 0.0
    box.moved_at = 0.0
    box.note_claim(0, all_topics=True)
    assert box.moved_at == 0.0
    now = time.time()
    for at in (box.claimed_at, box.settled_at):
        assert at is not None
        assert now - 600 < at <= now


# When to ask


def test_results_go_at_once_unless_a_claim_is_near() -> None:
    """With which they ride; after a failure everything waits for the pause to end."""
    box = served()
    box.next_poll = 100.0
    assert box.due_at(50.0) == 100.0, "there are none"
    box.outcomes.acked.append(1)
    assert box.due_at(50.0) == 50.0
    near = 100.0 - RIDE_SECONDS / 2
    assert box.due_at(near) == 100.0
    box.failures = 1
    assert box.due_at(50.0) == 100.0


def test_one_thread_asks_at_a_time_unless_there_is_surely_more() -> None:
    box = served()
    box.being_asked(100.0)
    assert box.next_poll == 100.5
    box.next_poll, box.full = 100.0, True
    box.being_asked(100.0)
    assert box.next_poll == 100.0
    box.ask_later(100.0)
    assert (box.next_poll, box.full) == (100.5, False)


def test_a_full_claim_is_followed_at_once_and_another_after_a_moment() -> None:
    box = served()
    box.schedule(10, 10, 100.0)
    assert (box.full, box.next_poll, box.last_work) == (True, 100.0, 100.0)
    box.schedule(10, 9, 101.0)
    assert (box.full, box.next_poll, box.last_work) == (False, 101.0 + EAGER_MOST, 101.0)


@pytest.mark.parametrize(("got", "pause"), [(1, 1), (2, 1.5), (3, 2), (6, 3.5), (7, 3.75), (9, 3.75)])
def test_the_fewer_a_claim_brought_the_sooner_is_the_next(got: int, pause: float) -> None:
    box = served()
    box.schedule(10, got, 100.0)
    assert box.next_poll == pytest.approx(100.0 + pause * EAGER_SECONDS)
    assert pause * EAGER_SECONDS <= EAGER_MOST


def test_who_was_told_of_a_message_waits_to_be_told_of_the_next() -> None:
    """A claim that brings one sets the next notification free; of several there may be more to fetch."""
    box = served()
    for wakes, got, pause in ((1, 1, EAGER_MOST), (0, 1, EAGER_SECONDS), (1, 2, 1.5 * EAGER_SECONDS)):
        box.wakes += wakes
        box.schedule(10, got, 100.0)
        assert box.next_poll == pytest.approx(100.0 + pause), (wakes, got)
    box.wakes += 1
    box.schedule(1, 1, 100.0)
    assert box.next_poll == 100.0, "what was asked for has come"


@pytest.mark.parametrize(
    ("quiet", "wait"), [(0.0, EAGER_SECONDS), (0.1, 0.1), (2.0, 0.5), (DROWSY_AFTER, 1.0), (600.0, 1.0)]
)
def test_the_longer_it_is_quiet_the_longer_it_waits(quiet: float, wait: float) -> None:
    """Up to poll_seconds, and after a while up to twice as long."""
    box = served(poll_seconds=0.5)
    box.last_work = 1000.0
    box.schedule(10, 0, 1000.0 + quiet)
    assert box.next_poll == 1000.0 + quiet + wait


# Sleep


def drowsy(**settings: Any) -> ServedBox:
    """A box that may sleep."""
    box = served(**{"idle": "sleep", **settings})
    for _ in range(EMPTY_CLAIMS):
        box.note_claim(0, all_topics=True)
    box.last_work = time.monotonic() - DROWSY_AFTER
    return box


@pytest.mark.parametrize("why", ["poll", "one empty claim less", "results", "quiet", "work", "woken"])
def test_it_sleeps_only_if_nothing_speaks_against_it(why: str) -> None:
    box = drowsy(idle="poll" if why == "poll" else "sleep")
    if why == "one empty claim less":
        box._empty_claims -= 1
    elif why == "results":
        box.outcomes.acked.append(1)
    elif why == "quiet":
        box.last_work += 2.0
    elif why == "work":
        box.note_claim(1, all_topics=True)
    elif why == "woken":
        box.asleep = True
        box.wake(box.last_work)
    assert drowsy().is_drowsy
    assert not box.is_drowsy


def test_a_claim_of_some_topics_shows_nothing_of_the_others() -> None:
    box = served(idle="sleep")
    for _ in range(EMPTY_CLAIMS):
        box.note_claim(0, all_topics=False)
    box.last_work = time.monotonic() - DROWSY_AFTER
    assert not box.is_drowsy
    assert box.emptied_at == 0.0


def test_who_is_woken_stays_up_for_a_while() -> None:
    box = drowsy()
    box.asleep = True
    now = time.monotonic()
    box.being_asked(now)
    assert (box.asleep, box.last_work) == (False, now)
    box.last_work = 0.0
    box.being_asked(now)
    assert box.last_work == 0.0, "it was up"


def test_it_sleeps_until_its_alarm_and_no_claim_that_was_under_way_wakes_it() -> None:
    box = drowsy()
    box.alarm = NEVER
    box.schedule(10, 0, 1000.0)
    assert (box.asleep, box.next_poll) == (True, NEVER)
    box.schedule(10, 0, 1000.1)
    assert (box.asleep, box.next_poll) == (True, NEVER)
