"""The idempotency ledger: once per key, for consumers that get their messages from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from pysqlbox.arguments import Delay, delay, given, integer, uuid_of, whole_seconds
from pysqlbox.logs import DeploymentLog
from pysqlbox.messages import LedgerClaim, LedgerEntry, LedgerKey
from pysqlbox.steps import Awaiting, Blocking, Call, Named, Steps, routine
from pysqlbox.wording import counted

if TYPE_CHECKING:
    from pysqlbox.async_deployment import AsyncDeployment
    from pysqlbox.deployment import Deployment
    from pysqlbox.deployment_base import DeploymentBase

__all__ = ["AsyncLedger", "Ledger", "LedgerMethods"]

# A name for the annotations of a class that has a method called list.
_Keys = list[LedgerKey]


class LedgerMethods(Named):
    """The ledger of a deployment."""

    def __init__(self, db: DeploymentBase) -> None:
        super().__init__(db, "ledger")
        self._log = DeploymentLog("pysqlbox.ledger", db)

    @routine
    def try_begin(
        self,
        key: str,
        *,
        owner: str | None = None,
        lease_seconds: Delay | None = None,
        handler: str | None = None,
        connection: Any = None,
    ) -> Steps[LedgerClaim]:
        """Try to become the one who does what a key stands for; without ``lease_seconds`` for good."""
        optional = {
            "owner": owner,
            "lease_seconds": whole_seconds("lease_seconds", lease_seconds),
            "handler": handler,
        }
        rows = yield self._call("try_begin", given({"key": key}, optional), connection)
        claim = LedgerClaim(*rows[0])
        self._log.debug(
            "key %r: %s, attempts %s [%s]", key, claim.status, claim.attempts, self.deployment.store
        )
        return claim

    @routine
    def mark_processed(self, key: str, lease_id: UUID | None = None, *, connection: Any = None) -> Call[int]:
        """Note that a key is done; with a lease only if it is still the key's, without one whatever it is."""
        arguments = given({"key": key}, {"lease_id": uuid_of("lease_id", lease_id)})
        return self._affected("mark_processed", arguments, connection)

    @routine
    def release(self, key: str, lease_id: UUID, *, connection: Any = None) -> Call[int]:
        """Let go of a key, so that another may begin it; 0 if the lease is not the key's any more."""
        arguments: dict[str, object] = {"key": key, "lease_id": uuid_of("lease_id", lease_id)}
        return self._affected("release", arguments, connection)

    @routine
    def get(self, key: str, *, connection: Any = None) -> Steps[LedgerEntry]:
        """What is known of a key; its status is Unknown if nothing is."""
        rows = yield self._call("get", {"key": key}, connection, repeat=True)
        return LedgerEntry(*rows[0])

    @routine
    def is_processed(self, key: str, *, connection: Any = None) -> Steps[bool]:
        """Whether a key was handled; one that somebody is handling now was not yet."""
        rows = yield self._call("get", {"key": key}, connection, repeat=True)
        return LedgerEntry(*rows[0]).status == "Processed"

    @routine
    def list(
        self,
        prefix: str | None = None,
        *,
        status: str | None = None,
        limit: int = 100,
        after: str | None = None,
        connection: Any = None,
    ) -> Steps[_Keys]:
        """Keys, by key from behind ``after`` on; all, or those with a prefix, or in one status."""
        optional = {"prefix": prefix, "status": status, "after": after}
        arguments = given({"limit": integer("limit", limit)}, optional)
        rows = yield self._call("list", arguments, connection, repeat=True)
        return [LedgerKey(*row) for row in rows]

    @routine
    def cleanup(
        self, retention_seconds: Delay, *, batch_size: int = 1000, connection: Any = None
    ) -> Steps[int]:
        """Forget keys that were done or let go of longer ago than the retention, up to a batch."""
        arguments: dict[str, object] = {
            "retention_seconds": delay("retention_seconds", retention_seconds),
            "batch_size": integer("batch_size", batch_size),
        }
        affected = yield from self._affected("cleanup", arguments, connection)
        self._log.info("cleanup removed %s [%s]", counted(affected, "key"), self.deployment.store)
        return affected


class Ledger(LedgerMethods, Blocking):
    """The ledger of a deployment."""

    deployment: Deployment


class AsyncLedger(LedgerMethods, Awaiting):
    """The same for asynchronous callers."""

    deployment: AsyncDeployment
