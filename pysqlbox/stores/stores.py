"""Several deployments under keys: given once, or found again and again."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from pysqlbox.arguments import Delay, text_list
from pysqlbox.deployment import Deployment
from pysqlbox.errors import InvalidArgument, InvalidState, NotFound
from pysqlbox.names import StoreKey
from pysqlbox.places import place_of
from pysqlbox.retry import Retries
from pysqlbox.serializer import Serializer
from pysqlbox.stores.discovery import Found, Source, discover, discover_async
from pysqlbox.stores.each import AT_ONCE, report
from pysqlbox.stores.keys import key_text
from pysqlbox.stores.places import Places
from pysqlbox.stores.reports import Refreshed, StoreDoctor, StoreMigration, StoreStats, StoreUpkeep
from pysqlbox.stores.store import ConnectOptions, Store, open_store, signature
from pysqlbox.worker.handlers import seconds

if TYPE_CHECKING:
    from pysqlbox.async_deployment import AsyncDeployment
    from pysqlbox.drivers import Target
    from pysqlbox.stores.citus import Address
    from pysqlbox.stores.strategies import Strategy
    from pysqlbox.stores.worker import StoresWorker

__all__ = ["Stores"]

_log = logging.getLogger("pysqlbox.stores")


class Stores:
    """The stores of a source, each with the deployment that it keeps while its configuration is the same.

    Safe to share between threads. Nothing is asked before the first use.
    """

    def __init__(
        self,
        source: Source,
        *,
        refresh_seconds: Delay = 300,
        schema: str = "infra",
        pool_size: int = 4,
        pool_timeout: float = 30.0,
        connect_timeout: int = 10,
        retries: Retries | None = None,
        serializer: Serializer | None = None,
    ) -> None:
        """``source``: a mapping of keys to URLs or deployments, or a callable, also async, that answers one.

        It is asked again every ``refresh_seconds``, and when somebody calls refresh(). The other options are
        those of ``connect`` for stores that are given by URL; deployments are taken as they are.
        """
        every = seconds("refresh_seconds", refresh_seconds)
        if every is None:
            raise InvalidArgument("refresh_seconds: must be above 0")
        if not callable(source) and not isinstance(source, Mapping):
            raise InvalidArgument(
                f"source: must be a mapping or a callable that answers one, not {type(source).__name__}"
            )
        self.refresh_seconds = every
        self._source = source
        self._options = ConnectOptions(schema, pool_size, pool_timeout, connect_timeout, retries, serializer)
        self._stores: dict[str, Store] = {}
        self._places = Places()
        self._asking = threading.Lock()
        self._taking = threading.Lock()
        self._background: threading.Thread | None = None
        self._asked_at: float | None = None
        self._closed = False
        #: A number that grows with every mapping that was taken in.
        self.version = 0

    @classmethod
    def citus(
        cls, url: str | Target | None = None, *, address: Address | None = None, **options: Any
    ) -> Stores:
        """The nodes of a Citus cluster, each under the id of its group, found through any one of them.

        ``address`` answers the host and port under which a node is reached from here, given those that Citus
        lists. The other options are those of ``Stores``.
        """
        from pysqlbox.stores.citus import CitusStores

        return CitusStores(url, address=address, **options)

    # Finding

    def get(self, key: StoreKey) -> Deployment:
        """The deployment of a key; NotFound if there is none of that key."""
        text = key_text(key)
        if not self._known():
            self._ask_first()
        found = self._stores.get(text)
        if self._is_stale():
            if found is None:
                self._refresh_if_stale()
                found = self._stores.get(text)
            else:
                self._refresh_in_background()
        if found is None:
            raise self._missing(key)
        return found.opened()

    async def get_async(self, key: StoreKey) -> AsyncDeployment:
        """The same for asynchronous callers; a source that must be asked is asked on the running loop."""
        text = key_text(key)
        if not self._known():
            await self.refresh_async()
        elif self._is_stale():
            await self._refresh_quietly_async()
        found = self._stores.get(text)
        if found is None:
            raise self._missing(key)
        return found.opened_async()

    def of(self, value: int | UUID) -> Deployment:
        """The deployment whose place an id or a drawn message_id carries; NotFound if no store has it."""
        return self._places.find(place_of(value), self.current())

    def keys(self) -> list[StoreKey]:
        """Every key, in the order of the source."""
        return [store.key for store in self.current()]

    def current(self, keys: Iterable[StoreKey] | None = None) -> list[Store]:
        """The stores as they are known now, or those of some keys; the source is asked if it is time to."""
        self._check_open()
        if not self._known():
            self._ask_first()
        elif self._is_stale():
            self._refresh_if_stale()
        if keys is None:
            return list(self._stores.values())
        if isinstance(keys, str | UUID | int):
            raise InvalidArgument("keys: must be a list of keys")
        found = []
        for key in keys:
            store = self._stores.get(key_text(key))
            if store is None:
                raise self._missing(key)
            found.append(store)
        return found

    # Refreshing

    def refresh(self) -> Refreshed:
        """Ask the source now; if that fails, all stays as it is and the source's error is raised."""
        self._check_open()
        with self._asking:
            return self._take(discover(self._source))

    async def refresh_async(self) -> Refreshed:
        """The same on the running loop."""
        self._check_open()
        found = await discover_async(self._source)
        return await asyncio.to_thread(self._take, found)

    def refresh_soon(self) -> None:
        """Ask the source if it is time to, in a thread of its own; one that fails is only logged."""
        if not self._closed and self._is_stale():
            self._refresh_in_background()

    def known(self) -> list[Store]:
        """The stores as they were known last, without asking anybody."""
        return list(self._stores.values())

    def _take(self, found: Found) -> Refreshed:
        """Make the stores what was found, keeping those that are the same."""
        with self._taking:
            before, after = self._stores, dict[str, Store]()
            changes = Refreshed()
            retired: list[Store] = []
            for text, (key, given) in found.items():
                old = before.get(text)
                mark = signature(given, self._options)
                if old is not None and old.deployment is not None and old.signature == mark:
                    after[text] = old
                    continue
                new = open_store(key, given, self._options)
                if new.error is not None:
                    changes.broken.append(key)
                    _log.error("cannot be used as it is given: %s [%s]", new.error, key)
                    if old is not None and old.deployment is not None:
                        new = old
                elif old is None:
                    changes.added.append(key)
                else:
                    changes.changed.append(key)
                if old is not None and new is not old:
                    retired.append(old)
                after[text] = new
            for text, old in before.items():
                if text not in after:
                    changes.removed.append(old.key)
                    retired.append(old)
            self._stores = after
            self.version += 1
            self._asked_at = time.monotonic()
        for old in retired:
            old.retire()
        for verb in ("added", "changed", "removed"):
            for key in getattr(changes, verb):
                _log.info("store %s [%s]", verb, key)
        return changes

    def _known(self) -> bool:
        self._check_open()
        return self._asked_at is not None

    def _is_stale(self) -> bool:
        return self._asked_at is not None and time.monotonic() - self._asked_at >= self.refresh_seconds

    def _ask_first(self) -> None:
        """Ask the source unless another thread just has."""
        with self._asking:
            if self._asked_at is None:
                self._take(discover(self._source))

    def _refresh_if_stale(self) -> None:
        """Ask the source, unless somebody else has meanwhile; what was known last stays if it fails."""
        with self._asking:
            if self._asked_at is not None and not self._is_stale():
                return
            try:
                self._take(discover(self._source))
            except Exception as error:  # noqa: BLE001  # the source is the caller's code
                self._failed(error)

    async def _refresh_quietly_async(self) -> None:
        self._asked_at = time.monotonic()  # whoever comes meanwhile goes on with what is known
        try:
            await self.refresh_async()
        except Exception as error:  # noqa: BLE001  # the source is the caller's code
            self._failed(error)

    def _refresh_in_background(self) -> None:
        """Nobody who finds the store waits for the source."""
        with self._taking:
            if self._background is not None and self._background.is_alive():
                return
            self._background = threading.Thread(
                target=self._refresh_if_stale, name="pysqlbox-refresh", daemon=True
            )
            self._background.start()

    def _failed(self, error: Exception) -> None:
        self._asked_at = time.monotonic()
        _log.error(
            "the source of the stores failed, %d stay as they are: %s",
            len(self._stores),
            error,
            exc_info=error,
        )

    def _missing(self, key: object) -> NotFound:
        return NotFound(
            f"store {str(key)!r}: there is none of that key among {len(self._stores)};"
            " call refresh() if the source has it by now"
        )

    # All of them

    def migrate(
        self,
        keys: Iterable[StoreKey] | None = None,
        parallel: int = AT_ONCE,
        *,
        places: Mapping[Any, int] | None = None,
        **options: Any,
    ) -> list[StoreMigration]:
        """Deploy each store, or bring it up to date: a report for each, in the order of the keys.

        One that fails costs the others nothing. ``places`` numbers stores by key; the other options are those
        of ``Deployment.migrate``.
        """
        numbers = {key_text(key): place for key, place in (places or {}).items()}

        def migrate(store: Store) -> StoreMigration:
            plan = store.opened().migrate(place=numbers.get(store.name), **options)
            changes = plan.lines(done=not options.get("dry_run", False))
            return StoreMigration(store.key, True, changes=changes)

        return report(self.current(keys), parallel, migrate, StoreMigration)

    def stats(
        self,
        keys: Iterable[StoreKey] | None = None,
        parallel: int = AT_ONCE,
        *,
        boxes: Iterable[str] | None = None,
    ) -> list[StoreStats]:
        """The counts of each store's boxes: all of them, or those of these names."""
        names = text_list("boxes", boxes)

        def stats(store: Store) -> StoreStats:
            db = store.opened()
            wanted = db.boxes() if names is None else names
            return StoreStats(store.key, True, stats={name: db.box(name).stats() for name in wanted})

        return report(self.current(keys), parallel, stats, StoreStats)

    def doctor(self, keys: Iterable[StoreKey] | None = None, parallel: int = AT_ONCE) -> list[StoreDoctor]:
        """What a DBA should know about each store."""

        def doctor(store: Store) -> StoreDoctor:
            findings = store.opened().doctor()
            return StoreDoctor(store.key, not any(each.is_bad for each in findings), findings=findings)

        return report(self.current(keys), parallel, doctor, StoreDoctor)

    def upkeep(
        self,
        keys: Iterable[StoreKey] | None = None,
        parallel: int = AT_ONCE,
        *,
        boxes: Iterable[str] | None = None,
        **options: Any,
    ) -> list[StoreUpkeep]:
        """Reap and clean each store until nothing is left; options as of ``pysqlbox.Upkeep``."""
        from pysqlbox.upkeep import Upkeep

        return Upkeep(self, parallel=parallel, **options).run_once(boxes, keys=keys)

    def worker(
        self,
        *,
        strategy: Strategy | None = None,
        connections: int = 20,
        sweep_seconds: Delay = 10.0,
        **options: Any,
    ) -> StoresWorker:
        """One worker that serves boxes of every store, those that come later too.

        ``strategy``: RoundRobin() unless given. ``connections``: to each server, however many databases it
        has. ``sweep_seconds``: how long a store without a sign of work may go unasked. The other options are
        those of ``Deployment.worker``.
        """
        from pysqlbox.stores.worker import StoresWorker

        return StoresWorker(
            self, strategy=strategy, connections=connections, sweep_seconds=sweep_seconds, **options
        )

    # The end

    def close(self) -> None:
        """Close the deployments that were made here, each as soon as no worker holds it."""
        with self._taking:
            self._closed = True
            stores, self._stores = self._stores, {}
        for store in stores.values():
            store.retire()

    async def close_async(self) -> None:
        """The same, and what tasks of the running loop have used."""
        stores = list(self._stores.values())
        for store in stores:
            await store.close_async()
        await asyncio.to_thread(self.close)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidState("the stores are closed: open others with Stores(…)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close_async()

    def __iter__(self) -> Iterator[StoreKey]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.current())

    def __contains__(self, key: Any) -> bool:
        try:
            text = key_text(key)
        except InvalidArgument:
            return False
        return any(store.name == text for store in self.current())

    def __repr__(self) -> str:
        return f"Stores({len(self._stores)} known)"
