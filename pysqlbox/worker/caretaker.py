"""Reaping and cleaning up, by one elected worker at a time.

The election is a claim in the ledger that runs out by itself: whoever begins a round keeps the others from
beginning one until the next is due. It needs no connection that stays open, so it works through every pooler.
"""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import dataclass

from pysqlbox.errors import AccessDenied, PysqlboxError
from pysqlbox.worker.database import WorkerConnection
from pysqlbox.worker.scheduler import Scheduler

__all__ = ["Caretaker", "Chore"]

BATCH = 1000


@dataclass(slots=True)
class Chore:
    """Something to do every so often for one box."""

    name: str
    box: str
    every_seconds: float
    routine: str
    arguments: dict[str, object]
    next_at: float = 0.0


class Caretaker:
    """Does the chores in a thread of its own, whenever it wins the round."""

    def __init__(
        self, scheduler: Scheduler, connection: WorkerConnection, owner: uuid.UUID, chores: list[Chore]
    ) -> None:
        self._scheduler = scheduler
        self._connection = connection
        self._owner = owner
        self._chores = chores
        self._log = scheduler.boxes[0].log

    def run(self) -> None:
        """Until the worker stops."""
        now = time.monotonic()
        for chore in self._chores:
            chore.next_at = now + random.uniform(0.1, 0.5) * chore.every_seconds
        try:
            while self._chores:
                chore = min(self._chores, key=lambda chore: chore.next_at)
                if self._scheduler.pause(max(0.0, chore.next_at - time.monotonic())):
                    return
                chore.next_at = time.monotonic() + chore.every_seconds * random.uniform(0.9, 1.1)
                try:
                    if self._elected(chore):
                        self._do(chore)
                except AccessDenied as error:
                    self._log.info("%s: no %s by this worker: %s", chore.box, chore.name, error)
                    self._chores.remove(chore)
                except PysqlboxError as error:
                    self._log.warning("%s: %s failed: %s", chore.box, chore.name, error)
        finally:
            self._connection.close()

    def _elected(self, chore: Chore) -> bool:
        rows = self._connection.call(
            "ledger_try_begin",
            {
                "key": f"pysqlbox:{chore.name}:{chore.box}",
                "owner": str(self._owner),
                "lease_seconds": max(1, int(chore.every_seconds * 0.8)),
                "handler": "caretaker",
            },
        )
        return rows[0]["status"] == "Acquired"

    def _do(self, chore: Chore) -> None:
        total = 0
        while not self._scheduler.stopping:
            rows = self._connection.call(chore.routine, {**chore.arguments, "batch_size": BATCH})
            affected = int(str(rows[0]["affected"]))
            total += affected
            if affected < BATCH:
                break
            self._scheduler.pause(0.05)  # others come first
        if total:
            self._log.info("%s: %s, %d messages", chore.box, chore.name, total)
