"""The outbox document's low-level store, for dispatchers of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from pysqlbox.arguments import Delay
from pysqlbox.messages import OutboxMessage
from pysqlbox.outbox import AsyncOutbox, Outbox, OutboxMethods
from pysqlbox.steps import Awaiting, Blocking, Described, Steps, routine

if TYPE_CHECKING:
    from pysqlbox.async_deployment import AsyncDeployment
    from pysqlbox.deployment import Deployment

__all__ = ["AsyncOutboxStore", "OutboxStore", "OutboxStoreMethods"]


class OutboxStoreMethods:
    """Takes due messages of an outbox one owner's way, and says what became of each."""

    def __init__(self, outbox: Outbox | AsyncOutbox, owner_token: UUID | None, lease_seconds: Delay) -> None:
        self.deployment = outbox.deployment
        self.owner_token = owner_token if owner_token is not None else uuid4()
        self.lease_seconds = lease_seconds
        self._outbox = outbox

    @routine
    def claim_due(self, limit: int = 50, *, connection: Any = None) -> Described[list[OutboxMessage]]:
        """Up to ``limit`` due messages, leased."""
        return OutboxMethods.claim.steps(
            self._outbox, self.owner_token,
            lease_seconds=self.lease_seconds, batch_size=limit, connection=connection,
        )  # fmt: skip

    @routine
    def mark_dispatched(self, id: int, *, connection: Any = None) -> Steps[bool]:
        """Make a message Done; false if it is not this store's any more."""
        return _is_one(OutboxMethods.ack.steps(self._outbox, self.owner_token, [id], connection=connection))

    @routine
    def reschedule(
        self, id: int, delay: Delay | None = None, last_error: str | None = None, *, connection: Any = None
    ) -> Steps[bool]:
        """Try a message again after a delay, or under backoff; false if it is not this store's any more."""
        return _is_one(
            OutboxMethods.abandon.steps(
                self._outbox, self.owner_token, [id],
                last_error=last_error, delay_seconds=delay, connection=connection,
            )
        )  # fmt: skip

    @routine
    def fail(self, id: int, last_error: str, *, connection: Any = None) -> Steps[bool]:
        """Give a message up; false if it is not this store's any more."""
        return _is_one(
            OutboxMethods.fail.steps(self._outbox, self.owner_token, [id], last_error, connection=connection)
        )


class OutboxStore(OutboxStoreMethods, Blocking):
    """Takes due messages of an outbox one owner's way, and says what became of each."""

    def __init__(
        self, db: Deployment | Outbox, owner_token: UUID | None = None, lease_seconds: Delay = 30
    ) -> None:
        """``db`` is a deployment, for its default outbox, or one outbox; without an owner it makes one."""
        super().__init__(db if isinstance(db, Outbox) else db.outbox, owner_token, lease_seconds)


class AsyncOutboxStore(OutboxStoreMethods, Awaiting):
    """The same for asynchronous callers."""

    def __init__(
        self, db: AsyncDeployment | AsyncOutbox, owner_token: UUID | None = None, lease_seconds: Delay = 30
    ) -> None:
        """``db`` is a deployment, for its default outbox, or one outbox; without an owner it makes one."""
        super().__init__(db if isinstance(db, AsyncOutbox) else db.outbox, owner_token, lease_seconds)


def _is_one(affected: Described[int]) -> Steps[bool]:
    """Whether a step has moved the one message that it was for."""
    count = yield from affected
    return count == 1
