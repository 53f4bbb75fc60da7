"""Schedules: messages that are enqueued again and again, by a cron text or every so many seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pysqlbox.arguments import Delay, aware, given, integer, payload_text, whole_seconds
from pysqlbox.arguments import headers as header_dict
from pysqlbox.errors import InvalidArgument
from pysqlbox.logs import DeploymentLog
from pysqlbox.messages import Schedule, ScheduleClock, ScheduleFired
from pysqlbox.rules import rule_of
from pysqlbox.steps import Awaiting, Blocking, Named, Steps, routine

if TYPE_CHECKING:
    from pysqlbox.async_deployment import AsyncDeployment
    from pysqlbox.deployment import Deployment
    from pysqlbox.deployment_base import DeploymentBase

__all__ = ["AsyncSchedules", "ScheduleMethods", "Schedules", "SchedulingMethods"]

# Names for the annotations of a class that has a method called list.
_Schedules = list[Schedule]


class SchedulingMethods(Named):
    """The routines of an outbox's schedules, each as it is; ``Schedules`` also reads rules and zones."""

    @routine
    def schedule_set(
        self,
        name: str,
        topic: str,
        payload: Any,
        *,
        cron: str | None = None,
        every_seconds: Delay | None = None,
        timezone: str | None = None,
        next_at: datetime | None = None,
        catch_up: int | None = None,
        enabled: bool | None = None,
        group_id: str | None = None,
        priority: int | None = None,
        headers: Mapping[str, object] | str | None = None,
        connection: Any = None,
    ) -> Steps[Schedule]:
        """Set or replace a schedule without reading its rule; a cron text's first time is a worker's."""
        required: dict[str, object] = {
            "name": name,
            "topic": topic,
            "payload": payload_text("payload", payload, self.deployment.serializer),
        }
        optional = {
            "cron": cron,
            "every_seconds": whole_seconds("every_seconds", every_seconds),
            "timezone": timezone,
            "next_at": aware("next_at", next_at),
            "catch_up": integer("catch_up", catch_up),
            "enabled": enabled,
            "group_id": group_id,
            "priority": integer("priority", priority),
            "headers": header_dict(headers),
        }
        rows = yield self._call("schedule_set", given(required, optional), connection, repeat=True)
        return Schedule(*rows[0])

    @routine
    def schedule_remove(self, name: str, *, connection: Any = None) -> Steps[int]:
        """Remove a schedule; NotFound if there is none of that name."""
        rows = yield self._call("schedule_remove", {"name": name}, connection)
        return int(rows[0][0])

    @routine
    def schedule_list(self, *, connection: Any = None) -> Steps[list[Schedule]]:
        """Every schedule, by name."""
        rows = yield self._call("schedule_list", {}, connection, repeat=True)
        return [Schedule(*row) for row in rows]

    @routine
    def schedule_due(self, limit: int = 100, *, connection: Any = None) -> Steps[list[Schedule]]:
        """Schedules whose time has come, and first those whose next time is still to be worked out.

        In a caller's transaction they are the caller's until it ends: others are not shown them.
        """
        rows = yield self._call("schedule_due", {"limit": integer("limit", limit)}, connection, repeat=True)
        return [Schedule(*row) for row in rows]

    @routine
    def schedule_fire(
        self, name: str, due_at: datetime, next_at: datetime | None = None, *, connection: Any = None
    ) -> Steps[ScheduleFired]:
        """Enqueue a schedule's message and move it on, if it still stands at ``due_at``."""
        arguments = given(
            {"name": name, "due_at": aware("due_at", due_at)}, {"next_at": aware("next_at", next_at)}
        )
        rows = yield self._call("schedule_fire", arguments, connection)
        return ScheduleFired(*rows[0])

    @routine
    def schedule_skip(
        self,
        name: str,
        due_at: datetime | None,
        next_at: datetime,
        *,
        cron: str | None = None,
        timezone: str | None = None,
        connection: Any = None,
    ) -> Steps[int]:
        """Move a schedule on without a message, if it still stands at ``due_at``, or, with None, nowhere.

        With ``cron`` and ``timezone``, what ``next_at`` comes from, only if they are its rule still.
        """
        required: dict[str, object] = {
            "name": name,
            "due_at": aware("due_at", due_at),
            "next_at": aware("next_at", next_at),
        }
        arguments = given(required, {"cron": cron, "timezone": timezone})
        rows = yield self._call("schedule_skip", arguments, connection)
        return int(rows[0][0])

    @routine
    def schedule_next(self, *, connection: Any = None) -> Steps[ScheduleClock]:
        """The server's clock, whether a schedule wants attention, and when the next one will."""
        rows = yield self._call("schedule_next", {}, connection, repeat=True)
        return ScheduleClock(*rows[0])


class ScheduleMethods:
    """The schedules of a deployment's outboxes. A worker of the outbox fires them."""

    def __init__(self, db: DeploymentBase) -> None:
        self.deployment = db
        self._log = DeploymentLog("pysqlbox.schedules", db)

    def __repr__(self) -> str:
        return (
            f"<pysqlbox.{type(self).__name__} of {self.deployment.target} schema={self.deployment.schema!r}>"
        )

    @routine
    def set(
        self,
        name: str,
        topic: str,
        payload: Any,
        *,
        cron: str | None = None,
        every: Delay | None = None,
        timezone: str = "UTC",
        box: str = "outbox",
        next_at: datetime | None = None,
        catch_up: int = 1,
        enabled: bool = True,
        group_id: str | None = None,
        priority: int = 0,
        headers: Mapping[str, object] | str | None = None,
        connection: Any = None,
    ) -> Steps[Schedule]:
        """Enqueue a message again and again: at the times of a cron text, or ``every`` so many whole seconds.

        One of the same name is replaced; it keeps its next time if its rule is the same and no ``next_at``
        is given, so a program may set its schedules whenever it starts. ``catch_up`` is how many missed times
        are made up for.
        """
        rule = rule_of(cron, whole_seconds("every", every), timezone)
        outbox = yield from self._outbox(box)
        made = yield from SchedulingMethods.schedule_set.steps(
            outbox, name, topic, payload, cron=cron, every_seconds=every, timezone=timezone, next_at=next_at,
            catch_up=catch_up, enabled=enabled, group_id=group_id, priority=priority, headers=headers,
            connection=connection,
        )  # fmt: skip
        if made.next_at is None and made.enabled:
            # By the server's clock. Should this be the end, a worker does it.
            clock = yield from SchedulingMethods.schedule_next.steps(outbox, connection=connection)
            now = clock.now_at
            first = rule.after(now, now)
            if first is not None:
                # Of two who set it at once each has worked out a time for a rule of his own.
                moved = yield from SchedulingMethods.schedule_skip.steps(
                    outbox, name, None, first, cron=cron, timezone=timezone, connection=connection
                )
                if moved:
                    made = replace(made, next_at=first)
                else:
                    there = yield from SchedulingMethods.schedule_list.steps(outbox, connection=connection)
                    made = next((each for each in there if each.name == name), made)
        self._log.info("%s: schedule %r set, next at %s [%s]", box, name, made.next_at, self.deployment.store)
        return made

    @routine
    def list(self, *, box: str = "outbox", connection: Any = None) -> Steps[_Schedules]:
        """Every schedule of an outbox, by name."""
        outbox = yield from self._outbox(box)
        return (yield from SchedulingMethods.schedule_list.steps(outbox, connection=connection))

    @routine
    def remove(self, name: str, *, box: str = "outbox", connection: Any = None) -> Steps[None]:
        """Remove a schedule; NotFound if there is none of that name. What it has enqueued stays."""
        outbox = yield from self._outbox(box)
        yield from SchedulingMethods.schedule_remove.steps(outbox, name, connection=connection)
        self._log.info("%s: schedule %r removed [%s]", box, name, self.deployment.store)

    def _outbox(self, name: str) -> Steps[SchedulingMethods]:
        if (yield from self.deployment.kind_of(name)) != "outbox":
            raise InvalidArgument(f"box: {name!r} is an inbox, and must be an outbox to have schedules")
        return SchedulingMethods(self.deployment, name)


class Schedules(ScheduleMethods, Blocking):
    """The schedules of a deployment's outboxes. A worker of the outbox fires them."""

    deployment: Deployment


class AsyncSchedules(ScheduleMethods, Awaiting):
    """The same for asynchronous callers."""

    deployment: AsyncDeployment
