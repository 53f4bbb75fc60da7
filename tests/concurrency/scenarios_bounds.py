"""How far a claim reads, how much it does, and what a session remembers, each played step by step.

Each function fails if the guard that it is about is missing; `test_planted_bugs` removes the guards.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest

from tests.concurrency.invariants import check
from tests.concurrency.scenarios_claims import inbox, outbox
from tests.concurrency.sessions import sessions, tick
from tests.contract.support import OTHER, OWNER, ids, server_now
from tests.support.database import Database, Session

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
    return first, _further(db)


def _further(db: Database) -> int:
    """One more message of topic a, far behind the last one; the marks know of it."""
    db.sql(f"SELECT count(nextval('{{schema}}._outbox_ids')) AS n FROM generate_series(1, {FURTHER})")
    made = outbox(db).put("a")
    tick(db, "outbox", 3)
    return made


def _remembered(session: Session) -> int:
    """Where the session's next claim of its topics begins."""
    name = "pysqlbox.topics_' || '{schema}.outbox_ready'::regclass::oid"
    row = session.sql(f"SELECT split_part(current_setting('{name}), ' ', 3)::bigint AS n")[0]
    return int(str(row["n"]))


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


def a_session_remembers_behind_its_own_settlement(db: Database) -> None:
    """A worker's every claim comes behind a settlement in the same transaction."""
    box = outbox(db)
    made = [_far(db)[1]]
    made += [_further(db), _further(db)]
    with sessions(db, 1) as (session,):
        mine = box.on(session)
        assert mine.take(topics=["a"], batch=1) == made[:1]
        session.commit()
        for done, message in pairwise(made):
            outcomes = [{"id": done, "result": "ack"}]
            assert ids(mine.settle(OWNER, outcomes, claim_batch=1, topics=["a"])) == [message]
            session.commit()
            assert _remembered(session) == message
    check(db, "outbox")


def a_session_sees_again_what_a_prepared_transaction_took(db: Database) -> None:
    """A transaction that is prepared keeps what its session remembers, also if it is rolled back at last."""
    allowed = db.sql("SELECT setting::integer AS n FROM pg_settings WHERE name = 'max_prepared_transactions'")
    if not allowed[0]["n"]:
        pytest.skip("this server has max_prepared_transactions = 0")
    box = outbox(db)
    held = _far(db)[1]
    made = [_further(db), _further(db), _further(db)]
    name = secrets.token_hex(6)
    for settled in (False, True):
        with sessions(db, 1) as (session,):
            mine = box.on(session)
            assert mine.take(topics=["a"], batch=1) == [held]
            if settled:
                session.commit()
            for number, message in enumerate(made):
                outcomes = [{"id": held, "result": "ack"}]
                if settled and number < 2:
                    assert ids(mine.settle(OWNER, outcomes, claim_batch=1, topics=["a"])) == [message]
                else:
                    assert mine.take(topics=["a"], batch=1) == [message]
            session.connection.execute(f"PREPARE TRANSACTION '{name}'")
            assert box.take(topics=["a"]) == []
            db.sql(f"ROLLBACK PREPARED '{name}'")
            assert mine.take(topics=["a"]) == (made if settled else [held, *made])
            session.rollback()
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
    a_session_remembers_behind_its_own_settlement,
    a_session_sees_again_what_a_prepared_transaction_took,
    priorities_are_known_to_claims_at_once,
    a_changed_priority_is_known_to_claims_at_once,
)
