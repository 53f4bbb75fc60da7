"""Retries and reaps of the same messages at once, on every engine: each message goes one way only."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from pysqlbox.errors import DatabaseUnavailable
from tests.contract.joins import Joins
from tests.contract.support import OWNER, Box, check_books, is_babelfish
from tests.support.database import Database, Session

ROUNDS = 4
Step = Callable[[Box, list[int]], object]

RIVALS: dict[str, list[Step]] = {
    "a retry and a reap": [
        lambda box, held: box.retry(OWNER, held, delay_seconds=1),
        lambda box, _: box.reap(),
    ],
    "a settle sent twice": [
        lambda box, held: box.settle(OWNER, [{"ids": held, "result": "retry", "delay_seconds": 1}]),
        lambda box, held: box.settle(OWNER, [{"ids": held, "result": "retry", "delay_seconds": 1}]),
    ],
    "a last retry and another": [
        lambda box, held: box.retry(OWNER, held, max_attempts=1),
        lambda box, held: box.settle(OWNER, [{"ids": held[::-1], "result": "retry", "delay_seconds": 1}]),
    ],
}


@pytest.mark.parametrize("rivals", RIVALS)
@pytest.mark.parametrize("group", [None, "g"])
def test_an_attempt_is_counted_once(db: Database, rivals: str, group: str | None) -> None:
    box = Box("outbox", "outbox", db, db)
    joins = Joins(box)
    # A procedure's first call in a session takes Babelfish seconds.
    for _ in range(1 if is_babelfish(db) else ROUNDS):
        steps = [box.enqueue(group_id=group) for _ in range(6)]
        made = [int(step["id"]) for step in steps]
        join = joins.start(len(made))
        for step in steps:
            joins.attach(join, step["message_id"])
        assert sorted(box.take(lease=5, batch=100)) == made
        db.advance(10)
        _at_once(db, box, RIVALS[rivals], made)
        rows = [box.get(message) for message in made]
        assert [row["attempt"] for row in rows] == [1] * len(made)
        dead = [row["status"] for row in rows].count("Failed")
        assert joins.get(join)["failed_steps"] == dead
        assert {row["owner_token"] for row in rows} == {None}
        db.advance(10)
        waiting = [row["id"] for row in rows if row["status"] != "Failed"]
        assert sorted(box.take(batch=100)) == waiting
        assert box.ack(OWNER, waiting) == len(waiting)
        assert joins.get(join)["completed_steps"] + joins.get(join)["failed_steps"] == len(made)
    check_books(box)


def _at_once(db: Database, box: Box, steps: list[Step], held: list[int]) -> None:
    barrier = Barrier(len(steps))

    def run(step: Step) -> None:
        with db.session() as session:
            barrier.wait(60)
            _until_done(box.on(session), session, step, held)

    with ThreadPoolExecutor(len(steps)) as pool:
        for each in [pool.submit(run, step) for step in steps]:
            each.result(120)


def _until_done(box: Box, session: Session, step: Step, held: list[int]) -> None:
    """A call whose transaction was undone for the other's sake is made again, as the package does."""
    for _ in range(5):
        try:
            step(box, held)
        except DatabaseUnavailable:
            session.rollback()
        else:
            session.commit()
            return
    raise AssertionError("it was undone each time")
