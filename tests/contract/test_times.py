"""Times that callers pass: those that every client can read back, and UTC where they bring no zone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.contract.support import OWNER, Box, ids, refuses
from tests.support.database import Database

FIRST = datetime(1, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
UNREADABLE = (
    "infinity",
    "-infinity",
    "0001-12-31 12:00+00 BC",
    "10000-01-01 00:00+00",
    "20000-01-01 00:00+00",
)
"""Times of PostgreSQL that neither Python nor T-SQL knows: a claim that answered one failed in the client."""


def own_time(box: Box) -> str:
    return "received_at" if box.kind == "inbox" else "created_at"


@pytest.mark.dialect("postgres")
def test_contract_times_that_no_client_can_read_are_refused_by_name(box: Box) -> None:
    for name in ("due_at", "expires_at", own_time(box)):
        for time in UNREADABLE:
            with refuses(f"^{name}: must be of the years 1 to 9999"):
                box.enqueue(**{name: time})
            with refuses(f"^{name}: must be of the years 1 to 9999"):
                box.enqueue_many(box.record(), box.record(**{name: time}))
    assert box.count() == 0
    waiting = box.put()
    for time in UNREADABLE:
        with refuses("^due_at: must be of the years 1 to 9999"):
            box.affected("reschedule", ids=[waiting], due_at=time)
    assert box.take() == [waiting]


@pytest.mark.dialect("postgres")
def test_contract_payloads_take_no_such_times_either(db: Database) -> None:
    for name in ("due_at", "expires_at"):
        for time in UNREADABLE:
            with refuses(f"^{name}: must be of the years 1 to 9999"):
                db.call("outbox_enqueue_payloads", topic="t", payloads=["p"], **{name: time})
    assert db.value("outbox_reap") == 0
    assert db.call("outbox_list", status="Ready") == []


def test_contract_the_first_and_the_last_time_there_is_come_back_as_they_went_in(box: Box) -> None:
    given = {"due_at": FIRST, "expires_at": LAST, own_time(box): FIRST}
    one = box.put(**given)
    (many,) = ids(box.enqueue_many(box.record(**given)))
    far = box.put(due_at=LAST)
    for row in box.claim():
        assert row["due_at"] == FIRST
        assert row["expires_at"] == LAST
    assert box.ack(OWNER, [one, many]) == 2
    assert box.get(far)["due_at"] == LAST
    assert box.one("next_due")["due_at"] == LAST


def test_contract_a_record_time_without_a_zone_is_utc_whatever_the_session_has(box: Box) -> None:
    with box.db.session() as session:
        if box.db.dialect == "postgres":
            session.sql("SET TimeZone = 'Asia/Kathmandu'")
            session.sql("SET DateStyle = 'SQL, DMY'")
        (message,) = ids(box.on(session).enqueue_many(box.record(due_at="2035-05-06T07:08:09.123456")))
        session.commit()
    assert box.get(message)["due_at"] == datetime(2035, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)


@pytest.mark.dialect("postgres")
def test_contract_a_record_time_is_not_read_by_the_sessions_date_style(box: Box) -> None:
    for style in ("SQL, MDY", "SQL, DMY", "German"):
        with box.db.session() as session:
            session.sql(f"SET DateStyle = '{style}'")
            with refuses("messages"):
                box.on(session).enqueue_many(box.record(due_at="05/06/2035 00:00:00Z"))


@pytest.mark.dialect("postgres")
def test_contract_durations_may_be_any_number(db: Database) -> None:
    """A driver that binds a float asks for a routine that takes one; psycopg and Npgsql do."""
    for kind in ("float8", "numeric", "integer"):
        for routine in ("outbox_cleanup", "inbox_cleanup_dead", "ledger_cleanup", "audit_cleanup"):
            (row,) = db.sql(f"SELECT * FROM {{schema}}.{routine}(1.5::{kind})")
            assert row == {"affected": 0}
        assert db.sql(f"SELECT * FROM {{schema}}.join_list(older_than_seconds => 1.5::{kind})") == []
    for routine in ("outbox_cleanup", "ledger_cleanup"):
        for number in ("NaN", "Infinity", "-Infinity", "-1"):
            with refuses("^retention_seconds: must be from 0 to 1000000000"):
                db.sql(f"SELECT * FROM {{schema}}.{routine}('{number}'::float8)")
