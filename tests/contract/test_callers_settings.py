"""Settings of the caller's session that T-SQL hands on to procedures, and which these do not follow."""

from __future__ import annotations

import pytest

from tests.contract.support import OWNER, Box

pytestmark = pytest.mark.dialect("mssql")


def test_a_callers_rowcount_cuts_no_batch_short(box: Box) -> None:
    """SET ROWCOUNT limits every statement, INSERT and DELETE too: half a batch would pass for all of it."""
    with box.db.session() as session:
        inside = box.on(session)
        session.sql("SET ROWCOUNT 1")
        records = [box.record(payload=f"p{number}") for number in range(3)]
        made = [int(row["id"]) for row in inside.enqueue_many(*records)]
        grouped = inside.put(group_id="g")
        assert inside.take() == [*made, grouped]
        assert inside.ack(OWNER, made[:2]) == 2
        assert inside.release(OWNER, [made[2], grouped]) == 2
        assert sorted(inside.take()) == [made[2], grouped]
        session.commit()
    assert [box.get(message)["status"] for message in made[:2]] == ["Done", "Done"]


def test_a_callers_rowcount_is_its_own_again_afterwards(box: Box) -> None:
    box.fill(2)
    with box.db.session() as session:
        session.sql("SET ROWCOUNT 1")
        assert len(box.on(session).take()) == 2
        assert len(session.sql("SELECT 1 AS n UNION ALL SELECT 2")) == 1
        session.sql("SET ROWCOUNT 0")
        session.commit()
