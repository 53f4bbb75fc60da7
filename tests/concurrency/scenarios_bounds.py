"""How far a claim reads, how much it does, and what a session remembers, each played step by step.

Each function fails if the guard that it is about is missing; `test_planted_bugs` removes the guards.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from tests.concurrency.invariants import check
from tests.concurrency.scenarios_claims import inbox, outbox
from tests.concurrency.sessions import sessions, tick
from tests.contract.support import OTHER, OWNER, ids, server_now
from tests.support.database import Database

TAKES = 100
"""So often a claim takes rows at most."""
FURTHER = 150
"""Numbers by which a topic's first message must be ahead of the mark for a session to remember it."""


def _left(db: Database, table: str) -> int:
    return int(str(db.sql(f"SELECT count(*) AS n FROM {{schema}}.outbox_{table}")[0]["n"]))


def _set(db: Database, mark: str, value: int) -> None:
    db.sql(f"SELECT setval('{{schema}}._outbox_{mark}', %s)", value)


def a_claim_goes_no_further_than_the_last_number(db: Database) -> None:
    """A group's members have expired; its ticket comes back behind what there was when the claim began."""
    box = outbox(db)
    _expired(db, 8000, group_id="g")
    assert box.take(batch=1) == []
    assert _left(db, "group_member") >= 3000
    check(db, "outbox")


def a_claim_takes_rows_a_bounded_number_of_times(db: Database) -> None:
    """Tickets that stand for nothing, one after the other."""
    box = outbox(db)
    db.sql(
        "INSERT INTO {schema}.outbox_ready (lane, ticket, topic, group_id)"
        " SELECT 0, nextval('{schema}._outbox_ids'), 't', 'gone ' || n FROM generate_series(1, 300) AS n"
    )
    assert box.take(batch=1) == []
    assert _left(db, "ready") == 300 - TAKES


def a_claim_buries_a_bounded_number(db: Database) -> None:
    """Expired messages without end: a claim that meets them buries some and answers."""
    box = outbox(db)
    _expired(db, 14_000)
    assert box.take(batch=1) == []
    assert _left(db, "ready") >= 3000
    check(db, "outbox")


def _expired(db: Database, count: int, **more: object) -> None:
    box = outbox(db)
    expires_at = server_now(db) + timedelta(seconds=1000)
    box.fill(count, expires_at=expires_at, **more)
    db.advance(2000)


def a_paused_topic_is_passed_over(db: Database) -> None:
    """What is paused is not handed out, whether it stands alone or in a group with others."""
    box = outbox(db)
    box.put("paused")
    group = [box.put("open", group_id="g"), box.put("paused", group_id="g")]
    plain = box.put("open")
    box.one("pause", topic="paused")
    for topics in (["paused"], None):
        assert box.take(topics=topics) == ([] if topics else [group[0], plain])
    assert box.ack(OWNER, group[:1]) == 1
    assert box.take(OTHER) == []
    check(db, "outbox")


def a_mark_of_some_paused_topics_is_not_that_of_others(db: Database) -> None:
    """The mark leads past what is paused; then that goes on, and another topic is paused."""
    box = outbox(db)
    made = box.fill(3, topic="a")
    box.one("pause", topic="a")
    box.made_done(topic="b")
    tick(db, "outbox", 3)
    box.one("resume", topic="a")
    box.one("pause", topic="b")
    assert box.take() == made
    check(db, "outbox")


def _far(db: Database) -> tuple[int, int]:
    """A message of topic b, and far behind it one of topic a; the marks have come to know of both."""
    box = outbox(db)
    first = box.put("b")
    db.sql(f"SELECT count(nextval('{{schema}}._outbox_ids')) AS n FROM generate_series(1, {FURTHER})")
    second = box.put("a")
    tick(db, "outbox", 3)
    return first, second


def a_session_remembers_its_topics_apart(db: Database) -> None:
    """What a session remembers of one topic it does not take for another one's."""
    box = outbox(db)
    first, second = _far(db)
    with sessions(db, 1) as (session,):
        for topic, message in (("a", second), ("b", first)):
            assert box.on(session).take(topics=[topic]) == [message]
            session.commit()
    check(db, "outbox")


def a_session_forgets_once_the_mark_is_lowered(db: Database) -> None:
    """Messages stood below the marks, where nobody looked; a patrol finds them, and so do sessions."""
    box = outbox(db)
    hidden = box.put("a")
    _, second = _far(db)
    for mark in ("low_sure", "low_ticket"):
        _set(db, mark, hidden + 1)
    with sessions(db, 1) as (session,):
        mine = box.on(session)
        assert mine.take(topics=["a"]) == [second]
        session.commit()
        for _ in range(20):  # a table that earlier tests made large takes several patrols
            box.reap()
        assert mine.take(topics=["a"]) == [hidden]
        session.commit()
    check(db, "outbox")


def a_session_remembers_nothing_that_may_come(db: Database) -> None:
    """A producer is open, and a later one's message is the first of its topic that is seen."""
    box = outbox(db)
    box.put("b")
    tick(db, "outbox", 3)
    with sessions(db, 2) as (producer, session):
        held = box.on(producer).put("a")
        _, second = _far(db)
        mine = box.on(session)
        assert mine.take(topics=["a"]) == [second]
        session.commit()
        producer.commit()
        assert mine.take(topics=["a"]) == [held]
        session.commit()
    check(db, "outbox")


def a_session_remembers_nothing_of_a_claim_that_may_be_rolled_back(db: Database) -> None:
    """Two claims in one transaction: the second sees less than there is after a rollback."""
    box = outbox(db)
    made = [box.put("a")]
    made.append(_far(db)[1])
    with sessions(db, 1) as (session,):
        mine = box.on(session)
        for message in made:
            assert mine.take(topics=["a"], batch=1) == [message]
        session.rollback()
        assert mine.take(topics=["a"]) == made
        session.commit()
    check(db, "outbox")


def priorities_are_known_to_claims_at_once(db: Database) -> None:
    """Whoever is the first to use a priority tells the claims; also if another one just does the same."""
    box = outbox(db)
    with sessions(db, 1) as (other,):
        box.on(other).put(priority=7)
        made = [box.put(priority=7), *box.fill(1, priority=2, group_id="g"), *box.fill(1, priority=-3)]
        made += ids(box.call("enqueue_payloads", topic="t", payloads=["p"], priority=-4))
        other.rollback()
    check(db, "outbox")
    assert box.take() == made


def a_changed_priority_is_known_to_claims_at_once(db: Database) -> None:
    """A batch gives a message that waits a priority that nobody has used."""
    box = inbox(db)
    made = box.put(message_id="m", source="s")
    record = box.record(message_id="m", source="s", priority=7)
    assert ids(box.enqueue_many(record)) == [made]
    check(db, "inbox")
    assert box.take() == [made]


SCENARIOS: tuple[Callable[[Database], None], ...] = (
    a_claim_goes_no_further_than_the_last_number,
    a_claim_takes_rows_a_bounded_number_of_times,
    a_claim_buries_a_bounded_number,
    a_paused_topic_is_passed_over,
    a_mark_of_some_paused_topics_is_not_that_of_others,
    a_session_remembers_its_topics_apart,
    a_session_forgets_once_the_mark_is_lowered,
    a_session_remembers_nothing_that_may_come,
    a_session_remembers_nothing_of_a_claim_that_may_be_rolled_back,
    priorities_are_known_to_claims_at_once,
    a_changed_priority_is_known_to_claims_at_once,
)
