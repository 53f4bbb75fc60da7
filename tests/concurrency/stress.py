"""Many connections that call every routine at once, with keys and groups so few that they keep meeting."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from pysqlbox.errors import InvalidState
from tests.contract.support import KINDS, Box, Row, ids, server_now
from tests.support.database import Database, Session

TOPICS = ("a", "b", "c")


@dataclass(slots=True)
class Held:
    """Who holds what by the workers' own account; two holders at once are an error."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    messages: dict[tuple[str, int], UUID] = field(default_factory=dict)

    def enter(self, box: Box, owner: UUID, rows: list[Row]) -> None:
        """Notes a claim."""
        with self.lock:
            for row in rows:
                other = self.messages.setdefault((box.name, row["id"]), owner)
                assert other == owner, f"{box.name} {row['id']} is held by two"

    def leave(self, box: Box, messages: list[int]) -> None:
        """Notes that messages are about to be settled."""
        with self.lock:
            for message in messages:
                self.messages.pop((box.name, message), None)


class Worker:
    """One connection and its random calls."""

    def __init__(self, db: Database, session: Session, number: int, held: Held, seed: int) -> None:
        """Draws an owner token of its own."""
        self._db = db
        self._session = session
        self._held = held
        self._random = random.Random(f"{seed}-{number}")
        self._owner = UUID(int=self._random.getrandbits(128) | 1)
        self._now = server_now(db)
        self.calls: Counter[str] = Counter()
        self._steps: list[tuple[int, Callable[[Box], None]]] = [
            (20, self._enqueue),
            (8, self._enqueue_many),
            (4, self._produce_slowly),
            (22, self._work),
            (8, self._work_and_settle),
            (3, self._take_and_forget),
            (3, self._take_and_roll_back),
            (4, self._reap),
            (4, self._look),
            (2, self._pause),
            (3, self._replay),
            (2, self._discard),
            (3, self._clean),
            (1, self._configure),
            (8, self._mark),
        ]

    def run(self, until: float) -> None:
        """Calls until the time is over."""
        weights = [weight for weight, _ in self._steps]
        while time.monotonic() < until:
            (_, step) = self._random.choices(self._steps, weights)[0]
            name = self._random.choice(("outbox", "inbox"))
            step(Box(name, KINDS[name], self._db, self._session))
            self._session.commit()
            self.calls[step.__name__] += 1

    def _some(self, values: object, chance: float) -> bool:
        return bool(values) and self._random.random() < chance

    def _record(self, box: Box) -> Row:
        pick = self._random
        record: Row = {"topic": pick.choice(TOPICS), "payload": "p"}
        if pick.random() < 0.4:
            record["group_id"] = f"g{pick.randrange(6)}"
        if pick.random() < 0.2:
            record["collapse_key"] = f"c{pick.randrange(5)}"
        if pick.random() < 0.15:
            record["priority"] = pick.choice((-5, 1, 5))
        if pick.random() < 0.2:
            seconds = pick.choice((-10, 0.05, 0.3, 1, 100))
            record["due_at"] = self._now + timedelta(seconds=time.monotonic() % 60 + seconds)
        if pick.random() < 0.1:
            record["expires_at"] = self._now + timedelta(seconds=pick.choice((1, 5, 1000)))
        if box.kind == "inbox":
            record |= {"source": f"s{pick.randrange(3)}", "message_id": f"m{pick.randrange(60)}"}
            if pick.random() < 0.3:
                record["message_id"] = f"u{pick.getrandbits(60)}"
        elif pick.random() < 0.2:
            record["dedup_key"] = f"d{pick.randrange(40)}"
        elif pick.random() < 0.1:
            record["message_id"] = UUID(int=pick.randrange(1, 60))
        return record

    def _enqueue(self, box: Box) -> None:
        row = box.one("enqueue", **self._record(box))
        assert row["id"] is not None

    def _enqueue_many(self, box: Box) -> None:
        rows = box.enqueue_many(*(self._record(box) for _ in range(self._random.randrange(1, 15))))
        assert all(row["id"] is not None for row in rows)

    def _produce_slowly(self, box: Box) -> None:
        box.enqueue_many(*(self._record(box) for _ in range(3)))
        time.sleep(self._random.random() * 0.05)
        if self._random.random() < 0.4:
            self._session.rollback()

    def _take(self, box: Box, lease: int = 600) -> list[int]:
        topics = self._random.sample(TOPICS, 2) if self._random.random() < 0.3 else None
        rows = box.claim(
            self._owner, lease_seconds=lease, batch_size=self._random.randrange(1, 12), topics=topics
        )
        self._session.commit()
        if lease > 60 and box.kind == "outbox":
            self._held.enter(box, self._owner, rows)
        taken = ids(rows)
        for group in {row["group_id"] for row in rows} - {None}:
            members = [row["id"] for row in rows if row["group_id"] == group]
            assert members == sorted(members), f"{group} is out of order"
        return taken

    def _work(self, box: Box) -> None:
        taken = self._take(box)
        if self._random.random() < 0.3:
            box.extend(self._owner, taken, 600)
            self._session.commit()
        self._random.shuffle(taken)
        while taken:
            cut = self._random.randrange(1, len(taken) + 1)
            part, taken = taken[:cut], taken[cut:]
            self._held.leave(box, part)
            pick = self._random.random()
            if pick < 0.6:
                box.ack(self._owner, part)
            elif pick < 0.8:
                box.abandon(self._owner, part, delay_seconds=self._random.choice((0.01, 0.2, None)))
            elif pick < 0.9:
                box.release(self._owner, part)
            else:
                box.fail(self._owner, part)
            self._session.commit()

    def _work_and_settle(self, box: Box) -> None:
        taken = self._take(box)
        for _ in range(3):
            outcomes = [
                {
                    "id": message,
                    "result": self._random.choice(("ack", "ack", "ack", "abandon", "release", "fail")),
                    "error": "broken",
                    "delay_seconds": 0.1,
                }
                for message in taken
            ]
            self._held.leave(box, taken)
            rows = box.settle(self._owner, outcomes, claim_batch=10, lease_seconds=600)
            self._session.commit()
            if box.kind == "outbox":
                self._held.enter(box, self._owner, rows)
            taken = ids(rows)
        self._held.leave(box, taken)
        box.ack(self._owner, taken)

    def _take_and_forget(self, box: Box) -> None:
        self._take(box, lease=1)

    def _take_and_roll_back(self, box: Box) -> None:
        box.claim(self._owner, batch_size=5)
        time.sleep(self._random.random() * 0.02)
        self._session.rollback()

    def _reap(self, box: Box) -> None:
        box.reap(self._random.choice((1, 10, 1000)))

    def _look(self, box: Box) -> None:
        box.stats()
        for row in box.call("dead_letters", limit=5):
            found = box.caller.sql(
                f"SELECT status FROM {{schema}}.{box.name}_messages WHERE id = %s", row["id"]
            )
            assert len(found) <= 1

    def _pause(self, box: Box) -> None:
        topic = self._random.choice((*TOPICS, None))
        box.call("pause", topic=topic)
        self._session.commit()
        time.sleep(0.02)
        box.call("resume", topic=topic)

    def _dead(self, box: Box) -> list[int]:
        rows = box.call("dead_letters", limit=50)
        self._session.commit()
        return self._random.sample(ids(rows), min(len(rows), 4))

    def _replay(self, box: Box) -> None:
        try:
            box.call("replay", ids=self._dead(box))
        except InvalidState:  # another has replayed one of them meanwhile
            self._session.rollback()

    def _discard(self, box: Box) -> None:
        box.call("discard", ids=self._dead(box)[:2])

    def _clean(self, box: Box) -> None:
        step = self._random.choice(("cleanup", "cleanup", "cleanup_dead"))
        retention = 0 if step == "cleanup" else 1
        box.call(step, retention_seconds=retention, batch_size=self._random.choice((1, 20, 500)))

    def _configure(self, box: Box) -> None:
        box.configure("max_attempts", self._random.choice(("0", "2", "10")))
        self._session.commit()
        box.configure("dedup_window_seconds", self._random.choice(("0", "1", "3600")))

    def _mark(self, box: Box) -> None:
        if box.kind == "outbox":
            return
        step = self._random.choice(
            ("already_processed", "mark_processing", "mark_processed", "mark_dead", "find")
        )
        box.call(step, source=f"s{self._random.randrange(3)}", message_id=f"m{self._random.randrange(60)}")


def run_stress(db: Database, seconds: float, connections: int = 16, seed: int = 1) -> Counter[str]:
    """Runs the workers; any error of any of them fails. Answers how often each step ran."""
    held = Held()
    errors: list[str] = []
    calls: Counter[str] = Counter()
    until = time.monotonic() + seconds

    def run(number: int) -> None:
        try:
            with db.session() as session:
                worker = Worker(db, session, number, held, seed)
                worker.run(until)
                calls.update(worker.calls)
        except BaseException:  # noqa: BLE001 - a thread must not die unheard; every error fails the test
            errors.append(traceback.format_exc())

    threads = [threading.Thread(target=run, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, f"{len(errors)} of {connections} failed; the first:\n{errors[0]}"
    return calls
