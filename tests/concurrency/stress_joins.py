"""Many workers on joins at once: every counter exact, every follow-up once, and no error."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from uuid import uuid4

from tests.concurrency.invariants import check
from tests.concurrency.scenarios_claims import outbox
from tests.contract.joins import WAIT, Joins, Step, joins_of
from tests.contract.support import OWNER, Row
from tests.support.database import Database, Session

STEPS = 200
JOINS = 5
CONNECTIONS = 8


def many_workers_end_many_steps(db: Database, rounds: int = 1) -> None:
    """Workers settle the steps of several joins in mixed batches while half of them are still being attached.

    Every counter is exact, every join is resolved, and each follow-up comes once.
    """
    joins = Joins(outbox(db))
    with ExitStack() as stack:
        open_ones = [stack.enter_context(db.session()) for _ in range(CONNECTIONS)]
        pool = stack.enter_context(ThreadPoolExecutor(CONNECTIONS))
        for turn in range(rounds):
            _Round(joins, turn).play(pool, open_ones)
    assert joins.box.take() == []
    check(db, "outbox")


class _Round:
    """One set of joins and steps, and the workers' common knowledge of what has ended."""

    def __init__(self, joins: Joins, turn: int) -> None:
        self._joins = joins
        self._random = random.Random(turn)
        self._ended: list[str] = []
        self._of: list[list[int]] = [
            self._random.sample(range(JOINS), self._random.choice((1, 1, 2, 3))) for _ in range(STEPS)
        ]
        self._fails = [self._random.random() < 0.2 for _ in range(STEPS)]
        self._started = [
            joins.start(sum(join in of for of in self._of), f"tenant {turn}") for join in range(JOINS)
        ]
        for join in self._started:
            more = {"on_complete_topic": "follow", "on_fail_topic": "follow"}
            joins.wait(join, **more, on_complete_payload=str(join), on_fail_payload=str(join))

    def play(self, pool: ThreadPoolExecutor, open_ones: Sequence[Session]) -> None:
        """Lets the workers end everything, and holds the counters against what was to come."""
        early, late = range(STEPS // 2), range(STEPS // 2, STEPS)
        with self._joins.box.db.session() as session:
            steps = self._enqueue(self._joins.on(session), early)
            self._attach(self._joins.on(session), steps, early)
            session.commit()
        steps = self._enqueue(self._joins, late)
        until = time.monotonic() + 60
        workers = [pool.submit(self._work, session, until) for session in open_ones]
        for step, number in zip(steps, late, strict=True):
            self._attach(self._joins, [step], [number])
        for worker in workers:
            worker.result()
        assert Counter(self._ended) == Counter(map(str, self._started)), "each follow-up once"
        for place, join in enumerate(self._started):
            expected = Counter(fails for fails, of in zip(self._fails, self._of, strict=True) if place in of)
            assert self._joins.counts(join) == (expected[False], expected[True])
            assert self._joins.get(join)["status"] == ("Failed" if expected[True] else "Completed")

    def _enqueue(self, joins: Joins, numbers: Sequence[int]) -> list[Step]:
        box = joins.box
        rows = box.enqueue_many(
            *[box.record("step", "bad" if self._fails[number] else "good") for number in numbers]
        )
        return [Step(row["id"], row["message_id"]) for row in rows]

    def _attach(self, joins: Joins, steps: Sequence[Step], numbers: Sequence[int]) -> None:
        for step, number in zip(steps, numbers, strict=True):
            for join in self._of[number]:
                assert joins.attach(self._started[join], step)

    def _work(self, session: Session, until: float) -> None:
        owner, chance = uuid4(), random.Random()
        joins = self._joins.on(session)
        rows: list[Row] = []
        while len(self._ended) < JOINS or rows:
            assert time.monotonic() < until, f"only {len(self._ended)} of {JOINS} joins have ended"
            batch = chance.choice((1, 3, 10, 25))
            if not rows:
                rows = joins.box.claim(owner, batch_size=batch)
                session.commit()
            if not rows:
                time.sleep(0.01)
                continue
            outcomes, ended = self._handle(joins, rows, chance)
            rows = []
            if chance.random() < 0.7:
                rows = joins.box.settle(owner, outcomes, claim_batch=batch)
            else:
                for result in ("ack", "fail", "release"):
                    some = [outcome["id"] for outcome in outcomes if outcome["result"] == result]
                    more = {"error": "it failed"} if result == "fail" else {}
                    affected = joins.box.affected(result, owner_token=owner, ids=some, **more)
                    assert affected == len(some)
            session.commit()
            self._ended += ended

    @staticmethod
    def _handle(joins: Joins, rows: list[Row], chance: random.Random) -> tuple[list[Row], list[str]]:
        outcomes: list[Row] = []
        ended: list[str] = []
        for row in rows:
            result = "ack"
            if row["topic"] == WAIT:
                (join,) = joins_of([row])
                assert joins.resolve(join)["status"] != "Pending", "woken too early"
            elif row["topic"] == "follow":
                ended.append(row["payload"])
            elif chance.random() < 0.1:
                result = "release"
            elif row["payload"] == "bad":
                result = "fail"
            outcomes.append({"id": row["id"], "result": result, "error": "it failed"})
        return outcomes, ended


def many_resolve_at_once(db: Database, connections: int = 16, rounds: int = 10) -> None:
    """Of any number of resolves at once exactly one enqueues, and all answer the same."""
    joins = Joins(outbox(db))
    started = [joins.start() for _ in range(rounds)]
    for join in started:
        joins.wait(join, on_complete_topic="good", on_complete_payload=str(join))
    joins.box.ack(OWNER, joins.held(1, *started))
    barrier = threading.Barrier(connections)

    def resolve() -> list[Row]:
        rows = []
        with db.session() as session:
            session.sql("SELECT 1 AS one")
            session.commit()
            for join in started:
                barrier.wait(60)
                rows.append(joins.on(session).resolve(join))
                session.commit()
        return rows

    with ThreadPoolExecutor(connections) as pool:
        answers = [worker.result() for worker in [pool.submit(resolve) for _ in range(connections)]]
    assert all(answer == answers[0] for answer in answers)
    messages = joins.box.claim(topics=["good"], batch_size=1000)
    assert sorted(row["payload"] for row in messages) == sorted(map(str, started))
    assert [row["enqueued_message_id"] for row in answers[0]] == [
        {row["payload"]: row["message_id"] for row in messages}[str(join)] for join in started
    ]
    check(db, "outbox")
