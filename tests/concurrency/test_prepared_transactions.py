"""Two-phase commit: what a prepared transaction enqueued is there once that is committed, not before."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from tests.support.database import Database

OWNER = uuid.UUID(int=5)
pytestmark = pytest.mark.dialect("postgres")


@pytest.fixture
def gid(db: Database) -> Iterator[str]:
    """How the names of a test's prepared transactions begin; what is left of them is rolled back."""
    allowed = db.sql("SELECT setting::integer AS n FROM pg_settings WHERE name = 'max_prepared_transactions'")
    if int(str(allowed[0]["n"])) < 100:
        pytest.skip("this server has max_prepared_transactions below 100")
    prefix = secrets.token_hex(6)
    yield prefix
    left = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND gid LIKE %s"
    for row in db.sql(left, f"{prefix}%"):
        db.sql(f"ROLLBACK PREPARED '{row['gid']}'")


def _claim_all(db: Database, box: str = "outbox") -> list[str]:
    """The payloads of everything claimable, acknowledged."""
    payloads: list[str] = []
    while rows := db.call(f"{box}_claim", owner_token=OWNER, lease_seconds=60, batch_size=40):
        payloads += [str(row["payload"]) for row in rows]
        db.call(f"{box}_ack", owner_token=OWNER, ids=[row["id"] for row in rows])
    return payloads


def test_notifications_stand_in_the_way_of_preparing(db: Database, gid: str) -> None:
    """The server's own rule, which docs/behaviour.md tells the way around."""
    assert _claim_all(db) == []  # after an empty claim the next enqueue notifies
    with db.session() as session:
        session.call("outbox_enqueue", topic="t", payload="p")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match=r"PREPARE .* NOTIFY"):
            session.connection.execute(f"PREPARE TRANSACTION '{gid}'")
    assert _claim_all(db) == []


@pytest.mark.parametrize("grouped", [False, True])
def test_without_notifications_every_transaction_can_be_prepared(
    db: Database, gid: str, grouped: bool
) -> None:
    """100 of 100, while others enqueue and claim; all are delivered, but for what is rolled back."""
    for box in ("outbox", "inbox"):
        db.call(f"{box}_configure", name="notify", value="off")
    plain: list[str] = []
    for number in range(100):
        with db.session() as session:
            group = f"g{number % 7}" if grouped else None
            session.call("outbox_enqueue", topic="t", payload=f"prepared {number}", group_id=group)
            session.call("inbox_enqueue", topic="t", source="s", message_id=str(number), payload=f"{number}")
            session.connection.execute(f"PREPARE TRANSACTION '{gid} {number}'")
        if number % 3 == 0:  # claims go on, and move their marks as far as they may
            db.call("outbox_enqueue", topic="t", payload=f"plain {number}")
            plain += _claim_all(db)
    assert plain == [f"plain {number}" for number in range(0, 100, 3)]
    assert _claim_all(db) == _claim_all(db, "inbox") == []
    for number in range(99, -1, -1):
        db.sql(f"{'ROLLBACK' if number % 10 == 5 else 'COMMIT'} PREPARED '{gid} {number}'")
    expected = [number for number in range(100) if number % 10 != 5]
    found = _claim_all(db)
    assert sorted(found) == sorted(f"prepared {number}" for number in expected)
    if grouped:
        for each in range(7):
            mine = [payload for payload in found if int(payload.split()[1]) % 7 == each]
            assert mine == [f"prepared {number}" for number in expected if number % 7 == each]
    assert sorted(_claim_all(db, "inbox"), key=int) == [str(number) for number in expected]
