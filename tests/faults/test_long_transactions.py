"""Transactions that stay open while the queue goes on, or are prepared, and end much later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from pysqlbox.drivers import Row
from tests.contract.support import ids, json_text
from tests.faults.figures import Figures
from tests.faults.load import BOXES, Load, key_of, move_marks
from tests.faults.servers import PATIENCE, SECONDS, Server
from tests.faults.verdict import conclude, database
from tests.support.database import Database, Session

SLOW = UUID("51515151-5151-4515-8515-515151515151")
MESSAGES = 5_000
"""So many others at most may be settled after the transaction's end before all its messages have come."""


@pytest.fixture
def silent(running: Server) -> Iterator[Database]:
    """The boxes without NOTIFY, which no prepared transaction may have sent."""
    with database(running) as db:
        for box in BOXES:
            db.call(f"{box}_configure", name="notify", value="off")
        db.close()  # the server is to be killed; the next call connects again
        yield db


def enqueue_all_ways(session: Session, name: str) -> set[str]:
    """Plain, grouped, with a priority, as runs and as a batch, with their orders; answers the keys."""
    made: set[str] = set()

    def order(box: str, *names: str) -> list[str]:
        keys = [f"{box}-{name}-{each}" for each in names]
        made.update(keys)
        session.sql("INSERT INTO public.orders (key, box) SELECT unnest(%s::text[]), %s", keys, box)
        return keys

    runs = order("outbox", *(f"run-{number}" for number in range(300)))
    session.call("outbox_enqueue_payloads", topic="t", payloads=runs)
    for box in BOXES:
        kinds: dict[str, dict[str, object]] = {
            "plain": {},
            "grouped": {"group_id": f"{name}-group"},
            "urgent": {"priority": 7},
            "late": {},
        }
        records = []
        for key, more in zip(order(box, *kinds), kinds.values(), strict=True):
            record = {"topic": "t", "payload": key} | more
            records.append(record | ({"source": "s", "message_id": key} if box == "inbox" else {}))
        session.call(f"{box}_enqueue", **records[0])
        session.call(f"{box}_enqueue_many", messages=json_text(records[1:]))
    return made


@pytest.mark.parametrize("how", ["open", "prepared", "prepared and the server killed"])
def test_an_enqueue_that_commits_much_later(
    running: Server, silent: Database, how: str, record: Callable[[Figures], None]
) -> None:
    """However far the others have come meanwhile, the messages come out once the transaction has ended."""
    with Load(running.url) as load, silent.session() as slow, silent.session() as never:
        load.hold(50)
        made, refused = enqueue_all_ways(slow, "slow"), enqueue_all_ways(never, "never")
        if how != "open":
            slow.sql("PREPARE TRANSACTION 'slow'")
            never.sql("PREPARE TRANSACTION 'never'")
        load.hold(200, SECONDS / 2)
        move_marks(running, load)
        if how == "prepared and the server killed":
            running.kill()
            running.start()
            load.hold(200, SECONDS / 2)
            move_marks(running, load)
        assert not load.account.seen & (made | refused)
        if how == "open":
            slow.commit()
            never.rollback()
        else:
            running.sql("ROLLBACK PREPARED 'never'")
            running.sql("COMMIT PREPARED 'slow'")
        load.account.sent(made)
        load.account.failed(refused, asked_to_commit=False)
        load.hand_out(made, MESSAGES)
    figures = Figures(f"enqueue commits late: {how}", running.known.id, faults=1)
    record(conclude(running, load, figures))


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_an_ack_in_a_prepared_transaction(
    running: Server, silent: Database, end: str, record: Callable[[Figures], None]
) -> None:
    """A prepared ack survives the server, holds up nobody else, and is all there or not at all."""
    with Load(running.url, workers=1) as load, silent.session() as slow:
        load.hold(50)
        deadline = time.monotonic() + PATIENCE
        taken: dict[str, list[int]] = {}
        for box in BOXES:
            rows: list[Row] = []
            while not rows:  # the load's worker may have been quicker
                rows = slow.call(f"{box}_claim", owner_token=SLOW, lease_seconds=3600, batch_size=20)
                slow.commit()
                assert time.monotonic() < deadline, "the load leaves nothing to claim"
            load.account.handed(SLOW, map(key_of, rows))
            taken[box] = ids(rows)
            slow.sql(
                "INSERT INTO public.effects (key, box, id, group_id)"
                " SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[])",
                [key_of(row) for row in rows],
                [box] * len(rows),
                ids(rows),
                [row["group_id"] for row in rows],
            )
            assert slow.value(f"{box}_ack", owner_token=SLOW, ids=ids(rows)) == len(rows)
            slow.sql(f"PREPARE TRANSACTION 'ack {box}'")
        assert all(taken.values())
        load.hold(100, SECONDS / 2)
        running.kill()
        running.start()
        load.hold(100, SECONDS / 2)
        for box in BOXES:
            running.sql(f"{end} PREPARED 'ack {box}'")
        load.hold(100)
    done = {box: len(silent.sql(_DONE.format(box), messages)) for box, messages in taken.items()}
    assert done == {box: len(messages) if end == "COMMIT" else 0 for box, messages in taken.items()}
    figures = Figures(f"ack prepared, server killed, {end}", running.known.id, faults=1)
    record(conclude(running, load, figures))


_DONE = "SELECT id FROM {{schema}}.{}_messages WHERE id = ANY (%s) AND processed_at IS NOT NULL"
