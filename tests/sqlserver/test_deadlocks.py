"""Schedules in which routines that lock in opposite orders would be each other's deadlock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from tests.contract.support import OTHER, OWNER, Box
from tests.support.database import Database, Session

ROUNDS = 150
KEYS = 12


def _records(turn: int) -> list[dict[str, object]]:
    """The same keys in an order that changes from turn to turn."""
    keys = [(number * 5 + turn) % KEYS for number in range(KEYS)]
    return [{"topic": "t", "source": "s", "message_id": str(key), "payload": "p"} for key in keys]


def _side_by_side(db: Database, *steps: Callable[[Session, int], object]) -> None:
    """Runs every step ROUNDS times on a session of its own, all at once; any error fails the test."""
    start = threading.Barrier(len(steps))

    def run(step: Callable[[Session, int], object]) -> None:
        with db.session() as session:
            start.wait()
            for turn in range(ROUNDS):
                step(session, turn)
                session.commit()

    with ThreadPoolExecutor(len(steps)) as pool:
        for future in [pool.submit(run, step) for step in steps]:
            future.result()


def _box(db: Database, name: str, session: Session) -> Box:
    return Box(name, "inbox" if name == "inbox" else "outbox", db, session)


def test_settle_beside_inbox_batches(server: Database) -> None:
    """The one goes from done to message, the other must not come from message to done."""

    def settle(session: Session, turn: int) -> object:
        box = _box(server, "inbox", session)
        taken = box.take(OWNER, batch=KEYS)
        outcomes: list[dict[str, object]] = [
            {"id": message, "result": "ack" if turn % 2 else "release"} for message in reversed(taken)
        ]
        return box.settle(OWNER, outcomes, claim_batch=0)

    def send(session: Session, turn: int) -> object:
        return _box(server, "inbox", session).enqueue_many(*_records(turn))

    def settle_by_key(session: Session, turn: int) -> object:
        return session.call("inbox_mark_processed", message_id=str(turn % KEYS), source="s")

    _side_by_side(server, settle, send, send, settle_by_key)


def test_inbox_cleanup_beside_replacement(server: Database) -> None:
    """By key against by id: collapsing, sending again, cleaning up."""

    def collapse(session: Session, turn: int) -> object:
        return _box(server, "inbox", session).put(collapse_key=f"c{turn % 3}")

    def again(session: Session, turn: int) -> object:
        return _box(server, "inbox", session).enqueue_many(*_records(turn))

    def work(session: Session, _: int) -> object:
        box = _box(server, "inbox", session)
        return box.ack(OTHER, box.take(OTHER, batch=6))

    def cleanup(session: Session, _: int) -> object:
        return session.call("inbox_cleanup", retention_seconds=0, batch_size=50)

    _side_by_side(server, collapse, again, work, cleanup)


def test_ledger_begin_beside_cleanup(server: Database) -> None:
    """A key that is taken over while it is removed."""

    def begin(session: Session, turn: int) -> object:
        for number in range(4):
            key = f"k{(number * 3 + turn) % KEYS}"
            row = session.one("ledger_try_begin", key=key, owner="o", lease_seconds=1, handler=None)
            if row["status"] == "Acquired" and turn % 2:
                session.call("ledger_mark_processed", key=key, lease_id=row["lease_id"])
            session.commit()
        return None

    def cleanup(session: Session, _: int) -> object:
        return session.call("ledger_cleanup", retention_seconds=0, batch_size=50)

    _side_by_side(server, begin, begin, cleanup)


def test_dedup_batches_in_opposite_orders(server: Database) -> None:
    """Two producers with the same keys, each batch in another order."""

    def send(session: Session, turn: int) -> object:
        keys = [f"d{turn // 2}-{number}" for number in range(KEYS)]
        if threading.get_ident() % 2:
            keys.reverse()
        box = _box(server, "outbox", session)
        return box.enqueue_many(*({"topic": "t", "payload": "p", "dedup_key": key} for key in keys))

    _side_by_side(server, send, send, send)
    rows = server.sql("SELECT count(*) AS n, count(DISTINCT dedup_key) AS keys FROM {schema}.outbox_messages")
    assert rows[0]["n"] == rows[0]["keys"]


def test_the_control_sees_a_deadlock(server: Database) -> None:
    """Two sessions that take two keys in opposite orders by hand: the server must end one of them."""
    from pysqlbox.errors import DatabaseUnavailable

    table = f"planted_{uuid4().hex}"
    server.sql(f"CREATE TABLE {{schema}}.{table} (id int PRIMARY KEY, n int)")
    try:
        server.sql(f"INSERT INTO {{schema}}.{table} VALUES (1, 0), (2, 0)")
        met = threading.Barrier(2)

        def update(session: Session, order: tuple[int, int]) -> None:
            for step, key in enumerate(order):
                session.sql(f"UPDATE {{schema}}.{table} SET n = n + 1 WHERE id = %s", key)
                if step == 0:
                    met.wait()
            session.commit()

        with server.session() as one, server.session() as two, ThreadPoolExecutor(2) as pool:
            futures = [pool.submit(update, one, (1, 2)), pool.submit(update, two, (2, 1))]
            errors = [error for future in futures if (error := future.exception()) is not None]
        assert len(errors) == 1
        assert isinstance(errors[0], DatabaseUnavailable)
    finally:
        server.sql(f"DROP TABLE {{schema}}.{table}")


@pytest.mark.parametrize("name", ["outbox", "inbox"])
def test_groups_emptied_beside_producers(server: Database, name: str) -> None:
    """Claims and settlements of a group's members while others add to it."""

    def add(session: Session, turn: int) -> object:
        return _box(server, name, session).put(group_id=f"g{turn % 2}")

    def work(owner: object) -> Callable[[Session, int], object]:
        def step(session: Session, _: int) -> object:
            box = _box(server, name, session)
            return box.ack(owner, [int(row["id"]) for row in box.claim(owner, batch_size=3)])

        return step

    _side_by_side(server, add, add, work(OWNER), work(OTHER))
