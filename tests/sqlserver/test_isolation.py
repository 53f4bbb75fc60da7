"""Callers at other isolation levels: .NET's TransactionScope is SERIALIZABLE unless told otherwise."""

from __future__ import annotations

import pytest

from pysqlbox.errors import InvalidState
from tests.contract.support import OTHER, OWNER, Box, ids
from tests.sqlserver.sessions import at_level, session_id
from tests.support.database import Session

LEVELS = ("REPEATABLE READ", "SERIALIZABLE", "SNAPSHOT")
_NUMBERS = {"REPEATABLE READ": 3, "SERIALIZABLE": 4, "SNAPSHOT": 5}


def _range_locks(box: Box, session: Session) -> int:
    query = (
        "SELECT count(*) AS n FROM sys.dm_tran_locks"
        " WHERE request_session_id = %s AND request_mode LIKE N'Range%'"
    )
    return int(str(box.db.sql(query, session_id(session))[0]["n"]))


@pytest.mark.parametrize("level", LEVELS)
def test_everything_but_a_claim_works(box: Box, level: str) -> None:
    first = [box.put(group_id="g"), box.put(), box.put()]
    assert box.take() == first
    with box.db.session() as session:
        inside = box.on(at_level(session, level))
        made = [inside.put(group_id="g"), inside.put(collapse_key="c"), inside.put(group_id="h")]
        assert inside.ack(OWNER, first[:1]) == 1
        assert inside.release(OWNER, first[1:2]) == 1
        assert inside.abandon(OWNER, first[2:], delay_seconds=0.01) == 1
        assert inside.reap() == 0
        query = "SELECT transaction_isolation_level AS n FROM sys.dm_exec_sessions WHERE session_id = @@SPID"
        assert session.sql(query)[0]["n"] == _NUMBERS[level], "the caller's level is its own"
        session.commit()
    box.db.advance(1)
    found = box.take(OTHER) + box.take(OTHER)
    assert sorted(found) == sorted([*first[1:], *made])


@pytest.mark.parametrize("level", LEVELS)
def test_a_claim_works_or_refuses(box: Box, level: str) -> None:
    """It never fails with READPAST's error 650, and a refusal leaves the transaction usable."""
    made = box.fill(3)
    with box.db.session() as session:
        inside = box.on(at_level(session, level))
        extra = inside.put()
        try:
            taken = ids(inside.claim())
        except InvalidState:
            taken = []
        if taken:
            assert taken == [*made, extra]
            assert inside.ack(OWNER, taken) == 4
        session.commit()
    assert box.take(OTHER) == ([] if taken else [*made, extra])


def test_serializable_callers_do_not_lock_ranges(box: Box) -> None:
    """Two of them enqueue and settle side by side, and third parties enqueue meanwhile."""
    mine, others = box.fill(3), box.fill(3)
    assert box.take(OWNER, batch=3) == mine
    assert box.take(OTHER, batch=3) == others
    with box.db.session() as one, box.db.session() as two:
        for session, owner, held in ((one, OWNER, mine), (two, OTHER, others)):
            inside = box.on(at_level(session, "SERIALIZABLE"))
            assert inside.ack(owner, held[:2]) == 2
            inside.fill(5)
            inside.put(group_id=str(owner), collapse_key=str(owner))
            assert inside.fail(owner, held[2:]) == 1
            assert _range_locks(box, session) == 0
        box.put()
        two.commit()
        one.commit()
    assert box.count() == 19


def test_serializable_ledger_callers_do_not_wait(box: Box) -> None:
    """Different keys, one transaction each."""
    with box.db.session() as one, box.db.session() as two:
        for number, session in enumerate((one, two)):
            at_level(session, "SERIALIZABLE")
            for turn in range(10):
                row = session.one(
                    "ledger_try_begin", key=f"k{turn}-{number}", owner="o", lease_seconds=30, handler=None
                )
                assert row["status"] == "Acquired"
            assert _range_locks(box, session) == 0
        two.commit()
        one.commit()
