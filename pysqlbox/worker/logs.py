"""What the worker says names the store, as everything else that the package logs."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pysqlbox.deployment import Deployment

__all__ = ["StoreLog", "log_of"]


class StoreLog(logging.LoggerAdapter[logging.Logger]):
    """The logger ``pysqlbox.worker`` with the store's name behind every line."""

    def __init__(self, store: str) -> None:
        super().__init__(logging.getLogger("pysqlbox.worker"), {})
        self._suffix = f" [{store.replace('%', '%%')}]"

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """The line with its end."""
        return f"{msg}{self._suffix}", kwargs


def log_of(db: Deployment) -> StoreLog:
    """The log of a worker of this box."""
    return StoreLog(db.store)
