"""The audit log: who changed what, written in the transaction of the change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pysqlbox.arguments import Delay, delay, given, integer
from pysqlbox.drivers import Values
from pysqlbox.logs import DeploymentLog
from pysqlbox.messages import AuditEntry

if TYPE_CHECKING:
    from pysqlbox.deployment import Deployment

__all__ = ["Audit"]

# Names for the annotations of a class that has a method called list.
_Rows = list[Values]
_Entries = list[AuditEntry]


class Audit:
    """The audit log of a deployment: the service writes it, and any program that operates may."""

    def __init__(self, db: Deployment) -> None:
        self.deployment = db
        self._log = DeploymentLog("pysqlbox.audit", db)

    def __repr__(self) -> str:
        return f"<pysqlbox.Audit of {self.deployment.target} schema={self.deployment.schema!r}>"

    def write(
        self,
        actor: str,
        action: str,
        *,
        subject: str | None = None,
        affected: int | None = None,
        detail: str | None = None,
        connection: Any = None,
    ) -> int:
        """Note a change; with the ``connection`` of the change both are there or neither. Answers the id."""
        optional = {"subject": subject, "affected": integer("affected", affected), "detail": detail}
        arguments = given({"actor": actor, "action": action}, optional)
        return int(self._call("write", arguments, connection)[0][0])

    def list(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        limit: int = 100,
        before_id: int | None = None,
        connection: Any = None,
    ) -> _Entries:
        """The latest changes first, from before ``before_id`` on; all, or those of an actor or an action."""
        optional = {"actor": actor, "action": action, "before_id": integer("before_id", before_id)}
        arguments = given({"limit": integer("limit", limit)}, optional)
        return [AuditEntry(*row) for row in self._call("list", arguments, connection, repeat=True)]

    def cleanup(self, retention_seconds: Delay, *, batch_size: int = 1000, connection: Any = None) -> int:
        """Forget changes noted longer ago than the retention, up to a batch; answers how many."""
        arguments: dict[str, object] = {
            "retention_seconds": delay("retention_seconds", retention_seconds),
            "batch_size": integer("batch_size", batch_size),
        }
        affected = int(self._call("cleanup", arguments, connection, repeat=True)[0][0])
        self._log.info("cleanup removed %s entries [%s]", affected, self.deployment.store)
        return affected

    def _call(
        self, step: str, arguments: dict[str, object], connection: Any, *, repeat: bool = False
    ) -> _Rows:
        return self.deployment.call(f"audit_{step}", arguments, connection=connection, repeat=repeat)
