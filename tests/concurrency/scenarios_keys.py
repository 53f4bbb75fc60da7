"""Races of enqueues with one key: exactly one of them writes, the others learn about it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import uuid4

from tests.concurrency.invariants import check
from tests.concurrency.scenarios_claims import inbox, outbox
from tests.concurrency.sessions import Background, sessions
from tests.contract.support import OWNER, Box, Row, json_text
from tests.support.database import Database, Session

RIVALS = 6


def _rounds(db: Database) -> int:
    """How often to race; Babelfish takes seconds for what a new connection does first."""
    return 8 if db.dialect == "postgres" else 2


def dedup_keys_race(db: Database) -> None:
    """Of any number of enqueues with one dedup_key at once exactly one creates a message."""
    box = outbox(db)
    for turn in range(_rounds(db)):
        rows = _race(box, "enqueue", dedup_key=f"k{turn}")
        _one_created(rows, "duplicate")
    assert box.count() == _rounds(db)
    check(db, "outbox")


def message_ids_race(db: Database) -> None:
    """Of any number of enqueues with one message_id at once exactly one creates a message."""
    _message_ids_race(db)


def message_ids_of_a_group_race(db: Database) -> None:
    """The same for messages of a group, which are written another way."""
    _message_ids_race(db, group_id="g")


def _message_ids_race(db: Database, **arguments: object) -> None:
    box = outbox(db)
    for _ in range(_rounds(db)):
        message = uuid4()
        rows = _race(box, "enqueue", message_id=message, **arguments)
        _one_created(rows, "duplicate")
        assert {row["message_id"] for row in rows} == {message}
    assert box.count() == _rounds(db)
    check(db, "outbox")


def sources_race(db: Database) -> None:
    """Of any number of enqueues with one source and message_id at once exactly one creates a message."""
    box = inbox(db)
    for turn in range(_rounds(db)):
        rows = _race(box, "enqueue", source="s", message_id=f"m{turn}")
        _one_created(rows, "updated")
    assert box.count() == _rounds(db)
    check(db, "inbox")


def sightings_race(db: Database) -> None:
    """Receivers that check one message at once note it once, and none is told that it was processed."""
    box = inbox(db)
    for turn in range(_rounds(db)):
        rows = _race(box, "already_processed", source="s", message_id=f"m{turn}")
        assert [row["already_processed"] for row in rows] == [False] * RIVALS
    assert box.count() == _rounds(db)
    check(db, "inbox")


def batches_race(db: Database) -> None:
    """Batches with the same keys in opposite orders wait for each other, never crosswise."""
    for box, key in ((outbox(db), "dedup_key"), (inbox(db), "message_id")):
        more = {"source": "s"} if box.kind == "inbox" else {}
        for turn in range(_rounds(db)):
            records = [box.record(**more, **{key: f"{turn}-{n}"}) for n in range(20)]
            batches = [json_text(records), json_text(records[::-1])]
            _at_once(
                box,
                [partial(_enqueue_many, messages=batches[rival % 2]) for rival in range(RIVALS)],
            )
        assert box.count() == _rounds(db) * 20
        check(db, box.name)


def a_duplicate_waits_for_the_first(db: Database) -> None:
    """The second of two enqueues with one key learns what became of the first: committed or rolled back."""
    box = outbox(db)
    for commits in (True, False):
        with sessions(db, 2) as (one, other):
            first = box.on(one).enqueue(dedup_key=f"k{commits}")
            waiting = Background(db, other, partial(_enqueue_key, box, f"k{commits}"))
            assert waiting.is_blocked()
            (one.commit if commits else one.rollback)()
            second = waiting.result()
            other.commit()
        assert (second["outcome"] == "duplicate") is commits
        assert (second["id"] == first["id"]) is commits
    assert box.count() == 2
    check(db, "outbox")


def different_keys_do_not_wait(db: Database) -> None:
    """Two open transactions that enqueue different keys never wait for each other."""
    for box in (outbox(db), inbox(db)):
        with sessions(db, 2) as open_ones:
            for place, session in enumerate(open_ones):
                session.sql("SET LOCAL lock_timeout = '300ms'")
                more = {"dedup_key": f"k{place}"} if box.kind == "outbox" else {}
                box.on(session).enqueue(group_id="g", collapse_key="c", **more)
                box.on(session).enqueue(group_id="g", **({"dedup_key": f"l{place}"} if more else {}))
            for session in open_ones:
                session.commit()
        check(db, box.name)


def keys_are_entered_in_one_order(db: Database) -> None:
    """Two batches with the same new keys in opposite orders wait for each other, never crosswise."""
    box = inbox(db)
    records = [box.record(source="s", message_id=name) for name in ("a", "m", "z")]
    with sessions(db, 3) as (locker, one, other):
        box.on(locker).enqueue(source="s", message_id="m")
        first = Background(db, one, lambda session: box.on(session).enqueue_many(*records))
        assert first.is_blocked()
        second = Background(db, other, lambda session: box.on(session).enqueue_many(*records[::-1]))
        assert second.is_blocked()
        locker.rollback()
        assert [row["outcome"] for row in first.result()] == ["created"] * 3
        one.commit()
        assert [row["outcome"] for row in second.result()] == ["updated"] * 3
        other.commit()
    check(db, "inbox")


def messages_are_locked_in_one_order(db: Database) -> None:
    """A batch that renews held messages and their owner's abandon wait for each other, never crosswise."""
    box = inbox(db)
    made = [box.put(source="s", message_id=name) for name in ("z", "a")]
    assert box.take() == made
    records = [box.record(source="s", message_id=name) for name in ("a", "z")]
    with sessions(db, 3) as (locker, worker, producer):
        locker.sql("SELECT 1 AS one FROM {schema}.inbox_message WHERE id = %s FOR UPDATE", made[0])
        abandoning = Background(db, worker, lambda session: box.on(session).abandon(OWNER, made))
        assert abandoning.is_blocked()
        renewing = Background(db, producer, lambda session: box.on(session).enqueue_many(*records))
        assert renewing.is_blocked()
        locker.rollback()
        assert abandoning.result() == 2
        worker.commit()
        assert [row["outcome"] for row in renewing.result()] == ["updated", "updated"]
        producer.commit()
    check(db, "inbox")


def a_key_cleaned_up_between_two_batches(db: Database) -> None:
    """A batch waits while a cleanup takes one of its keys' messages, and another batch has the same keys."""
    box = inbox(db)
    box.made_done(source="s", message_id="b")
    old = box.put(source="s", message_id="a")
    records = [box.record(source="s", message_id=name) for name in "abz"]
    with sessions(db, 3) as (locker, producer, rival):
        locker.sql("SELECT 1 AS one FROM {schema}.inbox_message WHERE id = %s FOR UPDATE", old)
        first = Background(db, producer, lambda session: _outcomes(session, box, records))
        assert first.is_blocked()
        assert box.affected("cleanup", retention_seconds=0) == 1
        second = Background(db, rival, lambda session: _outcomes(session, box, records[1:]))
        second.is_blocked()
        locker.rollback()
        assert second.result() == ["created", "created"]
        assert first.result() == ["updated", "updated", "updated"]
    check(db, "inbox")


def _outcomes(session: Session, box: Box, records: list[Row]) -> list[str]:
    """What becomes of a batch that is committed at once."""
    outcomes = [row["outcome"] for row in box.on(session).enqueue_many(*records)]
    session.commit()
    return outcomes


def _enqueue_key(box: Box, key: str, session: Session) -> Row:
    return box.on(session).enqueue(dedup_key=key)


def _enqueue_many(box: Box, messages: str) -> Row:
    return box.call("enqueue_many", messages=messages)[0]


def _race(box: Box, step: str, **arguments: object) -> list[Row]:
    """What rivals get that make the same call at the same moment."""
    more = box.record(**arguments) if step == "enqueue" else arguments
    return _at_once(box, [partial(Box.one, step=step, **more)] * RIVALS)


def _at_once(box: Box, calls: list[Callable[[Box], Row]]) -> list[Row]:
    """Runs calls at the same moment, each on a connection of its own."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[Box], Row]) -> Row:
        with box.db.session() as session:
            session.sql("SELECT 1 AS one")
            session.commit()
            barrier.wait(20)
            row = call(box.on(session))
            session.commit()
            return row

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def _one_created(rows: list[Row], otherwise: str) -> None:
    assert Counter(row["outcome"] for row in rows) == {"created": 1, otherwise: RIVALS - 1}
    assert len({row["id"] for row in rows}) == 1


SCENARIOS: tuple[Callable[[Database], None], ...] = (
    dedup_keys_race,
    message_ids_race,
    message_ids_of_a_group_race,
    sources_race,
    sightings_race,
    batches_race,
)
"""On every engine."""
POSTGRES_SCENARIOS: tuple[Callable[[Database], None], ...] = (
    a_duplicate_waits_for_the_first,
    different_keys_do_not_wait,
    keys_are_entered_in_one_order,
    messages_are_locked_in_one_order,
    a_key_cleaned_up_between_two_batches,
)
