"""Signs of work where nothing is notified: what statistics say, of a server and of a database's tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import pysqlbox
from pysqlbox import Stores
from pysqlbox.stores import survey, watcher
from pysqlbox.stores.served import AFTERWARDS, StoreBox
from pysqlbox.stores.worker import StoresWorker
from tests.stores.support import Seen, fill
from tests.support.database import Database
from tests.worker.support import until

pytestmark = pytest.mark.dialect("postgres")
#: So long that nothing is found by asking once more.
NEVER_SOON = 100


@pytest.fixture
def silent(tenants: dict[str, Database]) -> Iterator[Stores]:
    """Three schemas of one database, whose outboxes do not notify."""
    names = [f"tenant_{number}" for number in range(3)]
    url = tenants["a"].url
    with Stores({name: pysqlbox.connect(url, schema=name, pool_size=1) for name in names}) as stores:
        try:
            assert all(report.ok for report in stores.migrate(parallel=1))
            for name in names:
                stores.get(name).outbox.configure("notify", "off")
            yield stores
        finally:
            for name in names:
                stores.get(name).close()
                tenants["a"].sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def boxes(worker: StoresWorker) -> list[StoreBox]:
    """What it serves."""
    run: Any = worker._run
    return [box for store in run._served.values() for box in store.boxes]


def serve(worker: StoresWorker) -> Seen:
    """Starts it, and waits until nobody expects anything."""
    seen = Seen()
    worker.add_handler("t", seen)
    worker.start()
    until(lambda: len(boxes(worker)) == 3, 60)
    until(lambda: all(box.empties > len(AFTERWARDS) for box in boxes(worker)), 60)
    return seen


def test_a_store_that_does_not_notify_is_served_by_its_servers_statistics(silent: Stores) -> None:
    worker = silent.worker(threads=2, poll_seconds=NEVER_SOON, sweep_seconds=NEVER_SOON, cleanup_seconds=None)
    try:
        seen = serve(worker)
        fill(silent.get("tenant_1"), 1)
        until(lambda: len(seen.ids["tenant_1"]) == 1, 30)
    finally:
        worker.stop(5)


def test_without_statistics_a_store_is_polled(silent: Stores) -> None:
    """A budget of two has no room for the connection that looks at them."""
    worker = silent.worker(threads=2, poll_seconds=0.2, sweep_seconds=NEVER_SOON, connections=2)
    try:
        seen = serve(worker)
        time.sleep(3)  # polling less and less often would have come to a pause of six seconds by then
        for number in range(1, 5):
            fill(silent.get("tenant_2"), 1)
            began = time.monotonic()
            until(lambda number=number: len(seen) == number, 30)  # type: ignore[misc]  # bound at once
        assert time.monotonic() - began < 4
    finally:
        worker.stop(5)


def test_a_database_with_many_boxes_is_asked_one_question(
    silent: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "FEW_BOXES", 0)
    monkeypatch.setattr(survey, "MANY_BOXES", 2)
    worker = silent.worker(threads=2, poll_seconds=NEVER_SOON, sweep_seconds=0.5, cleanup_seconds=None)
    try:
        seen = serve(worker)
        place = boxes(worker)[0].store.place
        until(lambda: place.is_surveyed, 30)
        until(lambda: all(box.next_poll > time.monotonic() + 5 for box in boxes(worker)), 30)
        fill(silent.get("tenant_2"), 1)
        until(lambda: len(seen.ids["tenant_2"]) == 1, 30)
        asked = {box.store.key: box.empties for box in boxes(worker)}
        time.sleep(2)
        others = {box.store.key: box.empties for box in boxes(worker) if box.store.key != "tenant_2"}
        assert others.items() <= asked.items(), "nobody asks those of which there is no sign"
        silent.get("tenant_0").outbox.pause("t")
        fill(silent.get("tenant_0"), 1)
        time.sleep(2)
        silent.get("tenant_0").outbox.resume("t")
        until(lambda: len(seen.ids["tenant_0"]) == 1, 30)
    finally:
        worker.stop(5)


def test_boxes_are_asked_one_by_one_again_when_the_question_fails(
    silent: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "MANY_BOXES", 2)
    worker = silent.worker(threads=2, poll_seconds=NEVER_SOON, sweep_seconds=0.5, cleanup_seconds=None)
    try:
        serve(worker)
        place = boxes(worker)[0].store.place
        until(lambda: place.is_surveyed, 30)
        before = {box: box.wakes for box in boxes(worker)}
        monkeypatch.setattr("pysqlbox.worker.database_postgres.WRITTEN", "SELECT no_such_column")
        until(lambda: not place.is_surveyed, 30)
        until(lambda: all(box.wakes > before[box] for box in boxes(worker)), 30)
    finally:
        worker.stop(5)
