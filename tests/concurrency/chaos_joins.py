"""Every routine of joins on every connection at once, mixed with whatever happens to their steps."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from uuid import UUID, uuid4

from pysqlbox.errors import InvalidState, NotFound
from tests.concurrency.scenarios_claims import outbox
from tests.contract.joins import WAIT, Joins, Step, joins_of
from tests.contract.support import Row, ids
from tests.support.database import Database, Session


class Known:
    """The joins and messages that the workers know of, for others to meddle with."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.joins: list[UUID] = []
        self.steps: list[Step] = []


class Worker:
    """One connection that does one thing after another."""

    def __init__(self, session: Session, db: Database, known: Known, seed: int) -> None:
        """Sequence of steps by the seed; the interleaving is the machine's."""
        self._session = session
        self._joins = Joins(outbox(db)).on(session)
        self._known = known
        self._random = random.Random(seed)
        self._owner = uuid4()
        self._held: list[Row] = []
        self.calls: Counter[str] = Counter()

    def run(self, until: float) -> None:
        """Works until the time is up."""
        acts: list[tuple[int, Callable[[], object]]] = [
            (6, self._begin),
            (8, self._attach),
            (4, self._report),
            (30, self._settle),
            (6, self._end),
            (3, self._resolve),
            (1, self._cancel),
            (2, self._wait),
            (2, self._replay),
            (1, self._discard),
            (2, self._clean),
            (1, self._reap),
            (2, self._look),
        ]
        while time.monotonic() < until:
            (act,) = self._random.choices([act for _, act in acts], [weight for weight, _ in acts])
            name = act.__name__.strip("_")
            held = self._held
            try:
                act()
            except (InvalidState, NotFound):
                # Somebody else has ended, removed or replayed it first.
                name += " refused"
                self._session.rollback()
                self._held = held
            if self._random.random() < 0.1:
                self._session.rollback()
                self._held = held
            else:
                self._session.commit()
            self.calls[name] += 1

    def _join(self) -> UUID:
        return self._random.choice(self._known.joins[-12:]) if self._known.joins else uuid4()

    def _step(self) -> Step:
        return self._random.choice(self._known.steps[-60:]) if self._known.steps else Step(0, uuid4())

    def _begin(self) -> None:
        count = self._random.choice((1, 2, 5, 20))
        join = self._joins.start(count)
        if self._random.random() < 0.8:
            flag = self._random.random() < 0.5
            self._joins.wait(join, fail_if_any_step_failed=flag, on_complete_topic="follow")
        for _ in range(count - self._random.choice((0, 0, 1))):
            step = self._joins.put(
                group_id=self._random.choice((None, None, "g", "h")),
                collapse_key=self._random.choice((None,) * 9 + ("c",)),
            )
            self._joins.attach(join, step)
            self._known.steps.append(step)
        self._known.joins.append(join)

    def _attach(self) -> None:
        self._joins.attach(self._join(), self._step())

    def _report(self) -> None:
        join = self._join()
        members = self._joins.members(join)
        if members:
            member = self._random.choice(members)
            report = self._random.choice((self._joins.completed, self._joins.failed))
            report(join, member["message_id"])

    def _settle(self) -> None:
        outcomes: list[Row] = []
        for row in self._held:
            result = self._random.choice(("ack", "ack", "ack", "fail", "release", "abandon"))
            if row["topic"] == WAIT:
                self._joins.resolve(joins_of([row])[0])
                result = "ack"
            delay = {"delay_seconds": 0.01} if result == "abandon" else {}
            outcomes.append({"id": row["id"], "result": result, "error": "e"} | delay)
        self._held = self._joins.box.settle(
            self._owner, outcomes, claim_batch=self._random.choice((0, 1, 5, 30)), lease_seconds=1
        )

    def _end(self) -> None:
        held, self._held = ids(self._held), []
        self._random.choice((self._joins.box.ack, self._joins.box.fail))(self._owner, held)

    def _resolve(self) -> None:
        self._joins.resolve(self._join())

    def _cancel(self) -> None:
        self._joins.cancel(self._join())

    def _wait(self) -> None:
        self._joins.wait(self._join(), on_fail_topic="follow")

    def _dead(self) -> list[int]:
        rows = self._joins.box.call("dead_letters", limit=40)
        return self._random.sample(ids(rows), min(len(rows), 3))

    def _replay(self) -> None:
        self._joins.box.affected("replay", ids=self._dead())

    def _discard(self) -> None:
        self._joins.box.affected("discard", ids=self._dead()[:1])

    def _clean(self) -> None:
        step = self._random.choice(("cleanup", "cleanup_dead"))
        self._joins.box.affected(step, retention_seconds=self._random.choice((0, 1, 2)), batch_size=20)

    def _reap(self) -> None:
        self._joins.box.reap(50)

    def _look(self) -> None:
        joins = self._joins.listed(status=self._random.choice((None, "Pending")), limit=5)
        for join in joins[:1]:
            self._joins.get(join)


def run_chaos(db: Database, seconds: float, connections: int = 12) -> Counter[str]:
    """Runs the workers; any error but a refusal fails. Answers how often each step ran."""
    known = Known()
    errors: list[str] = []
    calls: Counter[str] = Counter()
    until = time.monotonic() + seconds

    def run(seed: int) -> None:
        try:
            with db.session() as session:
                worker = Worker(session, db, known, seed)
                worker.run(until)
                calls.update(worker.calls)
        except BaseException:  # noqa: BLE001 - a thread must not die unheard; every error fails the test
            errors.append(traceback.format_exc())

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, f"{len(errors)} of {connections} failed; the first:\n{errors[0]}"
    return calls
