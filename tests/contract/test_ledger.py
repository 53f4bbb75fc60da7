"""The idempotency ledger: once per key, for consumers that get their messages from a broker."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest

from pysqlbox.errors import PysqlboxError
from tests.contract.support import (
    DISTINCT,
    HOSTILE,
    LONG,
    TOO_LONG,
    Caller,
    Row,
    by_position,
    columns,
    refuses,
    server_now,
)
from tests.support.database import Database, Session

BEGUN = ["status", "lease_id", "expires_at", "attempts"]
KNOWN = ["status", "attempts", "first_seen_at", "last_seen_at", "lease_until", "handler"]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The routines of the ledger."""

    db: Database
    caller: Caller

    def on(self, session: Session) -> Ledger:
        """The same ledger, seen from an open transaction."""
        return replace(self, caller=session)

    def begin(self, key: object = "k", **more: object) -> Row:
        """Tries to begin."""
        row = self.caller.one("ledger_try_begin", key=key, **more)
        assert list(row) == BEGUN
        return row

    def acquire(self, key: object = "k", **more: object) -> UUID:
        """Begins and answers the lease."""
        row = self.begin(key, **more)
        assert row["status"] == "Acquired"
        assert isinstance(row["lease_id"], UUID)
        return row["lease_id"]

    def mark(self, key: object = "k", lease_id: object = None) -> int:
        """Marks a key as processed."""
        return self._affected("ledger_mark_processed", key=key, lease_id=lease_id)

    def release(self, key: object, lease_id: object) -> int:
        """Gives a key back."""
        return self._affected("ledger_release", key=key, lease_id=lease_id)

    def get(self, key: object = "k") -> Row:
        """What the ledger knows of a key."""
        row = self.caller.one("ledger_get", key=key)
        assert list(row) == KNOWN
        return row

    def status(self, key: object = "k") -> str:
        """The status of a key."""
        return str(self.get(key)["status"])

    def cleanup(self, retention_seconds: object, **more: object) -> int:
        """Removes old keys."""
        return self._affected("ledger_cleanup", retention_seconds=retention_seconds, **more)

    def _affected(self, routine: str, **arguments: object) -> int:
        row = self.caller.one(routine, **arguments)
        assert list(row) == ["affected"]
        return int(row["affected"])


@pytest.fixture
def ledger(db: Database) -> Ledger:
    """The ledger, empty."""
    return Ledger(db, db)


def near(moment: datetime, expected: datetime) -> bool:
    """Whether a time is the expected one, but for what the call took."""
    return abs(moment - expected) < timedelta(seconds=20)


def test_contract_routines_of_the_ledger_answer_their_columns(ledger: Ledger) -> None:
    assert columns(ledger.db, "ledger_try_begin", "k", "owner", 30, "handler") == BEGUN
    assert columns(ledger.db, "ledger_mark_processed", "k", uuid4()) == ["affected"]
    assert columns(ledger.db, "ledger_release", "k", uuid4()) == ["affected"]
    assert columns(ledger.db, "ledger_get", "k") == KNOWN
    assert columns(ledger.db, "ledger_cleanup", 60, 10) == ["affected"]


def test_contract_routines_of_the_ledger_take_their_arguments_by_position(ledger: Ledger) -> None:
    db, now = ledger.db, server_now(ledger.db)
    (row,) = by_position(db, "ledger_try_begin", "a", "the owner", 600, "the handler")
    assert (row["status"], row["attempts"]) == ("Acquired", 1)
    assert near(row["expires_at"], now + timedelta(seconds=600))
    (known,) = by_position(db, "ledger_get", "a")
    assert (known["handler"], known["lease_until"]) == ("the handler", row["expires_at"])
    assert by_position(db, "ledger_release", "a", row["lease_id"]) == [{"affected": 1}]
    lease = ledger.acquire("a")
    assert by_position(db, "ledger_mark_processed", "a", lease) == [{"affected": 1}]
    assert by_position(db, "ledger_mark_processed", "b", None) == [{"affected": 1}]
    db.advance(100)
    assert by_position(db, "ledger_cleanup", 50, 1) == [{"affected": 1}]
    assert by_position(db, "ledger_cleanup", 50, 10) == [{"affected": 1}]


def test_contract_a_new_key_is_acquired(ledger: Ledger) -> None:
    now = server_now(ledger.db)
    row = ledger.begin("k", owner="me", lease_seconds=60, handler="Orders")
    assert (row["status"], row["attempts"]) == ("Acquired", 1)
    assert isinstance(row["lease_id"], UUID)
    assert near(row["expires_at"], now + timedelta(seconds=60))
    known = ledger.get()
    assert (known["status"], known["attempts"], known["handler"]) == ("Acquired", 1, "Orders")
    assert known["lease_until"] == row["expires_at"]
    assert near(known["first_seen_at"], now)
    assert known["last_seen_at"] == known["first_seen_at"]


def test_contract_a_held_key_is_busy(ledger: Ledger) -> None:
    first = ledger.begin(lease_seconds=60)
    for owner in ("other", None, "other"):
        row = ledger.begin(owner=owner, lease_seconds=10)
        assert (row["status"], row["lease_id"]) == ("Busy", None)
        assert (row["expires_at"], row["attempts"]) == (first["expires_at"], 1)
    assert ledger.mark("k", first["lease_id"]) == 1


def test_contract_a_busy_answer_comes_to_the_same_owner_too(ledger: Ledger) -> None:
    ledger.acquire(owner="me")
    row = ledger.begin(owner="me")
    assert (row["status"], row["lease_id"], row["expires_at"]) == ("Busy", None, None)


def test_contract_a_processed_key_stays_processed(ledger: Ledger) -> None:
    lease = ledger.acquire(lease_seconds=60)
    assert ledger.mark("k", lease) == 1
    for seconds in (0, 1000, 10**7):
        ledger.db.advance(seconds)
        row = ledger.begin(lease_seconds=60)
        assert row == {"status": "Processed", "lease_id": None, "expires_at": None, "attempts": 1}
    assert ledger.get()["lease_until"] is None
    assert ledger.mark("k", lease) == 0
    assert ledger.mark("k") == 0
    assert ledger.release("k", lease) == 0
    assert ledger.status() == "Processed"


def test_contract_mark_before_handle_never_expires(ledger: Ledger) -> None:
    row = ledger.begin(handler="h")
    assert (row["status"], row["expires_at"]) == ("Acquired", None)
    assert ledger.get()["lease_until"] is None
    ledger.db.advance(10**7)
    again = ledger.begin()
    assert (again["status"], again["lease_id"], again["expires_at"]) == ("Busy", None, None)
    assert ledger.mark("k", row["lease_id"]) == 1


def test_contract_an_expired_lease_is_taken_over_and_its_old_holder_affects_nothing(ledger: Ledger) -> None:
    old = ledger.acquire(owner="old", lease_seconds=60, handler="first")
    ledger.db.advance(30)
    assert ledger.begin(lease_seconds=60)["status"] == "Busy"
    ledger.db.advance(31)
    now = server_now(ledger.db) + timedelta(seconds=61)
    row = ledger.begin(owner="new", lease_seconds=100, handler="second")
    assert (row["status"], row["attempts"]) == ("Acquired", 2)
    assert row["lease_id"] not in (None, old)
    assert near(row["expires_at"], now + timedelta(seconds=100))
    assert ledger.get()["handler"] == "second"
    before = ledger.get()
    assert ledger.mark("k", old) == 0
    assert ledger.release("k", old) == 0
    assert ledger.get() == before
    assert ledger.mark("k", row["lease_id"]) == 1


def test_contract_a_lease_ends_at_its_very_end(ledger: Ledger) -> None:
    ledger.acquire(lease_seconds=1)
    ledger.db.advance(1)
    assert ledger.begin()["status"] == "Acquired"


def test_contract_an_expired_lease_that_nobody_took_over_still_marks_and_releases(ledger: Ledger) -> None:
    marked, released = ledger.acquire("a", lease_seconds=10), ledger.acquire("b", lease_seconds=10)
    ledger.db.advance(100)
    assert [ledger.status(key) for key in "ab"] == ["Acquired", "Acquired"]
    assert ledger.mark("a", marked) == 1
    assert ledger.release("b", released) == 1
    assert [ledger.status(key) for key in "ab"] == ["Processed", "Unknown"]


def test_contract_mark_needs_the_current_lease(ledger: Ledger) -> None:
    lease = ledger.acquire()
    assert ledger.mark("k", uuid4()) == 0
    assert ledger.mark("other", lease) == 0
    assert ledger.status() == "Acquired"
    assert ledger.status("other") == "Unknown", "a lease that is not there marks nothing"
    assert ledger.mark("k", lease) == 1
    assert ledger.mark("k", lease) == 0


def test_contract_an_unconditional_mark_needs_no_lease(ledger: Ledger) -> None:
    now = server_now(ledger.db)
    assert [ledger.mark("new"), ledger.mark("new")] == [1, 0]
    known = ledger.get("new")
    assert (known["status"], known["lease_until"]) == ("Processed", None)
    assert near(known["first_seen_at"], now)
    lease = ledger.acquire("held", lease_seconds=100)
    assert ledger.mark("held") == 1
    assert (ledger.mark("held", lease), ledger.release("held", lease)) == (0, 0)
    assert ledger.begin("held")["status"] == "Processed"
    ledger.release("released", ledger.acquire("released"))
    assert ledger.mark("released") == 1
    assert ledger.status("released") == "Processed"


def test_contract_mark_may_leave_the_lease_out(ledger: Ledger) -> None:
    assert ledger.db.one("ledger_mark_processed", key="k")["affected"] == 1
    assert ledger.status() == "Processed"


def test_contract_release_gives_the_key_back_and_keeps_its_attempts(ledger: Ledger) -> None:
    for attempt in (1, 2, 3):
        row = ledger.begin(lease_seconds=60)
        assert (row["status"], row["attempts"]) == ("Acquired", attempt)
        assert ledger.release("k", row["lease_id"]) == 1
        known = ledger.get()
        assert (known["status"], known["attempts"], known["lease_until"]) == ("Unknown", attempt, None)
        assert known["first_seen_at"] is not None
        assert ledger.release("k", row["lease_id"]) == 0
        assert ledger.mark("k", row["lease_id"]) == 0


def test_contract_release_needs_the_current_lease(ledger: Ledger) -> None:
    lease = ledger.acquire()
    for key, wrong in (("k", uuid4()), ("other", lease), ("K", lease)):
        assert ledger.release(key, wrong) == 0
    assert ledger.status() == "Acquired"
    with refuses("lease_id"):
        ledger.release("k", None)
    assert ledger.release("k", lease) == 1


def test_contract_get_of_an_unknown_key_answers_a_row(ledger: Ledger) -> None:
    assert ledger.get("nobody") == {
        "status": "Unknown",
        "attempts": 0,
        "first_seen_at": None,
        "last_seen_at": None,
        "lease_until": None,
        "handler": None,
    }


def test_contract_first_and_last_seen_follow_what_changes_a_key(ledger: Ledger) -> None:
    lease = ledger.acquire(lease_seconds=1000)
    first = ledger.get()["first_seen_at"]

    def seconds() -> float:
        known = ledger.get()
        assert known["first_seen_at"] == first
        return float((known["last_seen_at"] - first).total_seconds())

    ledger.db.advance(50)
    assert ledger.begin()["status"] == "Busy"
    assert seconds() == 0, "a duplicate writes nothing"
    assert ledger.release("k", lease) == 1
    assert 49 < seconds() < 90
    ledger.db.advance(50)
    lease = ledger.acquire()
    assert 99 < seconds() < 140
    ledger.db.advance(50)
    assert ledger.mark("k", lease) == 1
    assert 149 < seconds() < 190
    ledger.db.advance(50)
    assert ledger.begin()["status"] == "Processed"
    assert 149 < seconds() < 190


def test_contract_a_taken_over_key_has_the_handler_of_its_holder(ledger: Ledger) -> None:
    lease = ledger.acquire(handler="first")
    ledger.begin(handler="busy")
    assert ledger.get()["handler"] == "first"
    ledger.release("k", lease)
    ledger.acquire(handler="second")
    assert ledger.get()["handler"] == "second"


def test_contract_keys_of_the_ledger_have_1_to_512_characters(ledger: Ledger) -> None:
    calls = (
        lambda key: ledger.begin(key),
        lambda key: ledger.mark(key),
        lambda key: ledger.release(key, uuid4()),
        lambda key: ledger.get(key),
    )
    for key in (None, "", "x" * 513, "x" * 512 + " "):
        for call in calls:
            with refuses("key"):
                call(key)
    for key in ("x" * 512, "y" * 511 + " ", "ü" * 512, "🐘" * 256):
        lease = ledger.acquire(key)
        assert ledger.begin(key)["status"] == "Busy"
        assert ledger.mark(key, lease) == 1
        assert ledger.status(key) == "Processed"
    assert ledger.status("x" * 511) == "Unknown"


def test_contract_keys_of_the_ledger_differ_by_case_and_by_trailing_spaces(ledger: Ledger) -> None:
    leases = {key: ledger.acquire(key) for key in DISTINCT}
    for key, lease in leases.items():
        assert ledger.begin(key)["status"] == "Busy"
        assert ledger.mark(key, lease) == 1
        assert ledger.begin(key)["status"] == "Processed"


def test_contract_the_ledger_takes_hostile_texts(ledger: Ledger) -> None:
    for text in HOSTILE:
        lease = ledger.acquire(text, owner=text, lease_seconds=60, handler=text)
        assert ledger.get(text)["handler"] == text
        assert ledger.begin(text)["status"] == "Busy"
        assert ledger.release(text, lease) == 1
        assert ledger.begin(text)["attempts"] == 2
        assert ledger.mark(text) == 1
        assert ledger.status(text) == "Processed"


def test_contract_a_nul_character_in_a_key_is_refused_or_kept_but_never_cut(ledger: Ledger) -> None:
    with contextlib.suppress(PysqlboxError):
        assert ledger.begin("a\0b")["status"] == "Acquired"
        assert ledger.begin("a\0b")["status"] == "Busy"
    assert ledger.status("a") == "Unknown"


def test_contract_owner_and_handler_have_up_to_255_characters(ledger: Ledger) -> None:
    for name in ("owner", "handler"):
        for value in TOO_LONG:
            with refuses(name):
                ledger.begin(**{name: value})
    assert ledger.status() == "Unknown"
    ledger.acquire(owner=LONG, handler="y" * 254 + " ")
    assert ledger.get()["handler"] == "y" * 254 + " "


def test_contract_leases_of_the_ledger_last_1_to_86400_seconds(ledger: Ledger) -> None:
    for seconds in (0, -1, 86401, 2**31 - 1):
        with refuses("lease_seconds"):
            ledger.begin(lease_seconds=seconds)
    assert ledger.get()["attempts"] == 0
    ledger.acquire("short", lease_seconds=1)
    ledger.acquire("long", lease_seconds=86400)


@pytest.mark.parametrize("commits", [False, True])
def test_contract_the_ledger_joins_the_callers_transaction(ledger: Ledger, commits: bool) -> None:
    held, kept = ledger.acquire("held"), ledger.acquire("kept")
    with ledger.db.session() as session:
        inside = ledger.on(session)
        assert inside.mark("new", inside.acquire("new")) == 1
        assert inside.mark("held", held) == 1
        assert inside.release("kept", kept) == 1
        assert inside.mark("bare") == 1
        (session.commit if commits else session.rollback)()
    found = [ledger.status(key) for key in ("new", "held", "kept", "bare")]
    after = ["Processed", "Processed", "Unknown", "Processed"]
    assert found == (after if commits else ["Unknown", "Acquired", "Acquired", "Unknown"])


def test_contract_marking_a_failed_handler_leaves_nothing_and_a_retry_may_begin(ledger: Ledger) -> None:
    with ledger.db.session() as session:
        ledger.on(session).acquire("k", lease_seconds=60)
        session.rollback()
    assert ledger.begin("k", lease_seconds=60)["attempts"] == 1


def test_contract_cleanup_of_the_ledger_removes_what_is_old_and_at_rest(ledger: Ledger) -> None:
    ledger.mark("processed", ledger.acquire("processed"))
    ledger.mark("bare")
    ledger.release("released", ledger.acquire("released"))
    ledger.acquire("expired", lease_seconds=10)
    ledger.acquire("live", lease_seconds=86400)
    ledger.acquire("forever")
    ledger.db.advance(1000)
    ledger.mark("young")
    assert ledger.cleanup(2000) == 0
    assert ledger.cleanup(500) == 4
    gone = [key for key in ("processed", "bare", "released", "expired") if ledger.get(key)["first_seen_at"]]
    assert gone == []
    kept = [ledger.status(key) for key in ("live", "forever", "young")]
    assert kept == ["Acquired", "Acquired", "Processed"]
    ledger.db.advance(10**7)
    assert ledger.cleanup(500) == 2, "the young one, and the lease that has run out meanwhile"
    assert ledger.status("forever") == "Acquired"
    assert ledger.begin("processed")["attempts"] == 1


def test_contract_cleanup_of_the_ledger_goes_by_the_time_of_processing(ledger: Ledger) -> None:
    lease = ledger.acquire(lease_seconds=10)
    ledger.db.advance(1000)
    assert ledger.mark("k", lease) == 1
    assert ledger.cleanup(500) == 0
    ledger.db.advance(600)
    ledger.begin()
    assert ledger.cleanup(500) == 1, "duplicates do not prolong it"


def test_contract_cleanup_of_the_ledger_keeps_what_was_seen_lately(ledger: Ledger) -> None:
    ledger.release("released", ledger.acquire("released"))
    ledger.acquire("expired", lease_seconds=10)
    ledger.db.advance(1000)
    ledger.release("released", ledger.acquire("released"))
    ledger.acquire("expired", lease_seconds=10)
    ledger.db.advance(100)
    assert ledger.cleanup(500) == 0
    assert ledger.get("released")["attempts"] == 2
    ledger.db.advance(1000)
    assert ledger.cleanup(500) == 2


def test_contract_cleanup_of_the_ledger_works_in_batches(ledger: Ledger) -> None:
    for n in range(7):
        ledger.mark(f"k{n}")
    ledger.db.advance(100)
    assert [ledger.cleanup(50, batch_size=3) for _ in range(4)] == [3, 3, 1, 0]


def test_contract_cleanup_of_the_ledger_refuses_bad_arguments(ledger: Ledger) -> None:
    ledger.mark("k")
    for seconds in (-1, None):
        with refuses("retention_seconds"):
            ledger.cleanup(seconds)
    for size in (0, -1, 10001, None):
        with refuses("batch_size"):
            ledger.cleanup(0, batch_size=size)
    assert ledger.status() == "Processed"
    assert ledger.cleanup(0, batch_size=10000) == 1
