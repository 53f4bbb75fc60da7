"""A worker of many stores in their registers: it says who it is in each, and leaves each that it reaches."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pysqlbox
from pysqlbox import Stores
from pysqlbox.stores import run
from pysqlbox.stores.care import StoreCare
from pysqlbox.stores.served import LeaningStore
from pysqlbox.stores.worker import StoresWorker
from pysqlbox.worker import worker_run
from tests.stores.support import fill
from tests.support.database import Database
from tests.support.engines import Engine
from tests.support.patience import of as patience_of
from tests.worker import support
from tests.worker.support import nothing, until

Make = Callable[..., StoresWorker]


@pytest.fixture(autouse=True)
def patience(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow engine, or a busy machine, takes its time, also to let a worker go."""
    monkeypatch.setattr(support, "PATIENCE", 6 * patience_of(engine.dialect))
    monkeypatch.setattr(run, "SIGN_OFF_SECONDS", 60.0)
    monkeypatch.setattr(worker_run, "END_AT_MOST", 60.0)


@pytest.fixture
def make() -> Iterator[Make]:
    """A maker of workers with a name and a handler, which are stopped at the end."""
    made: list[StoresWorker] = []

    def worker(stores: Stores, **options: Any) -> StoresWorker:
        found = stores.worker(threads=2, poll_seconds=0.2, cleanup_seconds=None, name="courier", **options)
        found.add_handler("t", nothing)
        made.append(found)
        return found

    yield worker
    for each in made:
        each.stop(1.0)


def _seen(stores: Stores) -> dict[Any, list[str | None]]:
    return {key: [each.name for each in stores.get(key).outbox.workers()] for key in stores}


EVERYWHERE = {key: ["courier"] for key in "abc"}
NOWHERE: dict[str, list[str]] = {key: [] for key in "abc"}


def test_it_says_who_it_is_in_each_store_and_leaves_each(stores: Stores, make: Make) -> None:
    worker = make(stores)
    worker.start()
    until(lambda: _seen(stores) == EVERYWHERE)
    assert worker.stop(60)
    until(lambda: _seen(stores) == NOWHERE)


def test_it_leaves_at_the_end_of_an_async_with_too(stores: Stores, make: Make) -> None:
    async def live() -> None:
        async with make(stores):
            await asyncio.to_thread(until, lambda: _seen(stores) == EVERYWHERE)

    asyncio.run(live())
    until(lambda: _seen(stores) == NOWHERE)


def test_it_leaves_a_store_that_is_not_served_any_more(tenants: dict[str, Database], make: Make) -> None:
    found = {key: tenants[key].url for key in "ab"}
    with Stores(lambda: dict(found)) as stores, pysqlbox.connect(tenants["b"].url) as b:
        make(stores).start()
        until(lambda: len(b.outbox.workers()) == 1)
        del found["b"]
        stores.refresh()
        until(lambda: b.outbox.workers() == [])
        until(lambda: [each.name for each in stores.get("a").outbox.workers()] == ["courier"])


def test_a_store_whose_last_message_takes_long_is_left_as_well(
    tenants: dict[str, Database], make: Make
) -> None:
    """It is left when it is clear that it is going; what is held there shows by its lease."""
    found = {key: tenants[key].url for key in "ab"}
    began, go_on = threading.Event(), threading.Event()
    with Stores(lambda: dict(found)) as stores, pysqlbox.connect(tenants["b"].url) as b:
        worker = make(stores)

        @worker.handler("long")
        def long(message: Any, context: Any) -> None:
            del message, context
            began.set()
            go_on.wait(600)

        (identity,) = fill(b, 1, "long")
        worker.start()
        assert began.wait(600)
        until(lambda: [each.name for each in b.outbox.workers()] == ["courier"])
        del found["b"]
        stores.refresh()
        until(lambda: [each.name for each in b.outbox.workers()] == [None])
        go_on.set()
        until(lambda: b.outbox.get(identity).status == "Done")


def test_a_store_that_is_away_keeps_no_other_from_being_left(
    stores: Stores, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its register forgets the worker by itself."""
    worker = make(stores)
    worker.start()
    until(lambda: _seen(stores) == EVERYWHERE)
    real = LeaningStore.helper_connection

    def away(self: LeaningStore, *arguments: Any) -> Any:
        if self.key == "b":
            raise pysqlbox.DatabaseUnavailable("b is away")
        return real(self, *arguments)

    monkeypatch.setattr(LeaningStore, "helper_connection", away)
    assert worker.stop(60)
    until(lambda: _seen(stores) == {"a": [], "b": ["courier"], "c": []})


def test_what_failed_is_said_again_soon_in_a_store_without_work(
    stores: Stores, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report that was refused once must not wait as long as one that was made."""
    real, failed = StoreCare.step, set()

    def step(self: StoreCare, connection: Any) -> None:
        if self.store.key not in failed:
            failed.add(self.store.key)
            connection = Failing()
        real(self, connection)

    class Failing:
        def call(self, routine: str, arguments: object) -> None:
            del routine, arguments
            raise pysqlbox.DatabaseUnavailable("it took too long")

    monkeypatch.setattr(StoreCare, "step", step)
    make(stores, report_seconds=5).start()
    until(lambda: _seen(stores) == EVERYWHERE)
    assert failed == {"a", "b", "c"}
