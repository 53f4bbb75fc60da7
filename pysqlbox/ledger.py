"""The idempotency ledger: once per key, for consumers that get their messages from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from pysqlbox.arguments import Delay, delay, given, integer, uuid_of, whole_seconds
from pysqlbox.drivers import Values
from pysqlbox.logs import DeploymentLog
from pysqlbox.messages import LedgerClaim, LedgerEntry, LedgerKey

if TYPE_CHECKING:
    from pysqlbox.deployment import Deployment

__all__ = ["Ledger"]

# Names for the annotations of a class that has a method called list.
_Rows = list[Values]
_Keys = list[LedgerKey]


class Ledger:
    """The ledger of a deployment."""

    def __init__(self, db: Deployment) -> None:
        self.deployment = db
        self._log = DeploymentLog("pysqlbox.ledger", db)

    def __repr__(self) -> str:
        return f"<pysqlbox.Ledger of {self.deployment.target} schema={self.deployment.schema!r}>"

    def try_begin(
        self,
        key: str,
        *,
        owner: str | None = None,
        lease_seconds: Delay | None = None,
        handler: str | None = None,
        connection: Any = None,
    ) -> LedgerClaim:
        """Try to become the one who does what a key stands for; without ``lease_seconds`` for good."""
        optional = {
            "owner": owner,
            "lease_seconds": whole_seconds("lease_seconds", lease_seconds),
            "handler": handler,
        }
        claim = LedgerClaim(*self._call("try_begin", given({"key": key}, optional), connection)[0])
        self._log.debug(
            "key %r: %s, attempts %s [%s]", key, claim.status, claim.attempts, self.deployment.store
        )
        return claim

    def mark_processed(self, key: str, lease_id: UUID | None = None, *, connection: Any = None) -> int:
        """Note that a key is done; with a lease only if it is still the key's, without one whatever it is."""
        arguments = given({"key": key}, {"lease_id": uuid_of("lease_id", lease_id)})
        return int(self._call("mark_processed", arguments, connection, repeat=True)[0][0])

    def release(self, key: str, lease_id: UUID, *, connection: Any = None) -> int:
        """Let go of a key, so that another may begin it; 0 if the lease is not the key's any more."""
        arguments: dict[str, object] = {"key": key, "lease_id": uuid_of("lease_id", lease_id)}
        return int(self._call("release", arguments, connection, repeat=True)[0][0])

    def get(self, key: str, *, connection: Any = None) -> LedgerEntry:
        """What is known of a key; its status is Unknown if nothing is."""
        return LedgerEntry(*self._call("get", {"key": key}, connection, repeat=True)[0])

    def list(
        self,
        prefix: str | None = None,
        *,
        status: str | None = None,
        limit: int = 100,
        after: str | None = None,
        connection: Any = None,
    ) -> _Keys:
        """Keys, by key from behind ``after`` on; all, or those with a prefix, or in one status."""
        optional = {"prefix": prefix, "status": status, "after": after}
        arguments = given({"limit": integer("limit", limit)}, optional)
        return [LedgerKey(*row) for row in self._call("list", arguments, connection, repeat=True)]

    def cleanup(self, retention_seconds: Delay, *, batch_size: int = 1000, connection: Any = None) -> int:
        """Forget keys that were done or let go of longer ago than the retention, up to a batch."""
        arguments: dict[str, object] = {
            "retention_seconds": delay("retention_seconds", retention_seconds),
            "batch_size": integer("batch_size", batch_size),
        }
        affected = int(self._call("cleanup", arguments, connection, repeat=True)[0][0])
        self._log.info("cleanup removed %s keys [%s]", affected, self.deployment.store)
        return affected

    def _call(
        self, step: str, arguments: dict[str, object], connection: Any, *, repeat: bool = False
    ) -> _Rows:
        return self.deployment.call(f"ledger_{step}", arguments, connection=connection, repeat=repeat)
