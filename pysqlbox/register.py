"""The register of workers: each says who it is, so that others see who works where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pysqlbox.arguments import Delay, delay, integer, text_list, uuid_of
from pysqlbox.steps import Awaiting, Blocking, Named, Steps, routine

if TYPE_CHECKING:
    from pysqlbox.async_deployment import AsyncDeployment
    from pysqlbox.deployment import Deployment
    from pysqlbox.deployment_base import DeploymentBase

__all__ = ["AsyncRegister", "Register", "RegisterMethods"]


class RegisterMethods(Named):
    """The register of a deployment: its workers write it; ``box.workers()`` shows it with what they hold."""

    def __init__(self, db: DeploymentBase) -> None:
        super().__init__(db, "worker")

    @routine
    def report(
        self,
        owner_token: UUID,
        boxes: Sequence[str],
        topics: Sequence[str] | None,
        name: str,
        host: str,
        pid: int,
        version: str,
        threads: int,
        *,
        connection: Any = None,
    ) -> Steps[None]:
        """Say who works here, at the start and then every so often; without topics it takes them all."""
        arguments: dict[str, object] = {
            "owner_token": uuid_of("owner_token", owner_token),
            "boxes": text_list("boxes", boxes),
            "topics": text_list("topics", topics),
            "name": name,
            "host": host,
            "pid": integer("pid", pid),
            "version": version,
            "threads": integer("threads", threads),
        }
        yield self._call("report", arguments, connection, repeat=True)

    @routine
    def leave(self, owner_token: UUID, *, connection: Any = None) -> Steps[int]:
        """Say that a worker ends; 0 if it was not known."""
        arguments: dict[str, object] = {"owner_token": uuid_of("owner_token", owner_token)}
        return (yield from self._affected("leave", arguments, connection))

    @routine
    def cleanup(
        self, retention_seconds: Delay, *, batch_size: int = 1000, connection: Any = None
    ) -> Steps[int]:
        """Forget workers that were not seen for so long, up to a batch; answers how many."""
        arguments: dict[str, object] = {
            "retention_seconds": delay("retention_seconds", retention_seconds),
            "batch_size": integer("batch_size", batch_size),
        }
        return (yield from self._affected("cleanup", arguments, connection))


class Register(RegisterMethods, Blocking):
    """The register of workers of a deployment."""

    deployment: Deployment


class AsyncRegister(RegisterMethods, Awaiting):
    """The same for asynchronous callers."""

    deployment: AsyncDeployment
