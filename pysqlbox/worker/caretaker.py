"""Reaping and cleaning up, by one elected worker at a time; and schedules, by whoever comes first.

The election is a claim in the ledger that runs out by itself: whoever begins a round keeps the others from
beginning one until the next is due. It needs no connection that stays open, so it works through every pooler.
"""

from __future__ import annotations

import contextlib
import random
import time
import uuid
from dataclasses import dataclass

from pysqlbox.errors import AccessDenied, PysqlboxError, SchemaMismatch
from pysqlbox.wording import counted
from pysqlbox.worker.database import Caller
from pysqlbox.worker.logs import StoreLog
from pysqlbox.worker.scheduler import Scheduler
from pysqlbox.worker.timetable import Timetable

__all__ = ["Caretaker", "Chore", "first_at"]

BATCH = 1000
#: What somebody else has locked for longer is left for the next time, so that it holds up nothing else.
LOCK_SECONDS = 5.0
#: A worker that may sleep is looked after this often: whether it does, or was woken.
NAP_SECONDS = 0.25


@dataclass(slots=True)
class Chore:
    """Something to do every so often for one box."""

    name: str
    box: str
    every_seconds: float
    routine: str
    arguments: dict[str, object]
    next_at: float = 0.0
    by_all: bool = False
    """Every worker does it, at its start too; else one is elected, and goes on until nothing is left."""


def first_at(chore: Chore, now: float) -> float:
    """When a chore is done first: not by all workers at once that start together."""
    return now if chore.by_all else now + random.uniform(0.1, 0.5) * chore.every_seconds


class Caretaker:
    """Does the chores in a thread of its own, whenever it wins the round, and fires what is due meanwhile."""

    def __init__(
        self,
        scheduler: Scheduler,
        connection: Caller,
        owner: uuid.UUID,
        chores: list[Chore],
        timetables: list[Timetable],
        log: StoreLog,
        may_sleep: bool = False,
    ) -> None:
        self._scheduler = scheduler
        self._connection = connection
        self._owner = owner
        self._chores = chores
        self._timetables = timetables
        self._may_sleep = may_sleep
        self._log = log

    def run(self) -> None:
        """Until the worker stops."""
        now = time.monotonic()
        for chore in self._chores:
            chore.next_at = first_at(chore, now)
        try:
            while self._chores or self._timetables:
                if self._wait():
                    return
                self._look()
                first = min(self._chores, key=lambda chore: chore.next_at, default=None)
                if first is not None and first.next_at <= time.monotonic():
                    self._try(first)
        finally:
            self._leave()
            self._connection.close()

    def _leave(self) -> None:
        """Take the worker out of the register, where it is in there."""
        if any(chore.by_all for chore in self._chores):
            with contextlib.suppress(PysqlboxError):
                self._connection.call("worker_leave", {"owner_token": self._owner})

    def _wait(self) -> bool:
        """Wait until there is something to do; True at the end of the worker.

        While the worker sleeps there is nothing: it gets up for the schedules' sake as well.
        """
        times = [chore.next_at for chore in self._chores]
        next_at = min([*times, *(timetable.next_at for timetable in self._timetables)])
        while (wait := next_at - time.monotonic()) > 0 or self._scheduler.asleep:
            if self._scheduler.pause(NAP_SECONDS if self._may_sleep and not 0 < wait < NAP_SECONDS else wait):
                return True
        return False

    def _look(self) -> None:
        """Fire the schedules whose time has come."""
        for timetable in list(self._timetables):
            if timetable.next_at > time.monotonic():
                continue
            try:
                timetable.look(self._connection, self._scheduler)
            except (AccessDenied, SchemaMismatch) as error:
                self._log.info("%s: no schedules by this worker: %s", timetable.box, error)
                self._timetables.remove(timetable)
            except PysqlboxError as error:
                self._log.warning("%s: schedules failed: %s", timetable.box, error)

    def _try(self, chore: Chore) -> bool:
        """Do it, unless somebody else does; whether that went well."""
        chore.next_at = time.monotonic() + chore.every_seconds * random.uniform(0.9, 1.1)
        try:
            if chore.by_all:
                self._connection.call(chore.routine, chore.arguments)
            elif self._elected(chore):
                self._do(chore)
        except AccessDenied as error:
            self._log.info("%s: no %s by this worker: %s", chore.box, chore.name, error)
            self._chores.remove(chore)
        except PysqlboxError as error:
            self._log.warning("%s: %s failed: %s", chore.box, chore.name, error)
        else:
            return True
        return False

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
            self._look()
        if total:
            self._log.info("%s: %s, %s", chore.box, chore.name, counted(total, "message"))
