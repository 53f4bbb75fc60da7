"""Doing one thing to every store, a few at a time, with a report for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from pysqlbox.errors import InvalidArgument, PysqlboxError
from pysqlbox.names import StoreKey
from pysqlbox.stores.store import Store

__all__ = ["AT_ONCE", "report"]

#: How many stores are worked on at once, unless the caller says otherwise.
AT_ONCE = 4

Report = TypeVar("Report")
Made = TypeVar("Made", covariant=True)


class _Failed(Protocol[Made]):
    """Makes the report of a store that could not be worked on."""

    def __call__(self, key: StoreKey, ok: bool, error: str | None) -> Made: ...


def report(
    stores: Sequence[Store], parallel: int, step: Callable[[Store], Report], failed: _Failed[Report]
) -> list[Report]:
    """What the step answers for each store; an error of ours is the report of that store alone."""
    if isinstance(parallel, bool) or not isinstance(parallel, int) or parallel < 1:
        raise InvalidArgument("parallel: must be at least 1")

    def one(store: Store) -> Report:
        if not store.hold():
            return failed(store.key, False, "the store was removed meanwhile")
        try:
            return step(store)
        except PysqlboxError as error:
            return failed(store.key, False, str(error.concerns(store.key)))
        finally:
            store.release()

    if not stores:
        return []
    with ThreadPoolExecutor(min(parallel, len(stores)), "pysqlbox-stores") as pool:
        return list(pool.map(one, stores))
