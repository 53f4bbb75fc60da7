"""The outbox document's low-level store, for dispatchers of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from pysqlbox.arguments import Delay
from pysqlbox.messages import OutboxMessage
from pysqlbox.outbox import Outbox

if TYPE_CHECKING:
    from pysqlbox.deployment import Deployment

__all__ = ["OutboxStore"]


class OutboxStore:
    """Takes due messages of an outbox one owner's way, and says what became of each."""

    def __init__(
        self, db: Deployment | Outbox, owner_token: UUID | None = None, lease_seconds: Delay = 30
    ) -> None:
        """``db`` is a deployment, for its default outbox, or one outbox; without an owner it makes one."""
        self._outbox: Outbox = db if isinstance(db, Outbox) else db.outbox
        self.owner_token = owner_token if owner_token is not None else uuid4()
        self.lease_seconds = lease_seconds

    def claim_due(self, limit: int = 50, *, connection: Any = None) -> list[OutboxMessage]:
        """Up to ``limit`` due messages, leased."""
        return self._outbox.claim(
            self.owner_token, lease_seconds=self.lease_seconds, batch_size=limit, connection=connection
        )

    def mark_dispatched(self, id: int, *, connection: Any = None) -> bool:
        """Make a message Done; false if it is not this store's any more."""
        return self._outbox.ack(self.owner_token, [id], connection=connection) == 1

    def reschedule(
        self, id: int, delay: Delay | None = None, last_error: str | None = None, *, connection: Any = None
    ) -> bool:
        """Try a message again after a delay, or under backoff; false if it is not this store's any more."""
        affected = self._outbox.abandon(
            self.owner_token, [id], last_error=last_error, delay_seconds=delay, connection=connection
        )
        return affected == 1

    def fail(self, id: int, last_error: str, *, connection: Any = None) -> bool:
        """Give a message up; false if it is not this store's any more."""
        return self._outbox.fail(self.owner_token, [id], last_error, connection=connection) == 1
