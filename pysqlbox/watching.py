"""The one place at which tracing looks in: nobody unless ``pysqlbox.otel.instrument()`` was called.

It imports nothing, and while nobody watches it costs the look at ``watcher``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from pysqlbox.worker.handlers import Handler
    from pysqlbox.worker.outcomes import Outcomes
    from pysqlbox.worker.served_box import ServedBox

__all__ = ["WatchedCall", "Watcher", "watcher"]


class WatchedCall(Protocol):
    """A call of a routine under way; left with an exception if it fails."""

    #: What to call it with: the same, perhaps with more headers.
    arguments: Mapping[str, object]

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def answered(self, rows: list[Any]) -> list[Any]:
        """Its answer, which is handed on."""


class Watcher(Protocol):
    """What is told of what happens."""

    def calling(self, db: Any, routine: str, arguments: Mapping[str, object]) -> WatchedCall:
        """A routine is about to be called by one of a deployment's methods."""

    def exchanged(
        self,
        box: ServedBox,
        outcomes: Outcomes,
        messages: Sequence[Any],
        seconds: float,
        error: BaseException | None,
    ) -> None:
        """A worker has settled, or claimed, or both in one call."""

    def handling(
        self, box: ServedBox, handler: Handler, messages: Sequence[Any], call: Callable[[], Any]
    ) -> Callable[[], Any]:
        """The same call of a handler, watched; what it answers may be awaitable."""

    def close(self) -> None:
        """It is not told anything any more."""

    def fired(self, box: ServedBox, schedule: Any, row: dict[str, Any], seconds: float) -> None:
        """A worker has sent a schedule's message."""


#: Who watches.
watcher: Watcher | None = None
