"""Which store has which place: asked once of each, for a place is for good."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakKeyDictionary

from pysqlbox.deployment import Deployment
from pysqlbox.errors import DatabaseUnavailable, InvalidState, NotFound, PysqlboxError
from pysqlbox.stores.store import Store
from pysqlbox.wording import counted

__all__ = ["Places"]

AT_ONCE = 8
_UNNUMBERED = -1


class Places:
    """Remembers the places of stores."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Deployment, int] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def find(self, place: int, stores: Sequence[Store]) -> Deployment:
        """The deployment of a place; those that are not known yet are asked.

        Place 0 is also that of a deployment without a number, if there is only one such.
        """
        found = self._among(place, stores)
        if found is not None:
            return found
        unreachable = self._ask([store for store in stores if not self._is_known(store)])
        found = self._among(place, stores)
        if found is not None:
            return found
        if unreachable:
            store, error = unreachable[0]
            raise DatabaseUnavailable(
                f"place {place}: none of the stores that answer has it; {len(unreachable)} did not, among"
                f" them {store.name!r}, try again when they do: {error}"
            ) from error
        raise NotFound(
            f"place {place}: none of {counted(len(stores), 'store')} has it; look whether one was removed"
        )

    def _is_known(self, store: Store) -> bool:
        with self._lock:
            return store.deployment is not None and store.deployment in self._known

    def _among(self, place: int, stores: Sequence[Store]) -> Deployment | None:
        with self._lock:
            known = [
                (self._known.get(store.deployment), store) for store in stores if store.deployment is not None
            ]
        wanted = [store for number, store in known if number == place]
        if not wanted and place == 0:
            wanted = [store for number, store in known if number == _UNNUMBERED]
            if len(known) < len(stores) or any(number is None for number, _ in known):
                return None  # one of those that were not asked yet may have the number
        if len(wanted) > 1:
            names = ", ".join(repr(store.name) for store in wanted[:5])
            raise InvalidState(
                f"place {place}: {len(wanted)} stores have it ({names}); leave one of them in the source"
            )
        return wanted[0].deployment if wanted else None

    def _ask(self, stores: Sequence[Store]) -> list[tuple[Store, PysqlboxError]]:
        """Ask these for their places; those that cannot be asked."""

        def ask(store: Store) -> tuple[Store, PysqlboxError] | None:
            try:
                deployment = store.opened()
                place = deployment.schema_place()
            except PysqlboxError as error:
                return store, error
            with self._lock:
                self._known[deployment] = _UNNUMBERED if place is None else place
            return None

        if not stores:
            return []
        with ThreadPoolExecutor(min(AT_ONCE, len(stores)), "pysqlbox-places") as pool:
            return [failed for failed in pool.map(ask, stores) if failed is not None]
