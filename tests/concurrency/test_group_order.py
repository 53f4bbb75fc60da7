"""The order of groups under traffic: open and rolled-back producers, retries, lost workers, reaps."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from tests.concurrency.accounting import check_accounts, done_in_order, drop_accounts, keep_accounts
from tests.concurrency.invariants import check, drain
from tests.contract.support import Box
from tests.support.database import Database

SECONDS = 2.5
PRODUCERS, WORKERS, GROUPS = 3, 5, 3


@pytest.fixture
def accounts(db: Database) -> Iterator[None]:
    """The ledger of what was done in which order."""
    drop_accounts(db, "outbox")
    keep_accounts(db, "outbox")
    yield
    drop_accounts(db, "outbox")


@pytest.mark.dialect("postgres")  # the ledger is kept by its triggers
@pytest.mark.usefixtures("accounts")
def test_groups_keep_their_order(db: Database) -> None:
    """Each group's messages are done exactly in the order in which its one producer committed them."""
    box = Box("outbox", "outbox", db, db)
    until = time.monotonic() + SECONDS
    committed: dict[str, list[int]] = defaultdict(list)

    def produce(number: int) -> None:
        pick = random.Random(number)
        with db.session() as session:
            while time.monotonic() < until:
                made = []
                for _ in range(pick.randrange(1, 4)):
                    group = f"g{number}-{pick.randrange(GROUPS)}"
                    made.append((group, box.on(session).put(group_id=group)))
                    time.sleep(pick.random() * 0.01)
                if pick.random() < 0.25:
                    session.rollback()
                    continue
                session.commit()
                for group, message in made:
                    committed[group].append(message)

    def work(number: int) -> None:
        pick = random.Random(100 + number)
        owner = UUID(int=number + 1)
        with db.session() as session:
            inside = box.on(session)
            while time.monotonic() < until:
                lease = 1 if pick.random() < 0.05 else 600
                rows = inside.claim(owner, batch_size=pick.randrange(1, 7), lease_seconds=lease)
                session.commit()
                if pick.random() < 0.1:
                    inside.reap()
                    session.commit()
                groups: dict[str, list[int]] = defaultdict(list)
                for row in rows:
                    groups[row["group_id"]].append(row["id"])
                for members in groups.values() if lease > 1 else ():
                    cut = pick.randrange(len(members) + 1)
                    for message in members[:cut]:
                        assert inside.ack(owner, [message]) == 1
                        session.commit()
                    if pick.random() < 0.5:
                        assert inside.release(owner, members[cut:]) == len(members) - cut
                    else:
                        inside.abandon(owner, members[cut:], delay_seconds=0.02)
                    session.commit()

    with ThreadPoolExecutor(PRODUCERS + WORKERS) as pool:
        calls: list[tuple[Callable[[int], None], int]] = [(produce, n) for n in range(PRODUCERS)]
        calls += [(work, n) for n in range(WORKERS)]
        for future in [pool.submit(call, number) for call, number in calls]:
            future.result(60)
    check(db, "outbox")
    drain(db, "outbox")
    check_accounts(db, "outbox")
    done: dict[str, list[int]] = defaultdict(list)
    for row in done_in_order(db, "outbox"):
        done[str(row["group_id"])].append(int(str(row["id"])))
    assert sum(map(len, done.values())) > 100
    assert done == committed
