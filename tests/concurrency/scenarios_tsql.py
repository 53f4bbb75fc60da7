"""What the keys' locks of T-SQL promise, played on any engine that speaks it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from tests.concurrency.invariants import check
from tests.concurrency.scenarios_claims import inbox, outbox
from tests.contract.support import OWNER, Row, impatient, is_babelfish
from tests.support.database import Database, Session

PATIENCE = 240.0
"""Seconds until something that must happen counts as never happening; Babelfish compiles for each session."""

_WAITS = "SELECT COUNT(*) AS n FROM sys.dm_exec_requests WHERE session_id = %s AND blocking_session_id <> 0"
_WAITS_ON_BABELFISH = (
    "SELECT COUNT(*) AS n FROM pg_catalog.pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
)

Step = Callable[[Session], Row]


class Waiting:
    """A call in another thread, on a session that nobody else uses meanwhile, and proof that it waits."""

    def __init__(self, db: Database, session: Session, future: Future[Any], spid: object) -> None:
        """Made by a stage."""
        self.session = session
        self.future = future
        self._db = db
        self._spid = spid
        self._query = _WAITS_ON_BABELFISH if is_babelfish(db) else _WAITS

    def is_blocked(self) -> bool:
        """Waits until the call waits for a lock (true) or is over (false)."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and not self.future.done():
            if int(str(self._db.sql(self._query, self._spid)[0]["n"])) > 0:
                return True
            time.sleep(0.02)
        assert self.future.done(), "the call neither waits for a lock nor ends"
        return False

    def result(self) -> Any:
        """What the call answers, or its error."""
        return self.future.result(PATIENCE)


class Stage:
    """Sessions, and calls of theirs in the background; no connection is closed while a call runs on it."""

    def __init__(self, db: Database) -> None:
        """Without sessions yet."""
        self._db = db
        self._pool = ThreadPoolExecutor(4)
        self._open: dict[int, ExitStack] = {}
        self._waiting: list[Waiting] = []

    def session(self) -> Session:
        """A session that ends with the stage."""
        stack = ExitStack()
        session = stack.enter_context(self._db.session())
        self._open[id(session)] = stack
        return session

    def start(self, session: Session, call: Callable[[Session], Any]) -> Waiting:
        """Starts a call in the background."""
        spid = session.sql("SELECT @@SPID AS spid")[0]["spid"]
        waiting = Waiting(self._db, session, self._pool.submit(call, session), spid)
        self._waiting.append(waiting)
        return waiting

    def end(self) -> None:
        """Ends the idle sessions, so that the calls that waited for them end too, and then those."""
        busy = {waiting.future: id(waiting.session) for waiting in self._waiting if not waiting.future.done()}
        for place in [place for place in self._open if place not in busy.values()]:
            self._open.pop(place).close()
        for future in as_completed(busy, PATIENCE):
            self._open.pop(busy[future]).close()
        self._pool.shutdown()


@contextmanager
def stage(db: Database) -> Iterator[Stage]:
    """A stage that is cleared at the end, however that comes."""
    made = Stage(db)
    try:
        yield made
    finally:
        made.end()


def _second_learns(db: Database, step: Step, first: Row, again: Row) -> None:
    """The first call's end decides what the second one answers, and nobody gets an error."""
    for commits in (False, True):
        with stage(db) as play:
            one, other = play.session(), play.session()
            row = step(one)
            assert row.items() >= first.items()
            waiting = play.start(other, step)
            assert waiting.is_blocked()
            (one.commit if commits else one.rollback)()
            answer = waiting.result()
            other.rollback()
        assert answer.items() >= (again if commits else first).items()


def a_dedup_key_is_decided_by_its_first_enqueue(db: Database) -> None:
    """The second of two enqueues with one dedup_key waits, and then is a duplicate or not."""
    box = outbox(db)
    _second_learns(
        db,
        lambda session: box.on(session).enqueue(dedup_key="k"),
        {"outcome": "created"},
        {"outcome": "duplicate"},
    )
    check(db, "outbox")


def a_message_id_is_decided_by_its_first_enqueue(db: Database) -> None:
    """The same for a message_id of the caller's own, alone and in batches."""
    box = outbox(db)
    for batch in (False, True):
        message = uuid4()

        def step(session: Session, message: object = message, batch: bool = batch) -> Row:
            if batch:
                return box.on(session).enqueue_many(box.record(message_id=message))[0]
            return box.on(session).enqueue(message_id=message)

        _second_learns(db, step, {"outcome": "created"}, {"outcome": "duplicate"})
    check(db, "outbox")


def an_inbox_key_is_decided_by_its_first_enqueue(db: Database) -> None:
    """The second of two enqueues of one message renews it, or creates it after all."""
    box = inbox(db)
    record = box.record(message_id="m")
    _second_learns(
        db,
        lambda session: box.on(session).one("enqueue", **record),
        {"outcome": "created"},
        {"outcome": "updated"},
    )
    check(db, "inbox")


def a_batch_of_inbox_keys_is_decided_by_the_first(db: Database) -> None:
    """Two batches with the same new keys in opposite orders wait for each other, never crosswise."""
    box = inbox(db)
    records = [box.record(source="s", message_id=name) for name in ("a", "m", "z")]
    with stage(db) as play:
        locker, one, other = play.session(), play.session(), play.session()
        box.on(locker).enqueue(source="s", message_id="m")
        first = play.start(one, lambda session: box.on(session).enqueue_many(*records))
        assert first.is_blocked()
        second = play.start(other, lambda session: box.on(session).enqueue_many(*records[::-1]))
        assert second.is_blocked()
        locker.rollback()
        assert [row["outcome"] for row in _either(one, first)] == ["created"] * 3
        assert [row["outcome"] for row in _either(other, second)] == ["updated"] * 3
    check(db, "inbox")


def a_batch_of_dedup_keys_is_decided_by_the_first(db: Database) -> None:
    """The same for the keys of an outbox."""
    box = outbox(db)
    records = [box.record(dedup_key=name) for name in ("a", "m", "z")]
    with stage(db) as play:
        locker, one, other = play.session(), play.session(), play.session()
        box.on(locker).enqueue(dedup_key="m")
        first = play.start(one, lambda session: box.on(session).enqueue_many(*records))
        assert first.is_blocked()
        second = play.start(other, lambda session: box.on(session).enqueue_many(*records[::-1]))
        assert second.is_blocked()
        locker.rollback()
        assert [row["outcome"] for row in _either(one, first)] == ["created"] * 3
        assert [row["outcome"] for row in _either(other, second)] == ["duplicate"] * 3
    check(db, "outbox")


def _either(session: Session, waiting: Waiting) -> list[Row]:
    rows: list[Row] = waiting.result()
    session.commit()
    return rows


def a_sighting_is_decided_by_the_first(db: Database) -> None:
    """Of two receivers that check one message the second waits, and none is told that it was processed."""
    box = inbox(db)
    _second_learns(
        db,
        lambda session: box.on(session).one("already_processed", source="s", message_id="m"),
        {"already_processed": False},
        {"already_processed": False},
    )
    assert box.count() == 1
    check(db, "inbox")


def a_ledger_key_is_decided_by_its_first_consumer(db: Database) -> None:
    """The second consumer of a new key waits until it is clear whether the first has it."""
    _second_learns(
        db,
        lambda session: session.one("ledger_try_begin", key="k"),
        {"status": "Acquired", "attempts": 1},
        {"status": "Busy", "attempts": 1},
    )


def what_the_ledger_knows_is_told_without_waiting(db: Database) -> None:
    """Who asks for a key that is held or processed waits for nobody, whatever is open meanwhile."""
    if not _reads_versions(db):
        pytest.skip("READ_COMMITTED_SNAPSHOT is off, so a plain read waits for a row that is being changed")
    db.call("ledger_try_begin", key="held")
    db.call("ledger_mark_processed", key="processed")
    with db.session() as one, db.session() as other:
        assert one.one("ledger_try_begin", key="new")["status"] == "Acquired"
        # Without a lease it takes the key's lock, and keeps it.
        assert one.value("ledger_mark_processed", key="held") == 1
        impatient(other)
        assert other.one("ledger_try_begin", key="held")["status"] == "Busy"
        assert other.one("ledger_try_begin", key="processed")["status"] == "Processed"
        one.commit()
        assert other.one("ledger_try_begin", key="held")["status"] == "Processed"


def _reads_versions(db: Database) -> bool:
    if is_babelfish(db):
        return True
    query = "SELECT is_read_committed_snapshot_on AS is_on FROM sys.databases WHERE name = DB_NAME()"
    return bool(db.sql(query)[0]["is_on"])


def different_keys_do_not_wait(db: Database) -> None:
    """Two open transactions with keys of their own never wait for each other."""
    with db.session() as one, db.session() as other:
        for place, session in enumerate((one, other)):
            impatient(session)
            for box in (outbox(db).on(session), inbox(db).on(session)):
                more = {"dedup_key": f"k{place}", "message_id": uuid4()} if box.kind == "outbox" else {}
                batch = box.record(**({"dedup_key": f"l{place}"} if more else {}))
                assert box.enqueue(group_id="g", collapse_key="c", **more)["outcome"] in (
                    "created",
                    "collapsed",
                )
                assert box.enqueue_many(batch)[0]["outcome"] == "created"
            assert session.one("ledger_try_begin", key=f"k{place}")["status"] == "Acquired"
            session.one("inbox_already_processed", source="s", message_id=f"m{place}")
        for session in (one, other):
            session.commit()
    for name in ("outbox", "inbox"):
        check(db, name)


def keys_and_rows_are_locked_in_one_order(db: Database) -> None:
    """A ledger's consumers and cleanup, an inbox's batches, settlements and marks: no deadlock."""
    box = inbox(db)
    records = [box.record(source="s", message_id=name) for name in "abcd"]
    box.enqueue_many(*records)

    def consume(session: Session, _turn: int) -> None:
        for key in "abcd":
            session.one("ledger_try_begin", key=key, lease_seconds=1)
            session.call("ledger_mark_processed", key=key)

    def clean(session: Session, _turn: int) -> None:
        session.call("ledger_cleanup", retention_seconds=0)

    def renew(session: Session, turn: int) -> None:
        box.on(session).enqueue_many(*(records if turn % 2 else records[::-1]))

    def settle(session: Session, _turn: int) -> None:
        inside = box.on(session)
        taken = inside.take()
        inside.settle(
            OWNER,
            [{"id": message, "result": "abandon", "delay_seconds": 0.001} for message in taken[1::2]]
            + [{"id": message, "result": "ack"} for message in taken[::2]],
        )

    def mark(session: Session, turn: int) -> None:
        for name in "dcba" if turn % 2 else "abcd":
            session.call("inbox_mark_processed", source="s", message_id=name)
            session.commit()

    def forget(session: Session, _turn: int) -> None:
        session.call("inbox_cleanup", retention_seconds=0)

    _together(db, [consume, consume, clean], 12)
    _together(db, [renew, settle, forget], 12)
    _together(db, [renew, mark, forget], 12)
    check(db, "inbox")


def _together(db: Database, steps: list[Callable[[Session, int], None]], turns: int) -> None:
    """Runs each step so often in a thread and session of its own, committed each time."""

    def repeated(step: Callable[[Session, int], None]) -> None:
        with db.session() as session:
            for turn in range(turns):
                step(session, turn)
                session.commit()

    with ThreadPoolExecutor(len(steps)) as pool:
        for done in [pool.submit(partial(repeated, step)) for step in steps]:
            done.result()


SCENARIOS: list[Callable[[Database], None]] = [
    a_dedup_key_is_decided_by_its_first_enqueue,
    a_message_id_is_decided_by_its_first_enqueue,
    an_inbox_key_is_decided_by_its_first_enqueue,
    a_batch_of_inbox_keys_is_decided_by_the_first,
    a_batch_of_dedup_keys_is_decided_by_the_first,
    a_sighting_is_decided_by_the_first,
    a_ledger_key_is_decided_by_its_first_consumer,
    what_the_ledger_knows_is_told_without_waiting,
    different_keys_do_not_wait,
    keys_and_rows_are_locked_in_one_order,
]
