"""The tally of the dead: what `stats` says is what lies there, at every commit and in every snapshot.

Each function fails if a routine that makes messages dead, or takes them back, forgets to say so; the planted
bugs of `test_dead_tally` let each of them forget.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID

from pysqlbox.errors import InvalidState
from tests.concurrency.invariants import check
from tests.concurrency.scenarios_claims import inbox, outbox
from tests.contract.support import OTHER, OWNER, Box, check_books, ids, server_now
from tests.support.database import Database, Session

BOXES: tuple[Callable[[Database], Box], ...] = (outbox, inbox)


def _told(box: Box) -> dict[str, int]:
    """The dead by topic as the statistics have them; topics without any are left out."""
    return {str(topic): int(row["dead"]) for topic, row in box.stats().items() if topic and row["dead"]}


def _is(box: Box, **expected: int) -> None:
    assert _told(box) == expected
    check_books(box)
    check(box.db, box.name)


def failing(db: Database) -> None:
    """One by one, as part of a settled batch, after too many tries, and by cancelling."""
    for made in BOXES:
        box = made(db)
        box.made_dead(3, topic="a")
        _is(box, a=3)
        first, second, third = (box.put("b") for _ in range(3))
        assert box.take(batch=3) == [first, second, third]
        box.settle(OWNER, [{"id": first, "result": "fail", "error": "no"}, {"id": second, "result": "ack"}])
        _is(box, a=3, b=1)
        assert box.retry(OWNER, [third], last_error="no", max_attempts=1) == (1, 1)
        _is(box, a=3, b=2)
        assert box.cancel([box.put("c"), box.put("c", group_id="g")]) == 2
        _is(box, a=3, b=2, c=2)


def expiring(db: Database) -> None:
    """A claim that meets messages of several topics past their time."""
    for made in BOXES:
        box = made(db)
        past = server_now(db) - timedelta(seconds=1)
        for topic in ("a", "b", "a"):
            box.put(topic, expires_at=past)
        box.put("a", expires_at=past, group_id="g")
        assert box.take() == []
        _is(box, a=3, b=1)


def poisoning(db: Database) -> None:
    """A reap that ends what kills its worker every time."""
    for made in BOXES:
        box = made(db)
        box.configure("max_attempts", "1")
        box.put("a")
        assert len(box.take(lease=1)) == 1
        db.advance(2)
        assert box.reap() == 1
        _is(box, a=1)


def marking_dead(db: Database) -> None:
    """By its key; what was never enqueued has no topic and is not counted, nor is it when it comes back."""
    box = inbox(db)
    box.enqueue("a", source="s", message_id="known")
    assert box.affected("mark_dead", message_id="known", source="s") == 1
    box.call("already_processed", message_id="seen", source="s", hash=None)
    assert box.affected("mark_dead", message_id="seen", source="s") == 1
    _is(box, a=1)
    rows = db.sql("SELECT id FROM {schema}.inbox_messages WHERE status = 'Dead' AND topic IS NULL")
    assert box.affected("replay", ids=ids(rows)) == 1
    _is(box, a=1)


def replaying(db: Database) -> None:
    """All, none when one of them is not dead, and some."""
    for made in BOXES:
        box = made(db)
        dead = [*box.made_dead(2, topic="a"), *box.made_dead(1, topic="b")]
        alive = box.put("c")
        with db.session() as session:
            try:
                box.on(session).affected("replay", ids=[*dead, alive])
            except InvalidState:
                session.rollback()
            else:
                raise AssertionError("a replay of what is not dead")
        _is(box, a=2, b=1)
        assert box.affected("replay", ids=[dead[0], dead[2], dead[2]]) == 2
        _is(box, a=1)
        assert box.affected("replay", ids=dead[1:2]) == 1
        _is(box)


def discarding(db: Database) -> None:
    """Once, however often it is asked for."""
    for made in BOXES:
        box = made(db)
        dead = [*box.made_dead(2, topic="a"), *box.made_dead(1, topic="b")]
        assert box.affected("discard", ids=[*dead[1:], *dead[1:], 0]) == 2
        assert box.affected("discard", ids=dead[1:]) == 0
        _is(box, a=1)


def cleaning_up(db: Database) -> None:
    """In parts."""
    for made in BOXES:
        box = made(db)
        box.made_dead(3, topic="a")
        box.made_dead(2, topic="b")
        assert box.affected("cleanup_dead", retention_seconds=0, batch_size=4) == 4
        assert sum(_told(box).values()) == 1
        check_books(box)
        assert box.affected("cleanup_dead", retention_seconds=0, batch_size=4) == 1
        _is(box)


def renewing(db: Database) -> None:
    """A dead message that is sent again under another topic stays dead, there."""
    box = inbox(db)
    box.enqueue("a", source="s", message_id="known")
    assert box.fail(OWNER, box.take()) == 1
    box.call("already_processed", message_id="seen", source="s", hash=None)
    assert box.affected("mark_dead", message_id="seen", source="s") == 1
    _is(box, a=1)
    assert box.enqueue("b", source="s", message_id="known")["outcome"] == "updated"
    _is(box, b=1)
    assert box.enqueue("c", source="s", message_id="seen")["outcome"] == "updated"
    _is(box, b=1, c=1)
    assert box.enqueue("c", source="s", message_id="seen")["outcome"] == "updated"
    _is(box, b=1, c=1)


def folding(db: Database) -> None:
    """What is added up stays what it was, also what went; and a topic that has none left is not shown."""
    for made in BOXES:
        box = made(db)
        for topic in ("a", "b"):
            dead = box.made_dead(3, topic=topic)
            assert box.affected("discard", ids=dead[:1]) == 1
        gone = box.made_dead(2, topic="c")
        assert box.affected("discard", ids=gone) == 2
        for _ in range(3):
            fold(db, box.name)
            _is(box, a=2, b=2)
        rows = db.sql(f"SELECT * FROM {{schema}}.{box.name}_tally")
        assert len(rows) <= 2, "nothing was added up"
        box.made_dead(1, topic="a")
        fold(db, box.name)
        _is(box, a=3, b=2)
        assert "c" not in box.stats()


def rolling_back(db: Database) -> None:
    """What is undone was never counted, and an older snapshot sees what was there when it was taken."""
    for made in BOXES:
        box = made(db)
        dead = box.made_dead(4, topic="a")
        with db.session() as session:
            mine = box.on(session)
            assert mine.affected("discard", ids=dead[:3]) == 3
            mine.put("b")
            assert mine.fail(OWNER, mine.take()) == 1
            assert _told(mine) == {"a": 1, "b": 1}
            _is(box, a=4)
            session.rollback()
        _is(box, a=4)
        with db.session() as session:
            session.sql(
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ" if _holds(db) else "SELECT 1 AS one"
            )
            looking = box.on(session)
            if _holds(db):
                assert _told(looking) == {"a": 4}
            assert box.affected("discard", ids=dead[:1]) == 1
            fold(db, box.name)
            _is(box, a=3)
            assert _told(looking) == ({"a": 4} if _holds(db) else {"a": 3})
            session.commit()


def nobody_waits(db: Database) -> None:
    """Failures of one topic that are not committed hold up neither each other, nor a fold, nor a look."""
    for made in BOXES:
        box = made(db)
        box.made_dead(2, topic="b")
        first, second, third = box.fill(3, topic="a")
        assert box.take(batch=1) == [first]
        assert box.take(OTHER, batch=1) == [second]
        with db.session() as one, db.session() as other:
            _in_haste(one)
            _in_haste(other)
            assert box.on(one).fail(OWNER, [first]) == 1
            assert box.on(other).fail(OTHER, [second]) == 1
            fold(db, box.name)
            _is(box, b=2)
            other.commit()
            _is(box, a=1, b=2)
            one.commit()
        _is(box, a=2, b=2)
        assert box.cancel([third]) == 1


def storming(db: Database) -> None:
    """Many die, come back, go and are added up at once, some of it undone; every look agrees with itself."""
    for made in BOXES:
        box = made(db)
        box.fill(60, topic="a")
        box.fill(60, topic="b")
        over = threading.Event()
        with ThreadPoolExecutor(5) as pool:
            looks = pool.submit(_look, db, box.name, over)
            work = [pool.submit(_die_and_return, db, box.name, seed) for seed in range(4)]
            try:
                for each in work:
                    each.result()
            finally:
                over.set()
            assert looks.result() > 0
        fold(db, box.name)
        check_books(box)
        check(db, box.name)


def _die_and_return(db: Database, name: str, seed: int) -> None:
    chance = random.Random(seed)
    owner = UUID(int=seed + 1)
    with db.session() as session:
        box = (outbox(db) if name == "outbox" else inbox(db)).on(session)
        for _ in range(40):
            taken = box.take(owner, batch=chance.randrange(1, 8))
            box.fail(owner, taken)
            _end(session, chance)
            letters = box.call("dead_letters", limit=20)
            session.commit()
            # In one order, as whoever calls a routine twice in a transaction would have to.
            some = sorted(chance.sample(ids(letters), min(len(letters), 5)))
            try:
                if chance.random() < 0.7:
                    box.affected("replay", ids=some)
                elif chance.random() < 0.5:
                    box.affected("discard", ids=some)
                else:
                    box.affected("cleanup_dead", retention_seconds=0, batch_size=2)
                _end(session, chance)
            except InvalidState:  # somebody else has replayed one of them
                session.rollback()
            if chance.random() < 0.2:
                fold(session, name)
                session.commit()


def _end(session: Session, chance: random.Random) -> None:
    if chance.random() < 0.2:
        session.rollback()
    else:
        session.commit()


def _look(db: Database, name: str, over: threading.Event) -> int:
    """Statistics and rows in one snapshot, where the engine has any that lasts two statements."""
    looks = 0
    with db.session() as session:
        box = (outbox(db) if name == "outbox" else inbox(db)).on(session)
        while not over.is_set() or looks == 0:
            if _holds(db):
                session.sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                rows = session.sql(f"SELECT topic, count(*) AS n FROM {{schema}}.{name}_dead GROUP BY topic")
                assert _told(box) == {row["topic"]: row["n"] for row in rows}
            else:
                assert all(0 <= dead <= 60 for dead in _told(box).values())
            session.commit()
            looks += 1
    return looks


def fold(caller: Database | Session, box: str) -> None:
    """Has the box add its tally up."""
    if caller.dialect == "postgres":
        for _ in range(2):  # the first notes who is there, the second finds them gone
            caller.sql(f"SELECT {{schema}}._{box}_tick(true)")
    else:
        caller.sql(f"EXEC {{schema}}._{box}_tick @rescan = 1")


def _holds(db: Database) -> bool:
    """Whether a transaction can have one snapshot; T-SQL's routines set READ COMMITTED for themselves."""
    return db.dialect == "postgres"


def _in_haste(session: Session) -> None:
    session.sql("SET lock_timeout = '3s'" if session.dialect == "postgres" else "SET LOCK_TIMEOUT 3000")
    session.commit()


SCENARIOS = [
    failing, expiring, poisoning, marking_dead, replaying, discarding, cleaning_up, renewing, folding,
    rolling_back, nobody_waits, storming,
]  # fmt: skip
