"""The audit log: who changed what, written in the transaction of the change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pysqlbox.arguments import Delay, delay, given, integer
from pysqlbox.logs import DeploymentLog
from pysqlbox.messages import AuditEntry
from pysqlbox.steps import Awaiting, Blocking, Named, Steps, routine
from pysqlbox.wording import counted

if TYPE_CHECKING:
    from pysqlbox.async_deployment import AsyncDeployment
    from pysqlbox.deployment import Deployment
    from pysqlbox.deployment_base import DeploymentBase

__all__ = ["AsyncAudit", "Audit", "AuditMethods"]

# A name for the annotations of a class that has a method called list.
_Entries = list[AuditEntry]


class AuditMethods(Named):
    """The audit log of a deployment: the service writes it, and any program that operates may."""

    def __init__(self, db: DeploymentBase) -> None:
        super().__init__(db, "audit")
        self._log = DeploymentLog("pysqlbox.audit", db)

    @routine
    def write(
        self,
        actor: str,
        action: str,
        *,
        subject: str | None = None,
        affected: int | None = None,
        detail: str | None = None,
        connection: Any = None,
    ) -> Steps[int]:
        """Note a change; with the ``connection`` of the change both are there or neither. Answers the id."""
        optional = {"subject": subject, "affected": integer("affected", affected), "detail": detail}
        arguments = given({"actor": actor, "action": action}, optional)
        rows = yield self._call("write", arguments, connection)
        return int(rows[0][0])

    @routine
    def list(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        limit: int = 100,
        before_id: int | None = None,
        connection: Any = None,
    ) -> Steps[_Entries]:
        """The latest changes first, from before ``before_id`` on; all, or those of an actor or an action."""
        optional = {"actor": actor, "action": action, "before_id": integer("before_id", before_id)}
        arguments = given({"limit": integer("limit", limit)}, optional)
        rows = yield self._call("list", arguments, connection, repeat=True)
        return [AuditEntry(*row) for row in rows]

    @routine
    def cleanup(
        self, retention_seconds: Delay, *, batch_size: int = 1000, connection: Any = None
    ) -> Steps[int]:
        """Forget changes noted longer ago than the retention, up to a batch; answers how many."""
        arguments: dict[str, object] = {
            "retention_seconds": delay("retention_seconds", retention_seconds),
            "batch_size": integer("batch_size", batch_size),
        }
        affected = yield from self._affected("cleanup", arguments, connection)
        self._log.info(
            "cleanup removed %s [%s]", counted(affected, "entry", "entries"), self.deployment.store
        )
        return affected


class Audit(AuditMethods, Blocking):
    """The audit log of a deployment."""

    deployment: Deployment


class AsyncAudit(AuditMethods, Awaiting):
    """The same for asynchronous callers."""

    deployment: AsyncDeployment
