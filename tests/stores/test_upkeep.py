"""Upkeep and Manager."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

import pysqlbox
from pysqlbox import InvalidArgument, InvalidState, Manager, Stores, Upkeep
from tests.stores.support import Seen, fill
from tests.support.database import Database
from tests.worker.support import OWNER, threads, until


def _finish(db: pysqlbox.Deployment, done: int, dead: int) -> None:
    fill(db, done + dead)
    ids = [message.id for message in db.outbox.claim(OWNER, batch_size=1000)]
    db.outbox.ack(OWNER, ids[:done])
    db.outbox.fail(OWNER, ids[done:], "no")


def test_one_round_goes_on_until_nothing_is_left(stores: Stores, tenants: dict[str, Database]) -> None:
    for key in tenants:
        _finish(stores.get(key), 25, 3)
        stores.get(key).ledger.mark_processed("key")
        fill(stores.get(key), 12)
        stores.get(key).outbox.claim(OWNER, lease_seconds=10)
        tenants[key].advance(7200)
    upkeep = Upkeep(stores, retention=3600, dead_retention=3600, ledger_retention=3600, batch_size=10)
    reports = upkeep.run_once()
    assert [(each.key, each.ok, each.error) for each in reports] == [(key, True, None) for key in "abc"]
    for each in reports:
        assert each.counts["outbox leases"] == 12
        assert each.counts["outbox done"] == 25
        assert each.counts["outbox dead"] == 3
        assert each.counts["ledger"] == 1
        assert each.counts["orders done"] == 0
    assert all(sum(each.counts.values()) == 0 for each in upkeep.run_once())


def test_some_boxes_of_some_stores_and_what_is_kept(stores: Stores, tenants: dict[str, Database]) -> None:
    for key in tenants:
        _finish(stores.get(key), 5, 1)
        tenants[key].advance(7200)
    kept = Upkeep(stores, retention=None, ledger_retention=None).run_once(["outbox"], keys=["a"])
    assert [(each.key, each.counts) for each in kept] == [("a", {"outbox leases": 0, "outbox done": 0})]
    (report,) = Upkeep(stores, retention=timedelta(hours=1)).run_once(["outbox"], keys=["b"])
    assert report.counts == {"outbox leases": 0, "outbox done": 5}
    assert stores.get("b").outbox.stats()[-1].dead == 1  # for ever, unless somebody says otherwise


def test_old_entries_of_the_audit_log_and_silent_workers_go(
    stores: Stores, tenants: dict[str, Database]
) -> None:
    db = stores.get("a")
    for number in range(12):
        db.audit.write("anna", "replay", affected=number)
        db.register.report(uuid4(), ["outbox"], None, "w", "h", 1, "0", 1)
    tenants["a"].advance(2 * 86_400)
    db.audit.write("anna", "pause")
    kept = Upkeep(stores, audit_retention=None, batch_size=10).run_once(keys=["a"])[0]
    assert "audit" not in kept.counts
    assert kept.counts["workers"] == 12
    (report,) = Upkeep(stores, audit_retention=86_400, batch_size=10).run_once(keys=["a"])
    assert report.counts["audit"] == 12
    assert [each.action for each in db.audit.list()] == ["pause"]
    assert Upkeep(stores).run_once(["outbox"], keys=["a"])[0].counts.keys() == {
        "outbox leases",
        "outbox done",
    }


def test_a_store_that_fails_costs_the_others_nothing(stores: Stores, tenants: dict[str, Database]) -> None:
    source = {key: db.url for key, db in tenants.items()} | {"bad": "nonsense"}
    with Stores(source) as more:
        reports = Upkeep(more).run_once()
        assert [(each.key, each.ok) for each in reports] == [
            ("a", True),
            ("b", True),
            ("c", True),
            ("bad", False),
        ]
    with pytest.raises(pysqlbox.NotFound, match=r"'nothing'.*\[a\]"):
        Upkeep(stores.get("a")).run_once(["nothing"])


def test_upkeep_of_one_deployment_goes_on_by_itself(stores: Stores, tenants: dict[str, Database]) -> None:
    db = stores.get("a")
    with Upkeep(db, every=0.1, retention=3600) as upkeep:
        assert upkeep.is_running
        with pytest.raises(InvalidState, match="runs already"):
            upkeep.start()
        _finish(db, 5, 0)
        tenants["a"].advance(7200)
        until(lambda: db.outbox.stats()[-1].done == 0)
    assert not upkeep.is_running


def test_upkeep_survives_a_failing_source() -> None:
    asked: list[int] = []

    def discover() -> dict[str, str]:
        asked.append(1)
        raise OSError("away")

    upkeep = Upkeep(Stores(discover), restart_delay=0.05)
    upkeep.start()
    until(lambda: len(asked) > 2)
    assert upkeep.stop(10)


@pytest.mark.parametrize(
    "wrong",
    [{"every": 0}, {"retention": -1}, {"dead_retention": "7d"}, {"batch_size": 0}, {"restart_delay": 0}],
)
def test_wrong_options_of_upkeep_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        Upkeep(Stores({}), **wrong)


def test_a_manager_starts_and_stops_all(stores: Stores) -> None:
    told: list[str] = []
    one, all_stores = stores.get("a").worker(boxes=("mail",), threads=2), stores.worker(threads=2)
    seen = Seen()
    all_stores.add_handler("t", seen)
    manager = Manager([one, all_stores], Upkeep(stores, every=60))
    manager.on_start(lambda: told.append("start"))

    @manager.on_stop
    async def stop() -> None:
        told.append("stop")

    with manager:
        assert [each.is_running for each in (one, all_stores, manager)] == [True] * 3
        with pytest.raises(InvalidState, match="runs already"):
            manager.start()
        fill(stores.get("b"), 5)
        until(lambda: len(seen) == 5)
    assert told == ["start", "stop"]
    assert [each.is_running for each in (one, all_stores, manager)] == [False] * 3
    assert manager.stop()
    until(lambda: not threads())


def test_a_manager_is_a_lifespan(stores: Stores) -> None:
    loops: list[object] = []
    worker = stores.worker(threads=2)

    @worker.handler("t")
    async def handle(_message: Any) -> None:
        loops.append(asyncio.get_running_loop())

    manager = Manager(worker)
    told: list[str] = []

    @manager.on_start
    async def start() -> None:
        told.append("start")

    manager.on_stop(lambda: told.append("stop"))
    fill(stores.get("c"), 3)

    async def main() -> None:
        async with manager.lifespan(object()):
            while len(loops) < 3:
                await asyncio.sleep(0.01)
            assert set(loops) == {asyncio.get_running_loop()}

    asyncio.run(asyncio.wait_for(main(), 60))
    assert told == ["start", "stop"]
    assert not worker.is_running


def test_what_cannot_start_starts_nothing(stores: Stores) -> None:
    told: list[str] = []
    worker = stores.worker(threads=1)
    manager = Manager(worker)
    manager.on_stop(lambda: told.append("stop"))

    @manager.on_start
    def start() -> None:
        raise ValueError("not today")

    with pytest.raises(ValueError, match="not today"):
        manager.start()
    assert (manager.is_running, worker.is_running, told) == (False, False, ["stop"])
    with pytest.raises(InvalidArgument, match="workers"):
        Manager([object()])  # type: ignore[list-item]


def _start(manager: Manager, awaited: bool) -> None:
    async def main() -> None:
        async with manager:
            pass

    if awaited:
        asyncio.run(main())
    else:
        manager.start()


@pytest.mark.parametrize("awaited", [False, True])
def test_a_manager_that_is_stopped_while_it_starts_begins_nothing_more(stores: Stores, awaited: bool) -> None:
    first, second = stores.get("a").worker(threads=1), stores.get("b").worker(threads=1)
    manager = Manager([first, second])
    told: list[str] = []
    second.on_start(lambda: told.append("second"))

    @first.on_start
    def stop() -> None:
        stopper = threading.Thread(target=manager.stop)
        stopper.start()
        until(lambda: not manager.is_running)

    _start(manager, awaited)
    until(lambda: not threads())
    assert told == []
    assert [each.is_running for each in (first, second, manager)] == [False] * 3


@pytest.mark.parametrize("awaited", [False, True])
def test_a_stop_that_comes_just_before_a_part_starts_ends_it(stores: Stores, awaited: bool) -> None:
    """The manager has seen that it still runs; the stop finds nothing to end; then the worker starts."""
    worker = stores.get("a").worker(threads=1)
    manager = Manager([worker])
    begin = worker._begin

    def late(**options: Any) -> Any:
        stopper = threading.Thread(target=manager.stop)
        stopper.start()
        stopper.join(30)
        return begin(**options)

    worker._begin = late  # type: ignore[method-assign]  # between the look and the start is no other place
    _start(manager, awaited)
    until(lambda: not threads())
    assert [each.is_running for each in (worker, manager)] == [False] * 2


def test_a_manager_runs_until_it_is_stopped(stores: Stores) -> None:
    worker = stores.worker(threads=1)
    manager = Manager([worker], stop_timeout=timedelta(seconds=5))
    thread = threading.Thread(target=manager.run)
    thread.start()
    until(lambda: worker.is_running)
    assert manager.stop()
    thread.join(20)
    assert not thread.is_alive()
