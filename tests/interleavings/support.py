"""What directed schedules share: boxes, sessions that fail soon, and claims that come again and again."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from tests.contract.support import OTHER, OWNER, Box
from tests.support.database import Database, Session

__all__ = ["OTHER", "OWNER", "THIRD", "Box", "box_of", "delivered", "impatient", "works"]

THIRD = UUID("33333333-3333-4333-8333-333333333333")
PROBE = 0.25
"""Seconds after which a group that needed another look is looked at."""


def box_of(db: Database, name: str) -> Box:
    """One of the default boxes."""
    return Box(name, "inbox" if name == "inbox" else "outbox", db, db)


def impatient(session: Session, seconds: int = 3) -> Session:
    """The session, with statements that fail where they would run or wait for ever."""
    session.sql(f"SET statement_timeout = '{seconds}s'")
    session.sql("SET lock_timeout = '1s'")
    session.commit()
    return session


def delivered(
    box: Box, owner: UUID = OWNER, *, rounds: int = 6, batch: int = 10, topics: list[str] | None = None
) -> list[int]:
    """What some claims get, a little apart, so that what wants a second look has it; nothing is settled."""
    found: list[int] = []
    for _ in range(rounds):
        found += box.take(owner, batch=batch, topics=topics)
        box.db.advance(PROBE)
    return found


def works(box: Box, rounds: int, enough: Callable[[], bool]) -> int:
    """A busy box: messages come, are claimed, acknowledged; answers after how many rounds it was enough."""
    for turn in range(rounds):
        if enough():
            return turn
        box.put("busy")
        box.ack(THIRD, box.take(THIRD, batch=1, topics=None))
    assert enough(), f"{rounds} rounds of a busy box have not been enough"
    return rounds
