"""One worker for many stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, cast

from pysqlbox.errors import InvalidArgument
from pysqlbox.stores.run import StoresRun
from pysqlbox.stores.strategies import RoundRobin, Strategy
from pysqlbox.wording import counted
from pysqlbox.worker.handlers import seconds
from pysqlbox.worker.health import WorkerHealth
from pysqlbox.worker.logs import StoreLog
from pysqlbox.worker.results import Delay
from pysqlbox.worker.settings import WorkerOptions, whole
from pysqlbox.worker.worker import Worker
from pysqlbox.worker.worker_run import WorkerRun

if TYPE_CHECKING:
    from pysqlbox.stores.stores import Stores

__all__ = ["StoresWorker"]


class StoresWorker(Worker):
    """Serves the boxes of every store there is, of those that come later too.

    Handlers, middleware and hooks are those of any worker; ``context.store`` is the key of a message's store.
    """

    def __init__(
        self,
        stores: Stores,
        *,
        strategy: Strategy | None = None,
        connections: int = 20,
        sweep_seconds: Delay = 10.0,
        **options: Unpack[WorkerOptions],
    ) -> None:
        """``strategy``: who is asked next, RoundRobin() unless given. ``connections``: at most so many to
        each server, however many databases it has. ``sweep_seconds``: how long a store without any sign of
        work may go unasked. The other options are those of any worker.
        """
        sweep = seconds("sweep_seconds", sweep_seconds)
        if sweep is None:
            raise InvalidArgument("sweep_seconds: must be above 0")
        chosen = RoundRobin() if strategy is None else strategy
        if not callable(getattr(chosen, "choose", None)) or not callable(getattr(chosen, "answered", None)):
            raise InvalidArgument("strategy: must have choose(waiting, going) and answered(key, claimed)")
        if options.get("idle", "poll") != "poll":
            raise InvalidArgument(
                "idle: must be 'poll' for a worker of many stores, which waits for signs of work"
            )
        super().__init__(cast(Any, None), **options)  # there is not one deployment
        self.stores = stores
        self.strategy = chosen
        self.connections = whole("connections", connections, 1, 10_000)
        self.sweep_seconds = sweep

    def health(self) -> WorkerHealth:
        """How it is doing, by store and box; nothing while it does not run."""
        return super().health() if self.is_running else WorkerHealth(running=False, boxes=())

    def _make_run(self, *arguments: Any, **options: Any) -> WorkerRun:
        return StoresRun(
            self.stores, self.strategy, self.connections, self.sweep_seconds, *arguments, **options
        )

    def _make_log(self) -> StoreLog:
        return StoreLog("stores", {})

    def __repr__(self) -> str:
        boxes = ", ".join(self._settings.boxes)
        return f"StoresWorker({boxes} of {self.stores!r}, {counted(self.threads, 'thread')})"
