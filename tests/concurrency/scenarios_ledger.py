"""Races for keys of the ledger: exactly one of any number of consumers gets each."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.concurrency.sessions import Background, hasty, sessions
from tests.contract.support import Row
from tests.support.database import Database, Session

RIVALS = 16


def begin(session: Session | Database, key: str, seconds: int | None = None) -> Row:
    """Tries to begin a key."""
    return session.one("ledger_try_begin", key=key, lease_seconds=seconds)


def consumers_race_for_keys(db: Database, keys: int, rivals: int = RIVALS) -> None:
    """Consumers go through the same keys at once: each key is acquired once, then taken over once."""
    for attempt in (1, 2):
        answers = _race(db, keys, rivals)
        acquired = Counter(key for rows in answers for key, row in rows if row["status"] == "Acquired")
        assert acquired == Counter(range(keys)), "each exactly once"
        statuses = Counter(row["status"] for rows in answers for _, row in rows)
        assert statuses == {"Acquired": keys, "Busy": keys * (rivals - 1)}
        assert {row["attempts"] for rows in answers for _, row in rows} == {attempt}
        db.advance(1000)


def _race(db: Database, keys: int, rivals: int) -> list[list[tuple[int, Row]]]:
    barrier = threading.Barrier(rivals)

    def run(_: int) -> list[tuple[int, Row]]:
        rows = []
        with db.session() as session:
            session.sql("SELECT 1 AS one")
            session.commit()
            barrier.wait(60)
            for key in range(keys):
                rows.append((key, begin(session, f"bus:group:alias:{key}", 900)))
                session.commit()
        return rows

    with ThreadPoolExecutor(rivals) as pool:
        return list(pool.map(run, range(rivals)))


def an_old_holder_affects_nothing(db: Database) -> None:
    """Who lost a lease neither marks nor releases the key."""
    lease = begin(db, "k", 10)["lease_id"]
    db.advance(20)
    assert begin(db, "k", 100)["status"] == "Acquired"
    assert db.one("ledger_mark_processed", key="k", lease_id=lease)["affected"] == 0
    assert db.one("ledger_release", key="k", lease_id=lease)["affected"] == 0
    assert db.one("ledger_get", key="k")["status"] == "Acquired"


def a_new_key_is_decided_by_its_first_consumer(db: Database) -> None:
    """The second waits for the first: Busy if that commits, Acquired if it is rolled back."""
    for commits in (True, False):
        with sessions(db, 2) as (one, other):
            assert begin(one, f"k{commits}")["status"] == "Acquired"
            second = Background(db, other, partial(begin, key=f"k{commits}"))
            assert second.is_blocked()
            (one.commit if commits else one.rollback)()
            assert second.result()["status"] == ("Busy" if commits else "Acquired")
            other.commit()
        assert db.one("ledger_get", key=f"k{commits}")["attempts"] == 1


def an_expired_lease_is_taken_over_once(db: Database) -> None:
    """Two take over one lease: the second waits and finds it held, or takes it if the first did not."""
    for commits in (True, False):
        key = f"k{commits}"
        begin(db, key, 10)
        db.advance(20)
        with sessions(db, 2) as (one, other):
            assert begin(one, key, 100)["status"] == "Acquired"
            second = Background(db, other, partial(begin, key=key, seconds=100))
            assert second.is_blocked()
            (one.commit if commits else one.rollback)()
            assert second.result()["status"] == ("Busy" if commits else "Acquired")
            other.commit()
        assert db.one("ledger_get", key=key)["attempts"] == 2


def a_released_key_is_acquired_once(db: Database) -> None:
    """Two find a key that was given back."""
    db.one("ledger_release", key="k", lease_id=begin(db, "k")["lease_id"])
    with sessions(db, 2) as (one, other):
        assert begin(one, "k")["status"] == "Acquired"
        second = Background(db, other, partial(begin, key="k"))
        assert second.is_blocked()
        one.commit()
        assert second.result()["status"] == "Busy"
        other.commit()


def a_takeover_and_the_old_holders_mark_do_not_both_win(db: Database) -> None:
    """The lease is marked, and nobody takes over; or it is taken over, and nothing is marked."""
    for mark_first in (True, False):
        key = f"k{mark_first}"
        lease = begin(db, key, 10)["lease_id"]
        db.advance(20)

        def mark(session: Session, key: str = key, lease: object = lease) -> object:
            return session.one("ledger_mark_processed", key=key, lease_id=lease)["affected"]

        def take(session: Session, key: str = key) -> object:
            return begin(session, key, 100)["status"]

        with sessions(db, 2) as (one, other):
            assert (mark if mark_first else take)(one) == (1 if mark_first else "Acquired")
            second = Background(db, other, take if mark_first else mark)
            assert second.is_blocked()
            one.commit()
            assert second.result() == ("Processed" if mark_first else 0)
            other.commit()


def a_release_by_the_old_holder_does_not_end_a_takeover(db: Database) -> None:
    """The old holder releases while the takeover is open."""
    lease = begin(db, "k", 10)["lease_id"]
    db.advance(20)
    with sessions(db, 2) as (one, other):
        assert begin(one, "k", 100)["status"] == "Acquired"
        arguments = {"key": "k", "lease_id": lease}
        releasing = Background(db, other, lambda session: session.one("ledger_release", **arguments))
        assert releasing.is_blocked()
        one.commit()
        assert releasing.result()["affected"] == 0
        other.commit()
    assert db.one("ledger_get", key="k")["status"] == "Acquired"


def different_keys_do_not_wait(db: Database) -> None:
    """Consumers of different keys never meet, and a cleanup passes over what is being worked on."""
    for n in range(3):
        db.one("ledger_mark_processed", key=f"old{n}")
        begin(db, f"lost{n}", 10)
    db.advance(1000)
    with sessions(db, 3) as (one, other, cleaner):
        begin(one, "a")
        assert begin(one, "lost0")["status"] == "Acquired"
        begin(hasty(other), "b")
        assert begin(other, "lost1")["status"] == "Acquired"
        hasty(cleaner)
        assert cleaner.one("ledger_cleanup", retention_seconds=500)["affected"] == 4
        for session in (one, other, cleaner):
            session.commit()
    statuses = [db.one("ledger_get", key=key)["status"] for key in ("a", "b", "lost0", "lost1", "lost2")]
    assert statuses == ["Acquired"] * 4 + ["Unknown"]


SCENARIOS: tuple[Callable[[Database], None], ...] = (an_old_holder_affects_nothing,)
"""On every engine."""
POSTGRES_SCENARIOS: tuple[Callable[[Database], None], ...] = (
    a_new_key_is_decided_by_its_first_consumer,
    an_expired_lease_is_taken_over_once,
    a_released_key_is_acquired_once,
    a_takeover_and_the_old_holders_mark_do_not_both_win,
    a_release_by_the_old_holder_does_not_end_a_takeover,
    different_keys_do_not_wait,
)
"""They wait for PostgreSQL's locks."""
