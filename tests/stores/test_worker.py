"""One worker for many stores, on every engine."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import pysqlbox
from pysqlbox import Stores
from pysqlbox.stores.worker import StoresWorker
from tests.stores.support import Connections, Seen, fill
from tests.support.database import Database
from tests.support.engines import Engine
from tests.support.patience import of as patience_of
from tests.worker import support
from tests.worker.support import put, threads, until

Make = Callable[..., StoresWorker]


@pytest.fixture(autouse=True)
def patience(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Babelfish takes its time."""
    monkeypatch.setattr(support, "PATIENCE", patience_of(engine.dialect))


@pytest.fixture
def make() -> Iterator[Make]:
    """A maker of workers, which are stopped at the end."""
    made: list[StoresWorker] = []

    def worker(stores: Stores, **options: Any) -> StoresWorker:
        settings: dict[str, Any] = {"threads": 4, "poll_seconds": 0.2, "cleanup_seconds": None}
        found = stores.worker(**{**settings, **options})
        made.append(found)
        return found

    yield worker
    for each in made:
        each.stop(1.0)


def test_obx_061_obx_065_ibx_086_ibx_090_a_worker_serves_all_stores_and_names_them(
    stores: Stores, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make(stores, boxes=("outbox", "inbox", "orders", "mail"))
    seen = Seen()
    worker.add_handler("t", seen)
    made = {key: fill(stores.get(key), 30) for key in stores}
    for key in stores:
        for box in ("inbox", "orders", "mail"):
            made[key].append(put(stores.get(key).box(box)))
    with caplog.at_level(logging.INFO, "pysqlbox.worker"):
        worker.start()
        until(lambda: len(seen) == 99)
        worker.stop()
    assert {key: sorted(ids) for key, ids in seen.ids.items()} == {
        key: sorted(ids) for key, ids in made.items()
    }
    assert worker.stats().acked == 99
    assert all(each.get(key).outbox.stats()[-1].ready == 0 for key in stores for each in (stores,))
    lines = [record.getMessage() for record in caplog.records if " message " in record.getMessage()]
    assert len(lines) == 99
    assert {line.rpartition("[")[2] for line in lines} == {"a]", "b]", "c]"}


def test_a_stop_from_elsewhere_while_it_starts_leaves_nothing(
    stores: Stores, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while start() calls the hooks, and has ended before start() goes on."""
    pairs: list[socket.socket] = []
    made = socket.socketpair

    def noted() -> tuple[socket.socket, socket.socket]:
        pair = made()
        pairs.extend(pair)
        return pair

    monkeypatch.setattr(socket, "socketpair", noted)
    worker = make(stores)

    @worker.on_start
    def start() -> None:
        stopper = threading.Thread(target=worker.stop)
        stopper.start()
        stopper.join(30)

    worker.start()
    assert not worker.is_running
    assert threads() == []
    assert [each.fileno() for each in pairs] == [-1] * len(pairs)
    assert [entry._users for entry in stores.known()] == [0, 0, 0]  # nobody keeps them open


def test_hooks_are_not_called_for_a_worker_that_was_stopped_before_them(tenants: dict[str, Database]) -> None:
    """The stop comes while the source of the stores is asked."""

    def source() -> dict[str, str]:
        stopper = threading.Thread(target=worker.stop)
        stopper.start()
        stopper.join(30)
        return {"a": tenants["a"].url}

    told: list[str] = []
    with Stores(source) as stores:
        worker = stores.worker(threads=1)
        worker.on_start(lambda: told.append("start"))
        worker.on_stop(lambda: told.append("stop"))
        worker.start()
        assert not worker.is_running
        assert [entry._users for entry in stores.known()] == [0]
    assert told == []
    assert threads() == []


def test_a_message_that_comes_later_is_handled_soon(stores: Stores, make: Make) -> None:
    worker = make(stores, sweep_seconds=30)
    seen = Seen()
    worker.add_handler("t", seen)
    worker.start()
    for number in range(1, 10):
        fill(stores.get("abc"[number % 3]), 1)
        until(lambda number=number: len(seen) == number, 5)  # type: ignore[misc]


def test_drain_ends_when_all_stores_are_empty(stores: Stores, make: Make) -> None:
    worker = make(stores)
    seen = Seen()
    worker.add_handler("t", seen)
    for key in stores:
        fill(stores.get(key), 50, group_id="g")
    assert worker.drain(60) == 150
    assert all(ids == sorted(ids) for ids in seen.ids.values())
    assert not worker.is_running


def test_drain_passes_over_a_store_that_is_down(engine: Engine, tenants: dict[str, Database]) -> None:
    source = {"a": tenants["a"].url, "gone": engine.database_url("pysqlbox_test_no_such_database")}
    with Stores(source) as stores:
        worker = stores.worker(threads=2)
        worker.add_handler("t", Seen())
        fill(stores.get("a"), 20)
        assert worker.drain(60) == 20


def test_transactional_handlers_commit_in_their_own_store(stores: Stores, make: Make) -> None:
    worker = make(stores, boxes=("outbox", "mail"))
    seen = Seen()
    worker.add_handler("done", seen)

    @worker.handler("t", transactional=True)
    def handle(message: Any, context: Any) -> None:
        box = stores.get(context.store).box("mail", kind="outbox")
        box.enqueue("done", "p", connection=context.connection)
        if message.attempt == 0 and message.payload == "3":
            raise ValueError("the first time it fails, and takes back what it sent")

    for key in stores:
        fill(stores.get(key), 6)
        stores.get(key).outbox.configure("backoff_base_seconds", 1)
    worker.start()
    until(lambda: len(seen) == 18, 20)
    worker.stop()
    assert {key: len(ids) for key, ids in seen.ids.items()} == {"a": 6, "b": 6, "c": 6}


def test_coroutine_handlers_and_hooks(stores: Stores, make: Make) -> None:
    worker = make(stores)
    seen = Seen()
    told: list[str] = []

    @worker.handler("t")
    async def handle(message: Any, context: Any) -> None:
        await asyncio.sleep(0)
        seen(message, context)

    @worker.on_start
    async def start() -> None:
        told.append("start")

    @worker.on_stop
    def stop() -> None:
        told.append("stop")

    @worker.middleware
    async def around(_message: Any, context: Any, call_next: Any) -> Any:
        told.append(context.store)
        return await call_next()

    async def main() -> None:
        async with worker:
            while len(seen) < 9:
                await asyncio.sleep(0.01)

    for key in stores:
        fill(stores.get(key), 3)
    asyncio.run(asyncio.wait_for(main(), 60))
    assert told[0] == "start"
    assert told[-1] == "stop"
    assert sorted(told[1:-1]) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3


def test_joins_are_resolved_in_their_own_store(stores: Stores, make: Make) -> None:
    worker = make(stores)
    seen = Seen()
    worker.add_handler("t", seen)
    worker.add_handler("after", seen)
    db = stores.get("b")
    join = db.joins.start("tenant", 2)
    for _ in range(2):
        db.joins.attach(join, db.outbox.enqueue("t", "p").message_id)
    db.joins.wait(join, on_complete_topic="after", on_complete_payload="p")
    worker.start()
    until(lambda: len(seen) == 3, 20)
    assert set(seen.ids) == {"b"}


def test_delayed_messages_and_leases_that_end_are_seen_to(stores: Stores, make: Make) -> None:
    """Without a sign, and long before the sweep."""
    worker = make(stores, sweep_seconds=60, poll_seconds=20)
    seen = Seen()
    worker.add_handler("t", seen)
    fill(stores.get("a"), 1)
    stores.get("a").outbox.claim(support.OWNER, lease_seconds=3)
    fill(stores.get("b"), 1, delay_seconds=3)
    worker.start()
    until(lambda: len(seen) == 2, 20)
    assert set(seen.ids) == {"a", "b"}


def test_schedules_of_every_store_are_fired(stores: Stores, make: Make) -> None:
    worker = make(stores, schedule_seconds=0.5)
    seen = Seen()
    worker.add_handler("t", seen)
    for key in stores:
        stores.get(key).schedules.set("often", "t", "p", every=timedelta(seconds=1))
    worker.start()
    until(lambda: all(len(seen.ids[key]) >= 2 for key in "abc"), 20)


def test_a_store_that_comes_is_served_and_one_that_goes_is_drained(
    tenants: dict[str, Database], make: Make
) -> None:
    found = {key: tenants[key].url for key in "ab"}
    began, go_on = threading.Event(), threading.Event()
    with Stores(lambda: dict(found)) as stores:
        worker = make(stores)
        seen = Seen()
        worker.add_handler("t", seen)

        @worker.handler("long")
        def long(message: Any, context: Any) -> None:
            began.set()
            go_on.wait(30)
            seen(message, context)

        (identity,) = fill(stores.get("b"), 1, "long")
        worker.start()
        assert began.wait(20)
        with pysqlbox.connect(tenants["b"].url) as b, pysqlbox.connect(tenants["c"].url) as c:
            del found["b"]
            found["c"] = tenants["c"].url
            fill(c, 2)
            changes = stores.refresh()
            assert (changes.added, changes.removed) == (["c"], ["b"])
            until(lambda: len(seen.ids["c"]) == 2)
            fill(b, 3)  # which nobody takes any more
            go_on.set()
            until(lambda: b.outbox.get(identity).status == "Done")
            found["b"] = tenants["b"].url
            stores.refresh()
            until(lambda: len(seen.ids["b"]) == 4)


def test_a_store_is_served_within_the_refresh_interval(tenants: dict[str, Database], make: Make) -> None:
    found = {"a": tenants["a"].url}
    with Stores(lambda: dict(found), refresh_seconds=0.3) as stores:
        worker = make(stores)
        seen = Seen()
        worker.add_handler("t", seen)
        worker.start()
        found["b"] = tenants["b"].url
        with pysqlbox.connect(tenants["b"].url) as b:
            fill(b, 2)
        until(lambda: len(seen.ids["b"]) == 2)


def test_a_source_that_fails_at_the_start_is_waited_for(
    tenants: dict[str, Database], make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    broken = threading.Event()
    broken.set()

    def discover() -> dict[str, str]:
        if broken.is_set():
            raise OSError("the table is away")
        return {"a": tenants["a"].url}

    with Stores(discover) as stores:
        worker = make(stores)
        seen = Seen()
        worker.add_handler("t", seen)
        with pysqlbox.connect(tenants["a"].url) as a:
            fill(a, 2)
        worker.start()
        assert "the table is away" in caplog.text
        broken.clear()
        until(lambda: len(seen) == 2)


def test_a_dead_store_costs_the_others_nothing_and_comes_back_by_itself(
    engine: Engine, tenants: dict[str, Database], make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    name = engine.create_database()
    engine.drop_database(name)
    source = {key: db.url for key, db in tenants.items()} | {"late": engine.database_url(name)}
    with Stores(source) as stores, caplog.at_level(logging.INFO, "pysqlbox.worker"):
        worker = make(stores)
        seen = Seen()
        worker.add_handler("t", seen)
        worker.start()
        for key in tenants:
            fill(stores.get(key), 10)
        until(lambda: len(seen) == 30)
        until(lambda: "left alone" in caplog.text)
        engine.execute(f"CREATE DATABASE {name}")
        try:
            (report,) = stores.migrate(["late"])
            assert report.ok
            fill(stores.get("late"), 5)
            until(lambda: len(seen.ids["late"]) == 5, 30)
            lines = [r.getMessage() for r in caplog.records if "[late]" in r.getMessage()]
            assert sum("left alone" in line for line in lines) == 1
            assert any("answers again" in line for line in lines)
            worker.stop()
        finally:
            stores.close()
            engine.drop_database(name)


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize("connections", [1, 3])
def test_a_worker_has_no_more_connections_to_a_server_than_it_may(
    stores: Stores, make: Make, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in stores:
        fill(stores.get(key), 50)
    opened = Connections(monkeypatch)
    worker = make(stores, connections=connections, boxes=("outbox", "inbox"))
    seen = Seen()
    worker.add_handler("t", seen)
    worker.start()
    until(lambda: len(seen) == 150, 60)
    assert opened.most <= connections
    assert len(threads()) <= 2 * 4 + 4
    worker.stop()
    assert opened.open == 0


@pytest.mark.dialect("postgres")
def test_schemas_of_one_database_share_connections(
    tenants: dict[str, Database], make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    schemas = [f"tenant_{number}" for number in range(4)]
    url = tenants["a"].url
    with Stores({name: pysqlbox.connect(url, schema=name, pool_size=1) for name in schemas}) as stores:
        try:
            assert all(report.ok for report in stores.migrate(parallel=1))
            for name in schemas:
                fill(stores.get(name), 20)
            opened = Connections(monkeypatch)
            worker = make(stores, connections=3)
            seen = Seen()
            worker.add_handler("t", seen)
            worker.start()
            until(lambda: len(seen) == 80, 20)
            assert opened.most <= 3
            assert {name: len(seen.ids[name]) for name in schemas} == dict.fromkeys(schemas, 20)
            fill(stores.get("tenant_3"), 1)
            until(lambda: len(seen) == 81)
            worker.stop()
        finally:
            for name in schemas:
                stores.get(name).close()
                tenants["a"].sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def test_a_store_with_very_many_messages_does_not_keep_another_one_waiting(
    stores: Stores, make: Make
) -> None:
    worker = make(stores, batch_size=20)
    seen = Seen()

    @worker.handler("t")
    def handle(message: Any, context: Any) -> None:
        time.sleep(0.01)  # so that a thousand take longer than any delay of a busy machine
        seen(message, context)

    fill(stores.get("a"), 3000)
    worker.start()
    until(lambda: len(seen) > 200)
    fill(stores.get("b"), 1)
    at = len(seen)
    until(lambda: bool(seen.ids["b"]))
    assert seen.order.index("b") - at < 1000
    assert len(seen.ids["a"]) < 3000


def test_a_strategy_of_ones_own(stores: Stores, make: Make) -> None:
    """One that fails costs nothing but its opinion."""

    class Favourite:
        def choose(self, waiting: Any, going: Any) -> str | None:  # noqa: ARG002  # it does not look
            if len(waiting) > 1:
                raise LookupError("cannot decide")
            return str(waiting[0])

        def answered(self, key: str, claimed: int) -> None:  # noqa: ARG002  # it does not count
            told.add(key)

    told: set[str] = set()
    worker = make(stores, strategy=Favourite())
    seen = Seen()
    worker.add_handler("t", seen)
    for key in stores:
        fill(stores.get(key), 20)
    worker.start()
    until(lambda: len(seen) == 60)
    until(lambda: told == {"a", "b", "c"})


def test_one_database_under_two_keys_is_served_once(
    tenants: dict[str, Database], make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with Stores({"a": tenants["a"].url, "again": tenants["a"].url}) as stores:
        worker = make(stores)
        seen = Seen()
        worker.add_handler("t", seen)
        fill(stores.get("again"), 5)
        worker.start()
        until(lambda: len(seen) == 5)
        assert set(seen.ids) == {"a"}
        assert "'again' is 'a' under another key" in caplog.text


def test_nothing_is_left_of_a_worker_that_has_ended(stores: Stores, make: Make) -> None:
    worker = make(stores)
    worker.add_handler("t", Seen())
    worker.start()
    with pytest.raises(pysqlbox.InvalidState, match="runs already"):
        worker.start()
    fill(stores.get("a"), 5)
    until(lambda: worker.stats().acked == 5)
    assert worker.stop()
    until(lambda: not threads(), 5, "its threads end")
    assert not worker.is_running
    worker.start()
    fill(stores.get("b"), 5)
    until(lambda: worker.stats().acked == 10)
