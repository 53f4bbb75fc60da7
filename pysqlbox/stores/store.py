"""One store: a deployment under a key, from when it is first found until nobody needs it any more."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pysqlbox.deployment import Deployment, connect
from pysqlbox.drivers import Target
from pysqlbox.errors import InvalidArgument, PysqlboxError
from pysqlbox.locate import locate
from pysqlbox.names import StoreKey
from pysqlbox.retry import Retries
from pysqlbox.serializer import Serializer

if TYPE_CHECKING:
    from pysqlbox.async_deployment import AsyncDeployment

__all__ = ["ConnectOptions", "Given", "Store", "open_store", "signature"]

#: What a mapping may hold for a key.
Given = str | Target | Deployment


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """How stores that are given by URL are connected."""

    schema: str = "infra"
    pool_size: int = 4
    pool_timeout: float = 30.0
    connect_timeout: int = 10
    retries: Retries | None = None
    serializer: Serializer | None = None


@dataclass(eq=False, slots=True)
class Store:
    """A key, what was given for it, and the deployment or the error that came of it."""

    key: StoreKey
    signature: object
    deployment: Deployment | None
    #: Why there is no deployment.
    error: PysqlboxError | None = None
    #: Whether the deployment was made here, and so is closed here.
    is_own: bool = False
    retired: bool = False
    #: Of connections that the asynchronous deployment may have.
    pool_size: int = 4
    _awaited: AsyncDeployment | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _users: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def name(self) -> str:
        """The key as text."""
        return str(self.key)

    def opened(self) -> Deployment:
        """The deployment, or the error that is in its place."""
        if self.deployment is None:
            assert self.error is not None
            raise type(self.error)(*self.error.args).concerns(self.key) from self.error
        return self.deployment

    def opened_async(self) -> AsyncDeployment:
        """The same for the tasks of the running event loop."""
        db = self.opened()
        with self._lock:
            self._loop = asyncio.get_running_loop()
            if self._awaited is None:
                from pysqlbox.async_deployment import AsyncDeployment

                self._awaited = AsyncDeployment(
                    db.target,
                    schema=db.schema,
                    pool_size=self.pool_size,
                    retries=db.retries,
                    serializer=db.serializer,
                    store=db.store,
                )
                self._awaited.store_key = self.key
            return self._awaited

    async def close_async(self) -> None:
        """Close what the tasks of this loop have used."""
        with self._lock:
            awaited, self._awaited = self._awaited, None
        if awaited is not None:
            await awaited.close()

    def hold(self) -> bool:
        """Keep the deployment open until release(); False if it is closed already."""
        with self._lock:
            if self.retired and not self._users:
                return False
            self._users += 1
            return True

    def release(self) -> None:
        """The opposite of hold(): a store that is gone is closed once nobody holds it."""
        with self._lock:
            self._users -= 1
            is_last = self.retired and not self._users
        if is_last:
            self._close()

    def retire(self) -> None:
        """The store is gone, or is another one now; it is closed as soon as nobody holds it."""
        with self._lock:
            is_last = not self.retired and not self._users
            self.retired = True
        if is_last:
            self._close()

    def _close(self) -> None:
        if self.is_own and self.deployment is not None:
            self.deployment.close()
        loop = self._loop
        if self._awaited is not None and loop is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop was closed just now
                asyncio.run_coroutine_threadsafe(self.close_async(), loop)


def signature(given: object, options: ConnectOptions) -> object:
    """What must differ for a store to be another one."""
    if isinstance(given, Deployment):
        return given.target, given.schema
    if isinstance(given, Target):
        return given, options.schema
    if isinstance(given, str):
        if given.startswith("embedded:"):
            return given, options.schema
        try:
            return locate(given)[0], options.schema
        except PysqlboxError:
            return given, options.schema
    raise InvalidArgument(f"source: must map to URLs or deployments, not to {type(given).__name__}")


def open_store(key: StoreKey, given: Given, options: ConnectOptions) -> Store:
    """A store; what is wrong with it must not cost the others, and so is kept in it."""
    mark = signature(given, options)
    if isinstance(given, Deployment):
        deployment, is_own = given, False
    else:
        try:
            deployment, is_own = (
                connect(
                    given,
                    schema=options.schema,
                    pool_size=options.pool_size,
                    pool_timeout=options.pool_timeout,
                    connect_timeout=options.connect_timeout,
                    retries=options.retries,
                    serializer=options.serializer,
                ),
                True,
            )
        except PysqlboxError as error:
            return Store(key, mark, None, error.concerns(key))
    deployment.store_key = key
    deployment.store = str(key)
    return Store(key, mark, deployment, is_own=is_own, pool_size=options.pool_size)
