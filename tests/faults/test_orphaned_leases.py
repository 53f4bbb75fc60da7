"""A crashed worker's lease in a FIFO group comes back, whatever had happened to the group's row meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.concurrency.invariants import check, drain
from tests.concurrency.sessions import Background, sessions
from tests.contract.support import OTHER, OWNER, Box, server_now
from tests.support.database import Database

pytestmark = pytest.mark.dialect("postgres")

_KEY = 4711
_PAUSE = f"""
CREATE FUNCTION {{schema}}.pause_for_h() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared({_KEY});
    RETURN NEW;
END;
$$;
CREATE TRIGGER pause_for_h BEFORE INSERT ON {{schema}}.outbox_ready
    FOR EACH ROW WHEN (NEW.group_id = 'h') EXECUTE FUNCTION {{schema}}.pause_for_h();
"""


@pytest.fixture
def pausing(db: Database) -> Iterator[Database]:
    """Whoever puts out a ticket of the group h waits for a lock that the test holds."""
    db.sql(_PAUSE)
    yield db
    db.sql("DROP FUNCTION {schema}.pause_for_h() CASCADE")


def test_a_group_does_not_end_while_a_member_is_being_leased(pausing: Database) -> None:
    """A promotion looks at a group, another claim leases its only member, the promotion removes its row.

    The group's row is what a reap locks: without it the lease of a worker that crashed never comes back.
    """
    db = pausing
    box = Box("outbox", "outbox", db, db)
    with sessions(db, 3) as (holder, one, two):
        # Two producers found no row of g, so there are two tickets, one of them too many.
        made = [box.on(session).put(group_id="g") for session in (one, two)]
        one.commit()
        two.commit()
        for message in made:
            assert box.take(OWNER, batch=1) == [message]
            if message == made[0]:
                assert box.ack(OWNER, [message]) == 1
        # The ack sees that somebody is adding to g, so it leaves the row, and a look at it in 0.2 seconds.
        box.on(one).put(group_id="g")
        assert box.ack(OWNER, made[1:]) == 1
        one.rollback()
        box.put(group_id="h", due_at=server_now(db) + timedelta(seconds=0.1))
        db.advance(5)

        holder.sql(f"SELECT pg_advisory_xact_lock({_KEY})")
        two.sql("SET lock_timeout = 0")
        two.commit()
        # It has looked at g, which has neither a member nor a lease, and waits over h.
        promoting = Background(db, two, lambda session: box.on(session).take(OTHER, batch=1))
        assert promoting.is_blocked()
        last = box.put(group_id="g")
        assert box.take(OWNER, batch=1, lease=10) == [last]
        holder.commit()
        promoting.result()
        two.commit()

    db.advance(60)
    again = [*box.take(OTHER, batch=10), *box.take(OTHER, batch=10)]
    box.reap()
    again += box.take(OTHER, batch=10)
    assert last in again, "the lease of a crashed worker never comes back"
    check(db, "outbox")
    drain(db, "outbox")
