"""What the worker says names the store, as everything else that the package logs."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from pysqlbox.logs import of_deployment

if TYPE_CHECKING:
    from pysqlbox.deployment import Deployment

__all__ = ["StoreLog", "log_of"]


class StoreLog(logging.LoggerAdapter[logging.Logger]):
    """The logger ``pysqlbox.worker`` with the store's name behind every line, and fields for machines."""

    def __init__(self, store: str, fields: dict[str, object]) -> None:
        super().__init__(logging.getLogger("pysqlbox.worker"), fields)
        #: What every record of this log is about.
        self.fields = fields
        self._suffix = f" [{store.replace('%', '%%')}]"

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """The line with its end, and its fields with those of the call."""
        kwargs["extra"] = {**self.fields, **(kwargs.get("extra") or {})}
        return f"{msg}{self._suffix}", kwargs


def log_of(db: Deployment, box: str | None = None) -> StoreLog:
    """The log of a worker of this deployment, or of one of its boxes."""
    return StoreLog(db.store, of_deployment(db, box))
