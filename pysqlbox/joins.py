"""Joins: messages that follow once all of several others are done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pysqlbox.arguments import Delay, delay, given, integer, payload_text, uuid_list, uuid_of
from pysqlbox.messages import Join, JoinResolution, WaitEnqueued
from pysqlbox.steps import Awaiting, Blocking, Named, Steps, routine

if TYPE_CHECKING:
    from pysqlbox.async_deployment import AsyncDeployment
    from pysqlbox.deployment import Deployment
    from pysqlbox.deployment_base import DeploymentBase

__all__ = ["AsyncJoins", "JoinMethods", "Joins"]


# A name for the annotations of a class that has a method called list.
_Joins = list[Join]


class JoinMethods(Named):
    """The joins of a deployment, whose steps are messages of its default outbox."""

    def __init__(self, db: DeploymentBase) -> None:
        super().__init__(db, "join")

    @routine
    def start(
        self,
        tenant_id: str | int,
        expected_steps: int | None = None,
        *,
        metadata: Any = None,
        connection: Any = None,
    ) -> Steps[UUID]:
        """Begin a join of so many steps, or an open one, which ``wait`` closes at those attached by then.

        Answers its id. Metadata other than text is serialized.
        """
        arguments = given(
            {
                "tenant_id": None if tenant_id is None else str(tenant_id),
            },
            {
                "expected_steps": integer("expected_steps", expected_steps),
                "metadata": payload_text("metadata", metadata, self.deployment.serializer),
            },
        )
        rows = yield self._call("start", arguments, connection)
        found: UUID = rows[0][0]
        return found

    @routine
    def attach(self, join_id: UUID, message_id: UUID, *, connection: Any = None) -> Steps[bool]:
        """Make a message of the outbox a step of a join; false if it was one already."""
        return self._step("attach", join_id, message_id, connection)

    @routine
    def attach_many(
        self, join_id: UUID, message_ids: Iterable[UUID], *, connection: Any = None
    ) -> Steps[int]:
        """Make messages of the outbox steps of a join, all or none; answers how many of them were not yet."""
        arguments: dict[str, object] = {
            "join_id": uuid_of("join_id", join_id),
            "message_ids": uuid_list("message_ids", message_ids),
        }
        rows = yield self._call("attach_many", arguments, connection, repeat=True)
        return int(rows[0][0])

    @routine
    def report_completed(self, join_id: UUID, message_id: UUID, *, connection: Any = None) -> Steps[bool]:
        """Count a step as completed; false if it was counted already."""
        return self._step("report_completed", join_id, message_id, connection)

    @routine
    def report_failed(self, join_id: UUID, message_id: UUID, *, connection: Any = None) -> Steps[bool]:
        """Count a step as failed; false if it was counted already."""
        return self._step("report_failed", join_id, message_id, connection)

    @routine
    def wait(
        self,
        join_id: UUID,
        *,
        fail_if_any_step_failed: bool = True,
        on_complete_topic: str | None = None,
        on_complete_payload: Any = None,
        on_fail_topic: str | None = None,
        on_fail_payload: Any = None,
        connection: Any = None,
    ) -> Steps[WaitEnqueued]:
        """Say what is to be enqueued when all steps are counted; the last of them brings it about."""
        serializer = self.deployment.serializer
        arguments = given(
            {"join_id": uuid_of("join_id", join_id), "fail_if_any_step_failed": fail_if_any_step_failed},
            {
                "on_complete_topic": on_complete_topic,
                "on_complete_payload": payload_text("on_complete_payload", on_complete_payload, serializer),
                "on_fail_topic": on_fail_topic,
                "on_fail_payload": payload_text("on_fail_payload", on_fail_payload, serializer),
            },
        )
        rows = yield self._call("wait", arguments, connection, repeat=True)
        return WaitEnqueued(*rows[0])

    @routine
    def resolve(self, join_id: UUID, *, connection: Any = None) -> Steps[JoinResolution]:
        """Finish a join whose steps are all counted; what its ``join.wait`` message is handled by."""
        rows = yield self._call("resolve", {"join_id": uuid_of("join_id", join_id)}, connection, repeat=True)
        return JoinResolution(*rows[0])

    @routine
    def get(self, join_id: UUID, *, connection: Any = None) -> Steps[Join]:
        """A join and its counters; NotFound if there is none."""
        rows = yield self._call("get", {"join_id": uuid_of("join_id", join_id)}, connection, repeat=True)
        return Join(*rows[0])

    @routine
    def list(
        self,
        tenant_id: str | int | None = None,
        *,
        status: str | None = None,
        limit: int = 100,
        after: UUID | None = None,
        older_than_seconds: Delay | None = None,
        connection: Any = None,
    ) -> Steps[_Joins]:
        """Joins, the oldest first, from behind ``after`` on."""
        optional = {
            "tenant_id": None if tenant_id is None else str(tenant_id),
            "status": status,
            "after": uuid_of("after", after),
            "older_than_seconds": delay("older_than_seconds", older_than_seconds),
        }
        rows = yield self._call(
            "list", given({"limit": integer("limit", limit)}, optional), connection, repeat=True
        )
        return [Join(*row) for row in rows]

    @routine
    def cancel(self, join_id: UUID, *, connection: Any = None) -> Steps[bool]:
        """Give a join up; false if it was finished already."""
        rows = yield self._call("cancel", {"join_id": uuid_of("join_id", join_id)}, connection, repeat=True)
        return bool(rows[0][0])

    def _step(self, step: str, join_id: UUID, message_id: UUID, connection: Any) -> Steps[bool]:
        arguments: dict[str, object] = {
            "join_id": uuid_of("join_id", join_id),
            "message_id": uuid_of("message_id", message_id),
        }
        rows = yield self._call(step, arguments, connection, repeat=True)
        return bool(rows[0][0])


class Joins(JoinMethods, Blocking):
    """The joins of a deployment."""

    deployment: Deployment


class AsyncJoins(JoinMethods, Awaiting):
    """The same for asynchronous callers."""

    deployment: AsyncDeployment
