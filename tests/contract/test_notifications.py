"""When an enqueue tells listeners: seldom while workers are busy, at once when one is about to wait."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from tests.contract.support import OWNER, Box
from tests.support.database import Database, Session

pytestmark = pytest.mark.dialect("postgres")

LATER = 7_000_000_000_000_000_000
"""Milliseconds that no clock comes to: until then an enqueue tells nobody."""


def said(session: Session) -> list[str]:
    """On which channels something has been said since the last time."""
    connection = session.connection
    assert isinstance(connection, psycopg.Connection)
    connection.execute("SELECT 1")  # what was sent by now comes along
    connection.commit()
    return [notify.channel for notify in connection.notifies(timeout=0)]


@pytest.mark.parametrize(
    ("waiting", "batch", "is_told"),
    [(0, 10, True), (1, 10, True), (1, 1, False), (2, 10, False), (2, 1, False)],
    ids=["nothing", "one", "one of one asked for", "several", "one of several"],
)
@pytest.mark.parametrize("how", ["claim", "settle"])
def test_who_is_about_to_wait_is_told_of_the_next_message(
    db: Database, box: Box, how: str, waiting: int, batch: int, is_told: bool
) -> None:
    """Also after one message: where they come one by one nobody has to look soon for another."""
    held = box.put()
    assert box.take() == [held]
    made = [box.put() for _ in range(waiting)]
    channel = f"{db.schema}.{box.name}"
    with db.session() as session:
        session.connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        session.commit()
        db.sql(f"SELECT setval('{{schema}}._{box.name}_notified', {LATER})")
        if how == "claim":
            rows = box.claim(batch_size=batch)
        else:
            rows = box.settle(OWNER, [{"id": held, "result": "ack"}], claim_batch=batch)
        assert [row["id"] for row in rows] == made[:batch]
        assert said(session) == []
        box.put()
        assert said(session) == [channel] * is_told
