"""Firing the schedules of an outbox: each planned time once, whichever worker comes first.

Every worker looks. The database decides: a planned time is fired by whoever moves the schedule on from it, in
the same transaction as the message. So there is nothing to elect, and who dies leaves nothing half done.
"""

from __future__ import annotations

import random
import time
from datetime import datetime
from typing import Any

from pysqlbox import watching
from pysqlbox.errors import DatabaseUnavailable, InvalidArgument, PysqlboxError
from pysqlbox.messages import Schedule, ScheduleClock
from pysqlbox.rules import due_times, rule_of
from pysqlbox.worker.database import Caller
from pysqlbox.worker.scheduler import Scheduler
from pysqlbox.worker.served_box import ServedBox

__all__ = ["Timetable"]

#: How many schedules are asked for at once, beside those that cannot be fired.
BATCH = 100
MOST = 10_000
#: A schedule that cannot be fired is told of this often.
COMPLAIN_SECONDS = 60.0
#: Workers do not all come at the same moment.
SCATTER_SECONDS = 0.05


class Timetable:
    """The schedules of one outbox, and when to look at them next. All times but that are the server's."""

    def __init__(self, served: ServedBox, look_seconds: float) -> None:
        """``look_seconds``: how long what somebody else sets may stay unnoticed."""
        self.box = served.name
        self.served = served
        self.next_at = time.monotonic() + random.uniform(0, SCATTER_SECONDS)
        self.look_seconds = look_seconds
        #: When it was last looked at, and when something is due, as far as was known then.
        self.looked_at = float("-inf")
        self.due_at = float("inf")
        self._log = served.log
        self._complained: dict[str, float] = {}

    def look(self, connection: Caller, scheduler: Scheduler) -> None:
        """Fire what is due, and find out when to look again."""
        self.looked_at, self.due_at = time.monotonic(), float("inf")
        self.put_off(self.looked_at)
        served: dict[str, datetime | None] = {}
        clock = self._clock(connection)
        while clock.is_due and not scheduler.stopping:
            limit = min(BATCH + len(served), MOST)
            rows = connection.call(f"{self.box}_schedule_due", {"limit": limit})
            due = [Schedule(**row) for row in rows]  # type: ignore[arg-type]  # a row's columns are its fields
            # One that still stands where it stood cannot be fired, or not here.
            due = [each for each in due if each.name not in served or served[each.name] != each.next_at]
            if not due:
                break
            for schedule in due:
                served[schedule.name] = schedule.next_at
                self._serve(connection, scheduler, schedule, clock.now_at)
            clock = self._clock(connection)
        if clock.next_at is not None:
            wait = (clock.next_at - clock.now_at).total_seconds() + random.uniform(0, SCATTER_SECONDS)
            self.due_at = time.monotonic() + wait
            self.next_at = min(self.next_at, self.due_at)

    def put_off(self, now: float) -> None:
        """Look again when the next look is due, or something is."""
        self.next_at = min(now + self.look_seconds * random.uniform(0.9, 1.1), self.due_at)

    def _serve(self, connection: Caller, scheduler: Scheduler, schedule: Schedule, now: datetime) -> None:
        """Fire one schedule; what is wrong with it must not cost the others."""
        if scheduler.stopping:
            return
        try:
            self._fire(connection, scheduler, schedule, now)
        except InvalidArgument as error:
            self._complain(schedule.name, "cannot be read here", error)
        except DatabaseUnavailable:
            raise
        except PysqlboxError as error:
            self._complain(schedule.name, "could not be fired", error)

    def _fire(self, connection: Caller, scheduler: Scheduler, schedule: Schedule, now: datetime) -> None:
        rule = rule_of(schedule.cron, schedule.every_seconds, schedule.timezone)
        planned = schedule.next_at
        if planned is None:
            self._skip(connection, schedule, rule.after(now, now))
            return
        due = due_times(rule, planned, max(planned, now), schedule.catch_up)
        first = due.times[0] if due.times else due.next_at
        if first != planned and not self._skip(connection, schedule, first):
            return
        for at, following in due.steps():
            if scheduler.stopping:
                return
            arguments = {"name": schedule.name, "due_at": at, "next_at": following}
            began = time.monotonic()
            (row,) = connection.call(f"{self.box}_schedule_fire", arguments)
            if not row["fired"]:
                return  # somebody else has moved it on, or it was changed: it shows again if it is due
            if watching.watcher is not None:
                watching.watcher.fired(self.served, schedule, row, time.monotonic() - began)
            if (counts := self.served.queue.deployment.counts) is not None:
                counts.sent(self.box, schedule.topic)
            self._log.info("%s: schedule %r fired message %s for %s", self.box, schedule.name, row["id"], at)

    def _skip(self, connection: Caller, schedule: Schedule, next_at: datetime | None) -> bool:
        """Move a schedule on without a message; whether it stood where it was seen."""
        if next_at is None:
            raise InvalidArgument("cron: must mean a time to come")
        arguments: dict[str, Any] = {"name": schedule.name, "due_at": schedule.next_at, "next_at": next_at}
        if schedule.cron is not None:  # it may have got another one since it was read
            arguments |= {"cron": schedule.cron, "timezone": schedule.timezone}
        (row,) = connection.call(f"{self.box}_schedule_skip", arguments)
        if row["affected"] and schedule.next_at is not None:
            self._log.info(
                "%s: schedule %r has missed times since %s", self.box, schedule.name, schedule.next_at
            )
        return bool(row["affected"])

    def _clock(self, connection: Caller) -> ScheduleClock:
        (row,) = connection.call(f"{self.box}_schedule_next", {})
        return ScheduleClock(**row)  # type: ignore[arg-type]  # a row's columns are its fields

    def _complain(self, name: str, what: str, error: PysqlboxError) -> None:
        now = time.monotonic()
        self._complained = {each: at for each, at in self._complained.items() if now - at < COMPLAIN_SECONDS}
        if name not in self._complained:
            self._complained[name] = now
            self._log.warning("%s: schedule %r %s: %s", self.box, name, what, error)
