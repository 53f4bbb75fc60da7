"""The store of a key, of a customer, or of an id."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pysqlbox.deployment import Deployment
from pysqlbox.names import StoreKey

if TYPE_CHECKING:
    from pysqlbox.async_deployment import AsyncDeployment
    from pysqlbox.stores.stores import Stores

__all__ = ["Router"]


class Router:
    """Finds the deployment that a key belongs to."""

    def __init__(self, stores: Stores, *, by: Callable[[Any], StoreKey] | None = None) -> None:
        """``by`` turns what callers have into the key of a store: a HashRing, say, or a table's lookup."""
        self.stores = stores
        self._by = by

    def get(self, key: Any) -> Deployment:
        """The deployment of a key, the same one while its configuration is; NotFound if there is none."""
        return self.stores.get(key if self._by is None else self._by(key))

    async def get_async(self, key: Any) -> AsyncDeployment:
        """The same for asynchronous callers: a deployment whose methods are awaited."""
        return await self.stores.get_async(key if self._by is None else self._by(key))

    def of(self, value: int | UUID) -> Deployment:
        """The deployment whose place an id or a drawn message_id carries; NotFound if no store has it."""
        return self.stores.of(value)

    def __repr__(self) -> str:
        return f"Router({self.stores!r})"
