"""What an exchange with the database does with results that it takes, refuses, or does not answer."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

import pysqlbox
from pysqlbox.worker.assignment import Assignment
from pysqlbox.worker.exchange import LAST_PAUSE
from pysqlbox.worker.figures import Figures
from pysqlbox.worker.outcomes import Outcomes
from pysqlbox.worker.served_box import EMPTY_CLAIMS, NEVER
from pysqlbox.worker.settings import Settings
from tests.unit.standins import Connection, Parts, message

REFUSAL = pysqlbox.PysqlboxError("no reason")


def acked(outcomes: Outcomes) -> list[int]:
    """What is acknowledged of results."""
    return list(outcomes.acked)


def noted(parts: Parts, *acks: int, dead: tuple[int, ...] = ()) -> None:
    """Results wait to be settled."""
    parts.box.outcomes.acked.extend(acks)
    for identity in dead:
        parts.box.outcomes.add(identity, "fail", "no")


def refuse(parts: Parts, *ids: int, error: Exception = REFUSAL) -> None:
    """The database takes no results of these messages."""

    def on_settle(outcomes: Outcomes, _claim: int) -> list[Any]:
        if {*outcomes.acked, *(record["id"] for record in outcomes.others)}.intersection(ids):
            raise error
        return []

    parts.connection.on_settle = on_settle


def test_while_every_topic_is_saturated_it_only_settles() -> None:
    parts = Parts()
    handler = parts.handler("t", lambda _message: None, concurrency=1)
    handler.active = 1
    noted(parts, 7)
    claims: list[int] = []
    parts.connection.on_settle = lambda _outcomes, claim: claims.append(claim) or []  # type: ignore[func-returns-value]
    thread = parts.thread()
    assert parts.scheduler.next(thread) is parts.box
    parts.exchange.run(thread, parts.box)
    assert (claims, not parts.box.outcomes) == ([0], True)
    assert parts.box.next_poll > time.monotonic() + 10, "it waits for a place, or the next poll"
    assert parts.scheduler._may_exchange(), "the turn is over"
    assert parts.box.claimed_at is None, "that showed nothing of what waits"


def test_what_is_announced_while_it_only_settles_is_asked_for_at_once() -> None:
    parts = Parts()
    parts.handler("t", lambda _message: None, concurrency=1).active = 1
    noted(parts, 7)

    def on_settle(_outcomes: Outcomes, _claim: int) -> list[Any]:
        parts.scheduler.wake(parts.box)
        return []

    parts.connection.on_settle = on_settle
    thread = parts.thread()
    assert parts.scheduler.next(thread) is parts.box
    parts.box.next_poll = time.monotonic() + 60
    parts.exchange.run(thread, parts.box)
    assert parts.box.next_poll <= time.monotonic()


def test_a_call_that_fails_ends_its_turn_and_keeps_the_results() -> None:
    parts = Parts()
    noted(parts, 1, 2, dead=(3,))
    refuse(parts, 1, error=pysqlbox.DatabaseUnavailable("gone"))
    thread = parts.thread()
    assert parts.scheduler.next(thread) is parts.box
    parts.exchange.run(thread, parts.box)
    assert parts.scheduler._may_exchange()
    assert (acked(parts.box.outcomes), len(parts.box.outcomes)) == ([1, 2], 3)
    assert parts.box.failures == 1


def test_an_outage_is_told_of_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    noted(parts, 1)
    refuse(parts, 1, error=pysqlbox.DatabaseUnavailable("gone"))
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            parts.exchange.settle(parts.box)
        refuse(parts)
        parts.exchange.settle(parts.box)
    told = [record.getMessage() for record in caplog.records]
    assert sum("does not answer" in each for each in told) == 1
    assert sum("answers again" in each for each in told) == 1
    assert (parts.box.failures, len(parts.box.outcomes)) == (0, 0)


@pytest.mark.parametrize("ends", [False, True])
def test_only_while_the_worker_ends_no_pause_is_long(ends: bool) -> None:
    parts = Parts()
    noted(parts, 1)
    refuse(parts, 1, error=pysqlbox.DatabaseUnavailable("gone"))
    if ends:
        parts.scheduler.stop()
    parts.box.failures, parts.box.failed_at = 50, time.monotonic() - 600
    before = time.monotonic()
    parts.exchange.settle(parts.box)
    if ends:
        assert parts.box.next_poll <= time.monotonic() + LAST_PAUSE
    else:
        assert parts.box.next_poll >= before + 2


def test_of_many_the_one_that_is_refused_is_found() -> None:
    """By halves; in the end all others are settled, and a drain learns that something moved."""
    parts = Parts()
    noted(parts, *range(100), dead=(200,))
    refuse(parts, 42)
    before = parts.scheduler.progress
    parts.exchange.settle(parts.box)
    settled = {identity for each in parts.connection.settled for identity in each.acked}
    taken = [each for each in parts.connection.settled[1:] if 42 not in each.acked]
    assert settled == set(range(100))
    assert sorted(identity for each in taken for identity in each.acked) == [n for n in range(100) if n != 42]
    assert [each.others[0]["id"] for each in taken if each.others] == [200]
    assert len(parts.connection.settled) < 25
    assert parts.scheduler.progress > before
    assert not parts.box.outcomes, "it is left to its lease"
    assert parts.box.refused_at is None, "others went through: it is its own fault"


def test_where_all_are_refused_they_are_kept_and_not_cut_up() -> None:
    """A full disk, say: it refuses whatever comes, so two halves are enough to see that."""
    parts = Parts()
    noted(parts, *range(64))
    refuse(parts, *range(64))
    parts.exchange.settle(parts.box)
    assert [len(each) for each in parts.connection.settled] == [64, 64, 32, 32]
    assert sorted(acked(parts.box.outcomes)) == list(range(64))
    assert parts.box.failures == 1, "and the database is left alone for a while"


def test_what_is_refused_is_kept_for_one_lease_since_the_first_refusal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts = Parts(settings=Settings(poll_seconds=60.0, lease_seconds=30))
    noted(parts, 1)
    refuse(parts, 1)
    parts.exchange.settle(parts.box)
    first = parts.box.refused_at
    assert first is not None
    parts.exchange.settle(parts.box)
    assert (parts.box.refused_at, acked(parts.box.outcomes)) == (first, [1])
    parts.box.refused_at = first - 31
    parts.exchange.settle(parts.box)
    assert not parts.box.outcomes
    assert "Outcomes(1 acknowledged) is left to its lease: no reason" in caplog.text


def test_what_is_refused_for_its_own_sake_is_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    noted(parts, dead=(5,))
    refuse(parts, 5, error=pysqlbox.InvalidArgument("error: must be text"))
    parts.exchange.settle(parts.box)
    assert not parts.box.outcomes
    assert "left to its lease" in caplog.text
    assert parts.box.failures == 0, "it is nobody else's fault"


def test_what_others_finish_meanwhile_is_no_reason_to_leave_the_database_alone() -> None:
    """It was one result's own fault: the database is there, as health() is to say."""
    parts = Parts()
    noted(parts, dead=(5,))

    def on_settle(_outcomes: Outcomes, _claim: int) -> list[Any]:
        noted(parts, 1)
        raise pysqlbox.InvalidArgument("error: must be text")

    parts.connection.on_settle = on_settle
    parts.exchange.settle(parts.box)
    assert (acked(parts.box.outcomes), parts.box.failures) == ([1, 1], 0)


def test_where_others_go_through_an_older_refusal_is_over() -> None:
    parts = Parts()
    noted(parts, 1, 2)
    refuse(parts, 1)
    parts.box.refused_at = 0.0
    parts.exchange.settle(parts.box)
    assert parts.box.refused_at is None


def test_an_outage_amid_refusals_keeps_what_it_met() -> None:
    """Also where a refusal is so old that it is kept no longer: the outage is another matter."""
    parts = Parts()
    noted(parts, 1, 2, dead=(3, 4))
    answers = iter(
        [REFUSAL, pysqlbox.DatabaseUnavailable("gone"), None, pysqlbox.SchemaMismatch("being migrated")]
    )

    def on_settle(_outcomes: Outcomes, _claim: int) -> list[Any]:
        error = next(answers)
        if error is not None:
            raise error
        return []

    parts.connection.on_settle = on_settle
    parts.exchange.settle(parts.box)
    assert acked(parts.box.outcomes) == [1, 2]
    assert [record["id"] for record in parts.box.outcomes.others] == [4]


def test_after_a_refusal_the_box_is_left_alone_for_a_moment() -> None:
    """Else a thread would ask again and again."""
    parts = Parts()
    noted(parts, 1)
    refuse(parts, 1, error=pysqlbox.InvalidArgument("no"))
    before, parts.box.next_poll = time.monotonic(), 0.0
    parts.exchange.settle(parts.box)
    assert parts.box.next_poll >= before + 1.0


@pytest.mark.parametrize(("claim", "lost", "waits"), [(5, True, True), (0, True, False), (5, False, False)])
def test_only_a_claim_whose_answer_was_lost_is_waited_for(claim: int, lost: bool, waits: bool) -> None:
    parts = Parts()
    noted(parts, 1)
    refuse(parts, 1, error=pysqlbox.DatabaseUnavailable("cut"))
    parts.connection.calls.lost = lost
    connection: Any = parts.connection
    with pytest.raises(pysqlbox.DatabaseUnavailable):
        parts.exchange._ask(connection, parts.box, parts.box.outcomes.take(), claim, None)
    assert (parts.box.doubtful_until > time.monotonic()) is waits


def test_whoever_counts_hears_of_failures_too() -> None:
    parts = Parts()
    told: list[Any] = []

    class Counts:
        def exchanged(self, box: str, **facts: Any) -> None:
            told.append((box, facts["settled"], facts["received"], facts["error"]))

    parts.box.queue.deployment.counts = Counts()  # type: ignore[assignment]  # a stand-in
    gone = pysqlbox.DatabaseUnavailable("gone")
    noted(parts, 1)
    refuse(parts, 1, error=gone)
    parts.exchange.settle(parts.box)
    refuse(parts)
    parts.exchange.settle(parts.box)
    assert told == [("outbox", True, False, gone), ("outbox", True, False, None)]


@pytest.mark.parametrize("fails", [False, True])
def test_whoever_watches_hears_of_it_where_nobody_counts(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts()
    told: list[Any] = []
    watcher = SimpleNamespace(
        exchanged=lambda box, outcomes, messages, _took, error: told.append(
            (box, acked(outcomes), messages, error)
        )
    )
    monkeypatch.setattr("pysqlbox.watching.watcher", watcher)
    noted(parts, 1)
    gone = pysqlbox.DatabaseUnavailable("gone")
    if fails:
        refuse(parts, 1, error=gone)
    parts.exchange.settle(parts.box)
    assert told == [(parts.box, [1], [], gone if fails else None)]


def test_a_database_that_was_not_away_does_not_answer_again(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    noted(parts, 1)
    with caplog.at_level(logging.INFO):
        parts.exchange.settle(parts.box)
    assert caplog.records == []


def test_a_claim_without_results_settles_nothing() -> None:
    """Else a drain would go on for ever: with each settlement more may be claimable."""
    parts = Parts()
    before = parts.scheduler.progress
    run(parts)
    assert (parts.scheduler.progress, parts.box.settled_at) == (before, None)


def test_what_is_settled_while_the_box_sleeps_wakes_it() -> None:
    """A retry has a due time that it does not know of."""
    for asleep in (True, False):
        parts = Parts()
        noted(parts, 1)
        parts.box.asleep, parts.box.next_poll = asleep, NEVER
        parts.exchange.settle(parts.box)
        assert (parts.box.next_poll < NEVER) is asleep


def test_messages_that_were_never_tried_are_looked_for_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be thousands of assignments, and claims by the hundred."""
    parts = Parts()
    monkeypatch.setattr(parts.exchange, "_held", None)
    assert parts.exchange._note_lost(parts.box, [message(1), message(2)]) == 0


def test_a_message_claimed_again_is_lost_where_it_was_held_before() -> None:
    """By this box's assignments only, and only if it has been tried before."""
    parts = Parts("outbox", "orders")
    one, other = parts.boxes
    now = time.monotonic()
    parts.held = [
        Assignment(one, [message(1), message(2)], now), Assignment(other, [message(1)], now)
    ]  # fmt: skip
    assert parts.exchange._note_lost(one, [message(1, attempt=1), message(2)]) == 1
    assert [each.lost for each in parts.held] == [{1}, set()]


def run(parts: Parts, *messages: Any) -> list[tuple[list[int], int]]:
    """A turn in which the database gives these messages; what was settled in it, and how much asked for."""
    asked: list[tuple[list[int], int]] = []

    def on_settle(outcomes: Outcomes, claim: int) -> list[Any]:
        asked.append((acked(outcomes), claim))
        return [*messages]

    parts.connection.on_settle = on_settle
    thread = parts.thread()
    assert parts.scheduler.next(thread) is parts.box
    parts.exchange.run(thread, parts.box)
    return asked


def test_what_a_claim_brings_is_ready_and_what_was_settled_with_it_is_there() -> None:
    """Also of a worker that serves some topics only, and after an outage."""
    for topics in (None, ["t"]):
        parts = Parts()
        parts.box.topics, parts.box.failures = topics, 3
        noted(parts, 7)
        assert [(acks, claim > 0) for acks, claim in run(parts, message(1), message(2))] == [([7], True)]
        assert [each.id for one in parts.scheduler.ready for each in one.held()] == [1, 2]
        assert (not parts.box.outcomes, parts.box.failures) == (True, 0)
        assert None not in {parts.box.claimed_at, parts.box.settled_at}


@pytest.mark.parametrize("saturated", [False, True])
def test_more_is_asked_on_a_connection_that_has_claimed(
    saturated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By those who have several deployments; where nothing was claimed there is nothing to be told of."""
    parts = Parts()
    parts.handler("t", lambda _message: None, concurrency=1).active = int(saturated)
    told: list[Any] = []
    monkeypatch.setattr(parts.exchange, "_claimed", lambda *facts: told.append(facts))
    found = message(1)
    run(parts, found)
    assert told == ([] if saturated else [(parts.box, parts.connection, [found])])


@pytest.mark.parametrize("drowsy", [False, True])
def test_only_before_it_sleeps_it_asks_when_to_get_up(drowsy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(settings=Settings(poll_seconds=60.0, idle="sleep"))
    box = parts.box
    box._empty_claims = EMPTY_CLAIMS
    box.last_work = time.monotonic() - (600 if drowsy else 0)
    monkeypatch.setattr("pysqlbox.worker.exchange.alarm", lambda *_: NEVER)
    box.next_poll = 0.0
    run(parts)
    assert box.asleep is drowsy


def test_a_worker_that_cannot_see_when_to_get_up_stays_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parts = Parts()

    def denied(*_: Any) -> float:
        raise pysqlbox.AccessDenied("no right")

    monkeypatch.setattr("pysqlbox.worker.exchange.alarm", denied)
    parts.exchange._set_alarm(parts.box)
    assert parts.box.alarm is None
    assert "does not sleep, for it cannot see when to get up: no right" in caplog.text


def test_what_was_lost_by_a_claim_is_counted() -> None:
    parts = Parts()
    parts.held = [Assignment(parts.box, [message(1)], time.monotonic())]
    run(parts, message(1, attempt=1))
    assert parts.tally.lost == 1


@pytest.mark.parametrize(("kind", "waited"), [("outbox", 5.0), ("inbox", 2.0)])
def test_where_figures_are_kept_a_message_has_waited_since_it_came(kind: str, waited: float) -> None:
    """To the inbox it came when it was first seen, wherever that was made."""
    parts = Parts()
    parts.box.queue.kind = kind  # type: ignore[misc,assignment]  # a stand-in's
    parts.tally.figures = Figures()
    claimed_at = datetime(2026, 5, 1, tzinfo=UTC)
    run(
        parts,
        message(
            1, created_at=claimed_at - timedelta(seconds=5), first_seen_at=claimed_at - timedelta(seconds=2),
            last_error=None, due_at=None, locked_until=claimed_at + timedelta(seconds=30),
        ),
    )  # fmt: skip
    figures = parts.tally.figures[parts.box.key, "t"]
    assert (figures.claimed, figures.waiting.total) == (1, waited)


def test_a_worker_that_stops_settles_and_claims_nothing_more() -> None:
    """The end may come when the thread has its turn already."""
    parts = Parts()
    noted(parts, 7)
    thread = parts.thread()
    assert parts.scheduler.next(thread) is parts.box
    parts.scheduler.stop()
    claims: list[int] = []
    parts.connection.on_settle = lambda _outcomes, claim: claims.append(claim) or []  # type: ignore[func-returns-value]
    parts.exchange.run(thread, parts.box)
    assert (claims, not parts.box.outcomes) == ([0], True)


def test_a_claim_of_some_topics_does_not_show_that_nothing_waits() -> None:
    """Where one of them is saturated, its messages may."""
    parts = Parts()
    limited = parts.handler("limited", lambda _message: None, concurrency=1)
    parts.handler("t", lambda _message: None)
    limited.active = 1
    run(parts)
    assert parts.box.emptied_at == 0.0
    limited.active, parts.box.next_poll = 0, 0.0
    run(parts)
    assert parts.box.emptied_at > 0.0


@pytest.mark.parametrize("group", [None, "g"])
def test_that_there_are_groups_is_remembered(group: str | None) -> None:
    """A drain looks once more where there are: one in whose midst somebody was comes a little later."""
    parts = Parts()
    run(parts, message(1, group_id=group))
    assert parts.scheduler.groups_seen is (group is not None)


def test_where_there_is_nothing_to_settle_no_connection_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    monkeypatch.setattr(parts.store, "connection", None)
    parts.exchange.settle(parts.box)
    assert parts.connection.settled == []


def test_while_results_are_on_their_way_a_drain_goes_on() -> None:
    parts = Parts()
    noted(parts, 1)
    ways: list[bool] = []

    def on_settle(_outcomes: Outcomes, _claim: int) -> list[Any]:
        ways.append(parts.scheduler.delivering)
        return []

    parts.connection.on_settle = on_settle
    before = parts.scheduler.progress
    parts.exchange.settle(parts.box)
    assert [*ways, parts.scheduler.delivering] == [True, False]
    assert parts.scheduler.progress > before, "and asks again for what waited behind them"


def test_the_lease_keeper_settles_on_its_own_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls are shorter, after a refusal too; another one may keep it waiting for half a minute."""
    parts = Parts()
    noted(parts, 1, 2)
    monkeypatch.setattr(parts.store, "connection", None)
    keeper = Connection()

    def on_settle(outcomes: Outcomes, _claim: int) -> list[Any]:
        if len(outcomes) > 1:
            raise REFUSAL
        return []

    keeper.on_settle = on_settle
    own: Any = keeper
    parts.exchange.settle(parts.box, own)
    assert [each.acked for each in keeper.settled] == [[1, 2], [1, 2], [1], [2]]
    assert not parts.box.outcomes


def test_a_right_that_is_missing_is_waited_for_as_an_outage_is(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody is just installing or granting; the results are no worse for it, however long that takes."""
    parts = Parts()
    noted(parts, 1)
    for error in (pysqlbox.AccessDenied("no right"), pysqlbox.SchemaMismatch("being migrated")):
        refuse(parts, 1, error=error)
        parts.box.refused_at = time.monotonic() - 3600
        parts.exchange.settle(parts.box)
        assert acked(parts.box.outcomes) == [1]
    assert (len(parts.connection.settled), parts.box.failures) == (2, 2)
    assert [record.getMessage() for record in caplog.records] == [
        "outbox: settle or claim refused: no right [test]"
    ]


@pytest.mark.parametrize("between", ["settled", "claim refused"])
def test_a_refusal_is_reckoned_from_its_own_beginning(between: str) -> None:
    """Not from an older one that is over, nor from that of a claim which no result was spoiled by."""
    parts = Parts(settings=Settings(poll_seconds=60.0, lease_seconds=30))
    if between == "settled":
        parts.box.refused_at = time.monotonic() - 31
        noted(parts, 1)
        parts.exchange.settle(parts.box)
    else:
        parts.exchange._failed(parts.box, Outcomes(), REFUSAL)
    assert parts.box.refused_at is None
    noted(parts, 2)
    refuse(parts, 2)
    parts.exchange.settle(parts.box)
    assert acked(parts.box.outcomes) == [2]
