"""Works off what a load has left, and compares the clients' account with the database's own books."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.concurrency.invariants import FAR, check
from tests.faults.account import Account
from tests.faults.figures import Figures
from tests.faults.load import BOXES, Client, Load, Worker
from tests.faults.servers import Server
from tests.support.boxes import SCHEMA
from tests.support.database import Database

_ROUNDS = 5_000


@contextlib.contextmanager
def database(server: Server, name: str = "postgres") -> Iterator[Database]:
    """The schema that is deployed in a database of a server."""
    with contextlib.closing(Database("postgres", SCHEMA, server.database_url(name), server.known.id)) as db:
        yield db


def settle_the_rest(db: Database, account: Account) -> None:
    """Lets every lease and delay pass, then claims and acknowledges until nothing is left."""
    db.advance(FAR)
    account.forget_holders()
    client = Client(db.url)
    worker = Worker(client, account, seed=0)
    try:
        empty = 0
        for _ in range(_ROUNDS):
            if sum(worker.work(box, 500, all_done=True) for box in BOXES):
                empty = 0
                continue
            # A group that needed another look is looked at again after a fifth of a second.
            empty += 1
            if empty > 2:
                break
            db.advance(1)
    finally:
        client.drop()


def judge(
    db: Database, account: Account, figures: Figures, *, standby_had: set[str] | None = None
) -> Figures:
    """Fills in the figures, once nothing waits any more. Wants every table in order.

    standby_had: the messages that an asynchronous standby had when it was promoted; only those can be missed
    """
    for box in BOXES:
        check(db, box, drained=True)
    orders = {str(row["key"]) for row in db.sql("SELECT key FROM public.orders")}
    effects = db.sql("SELECT key, box, id, group_id FROM public.effects ORDER BY no")
    took_effect = [str(row["key"]) for row in effects]
    known = set(took_effect)

    missing = (account.confirmed - orders) | (orders - known) | (account.settled - known)
    if standby_had is not None:
        gone = account.confirmed - orders - standby_had
        missing -= gone
        figures.excused = len(gone)
    figures.sent = len(account.confirmed)
    figures.settled = len(known)
    figures.unanswered = account.unanswered
    figures.lost = sorted(missing)
    figures.doubled = sorted({*account.doubled, *_repeated(took_effect)})
    figures.phantoms = sorted((known - orders) | (account.refused & (orders | known)))
    figures.disordered = _out_of_order(
        [(f"{row['box']} {row['group_id']}", int(str(row["id"]))) for row in effects if row["group_id"]]
    )
    assert not account.torn, account.torn[:5]
    return figures


def conclude(
    server: Server,
    load: Load,
    figures: Figures,
    *,
    name: str = "postgres",
    standby_had: set[str] | None = None,
) -> Figures:
    """Works off what the load has left, and judges."""
    figures.seconds = load.seconds
    with database(server, name) as db:
        settle_the_rest(db, load.account)
        return judge(db, load.account, figures, standby_had=standby_had)


def _repeated(keys: list[str]) -> set[str]:
    seen: set[str] = set()
    return {key for key in keys if key in seen or seen.add(key)}  # type: ignore[func-returns-value]


def _out_of_order(steps: list[tuple[str, int]]) -> list[str]:
    last: dict[str, int] = {}
    found: list[str] = []
    for group, message in steps:
        if message < last.get(group, 0):
            found.append(f"{group}: {message} after {last[group]}")
        last[group] = message
    return found
