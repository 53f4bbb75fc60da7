"""Races over runs, the rows of PostgreSQL's tables that stand for many messages, played step by step."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

from tests.concurrency.invariants import check, drain
from tests.concurrency.scenarios_claims import outbox
from tests.concurrency.sessions import hasty, sessions
from tests.contract.joins import Joins
from tests.contract.support import OTHER, OWNER, Box, ids
from tests.support.database import Database

SIZE = 1000


def claims_share_runs_without_waiting(db: Database) -> None:
    """Claims in open transactions each get as many as they ask for; what is rolled back is there again."""
    box = outbox(db)
    made = box.fill(SIZE)
    with sessions(db, 4) as open_ones:
        taken = [box.on(hasty(session)).take(uuid4(), batch=50) for session in open_ones]
        assert [len(batch) for batch in taken] == [50] * 4
        assert len({message for batch in taken for message in batch}) == 200
        assert taken[0] == made[:50]
        for place, session in enumerate(open_ones):
            if place % 2:
                session.rollback()
            else:
                session.commit()
    check(db, "outbox")
    assert box.take(batch=SIZE) == sorted(set(made) - set(taken[0]) - set(taken[2]))
    check(db, "outbox")


def a_claim_takes_no_more_than_it_returns(db: Database) -> None:
    """Short rests of runs before long runs: what a claim looked at and did not take stays where it is."""
    box = outbox(db)
    made = box.fill(SIZE, topic="a") + box.fill(SIZE, topic="b")
    assert box.take(batch=974) == made[:974]
    with sessions(db, 1) as (session,):
        for open_or_not in (box.on(session), box):
            assert open_or_not.take(batch=10) == made[974:984]
            stats = open_or_not.stats()
            assert (stats["a"]["ready"], stats["b"]["ready"]) == (16, SIZE)
            session.rollback()
    check(db, "outbox")
    assert box.ack(OWNER, made[:984]) == 984
    assert drain(db, "outbox") == made[984:]


def a_run_is_put_back_to_its_own_place(db: Database) -> None:
    """The rest of a run that was claimed in part comes before what was enqueued after it, once."""
    box = outbox(db)
    made = box.fill(300)
    late = box.put()
    batches = [box.take(batch=size) for size in (2, 2, 2, 1, 294)]
    assert [len(batch) for batch in batches] == [2, 2, 2, 1, 294]
    assert [message for batch in batches for message in batch] == [*made, late]
    check(db, "outbox")


def a_step_in_a_run_is_held(db: Database) -> None:
    """While a message in the middle of a run is being attached, nobody is handed it; then it counts once."""
    box = outbox(db)
    rows = box.enqueue_many(*[box.record() for _ in range(SIZE)])
    joins = Joins(box)
    join = joins.start(1)
    step = rows[25]
    with sessions(db, 2) as (attaching, claiming):
        assert joins.on(attaching).attach(join, step["message_id"])
        taken = box.on(hasty(claiming)).take(OTHER, batch=500)
        assert len(taken) == 500
        assert step["id"] not in taken
        claiming.commit()
        attaching.commit()
    assert step["id"] in box.take(batch=SIZE)
    assert box.ack(OWNER, [step["id"]]) == 1
    assert joins.get(join)["completed_steps"] == 1
    check(db, "outbox")


def cleanups_of_one_run_do_not_wait(db: Database) -> None:
    """While a cleanup takes part of a run another one passes over all of it; the rest is there afterwards."""
    box = outbox(db)
    made = box.made_done(6)
    with sessions(db, 2) as (one, other):
        assert box.on(one).affected("cleanup", retention_seconds=0, batch_size=4) == 4
        assert box.on(hasty(other)).affected("cleanup", retention_seconds=0, batch_size=10) == 0
        one.commit()
        other.rollback()
    assert [box.status(message) for message in made[4:]] == ["Done", "Done"]
    assert box.stats()[None]["done"] == 2
    check(db, "outbox")
    assert box.affected("cleanup", retention_seconds=0, batch_size=10) == 2


def what_was_acknowledged_is_done_and_nothing_else(db: Database) -> None:
    """Gaps between ids acknowledged at once stay gaps."""
    box = outbox(db)
    made = box.fill(300)
    assert box.take(batch=300) == made
    assert box.ack(OWNER, made[10:20] + made[21:40] + made[100:101]) == 30
    check(db, "outbox")
    assert [box.status(made[place]) for place in (9, 10, 19, 20, 21, 39, 40, 99, 100, 101)] == [
        box.leased, "Done", "Done", box.leased, "Done", "Done", box.leased, box.leased, "Done", box.leased
    ]  # fmt: skip


def a_drawn_message_id_is_asked_for(db: Database) -> None:
    """A message_id that was drawn here is a duplicate when it is given, though no index has it."""
    box = outbox(db)
    drawn = box.enqueue()
    for keys in ({}, {"group_id": "g"}):
        again = box.enqueue(message_id=drawn["message_id"], **keys)
        assert (again["outcome"], again["id"]) == ("duplicate", drawn["id"])
    assert box.count() == 1


def many_share_runs(db: Database) -> None:
    """Producers of large batches, some rolled back, and workers of all batch sizes: each message once."""
    made: list[int] = []
    handled: Counter[int] = Counter()
    guard = threading.Lock()
    ended: list[int] = []

    def produce(seed: int) -> None:
        chance = random.Random(seed)
        with db.session() as session:
            mine = Box("outbox", "outbox", db, session)
            for _ in range(4):
                batch = mine.fill(chance.choice([260, 300, 1000]), topic=chance.choice("ab"))
                if chance.random() < 0.25:
                    session.rollback()
                else:
                    session.commit()
                    with guard:
                        made.extend(batch)
        with guard:
            ended.append(seed)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        owner = UUID(int=seed + 1)
        empty = 0
        with db.session() as session:
            mine = Box("outbox", "outbox", db, session)
            while empty < 20:
                topics = chance.choice([None, None, ["a"], ["b", "a"]])
                rows = mine.claim(owner, lease_seconds=600, batch_size=chance.randint(1, 90), topics=topics)
                held = ids(rows)
                if chance.random() < 0.1:
                    session.rollback()
                    continue
                if chance.random() < 0.5:
                    session.commit()
                chance.shuffle(held)
                cut = chance.randint(0, len(held))
                good = mine.ack(owner, held[:cut])
                assert good == cut
                assert mine.release(owner, held[cut:]) == len(held) - cut
                session.commit()
                with guard:
                    handled.update(held[:cut])
                if held:
                    empty = 0
                else:
                    empty += len(ended) == 3
                    threading.Event().wait(0.01)

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(produce, seed) for seed in range(3)]
        futures += [pool.submit(work, 100 + seed) for seed in range(5)]
        for future in futures:
            future.result(90)
    check(db, "outbox")
    handled.update(drain(db, "outbox"))
    assert sorted(handled) == sorted(made)
    assert set(handled.values()) == {1}


def _payloads(box: Box, count: int) -> list[int]:
    """Enqueues many that differ only in their payloads."""
    return ids(box.call("enqueue_payloads", topic="t", payloads=[f"p{n}" for n in range(count)]))


def a_batch_whose_ids_others_drew_from_between(db: Database) -> None:
    """Every message is found where its own id is, and nothing is where only the others' ids are."""
    box = outbox(db)
    made = []
    try:
        db.sql("ALTER SEQUENCE {schema}._outbox_ids INCREMENT BY 2")
        made += _payloads(box, 300) + box.fill(300)
        made += ids(box.enqueue_many(box.record(), box.record(dedup_key="d"), box.record(correlation_id="c")))
    finally:
        db.sql("ALTER SEQUENCE {schema}._outbox_ids INCREMENT BY 1")
    check(db, "outbox")
    assert drain(db, "outbox") == made


def many_send_runs_at_once(db: Database) -> None:
    """Producers whose ids fall between each other's: none is lost, and every batch keeps its order."""

    def produce(number: int) -> list[list[int]]:
        with db.session() as session:
            box = outbox(db).on(session)
            batches = []
            for turn in range(15):
                batches.append(_payloads(box, 700) if (turn + number) % 2 else box.fill(700))
                session.commit()
            return batches

    with ThreadPoolExecutor(4) as pool:
        batches = [batch for found in pool.map(produce, range(4)) for batch in found]
    check(db, "outbox")
    drained = drain(db, "outbox")
    assert sorted(drained) == sorted(message for batch in batches for message in batch)
    place = {message: number for number, message in enumerate(drained)}
    assert all(sorted(batch, key=place.__getitem__) == batch for batch in batches)


SCENARIOS: tuple[Callable[[Database], None], ...] = (
    claims_share_runs_without_waiting,
    a_claim_takes_no_more_than_it_returns,
    a_run_is_put_back_to_its_own_place,
    a_step_in_a_run_is_held,
    cleanups_of_one_run_do_not_wait,
    what_was_acknowledged_is_done_and_nothing_else,
    a_drawn_message_id_is_asked_for,
    many_share_runs,
    a_batch_whose_ids_others_drew_from_between,
    many_send_runs_at_once,
)
